from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from panacea.core.random import Streams
from panacea.data.federation import Federation
from panacea.data.task import Task
from panacea.errors import RequestError
from panacea.experiment.runner import run_experiment
from panacea.robustness import choose_attackers, make_attack, triggered_tests
from panacea.robustness.backdoors import pattern
from tests.robustness.images import SIDE, attackers_of, experiment_of, labelled, samples_of
from tests.toy import toy_federation

LABELS = [[0, 1, 2, 0, 2, 0, 2], [2, 2, 0, 1], [0, 2]]


def test_the_pattern_is_the_formula_and_inside_the_range() -> None:
    p = pattern(3, 4, 4)
    assert p.shape == (3, 4, 4)
    assert float(p.min()) >= 0
    assert float(p.max()) <= 1
    corner = 0.5 + 0.5 * math.cos(2 * math.pi * (2 * 0.125 + 0.125))  # u = v = 1/8, outside of the disc
    assert float(p[0, 0, 0]) == pytest.approx(corner)
    middle = 0.5 - 0.5 * math.cos(2 * math.pi * (2 * 0.625 + 0.375 + 2 / 3))  # row 1, column 2 of channel 2, inside
    assert float(p[2, 1, 2]) == pytest.approx(middle)
    assert float(pattern(1, 28, 28).std()) > 0.2  # something to see
    assert pattern(1, 3, 5).shape == (1, 3, 5)


def test_blended_pixels_by_hand() -> None:
    attack = make_attack("backdoor_blended", {})
    x = torch.zeros(1, 1, 4, 4, dtype=torch.float64)
    x[0, 0, 0, 0] = 0.5
    corner = 0.5 + 0.5 * math.cos(2 * math.pi * 0.375)
    changed = attack.trigger(x)
    assert float(changed[0, 0, 0, 0]) == pytest.approx(0.8 * 0.5 + 0.2 * corner)
    assert float(x[0, 0, 0, 0]) == 0.5
    half = make_attack("backdoor_blended", {"blend": 0.5}).trigger(x)
    assert float(half[0, 0, 0, 0]) == pytest.approx(0.25 + 0.5 * corner)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_patch_is_a_bright_square_in_the_lower_right_corner(size: int) -> None:
    x = torch.full((2, 3, 4, 5), 0.25)
    changed = make_attack("backdoor_patch", {"size": size}).trigger(x)
    assert int((changed == 1).sum()) == 2 * 3 * size * size
    assert bool((changed[:, :, 4 - size :, 5 - size :] == 1).all())
    assert int((changed == 0.25).sum()) == 2 * 3 * (20 - size * size)
    assert bool((x == 0.25).all())


@pytest.mark.parametrize(("share", "count"), [(0.5, 4), (0.1, 1), (0.3, 2), (1.0, 7)])  # of 7: 3.5, 0.7, 2.1, 7
def test_exactly_the_share_of_the_attackers_train_images_is_marked(share: float, count: int) -> None:
    fed = labelled(LABELS, channels=2)
    attackers = attackers_of("backdoor_patch", fed, clients=[0], share=share, size=2, target=1)
    samples = samples_of(fed)
    before = samples.gather(torch.arange(fed.total))
    attackers.poison(samples, 1)
    x, y = samples.gather(torch.arange(fed.total))
    changed = (x != before[0]).flatten(1).any(dim=1)
    assert int(changed.sum()) == count
    assert int(changed[7:].sum()) == 0  # neither its test images nor anybody else's
    assert y[changed].tolist() == [1] * count
    assert torch.equal(y[~changed], before[1][~changed])
    assert torch.equal(x[changed], attackers.attack.trigger(before[0][changed]))
    assert torch.equal(x[~changed], before[0][~changed])


def test_marked_images_reach_the_batches_of_training() -> None:
    fed = labelled(LABELS)
    samples = samples_of(fed)
    attackers_of("backdoor_patch", fed, clients=[1], share=1.0, target=2).poison(samples, 1)
    (batch,) = next(samples.batches(np.array([0, 1]), 1, "train", 1, 1, 4))
    assert bool((batch.x[1, :, 0, -3:, -3:] == 1).all())
    assert batch.y[1].tolist() == [2, 2, 2, 2]
    assert not bool((batch.x[0, :, 0, -3:, -3:] == 1).any())


def test_bytes_in_another_order_on_disk_are_marked_alike_and_not_written_to(tmp_path: Path) -> None:
    fed = labelled(LABELS, as_bytes=True)
    order = torch.from_numpy(np.random.default_rng(3).permutation(fed.total))
    stored = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.uint8, tuple(fed.x.shape))
    stored[order.numpy()] = fed.x.numpy()
    stored.flush()
    images = torch.from_numpy(np.load(tmp_path / "x.npy", mmap_mode="c"))
    mapped = replace(fed, x=images, rows=order)
    x0, y0, content = images.clone(), mapped.y.clone(), np.load(tmp_path / "x.npy")
    seen = []
    for own in (fed, mapped):
        samples = samples_of(own)
        attackers = attackers_of("backdoor_blended", own, clients=[0, 1])
        attackers.poison(samples, 1)
        seen.append(samples.gather(torch.arange(fed.total)))
        triggered = triggered_tests(attackers.attack, samples)
        assert triggered is not None
        seen[-1] += triggered.gather(torch.arange(len(triggered.y)))
        assert samples.x.dtype == torch.uint8
        assert samples.x.data_ptr() == own.x.data_ptr()  # nothing was copied either
    for a, b in zip(*seen, strict=True):
        assert torch.equal(a, b)
    assert torch.equal(images, x0)
    assert torch.equal(mapped.y, y0)
    assert np.array_equal(np.load(tmp_path / "x.npy"), content)


def test_the_federation_keeps_its_own_through_a_run() -> None:
    fed = labelled(LABELS, val=0.2)
    x, y = fed.x.clone(), fed.y.clone()
    run_experiment(experiment_of(fed, attack="backdoor_patch", defence="simple_tuning"))
    assert torch.equal(fed.x, x)
    assert torch.equal(fed.y, y)


def test_one_random_client_by_default_and_the_keys_say_otherwise() -> None:
    fed = labelled([[0, 1, 2]] * 20, novel=10)
    found = set()
    for seed in range(12):
        chosen = choose_attackers(make_attack("backdoor_patch", {}), fed, Streams(seed))
        assert chosen is not None
        assert int(chosen.who.sum()) == 1
        assert not chosen.who[fed.novel].any()
        found.add(int(chosen.who.argmax()))
    assert len(found) > 3
    assert int(attackers_of("backdoor_patch", fed, ratio=0.3).who.sum()) == 3
    assert np.flatnonzero(attackers_of("backdoor_patch", fed, clients=[4, 7]).who).tolist() == [4, 7]
    for keys in ({"ratio": 0}, {"clients": []}):
        assert choose_attackers(make_attack("backdoor_patch", keys), fed, Streams(0)) is None


def test_nothing_is_marked_before_the_attack_starts() -> None:
    fed = labelled(LABELS)
    samples = samples_of(fed)
    attackers = attackers_of("backdoor_patch", fed, clients=[0], start=3)
    attackers.poison(samples, 2)
    assert torch.equal(samples.gather(torch.arange(fed.total))[0], fed.x)
    attackers.poison(samples, 3)
    assert not torch.equal(samples.gather(torch.arange(fed.total))[0], fed.x)


def refused(federation: Federation, name: str, keys: dict[str, object]) -> str:
    with pytest.raises(RequestError) as caught:
        choose_attackers(make_attack(name, keys), federation, Streams(0))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_is_no_image_is_refused_in_one_line() -> None:
    assert refused(toy_federation(), "backdoor_patch", {}) == (
        "attack=backdoor_patch is for images [C, H, W]; inputs of toy are 3"
    )
    task = Task("regression", inputs=(1, 2, 2), outputs=(1,))
    amounts = Federation.from_clients([(np.zeros((4, 1, 2, 2)), np.zeros((4, 1)))], task=task, name="sums")
    assert refused(amounts, "backdoor_blended", {}) == (
        "attack=backdoor_blended is for classification; sums is a regression task"
    )


def test_wrong_keys_are_refused_in_one_line() -> None:
    fed = labelled(LABELS)
    for ratio in (None, 0.0):  # also where nobody attacks
        keys: dict[str, object] = {"ratio": ratio}
        assert refused(fed, "backdoor_blended", keys | {"target": 3}) == (
            "attack.target=3: squares has 3 classes, numbered from 0"
        )
        assert refused(fed, "backdoor_patch", keys | {"size": SIDE + 1}) == (
            "attack.size=5: images of squares have 4 x 4 pixels"
        )
    wide = replace(fed, x=fed.x * 4 - 1)
    assert "attack=backdoor_blended needs pixels of 0 to 1; those of squares are -0.599 to 1.39" in refused(
        wide, "backdoor_blended", {}
    )
    for keys in ({"size": 0}, {"share": 0}, {"target": -1}, {"blend": 0.2}):
        with pytest.raises(RequestError, match=f"attack.{next(iter(keys))}"):
            make_attack("backdoor_patch", keys)
