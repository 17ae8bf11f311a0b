"""Which way a network is run: rewritten, vmapped or in a loop; why, and with the same numbers."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from panacea.engines.batching import Unsupported, trace_batched
from panacea.engines.forward import LoopForward, build_forward, prepare_for_loop

from .build import quietly, seeded
from .networks import EmbeddingNet, mlp
from .passes import COUNTS, Passes, check_all_modes, mask_of, named, target_of

# --- what cannot be traced goes to vmap -------------------------------------------------------------------------


class ByShape(nn.Module):
    """Python control flow on a shape."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x) if x.shape[-1] == 5 else x

    inputs = (5,)


class OwnParameter(nn.Module):
    """Parameters used directly, one of them a scalar."""

    def __init__(self) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(2.0))
        self.matrix = nn.Parameter(torch.rand(5, 3))
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x @ self.matrix) * self.temperature

    inputs = (5,)


class ModeDependent(nn.Module):
    """Another pass in training than in evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(5, 3), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x) + self.b(x) if self.training else 2 * self.a(x)

    inputs = (5,)


class Transposed(nn.Module):
    """A layer without a batched form."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.act, self.fc = nn.ConvTranspose1d(2, 3, 2), nn.PReLU(3), nn.Linear(18, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.act(self.up(x)).flatten(1))

    inputs = (2, 5)


class Doubled(nn.Linear):
    """A subclass of a known layer with another forward pass."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)

    inputs = (5,)


class OfAConstant(ByShape):
    """A layer applied to a constant: its output differs from client to client but has no samples."""

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x) * self.fc(torch.ones(1, 5, dtype=self.fc.weight.dtype))


class ByKeyword(nn.Module):
    """A second input with a default, and a layer called by keyword."""

    inputs = (5,)

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(5, 3)

    def forward(self, x: Tensor, scale: float = 2.0) -> Tensor:
        return self.fc(input=x) * scale


def hooked() -> nn.Module:
    """A known layer whose output a hook changes: only a comparison can find out."""
    module = mlp(nn.ReLU())
    module[0].register_forward_hook(lambda layer, args, out: out * 3)
    module.inputs = (5,)
    return module


@pytest.mark.parametrize(
    "build",
    [ByShape, OwnParameter, ModeDependent, Transposed, ByKeyword, OfAConstant, lambda: Doubled(5, 3), hooked],
    ids=["shape", "parameter", "mode", "transposed", "keyword", "constant", "subclass", "hook"],
)
def test_what_cannot_be_rewritten_is_vmapped(build: Any):
    module = seeded(build)
    target = target_of(module, module.inputs)
    forward = quietly(build_forward, target)
    assert forward.kind == "vmap"
    check_all_modes(target, forward)
    with pytest.raises(Unsupported, match="cannot run as 'batched'"):
        build_forward(target, "batched")


def test_an_embedding_whose_gradient_vmap_loses_is_not_vmapped():
    target = target_of(seeded(lambda: EmbeddingNet(padding_idx=5)), (4,))
    with pytest.raises(Unsupported, match="embedding 'table'"):
        build_forward(target, "vmap")


# --- what can do neither runs client by client, with one warning ------------------------------------------------


class ByValue(nn.Module):
    """Control flow on the data."""

    inputs = (5,)

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x) if x.sum() > 0 else -self.fc(x)


class FunctionalDropout(nn.Module):
    inputs = (5,)

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(5, 9), nn.Linear(9, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(F.dropout(torch.relu(self.a(x)), 0.5, self.training))


class AlphaDropout(nn.Sequential):
    """A layer of torch's that draws from the global generator and has no form with a stream."""

    inputs = (5,)

    def __init__(self) -> None:
        super().__init__(nn.Linear(5, 9), nn.AlphaDropout(0.4), nn.Linear(9, 3))


class Centred(nn.Module):
    """Samples of a batch see each other, so padding would be seen as well."""

    inputs = (5,)

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x - x.mean(dim=0) if self.training else x)


class NormOverTime(nn.Module):
    """BatchNorm over samples and time steps in one axis: a mask of samples does not fit it."""

    inputs = (4, 3)

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.fc = nn.BatchNorm1d(3), nn.Linear(12, 2)

    def forward(self, x: Tensor) -> Tensor:
        flat = self.norm(x.reshape(-1, 3))
        return self.fc(flat.reshape(-1, 12))


class DropoutOverTime(nn.Module):
    """Dropout with time as the first axis: its noise is numbered in another order than by sample."""

    inputs = (4, 3)

    def __init__(self) -> None:
        super().__init__()
        self.drop, self.fc = nn.Dropout(0.5), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.drop(x.transpose(0, 1))[-1])


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (ByValue, "vmap: "),
        (FunctionalDropout, "'dropout' draws random numbers itself; use nn.Dropout"),
        (AlphaDropout, "layer '1' (AlphaDropout) draws random numbers itself"),
        (Centred, "differ from the plain loop in training with padding"),
        (NormOverTime, "vmap: "),
        (DropoutOverTime, "differ from the plain loop in training with padding"),
    ],
)
def test_what_can_do_neither_runs_in_a_loop_with_one_warning(build: Any, reason: str):
    target = target_of(seeded(build), build.inputs)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        forward = build_forward(target)
    assert forward.kind == "loop"
    assert len(caught) == 1
    said = str(caught[0].message)
    assert said.startswith(f"{build.__name__} cannot be vectorised and runs client by client (")
    assert reason in said
    assert ("vmap: " in said) is ("draws random numbers" not in reason)  # then vmap is not even tried
    for kind in ("batched", "vmap"):
        with pytest.raises(Unsupported, match=f"cannot run as '{kind}'"):
            build_forward(target, kind)


@pytest.mark.parametrize("build", [FunctionalDropout, AlphaDropout, Centred, NormOverTime, DropoutOverTime, ByValue])
def test_the_loop_shows_a_module_samples_only(build: Any):
    """A padded row gives what the row gives alone and unpadded, also where randomness or means run over the batch."""
    target = target_of(seeded(build), build.inputs)
    forward, passes = build_forward(target, "loop"), Passes(target)
    out, statistics, _ = passes(forward, mask=mask_of(COUNTS))
    for row, count in enumerate(COUNTS):
        alone, new = target.forward(
            passes.params[row], passes.statistics[row], passes.x[row, :count], training=True, key=passes.keys[row]
        )
        torch.testing.assert_close(out[row, :count], alone.detach(), rtol=1e-13, atol=1e-13)
        torch.testing.assert_close(statistics[row], new, rtol=1e-13, atol=1e-13)


def test_functional_dropout_is_reproducible_and_leaves_the_global_generator_alone():
    target = target_of(seeded(FunctionalDropout), (5,))
    forward, passes = build_forward(target, "loop"), Passes(target)
    before = torch.get_rng_state()
    first = passes(forward)[0]
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(5)
    assert torch.equal(passes(forward)[0], first)
    passes.keys = passes.keys + 1
    assert not torch.equal(passes(forward)[0], first)
    assert torch.equal(passes(forward, training=False)[0], passes(forward, training=False)[0])


class HiddenNoise(nn.Module):
    """Noise no reader of the code can see, behind a layer without a batched form or in a traced constant."""

    inputs = (5,)

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.fc, self.act = kind, nn.Linear(5, 3), nn.PReLU()
        self.gru = nn.GRU(1, 3, 2, batch_first=True, dropout=0.5)

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "behind":
            return F.dropout(self.act(self.fc(x)), 0.5, self.training)
        if self.kind == "gru":
            return self.gru(x.unsqueeze(-1))[0][:, -1]
        return self.fc(x) + torch.randn(1, dtype=torch.float64) if self.training else self.fc(x)


class TwoOutputs(ByShape):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.fc(x), x


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (ByKeyword, "forward takes 2 inputs, one is expected"),
        (TwoOutputs, "forward returns more than one tensor"),
        (Transposed, "layer 'up' (ConvTranspose1d) has no batched form"),
        (OwnParameter, "parameter 'matrix' is used outside a known layer"),
    ],
)
def test_a_rewrite_says_what_it_cannot_do(build: Any, reason: str):
    target = target_of(seeded(ByShape), (5,))
    target.module = seeded(build)
    with pytest.raises(Unsupported) as caught:
        trace_batched(target)
    assert str(caught.value) == reason
    assert not caught.value.random


@pytest.mark.parametrize("kind", ["behind", "gru", "constant"])
def test_the_reference_engine_finds_hidden_randomness(kind: str):
    target = target_of(seeded(lambda: HiddenNoise(kind)), (5,))
    before = torch.get_rng_state()
    prepare_for_loop(target)
    assert torch.equal(torch.get_rng_state(), before)
    passes = Passes(target)
    first = passes(LoopForward(target))[0]
    torch.rand(3)
    assert torch.equal(passes(LoopForward(target))[0], first)
    other = target_of(seeded(lambda: HiddenNoise(kind)), (5,))
    before = torch.get_rng_state()
    with pytest.warns(UserWarning, match="HiddenNoise cannot be vectorised"):
        forward = build_forward(other)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(passes(forward)[0], first)


@pytest.mark.parametrize("name", ["mlp", "gru", "batch norm", "dropout"])
def test_networks_without_hidden_randomness_are_not_reseeded(name: str):
    target = named(name)
    prepare_for_loop(target)
    assert not target.reseed
    assert target.draws_noise == (name == "dropout")
