"""Dropout and BatchNorm with streams and masks, against torch's own layers."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from panacea.core.random import Streams, uniform
from panacea.errors import RequestError
from panacea.models.stateful import MaskedBatchNorm, Pass, StreamDropout, dropout, normalise, replace_stateful

SHAPES: dict[str, tuple[Callable[..., nn.Module], tuple[int, ...]]] = {
    "vectors": (nn.BatchNorm1d, ()),
    "sequences": (nn.BatchNorm1d, (5,)),
    "images": (nn.BatchNorm2d, (3, 4)),
    "volumes": (nn.BatchNorm3d, (2, 3, 2)),
}
CHANNELS = 3


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def pair(name: str, **options: object) -> tuple[nn.Module, MaskedBatchNorm, Pass]:
    """torch's layer with random weights and statistics, and ours made of a copy of it."""
    theirs = SHAPES[name][0](CHANNELS, **options).double()
    with torch.no_grad():
        for place, parameter in enumerate(theirs.parameters()):
            parameter.copy_(draw(CHANNELS, seed=place))
        theirs.running_mean.copy_(draw(CHANNELS, seed=7))
        theirs.running_var.copy_(draw(CHANNELS, seed=8).square() + 0.5)
    state = Pass()
    return theirs, MaskedBatchNorm(copy.deepcopy(theirs), "norm", state), state


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


def gradients(module: nn.Module, x: Tensor, slope: Tensor) -> tuple[Tensor, ...]:
    leaf = x.clone().requires_grad_(True)
    out = module(leaf)
    return out.detach(), *torch.autograd.grad((out * slope).sum(), [leaf, *module.parameters()])


OPTIONS = [{}, {"affine": False}, {"eps": 0.1, "momentum": 0.7}, {"momentum": 1.0}]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", SHAPES)
def test_batch_norm_is_torchs(name: str, options: dict[str, object]):
    """Outputs, gradients of inputs and weights, and the statistics after several batches."""
    theirs, ours, state = pair(name, **options)
    assert list(ours.state_dict()) == [key for key in theirs.state_dict() if key != "num_batches_tracked"]
    for batch in range(3):
        x = draw(6 - batch, CHANNELS, *SHAPES[name][1], seed=batch)
        slope = draw(*x.shape, seed=50 + batch)
        state.begin(None, None, False)
        for found, expected in zip(gradients(ours, x, slope), gradients(theirs, x, slope), strict=True):
            close(found, expected)
        mean, var = state.statistics["norm"]
        close(mean, theirs.running_mean)
        close(var, theirs.running_var)
        assert not mean.requires_grad
        with torch.no_grad():  # what the target model does with the new statistics
            ours.running_mean, ours.running_var = mean, var
    theirs.eval()
    ours.eval()
    state.begin(None, None, False)
    for found, expected in zip(gradients(ours, x, slope), gradients(theirs, x, slope), strict=True):
        close(found, expected)
    assert state.statistics == {}


@pytest.mark.parametrize("name", SHAPES)
def test_the_layer_itself_never_changes(name: str):
    _, ours, state = pair(name)
    before = copy.deepcopy(ours.state_dict())
    state.begin(None, None, False)
    ours(draw(4, CHANNELS, *SHAPES[name][1]))
    assert all(torch.equal(ours.state_dict()[key], value) for key, value in before.items())


@pytest.mark.parametrize("count", [2, 4, 7])
@pytest.mark.parametrize("name", SHAPES)
def test_padding_is_as_if_it_were_not_there(name: str, count: int):
    _, ours, state = pair(name)
    x, slope = draw(7, CHANNELS, *SHAPES[name][1]), draw(7, CHANNELS, *SHAPES[name][1], seed=1)
    x[count:] = 1e3
    slope[count:] = 0
    state.begin(None, None, False)
    expected = gradients(ours, x[:count], slope[:count])
    statistics = state.statistics["norm"]
    mask = torch.zeros(7, dtype=torch.float64)
    mask[:count] = 1
    state.begin(None, mask, False)
    found = gradients(ours, x, slope)
    close(found[0][:count], expected[0])
    close(found[1][:count], expected[1])
    assert not found[1][count:].any()
    for a, b in zip(found[2:], expected[2:], strict=True):
        close(a, b)
    for a, b in zip(state.statistics["norm"], statistics, strict=True):
        close(a, b)


@pytest.mark.parametrize("masked", [False, True])
def test_one_sample_has_no_variance_and_is_normalised_with_what_is_known(masked: bool):
    theirs, ours, state = pair("vectors")
    x = draw(1, CHANNELS) if not masked else draw(4, CHANNELS)
    mask = torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64) if masked else None
    state.begin(None, mask, False)
    slope = torch.zeros_like(x)
    slope[0] = 1
    found = gradients(ours, x, slope)
    expected = gradients(theirs.eval(), x[:1], slope[:1])
    close(found[0][:1], expected[0])
    close(found[1][:1], expected[1])
    assert all(torch.isfinite(part).all() for part in found)
    mean, var = state.statistics["norm"]
    assert torch.equal(mean, theirs.running_mean)
    assert torch.equal(var, theirs.running_var)


def test_one_image_has_a_variance():
    """A single sample with several pixels: as torch does."""
    theirs, ours, state = pair("images")
    state.begin(None, None, False)
    x = draw(1, CHANNELS, 3, 4)
    close(ours(x).detach(), theirs(x).detach())
    close(state.statistics["norm"][1], theirs.running_var)


def test_rows_with_one_sample_and_with_many_side_by_side():
    x = draw(3, 5, 2, 1)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 0, 0, 0, 0], [1, 1, 0, 0, 0]], dtype=torch.float64)
    running = (draw(3, 2, seed=3), draw(3, 2, seed=4).square() + 1)
    out, (mean, var) = normalise(x, mask, running, 0.1, 1e-5)
    for row, count in enumerate((5, 1, 2)):
        own = (running[0][row], running[1][row])
        alone, (own_mean, own_var) = normalise(x[row, :count], None, own, 0.1, 1e-5)
        close(out[row, :count], alone)
        close(mean[row], own_mean)
        close(var[row], own_var)
    assert torch.equal(mean[1], running[0][1])


def test_frozen_statistics_are_used_and_kept():
    theirs, ours, state = pair("images")
    x, slope = draw(4, CHANNELS, 3, 4), draw(4, CHANNELS, 3, 4, seed=1)
    state.begin(None, None, True)
    assert ours.training
    for found, expected in zip(gradients(ours, x, slope), gradients(theirs.eval(), x, slope), strict=True):
        close(found, expected)
    assert state.statistics == {}


def test_a_layer_used_twice_goes_on_from_its_first_use():
    theirs, ours, state = pair("vectors")
    state.begin(None, None, False)
    for seed in range(2):
        close(ours(draw(5, CHANNELS, seed=seed)).detach(), theirs(draw(5, CHANNELS, seed=seed)).detach())
    close(state.statistics["norm"][0], theirs.running_mean)
    close(state.statistics["norm"][1], theirs.running_var)


@pytest.mark.parametrize("options", [{"momentum": None}, {"track_running_stats": False}])
def test_layers_without_running_statistics_are_refused_by_name(options: dict[str, object]):
    module = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.BatchNorm1d(3, **options)))
    with pytest.raises(RequestError, match=r"BatchNorm layer '1\.0' has momentum=None or track_running_stats=False"):
        replace_stateful(module, Pass())


# --- dropout ----------------------------------------------------------------------------------------------------


def key(client: int = 0) -> Tensor:
    return torch.tensor(Streams(1).key("noise", 1, client) >> 1)


def layer(share: float, features_only: bool = False, stream: Tensor | None = None) -> tuple[StreamDropout, Pass]:
    state = Pass()
    state.begin(stream, None, False)
    return StreamDropout(share, features_only, state), state


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
def test_the_share_dropped_and_the_scale_of_the_rest(share: float):
    drop, _ = layer(share, stream=key())
    out = drop(torch.full((200, 100), 3.0, dtype=torch.float64))
    zero = out == 0
    assert abs(float(zero.double().mean()) - share) < 6 * np.sqrt(share * (1 - share) / 20_000)
    torch.testing.assert_close(out[~zero], torch.full_like(out[~zero], 3.0 / (1 - share)))
    for dim in (0, 1):  # no row and no column is favoured
        counts = zero.double().mean(dim=dim)
        assert float((counts - share).abs().max()) < 6 * np.sqrt(share * (1 - share) / zero.shape[dim])


def test_whole_features_are_dropped():
    drop, _ = layer(0.5, features_only=True, stream=key())
    out = drop(torch.ones(40, 50, 3, 2))
    flat = out.flatten(2)
    assert torch.equal(flat.amin(dim=2), flat.amax(dim=2))
    assert abs(float((flat[..., 0] == 0).double().mean()) - 0.5) < 6 * 0.5 / np.sqrt(2000)
    assert set(out.unique().tolist()) == {0.0, 2.0}


@pytest.mark.parametrize("features_only", [False, True])
def test_noise_is_the_keys_and_the_calls(features_only: bool):
    x = torch.ones(6, 20, 3)

    def passes(stream: Tensor) -> list[Tensor]:
        drop, _ = layer(0.5, features_only, stream)
        return [drop(x), drop(x)]

    first, second = passes(key()), passes(key())
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])
    assert not torch.equal(first[0], first[1])  # two layers, or two calls, of a pass
    assert not torch.equal(first[0], passes(key() + 1)[0])
    assert not torch.equal(first[0], passes(key(1))[0])


def test_calls_of_one_pass_never_repeat_those_of_another():
    """The keys of steps follow each other; a layer's call must not meet the next step's noise."""
    x = torch.ones(10, 10)
    draws = {
        (step, call): dropout(x, 0.5, key() + step, call, False).flatten() for step in range(30) for call in range(1, 5)
    }
    stacked = torch.stack(list(draws.values()))
    assert len(torch.unique(stacked, dim=0)) == len(draws)


@pytest.mark.parametrize("features_only", [False, True])
def test_padding_behind_the_samples_changes_nothing(features_only: bool):
    x = torch.ones(9, 4, 3)
    whole = dropout(x, 0.5, key(), 1, features_only)
    for count in (1, 4):
        assert torch.equal(dropout(x[:count], 0.5, key(), 1, features_only), whole[:count])


@pytest.mark.parametrize("features_only", [False, True])
def test_rows_have_streams_of_their_own(features_only: bool):
    keys = torch.stack([key(client) for client in range(3)])
    x = torch.ones(3, 5, 4, 2)
    together = dropout(x, 0.3, keys, 2, features_only)
    for row in range(3):
        assert torch.equal(together[row], dropout(x[row], 0.3, keys[row], 2, features_only))


def test_known_answer():
    """The documented stream, and some of it frozen: a change here changes every run with dropout."""
    out = (dropout(torch.ones(2, 8), 0.5, torch.tensor(12345), 1, False) / 2).int()
    words = uniform(np.array(12345 + 0x9E3779B1, np.uint64), 16).reshape(2, 8)
    assert out.tolist() == (words >= 0.5).astype(int).tolist()
    assert out[0].tolist() == [1, 1, 0, 1, 0, 1, 1, 1]


def test_everything_can_be_dropped_and_nothing():
    assert not dropout(torch.ones(3, 4), 1.0, key(), 1, False).any()
    drop, state = layer(0.0, stream=key())
    x = torch.ones(3, 4)
    assert drop(x) is x
    assert state.calls == 0


def test_no_noise_in_evaluation_or_without_a_key():
    x = torch.ones(5, 5)
    drop, state = layer(0.5, stream=key())
    drop.eval()
    assert drop(x) is x
    assert state.calls == 0
    assert layer(0.5)[0](x) is x


# --- putting them in --------------------------------------------------------------------------------------------


def test_every_dropout_and_norm_is_replaced_once():
    norm, drop = nn.BatchNorm1d(3), nn.Dropout(0.2)
    inner = nn.Sequential(drop, nn.ReLU(), norm)
    module = nn.Sequential(nn.Linear(3, 3), inner, drop, norm, inner, nn.Dropout2d(0.3), nn.AlphaDropout(0.1))
    state = Pass()
    found = replace_stateful(module, state)
    assert found is module
    kinds = [type(m) for m in module.modules()]
    assert nn.Dropout not in kinds
    assert nn.BatchNorm1d not in kinds
    assert nn.AlphaDropout in kinds  # it has no form with a stream; the engines see to it
    assert module[1][0] is module[2]  # what was one layer still is
    assert module[1][2] is module[3]
    assert module[1] is module[4]
    assert isinstance(module[2], StreamDropout)
    assert (module[2].share, module[2].features_only) == (0.2, False)
    assert isinstance(module[5], StreamDropout)
    assert (module[5].share, module[5].features_only) == (0.3, True)
    assert module[3].weight is norm.weight
    assert module[3].state is state


def test_a_bare_layer_is_replaced_itself():
    assert isinstance(replace_stateful(nn.Dropout(0.5), Pass()), StreamDropout)
    assert isinstance(replace_stateful(nn.BatchNorm2d(3), Pass()), MaskedBatchNorm)


def test_copies_of_a_network_look_at_the_same_pass():
    module = replace_stateful(nn.Sequential(nn.Dropout(0.5)), Pass())
    assert copy.deepcopy(module)[0].state is module[0].state


def test_a_pass_forgets_the_last_one():
    state = Pass()
    state.calls, state.frozen, state.statistics = 3, True, {"a": (torch.ones(1), torch.ones(1))}
    state.begin(key(), torch.ones(2), False)
    assert (state.calls, state.frozen, state.statistics) == (0, False, {})
