"""Many clients' passes in one call equal one client after the other: outputs, gradients, statistics."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from panacea.data.task import Task
from panacea.engines.batching import Unsupported
from panacea.engines.forward import Forward, LoopForward, build_forward, prepare_for_loop
from panacea.errors import RequestError
from panacea.models.target import TargetModel

from .build import quietly, seeded
from .networks import NETWORKS, EmbeddingNet, GruNet, mlp

ROWS, SIZE = 4, 5
COUNTS = (5, 2, 1, 4)
TOLERANCE = 1e-10
Result = tuple[Tensor, Tensor, Tensor]


def target_of(module: nn.Module, inputs: tuple[int, ...], dtype: torch.dtype = torch.float64) -> TargetModel:
    with torch.no_grad():
        outputs = copy.deepcopy(module).eval()(torch.zeros(2, *inputs)).shape[1:]
    return TargetModel(module, Task("regression", inputs, tuple(outputs)), dtype)


def named(name: str) -> TargetModel:
    build, inputs = NETWORKS[name]
    return target_of(seeded(build), inputs)


class Passes:
    """Random parameters, statistics and inputs of some rows, and what a way of running them makes of it."""

    def __init__(self, target: TargetModel, seed: int = 0) -> None:
        self.target = target
        self.generator = torch.Generator().manual_seed(seed)
        self.params = target.initial + 0.2 * self.draw(ROWS, target.layout.size)
        self.statistics = target.statistics + 0.5 * self.draw(ROWS, len(target.statistics)).abs()
        self.x = torch.rand(ROWS, SIZE, *target.task.inputs, generator=self.generator, dtype=target.initial.dtype)
        self.slope = self.draw(ROWS, SIZE, *target.task.outputs)
        self.keys = torch.randint(2**62, (ROWS,), generator=self.generator)

    def draw(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, dtype=self.target.initial.dtype)

    def __call__(self, forward: Forward, *, mask: Tensor | None = None, training: bool = True, **how: Any) -> Result:
        parts = [part.clone().requires_grad_(True) for part in self.target.layout.parts(self.params)]
        key = self.keys if training else None
        out, new = forward(parts, self.statistics, self.x.clone(), training=training, key=key, mask=mask, **how)
        assert out.shape == (ROWS, SIZE, *self.target.task.outputs)
        assert new.shape == self.statistics.shape
        valid = torch.ones(ROWS, SIZE, dtype=torch.bool) if mask is None else mask.bool()
        out = torch.where(valid.reshape(ROWS, SIZE, *[1] * len(self.target.task.outputs)), out, 0.0)
        pieces = torch.autograd.grad((out * self.slope).sum() + out.square().sum(), parts, materialize_grads=True)
        assert not new.requires_grad
        return out.detach(), new, self.target.layout.join(pieces)


def mask_of(counts: tuple[int, ...], dtype: torch.dtype = torch.float64) -> Tensor:
    return (torch.arange(SIZE) < torch.tensor(counts)[:, None]).to(dtype)


def assert_same(found: Result, expected: Result, tolerance: float = TOLERANCE) -> None:
    for what, a, b in zip(("outputs", "statistics", "gradients"), found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, msg=lambda m, what=what: f"{what}: {m}")


def check_all_modes(target: TargetModel, forward: Forward) -> None:
    passes, loop = Passes(target), LoopForward(target)
    assert_same(passes(forward), passes(loop))
    assert_same(passes(forward, training=False), passes(loop, training=False))
    mask = mask_of(COUNTS)
    padded = passes(loop, mask=mask)
    assert_same(passes(forward, mask=mask), padded)
    if target.statistics_layout.names:
        assert_same(passes(forward, frozen=True), passes(loop, frozen=True))
        assert_same(passes(forward, frozen=True, mask=mask), passes(loop, frozen=True, mask=mask))
    assert_same(passes(forward), passes(loop))  # nothing is left over from the other modes


@pytest.mark.parametrize("name", NETWORKS)
def test_batched_layers_equal_the_loop(name: str):
    target = named(name)
    forward = quietly(build_forward, target, "batched")
    assert forward.kind == "batched"
    check_all_modes(target, forward)


NOT_BY_VMAP = {"embedding with padding 0", "embedding with padding 5"}


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("name", [name for name in NETWORKS if name not in NOT_BY_VMAP])
def test_vmap_equals_the_loop(name: str):
    target = named(name)
    forward = quietly(build_forward, target, "vmap")
    assert forward.kind == "vmap"
    check_all_modes(target, forward)


@pytest.mark.parametrize("name", [name for name in NETWORKS if "dropout" not in name])
def test_the_loop_equals_the_users_own_module(name: str):
    """The truth all else is measured by: torch's own layers, unpadded, writing their statistics in place."""
    build, inputs = NETWORKS[name]
    target = target_of(seeded(build), inputs)
    passes, loop = Passes(target), LoopForward(target)
    for training in (True, False):
        out, statistics, gradient = passes(loop, training=training)
        for row in range(ROWS):
            module = seeded(build).double()
            values = target.layout.unflatten(passes.params[row])
            values |= target.statistics_layout.unflatten(passes.statistics[row]) if len(target.statistics) else {}
            missing = module.load_state_dict(values, strict=False)
            assert not missing.unexpected_keys
            module.train(training)
            found = module(passes.x[row].clone())
            torch.testing.assert_close(found.detach(), out[row], rtol=TOLERANCE, atol=TOLERANCE)
            ((found * passes.slope[row]).sum() + found.square().sum()).backward()
            own = dict(module.named_parameters())
            grads = {n: torch.zeros_like(own[n]) if own[n].grad is None else own[n].grad for n in target.layout.names}
            torch.testing.assert_close(target.layout.flatten(grads), gradient[row], rtol=TOLERANCE, atol=TOLERANCE)
            if len(target.statistics):
                after = target.statistics_layout.flatten(dict(module.named_buffers()))
                torch.testing.assert_close(after, statistics[row], rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("kind", ["batched", "vmap", "loop"])
@pytest.mark.parametrize("name", ["dropout", "dropout of features", "dropout and batch norm", "batch norm on images"])
def test_a_row_does_not_see_the_others_nor_its_padding(name: str, kind: str):
    target = named(name)
    forward, passes = build_forward(target, kind), Passes(target)
    before = passes(forward, mask=mask_of(COUNTS))
    passes.x[1, 2:] = 1e3  # padding of row 1
    passes.x[3] += 1.0  # another client's samples
    passes.params[3] *= 2.0
    after = passes(forward, mask=mask_of(COUNTS))
    for a, b in zip(before, after, strict=True):
        torch.testing.assert_close(a[:3], b[:3], rtol=TOLERANCE, atol=TOLERANCE)
        assert not torch.allclose(a[3], b[3]) or a.numel() == 0


@pytest.mark.parametrize("kind", ["batched", "vmap", "loop"])
def test_dropout_follows_the_key(kind: str):
    target = named("dropout")
    forward, passes = build_forward(target, kind), Passes(target)
    first = passes(forward)[0]
    assert torch.equal(passes(forward)[0], first)
    passes.keys = passes.keys.clone()
    passes.keys[2] += 1
    second = passes(forward)[0]
    assert torch.equal(first[[0, 1, 3]], second[[0, 1, 3]])
    assert not torch.equal(first[2], second[2])


@pytest.mark.parametrize("rows", [1, 2, 7])
@pytest.mark.parametrize("size", [1, 6])
@pytest.mark.parametrize("name", ["mlp", "cnn", "gru of two layers", "gru time first", "residual", "view", "reshape"])
def test_any_number_of_rows_and_samples(name: str, rows: int, size: int):
    """A rewrite is checked on three rows of four samples and must hold for all others."""
    target = named(name)
    batched, loop = build_forward(target, "batched"), LoopForward(target)
    generator = torch.Generator().manual_seed(rows)
    params = target.initial + 0.1 * torch.randn(rows, target.layout.size, generator=generator, dtype=torch.float64)
    statistics = target.statistics.expand(rows, -1) + 0.1
    x = torch.rand(rows, size, *target.task.inputs, generator=generator, dtype=torch.float64)
    parts = target.layout.parts(params)
    for training in (True, False):
        found, new = batched(parts, statistics, x, training=training)
        expected, expected_new = loop(parts, statistics, x, training=training)
        torch.testing.assert_close(found, expected, rtol=TOLERANCE, atol=TOLERANCE)
        torch.testing.assert_close(new, expected_new, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("name", ["mlp", "cnn", "gru", "dropout and batch norm", "layer norm", "embedding"])
def test_single_precision_passes_the_same_checks(name: str):
    build, inputs = NETWORKS[name]
    target = target_of(seeded(build), inputs, torch.float32)
    forward = quietly(build_forward, target)
    assert forward.kind == "batched"
    passes = Passes(target)
    assert_same(passes(forward), passes(LoopForward(target)), 1e-4)


def test_models_in_evaluation_mode_are_trained_all_the_same():
    """Modes are the engine's business: a submodule left in evaluation mode changes nothing."""
    module = seeded(NETWORKS["batch norm"][0])
    module[1].eval()
    target = target_of(module, (5,))
    forward = quietly(build_forward, target, "batched")
    assert_same(Passes(target)(forward), Passes(named("batch norm"))(LoopForward(named("batch norm"))))


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


def hooked() -> nn.Module:
    """A known layer whose output a hook changes: only a comparison can find out."""
    module = mlp(nn.ReLU())
    module[0].register_forward_hook(lambda layer, args, out: out * 3)
    module.inputs = (5,)
    return module


@pytest.mark.parametrize(
    "build",
    [ByShape, OwnParameter, ModeDependent, Transposed, lambda: Doubled(5, 3), hooked],
    ids=["shape", "parameter", "mode", "transposed", "subclass", "hook"],
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
    for kind in ("batched", "vmap"):
        with pytest.raises(Unsupported, match=f"cannot run as '{kind}'"):
            build_forward(target, kind)


@pytest.mark.parametrize("build", [FunctionalDropout, Centred, NormOverTime, DropoutOverTime, ByValue])
def test_the_loop_shows_a_module_samples_only(build: Any):
    """A padded row gives what the row gives alone and unpadded, also where randomness or means run over the batch."""
    target = target_of(seeded(build), build.inputs)
    forward, passes = build_forward(target, "loop"), Passes(target)
    out, statistics, _ = passes(forward, mask=mask_of(COUNTS))
    for row, count in enumerate(COUNTS):
        alone, new = target.forward(
            passes.params[row], passes.statistics[row], passes.x[row, :count], training=True, key=passes.keys[row]
        )
        assert torch.equal(out[row, :count], alone.detach())
        assert torch.equal(statistics[row], new)


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
        return self.fc(x) + torch.randn(1, dtype=x.dtype) if self.training else self.fc(x)


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
    with pytest.warns(UserWarning, match="HiddenNoise cannot be vectorised"):
        forward = build_forward(other)
    assert torch.equal(passes(forward)[0], first)


@pytest.mark.parametrize("name", ["mlp", "gru", "batch norm", "dropout"])
def test_networks_without_hidden_randomness_are_not_reseeded(name: str):
    target = named(name)
    prepare_for_loop(target)
    assert not target.reseed
    assert target.draws_noise == (name == "dropout")


class Sequence(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        if kind == "lstm":
            self.core: nn.Module = nn.LSTM(3, 4, 2, batch_first=True)
        elif kind == "bidirectional gru":
            self.core = nn.GRU(3, 2, bidirectional=True, batch_first=True)
        else:
            self.core = nn.TransformerEncoderLayer(3, 1, 8, dropout=0.0, batch_first=True)
        self.fc = nn.Linear(3 if kind == "transformer" else 4, 2)

    def forward(self, x: Tensor) -> Tensor:
        out = self.core(x)
        return self.fc((out if self.kind == "transformer" else out[0])[:, -1])


@pytest.mark.parametrize("kind", ["lstm", "bidirectional gru", "transformer"])
@pytest.mark.filterwarnings("ignore:.*cannot be vectorised.*", "ignore:There is a performance drop")
def test_other_sequence_layers_work_somehow(kind: str):
    target = target_of(seeded(lambda: Sequence(kind)), (4, 3))
    check_all_modes(target, build_forward(target))
    passes = Passes(target)
    plain = seeded(lambda: Sequence(kind)).double()
    plain.load_state_dict(target.layout.unflatten(passes.params[1]))
    out = passes(build_forward(target))[0]
    torch.testing.assert_close(out[1], plain(passes.x[1]).detach(), rtol=1e-10, atol=1e-10)


def test_a_single_layer_is_a_network_too():
    target = target_of(seeded(lambda: nn.Linear(5, 3)), (5,))
    check_all_modes(target, quietly(build_forward, target))


# --- the choice itself ------------------------------------------------------------------------------------------


def test_a_forced_loop_is_a_loop_without_a_warning():
    assert quietly(build_forward, named("mlp"), "loop").kind == "loop"


def test_an_unknown_way_is_refused():
    with pytest.raises(RequestError, match="unknown forward 'bached'; did you mean 'batched'"):
        build_forward(named("mlp"), "bached")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_wrong_gradient_is_found_however_small_the_outputs(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch):
    """The comparison with the loop is relative: a batched layer that loses a gradient is never trusted."""
    from panacea.engines import layers

    right = layers.linear_columns
    monkeypatch.setattr(layers, "linear_columns", lambda x, w, b: right(x.detach(), w, b))
    module = seeded(lambda: mlp(nn.Tanh()))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(1e-2)
    with pytest.raises(Unsupported, match="gradients differ"):
        build_forward(target_of(module, (5,), dtype), "batched")


def test_a_wrong_mask_is_found(monkeypatch: pytest.MonkeyPatch):
    from panacea.models import stateful

    right = stateful.normalise
    monkeypatch.setattr(stateful, "normalise", lambda x, mask, *rest: right(x, None, *rest))
    with pytest.raises(Unsupported, match="training with padding"):
        build_forward(named("batch norm"), "batched")


def test_gates_of_a_gru_are_torchs():
    """Each gate on its own: a swap of two would pass a test with symmetric weights."""
    target = target_of(seeded(GruNet), (4, 3))
    forward, loop = build_forward(target, "batched"), LoopForward(target)
    for gate in range(3):
        passes = Passes(target)
        values = target.layout.unflatten(passes.params.clone())
        values["gru.bias_ih_l0"][:, 5 * gate : 5 * (gate + 1)] += 3.0
        passes.params = target.layout.flatten(values)
        assert_same(passes(forward), passes(loop))
