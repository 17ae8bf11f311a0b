"""GRUs with a set of weights per row are torch's, row by row."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from panacea.engines.gru import PlainGru, PlainGruCell, gates_of, gru, gru_cell, is_plain_gru
from tests.gpu.standing_in import stand_in

from .test_layers import ROWS, SIZE, close, copies, draw, weights


@pytest.mark.parametrize("bias", [True, False])
def test_gru_cell_for_one_and_for_many(bias: bool):
    modules = copies(lambda: nn.GRUCell(4, 3, bias=bias))
    x, h = draw(ROWS, SIZE, 4), draw(ROWS, SIZE, 3)
    own = weights(modules, "weight_ih", "weight_hh", "bias_ih", "bias_hh")
    found = gru_cell(x, h, gates_of(*own))
    for row, module in enumerate(modules):
        close(found[row], module(x[row], h[row]).detach())
        alone = gates_of(*(None if w is None else w[row] for w in own))
        close(gru_cell(x[row], h[row], alone), found[row])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("given", [True, False], ids=["state", "zeros"])
@pytest.mark.parametrize("depth", [1, 2])
def test_gru(depth: int, given: bool, bias: bool):
    modules = copies(lambda: nn.GRU(4, 3, depth, bias=bias, batch_first=True))
    x, h = draw(ROWS, SIZE, 6, 4), draw(depth, ROWS, SIZE, 3) if given else None
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    own = [weights(modules, *(f"{name}_l{d}" for name in names)) for d in range(depth)]
    outputs, last = gru(x, h, [gates_of(*layer) for layer in own])
    assert outputs.shape == (ROWS, SIZE, 6, 3)
    assert last.shape == (depth, ROWS, SIZE, 3)
    for row, module in enumerate(modules):
        expected, state = module(x[row], None if h is None else h[:, row].contiguous())
        close(outputs[row], expected.detach())
        close(last[:, row], state.detach())


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("depth", [1, 2])
def test_plain_gru_is_torchs_with_the_same_names(depth: int, batch_first: bool):
    original = nn.GRU(4, 3, depth, batch_first=batch_first).double()
    plain = PlainGru(original)
    assert list(plain.state_dict()) == list(original.state_dict())
    x, h = draw(5, 6, 4), draw(depth, 5 if batch_first else 6, 3)
    for found, expected in zip(plain(x, h), original(x, h), strict=True):
        close(found.detach(), expected.detach())
    close(plain(x)[0].detach(), original(x)[0].detach())
    assert (plain.hidden_size, plain.input_size, plain.num_layers) == (3, 4, depth)


@pytest.mark.parametrize("bias", [True, False])
def test_plain_gru_cell_is_torchs_with_the_same_names(bias: bool):
    original = nn.GRUCell(4, 3, bias=bias).double()
    plain = PlainGruCell(original)
    assert list(plain.state_dict()) == list(original.state_dict())
    x, h = draw(5, 4), draw(5, 3)
    close(plain(x, h).detach(), original(x, h).detach())
    close(plain(x).detach(), original(x).detach())


@pytest.mark.parametrize("scale", [1.0, 0.01])
def test_a_step_in_bf16_is_as_exact_as_bf16(scale: float):
    """Also for small weights, whose tanh is about its argument; the state is bf16 as well then."""
    module = nn.GRUCell(4, 3).double()
    for parameter in module.parameters():
        parameter.data *= scale
    x, h = draw(5, 4), torch.zeros(5, 3, dtype=torch.float64)
    expected = module(x, h).detach()
    own = [parameter.detach().float() for parameter in module.parameters()]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for lead in ((), (1,)):
            gates = gates_of(*(w.expand(*lead, *w.shape) for w in own))
            found = gru_cell(x.float().expand(*lead, 5, 4), h.float().expand(*lead, 5, 3), gates)
            assert found.dtype == torch.bfloat16
            error = (found.double() - expected).abs().max() / expected.abs().max()
            assert float(error) < 0.02


def test_only_rows_on_a_gpu_are_for_its_kernel():
    with stand_in():
        w_ih, w_hh = torch.ones(2, 9, 4).to("cuda"), torch.ones(2, 9, 3).to("cuda")
        assert gates_of(w_ih, w_hh, None, None).by_kernel
        assert not gates_of(w_ih[0], w_hh[0], None, None).by_kernel
    assert not gates_of(torch.ones(2, 9, 4), torch.ones(2, 9, 3), None, None).by_kernel


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (nn.GRU(2, 3), True),
        (nn.GRU(2, 3, 2), True),
        (nn.GRU(2, 3, 2, dropout=0.5), False),
        (nn.GRU(2, 3, bidirectional=True), False),
        (nn.LSTM(2, 3), False),
        (nn.GRUCell(2, 3), False),
    ],
)
def test_which_grus_are_plain(module: nn.Module, expected: bool):
    assert is_plain_gru(module) is expected
