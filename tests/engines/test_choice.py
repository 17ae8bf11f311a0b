"""The choice between the ways to run a network, and how it is checked before it is trusted."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from panacea.engines.batching import Unsupported
from panacea.engines.forward import build_forward
from panacea.errors import RequestError

from .build import quietly, seeded
from .networks import mlp
from .passes import Passes, check_all_modes, named, target_of


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
