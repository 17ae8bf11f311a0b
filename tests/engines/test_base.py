"""What engines share: settings of local training, the samples, their batches; and engines by name."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from panacea.core.random import Streams, sample_batches
from panacea.core.types import Batch
from panacea.engines import LocalSettings, default_block
from panacea.engines.base import Samples
from panacea.errors import RequestError
from panacea.models import Mlp

from .build import engine_of, federation, labels, numbers, seeded, target_of

TASK = labels((2,))
COUNTS = (1, 4, 9, 60)


def samples() -> Samples:
    return Samples(federation(TASK, COUNTS), Streams(4), torch.device("cpu"), torch.float64)


def drawn(
    ids: list[int], steps: int = 6, draws: int = 1, batch: int = 5, round: int = 2, purpose: str = "train"
) -> list[tuple[Batch, ...]]:
    return list(samples().batches(np.array(ids), round, purpose, steps, draws, batch))


# --- samples ----------------------------------------------------------------------------------------------------


def test_samples_take_the_type_of_the_network_and_labels_stay_labels():
    held = samples()
    assert held.x.dtype == torch.float64
    assert held.y.dtype == torch.int64
    task = numbers((2,), (3,))
    held = Samples(federation(task, COUNTS), Streams(4), torch.device("cpu"), torch.float64)
    assert held.y.dtype == torch.float64


def test_counts_by_split():
    ids = np.array([3, 0])
    assert samples().counts("train", ids).tolist() == [60, 1]
    assert samples().counts("val", ids).tolist() == [1, 1]
    assert samples().counts("test", ids).tolist() == [6, 3]


def test_a_batch_holds_the_clients_own_train_samples():
    fed = federation(TASK, COUNTS)
    for step in drawn([0, 1, 2, 3]):
        (batch,) = step
        assert batch.x.shape == (4, 5, 2)
        assert batch.y.shape == batch.weight.shape == (4, 5)
        assert batch.present is not None
        for row, count in enumerate((1, 4, 5, 5)):
            x, y = fed.client(row)
            for place in range(count):
                same = (x.double() == batch.x[row, place]).all(dim=1)
                assert int(same.sum()) == 1
                assert int(y[same]) == int(batch.y[row, place])


def test_weights_sum_to_one_over_the_samples_and_are_nothing_on_padding():
    (batch,) = drawn([0, 1, 2, 3])[0]
    expected = [[1.0, 0, 0, 0, 0], [0.25] * 4 + [0], [0.2] * 5, [0.2] * 5]
    torch.testing.assert_close(batch.weight, torch.tensor(expected, dtype=torch.float64))
    (batch,) = drawn([2, 3])[0]
    assert batch.present is None
    (batch,) = drawn([0])[0]
    assert batch.present is None
    assert batch.x.shape == (1, 1, 2)


def test_batches_are_the_documented_stream():
    held = samples()
    index = sample_batches(Streams(4).keys("train batches 0", 2, [2, 3]), np.array([9, 60]), 6, 5)
    for step, (batch,) in enumerate(drawn([2, 3])):
        for row, client in enumerate((2, 3)):
            assert torch.equal(batch.x[row], held.x[held.bounds[client, 0] + index[step, row]])


def same(a: Batch, b: Batch, rows: slice | list[int] = slice(None), of: slice | list[int] = slice(None)) -> bool:
    return torch.equal(a.x[rows], b.x[of]) and torch.equal(a.y[rows], b.y[of])


def test_the_first_draw_is_the_same_whatever_the_number_of_draws():
    one, three = drawn([1, 3]), drawn([1, 3], draws=3)
    assert all(len(step) == 3 for step in three)
    for a, b in zip(one, three, strict=True):
        assert same(a[0], b[0])
        assert not same(b[0], b[1])
        assert not same(b[1], b[2])


def test_batches_differ_by_round_purpose_and_step_only():
    first = drawn([3])
    assert all(same(a[0], b[0]) for a, b in zip(first, drawn([3]), strict=True))
    assert not same(first[0][0], first[1][0])
    assert not same(first[0][0], drawn([3], round=3)[0][0])
    assert not same(first[0][0], drawn([3], purpose="adapt")[0][0])
    together = drawn([2, 3])
    assert all(same(a[0], b[0], [0], [1]) for a, b in zip(first, together, strict=True))
    longer = drawn([3], steps=11)
    assert len(longer) == 11
    assert all(same(a[0], b[0]) for a, b in zip(first, longer, strict=False))


@pytest.mark.parametrize("most", [1, 300, 10**9])
def test_gathering_in_blocks_changes_nothing(most: int, monkeypatch: pytest.MonkeyPatch):
    expected = drawn([1, 3], steps=7, draws=2)
    monkeypatch.setattr("panacea.engines.rows._GATHER_BYTES", {"cpu": most})
    found = drawn([1, 3], steps=7, draws=2)
    assert len(found) == 7
    for a, b in zip(found, expected, strict=True):
        assert len(a) == 2
        assert all(same(x, y) for x, y in zip(a, b, strict=True))


# --- settings ---------------------------------------------------------------------------------------------------


def test_one_rate_for_all_or_one_per_client():
    like = torch.zeros(1, dtype=torch.float64)
    sgd = LocalSettings(0.1, 3, 5, momentum=0.9, weight_decay=0.01, clip=2.0).sgd(np.array([0, 1]), like)
    assert (sgd.lr, sgd.momentum, sgd.weight_decay, sgd.clip) == (0.1, 0.9, 0.01, 2.0)
    rates = LocalSettings(np.array([0.1, 0.2, 0.3]), 3, 5)
    many = rates.sgd(np.array([2, 0]), like).lr
    assert isinstance(many, torch.Tensor)
    assert many.tolist() == [[0.3], [0.1]]
    assert many.dtype == torch.float64
    one = rates.sgd(np.int64(1), like).lr
    assert isinstance(one, torch.Tensor)
    assert one.tolist() == [0.2]


def test_steps_for_all_per_client_or_said_otherwise():
    ids = np.array([2, 0])
    assert LocalSettings(0.1, 3, 5).steps_of(ids, None).tolist() == [3, 3]
    assert LocalSettings(0.1, 3, 5).steps_of(ids, 8).tolist() == [8, 8]
    several = LocalSettings(0.1, np.array([5, 6, 7]), 5)
    assert several.steps_of(ids, None).tolist() == [7, 5]
    assert several.steps_of(ids, 8).tolist() == [8, 8]


# --- engines by name --------------------------------------------------------------------------------------------


def test_engines_by_name():
    fed = federation(TASK, COUNTS)
    for name in ("vectorised", "sequential"):
        assert engine_of(name, Mlp((2,), 3), fed).name == name
    with pytest.raises(RequestError, match="unknown engine 'vectorized'; did you mean 'vectorised'"):
        engine_of("vectorized", Mlp((2,), 3), fed)


def block(hidden: tuple[int, ...], batch: int = 64, device: str = "cpu") -> int:
    return default_block(target_of(seeded(lambda: Mlp((2,), 3, hidden)), TASK), batch, device)


def test_many_small_networks_and_few_large_ones_in_a_block():
    sizes = [block(hidden) for hidden in ((16, 16), (256, 256), (1024, 1024), (4096, 4096))]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > 50
    assert sizes[-1] == 1
    assert block((256, 256), batch=4) > block((256, 256), batch=512)
    assert block((256, 256), device="cuda") > block((256, 256))
    assert block((1,), batch=1) <= 1024


def test_looking_for_a_block_leaves_no_trace():
    target = target_of(seeded(lambda: nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))), TASK)
    before = target.statistics.clone()
    default_block(target, 7, "cpu")
    assert torch.equal(target.statistics, before)
    assert not any(module._forward_hooks for module in target.module.modules())
