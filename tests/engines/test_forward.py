"""Many clients' passes in one call equal one client after the other: outputs, gradients, statistics."""

from __future__ import annotations

import pytest
import torch

from panacea.engines.forward import LoopForward, build_forward

from .build import quietly, seeded
from .networks import NETWORKS, GruNet
from .passes import COUNTS, ROWS, TOLERANCE, Passes, assert_same, check_all_modes, mask_of, named, target_of


@pytest.mark.parametrize("name", NETWORKS)
def test_batched_layers_equal_the_loop(name: str):
    target = named(name)
    forward = quietly(build_forward, target, "batched")
    assert forward.kind == "batched"
    check_all_modes(target, forward)


NOT_BY_VMAP = {"embedding with padding 0", "embedding with padding 5"}


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
