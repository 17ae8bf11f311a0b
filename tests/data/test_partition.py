"""Partitions: no sample twice, enough for everybody, seeded, and honest when it cannot be done."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panacea.data.partition import Partition, alike, dirichlet, iid, pathological, practical
from panacea.errors import RequestError

SCHEMES = [iid, pathological, practical, dirichlet]
DIGITS = np.repeat(np.arange(10), 180)


@st.composite
def labelled(draw: st.DrawFn) -> np.ndarray:
    classes = draw(st.integers(1, 8))
    sizes = draw(st.lists(st.integers(0, 40), min_size=classes, max_size=classes).filter(lambda s: sum(s) > 0))
    labels = np.repeat(np.arange(classes), sizes)
    return np.random.default_rng(draw(st.integers(0, 99))).permutation(labels)


@settings(max_examples=150, deadline=None)
@given(
    labels=labelled(),
    clients=st.integers(1, 15),
    least=st.integers(1, 8),
    seed=st.integers(0, 2**40),
    scheme=st.sampled_from(SCHEMES),
    option=st.integers(1, 4),
)
def test_every_partition_is_a_partition_or_a_clear_error(
    labels: np.ndarray, clients: int, least: int, seed: int, scheme: Callable[..., Partition], option: int
) -> None:
    options: dict[str, object] = {
        iid: {},
        pathological: {"classes_per_client": option},
        practical: {"groups": option, "dominant": option / 4},
        dirichlet: {"alpha": 10.0 ** (option - 3)},
    }[scheme]
    try:
        made = scheme(labels, clients, seed=seed, min_samples=least, **options)
    except RequestError as error:
        assert str(error).startswith("data."), "it names the key"  # noqa: PT017
        if scheme is not practical:  # all others can be done whenever there are enough samples
            assert clients * max(least, option if scheme is pathological else 1) > len(labels)
        return
    assert len(made.parts) == clients
    taken = np.concatenate(made.parts)
    assert len(np.unique(taken)) == len(taken)
    assert taken.min() >= 0
    assert taken.max() < len(labels)
    assert min(len(part) for part in made.parts) >= least
    if scheme is not practical:  # the practical scheme leaves samples out
        assert len(taken) == len(labels)
    again = scheme(labels, clients, seed=seed, min_samples=least, **options)
    assert all(np.array_equal(a, b) for a, b in zip(made.parts, again.parts, strict=True))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_seed_decides(scheme: Callable[..., Partition]) -> None:
    first, second = scheme(DIGITS, 20, seed=0), scheme(DIGITS, 20, seed=1)
    assert any(not np.array_equal(a, b) for a, b in zip(first.parts, second.parts, strict=True))


def test_iid_shares_are_equal_and_alike() -> None:
    parts = iid(DIGITS, 7).parts
    assert {len(part) for part in parts} == {257, 258}
    shares = np.array([np.bincount(DIGITS[part], minlength=10) / len(part) for part in parts])
    assert np.abs(shares - 0.1).max() < 0.08


@pytest.mark.parametrize("classes", [1, 2, 5])
def test_pathological_clients_have_few_classes(classes: int) -> None:
    made = pathological(DIGITS, 20, classes_per_client=classes)  # 180 samples per class: no shard crosses a border
    assert max(len(np.unique(DIGITS[part])) for part in made.parts) <= classes
    assert {len(part) for part in made.parts} == {90}
    assert {len(part) for part in pathological(DIGITS[:1787], 7, classes_per_client=3).parts} == {255, 256}


def test_practical_groups_have_their_classes_and_sizes() -> None:
    made = practical(DIGITS, 20, groups=5, dominant=0.8)
    assert made.groups is not None
    assert made.groups.tolist() == np.repeat(np.arange(5), 4).tolist()
    sizes = np.array([len(part) for part in made.parts]).reshape(5, 4)
    assert (sizes == sizes[:, :1]).all()
    assert (np.diff(sizes[:, 0]) < 0).all()
    for group, part in zip(made.groups, made.parts, strict=True):
        counts = np.bincount(DIGITS[part], minlength=10)
        own = counts[2 * group : 2 * group + 2]
        assert own.sum() == round(0.8 * len(part))
        assert abs(int(own[0]) - int(own[1])) <= 1
        rest = np.delete(counts, [2 * group, 2 * group + 1])
        assert rest.max() - rest.min() <= 1
    used = sum(len(part) for part in made.parts)
    assert f"{used} of 1800 used" in made.notes[0]


def test_practical_uses_sizes_that_fit_and_scales_those_that_do_not() -> None:
    made = practical(DIGITS, 10, groups=2, sizes=[60, 40])
    assert [len(part) for part in made.parts] == [60] * 5 + [40] * 5
    assert len(made.notes) == 1
    scaled = practical(DIGITS, 10, groups=2, sizes=[6000, 4000])
    assert "PARTIAL" in scaled.notes[1]
    sizes = [len(part) for part in scaled.parts]
    assert sizes[0] / sizes[-1] == pytest.approx(1.5, rel=0.02)
    assert sum(sizes) > 1300  # one factor, as large as possible: the first group's classes are used up
    assert np.bincount(DIGITS[np.concatenate(scaled.parts)]).max() > 175


def _counts(labels: np.ndarray, parts: list[np.ndarray]) -> np.ndarray:
    return np.stack([np.bincount(labels[part], minlength=labels.max() + 1) for part in parts])


def test_practical_test_samples_have_the_same_distribution_and_are_nobody_elses() -> None:
    made = practical(DIGITS, 10, groups=2, sizes=[60, 40], test_size=20)
    assert made.tests is not None
    assert made.factor == 1
    taken = np.concatenate(made.parts + made.tests)
    assert len(np.unique(taken)) == len(taken) == 500 + 200
    for group, counts in zip(np.repeat([0, 1], 5), _counts(DIGITS, made.tests), strict=True):
        own, rest = np.split(counts, 2) if group == 0 else np.split(counts, 2)[::-1]
        assert own.sum() == 16
        assert rest.sum() == 4
        assert own.max() - own.min() <= 1


def test_practical_test_samples_come_from_the_test_file_while_it_lasts() -> None:
    held = np.repeat(np.arange(10), 20)
    both = np.concatenate([DIGITS, held])
    made = practical(DIGITS, 10, groups=5, sizes=[50] * 5, test_size=20, held=held)
    assert made.tests is not None
    assert min(test.min() for test in made.tests) >= len(DIGITS)  # exactly 20 of every class: odd samples go round
    assert np.bincount(both[np.concatenate(made.tests)]).tolist() == [20] * 10
    assert max(part.max() for part in made.parts) < len(DIGITS)
    more = practical(DIGITS, 10, groups=5, sizes=[50] * 5, test_size=30, held=held)
    assert more.tests is not None
    tests = np.concatenate(more.tests)
    assert (tests < len(DIGITS)).sum() == 100
    assert not np.isin(tests, np.concatenate(more.parts)).any()
    assert more.notes[2].startswith("100 of 300 test samples are not from the test file")
    assert more.factor == 1


@pytest.mark.parametrize(
    ("classes", "sizes"), [(10, [500, 400, 300, 200, 100]), (100, [500, 450, 400, 350, 300])], ids=["10", "100"]
)
def test_the_published_counts_fit_without_scaling(classes: int, sizes: list[int]) -> None:
    """CIFAR: 50,000 + 10,000 images, as many of each class; all 10,000 test images are somebody's."""
    labels, held = (np.repeat(np.arange(classes), total // classes) for total in (50_000, 10_000))
    made = practical(labels, 100, sizes=sizes, test_size=100, held=held)
    assert made.tests is not None
    assert made.factor == 1
    assert sorted(np.concatenate(made.tests)) == list(range(50_000, 60_000))
    assert [len(part) for part in made.parts] == np.repeat(sizes, 20).tolist()
    assert [len(part) for part in made.tests] == [100] * 100


def test_practical_scales_train_and_test_sizes_by_one_factor() -> None:
    made = practical(DIGITS, 10, groups=2, sizes=[6000, 4000], test_size=1000)
    assert made.tests is not None
    assert made.factor == pytest.approx(1800 / 60000, rel=0.15)
    assert {len(part) for part in made.parts} == {int(6000 * made.factor), int(4000 * made.factor)}
    assert {len(part) for part in made.tests} == {int(1000 * made.factor)}
    assert f"scaled by {made.factor:.3f}" in made.notes[-1]
    with pytest.raises(RequestError, match=r"data\.min_samples"):  # not one test sample each
        practical(DIGITS, 20, sizes=[50_000] * 5, test_size=1)


def test_practical_groups_may_be_given() -> None:
    made = practical(DIGITS, 12, groups=2, sizes=[50, 30], classes=[[3], [0, 9]], members=[1, 3], dominant=1.0)
    assert made.groups is not None
    assert made.groups.tolist() == [0] * 3 + [1] * 9
    counts = _counts(DIGITS, made.parts)
    assert counts[0].tolist() == [0, 0, 0, 50, 0, 0, 0, 0, 0, 0]
    assert counts[3].tolist() == [15, 0, 0, 0, 0, 0, 0, 0, 0, 15]
    few = practical(DIGITS, 4, groups=3, sizes=[9, 9, 9], members=[1, 1, 50])
    assert few.groups is not None
    assert few.groups.tolist() == [0, 1, 2, 2]  # nobody without a client
    with pytest.raises(RequestError, match="no sample of class 10, which dominates group 1"):
        practical(DIGITS, 4, groups=2, sizes=[9, 9], classes=[[0], [10]])


@pytest.mark.parametrize("scheme", [iid, pathological, dirichlet])
def test_a_test_file_is_divided_in_the_same_proportions(scheme: Callable[..., Partition]) -> None:
    held = np.random.default_rng(0).permutation(np.repeat(np.arange(11), 30))  # nobody trains on class 10
    made = scheme(DIGITS, 12, seed=1, min_samples=5)
    tests = alike(DIGITS, made.parts, held, seed=1)
    taken = np.concatenate(tests)
    assert sorted(taken) == sorted(len(DIGITS) + np.flatnonzero(held < 10))
    counts = _counts(np.concatenate([DIGITS, held]), tests)[:, :10]
    assert np.abs(counts - _counts(DIGITS, made.parts) / 6).max() <= 1
    again = alike(DIGITS, made.parts, held, seed=1)
    assert all(np.array_equal(a, b) for a, b in zip(tests, again, strict=True))


def test_the_smallest_client_has_a_test_sample_too() -> None:
    labels, held = np.array([0] * 99 + [1] * 99 + [0, 1]), np.array([0] * 5 + [1] * 5)
    parts = [np.array([198]), np.arange(99), np.arange(99, 198), np.array([199])]
    tests = alike(labels, parts, held)
    assert [len(test) for test in tests] == [1, 4, 4, 1]
    assert held[tests[0] - 200] == 0
    assert held[tests[3] - 200] == 1


def test_practical_with_one_group_draws_from_all_classes() -> None:
    made = practical(DIGITS, 4, groups=1)
    assert all(len(np.unique(DIGITS[part])) == 10 for part in made.parts)


def test_dirichlet_concentration() -> None:
    def most(alpha: float) -> float:
        parts = dirichlet(DIGITS, 10, alpha=alpha, min_samples=10).parts
        return float(np.mean([np.bincount(DIGITS[part]).max() / len(part) for part in parts]))

    assert most(0.02) > 0.6
    assert most(1000.0) < 0.15


def test_dirichlet_fills_up_and_says_so() -> None:
    made = dirichlet(DIGITS, 40, alpha=0.01, min_samples=30)
    assert min(len(part) for part in made.parts) == 30
    assert "filled up to 30" in made.notes[0]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: iid([0, 1], 3), "data.clients=3: there are only 2 samples"),
        (lambda: iid([0, 1], 0), "data.clients=0"),
        (lambda: dirichlet([0, 1, 1], 2, min_samples=2), "data.min_samples=2: 2 clients need 4 samples, there are 3"),
        (lambda: dirichlet([0, 1, 1], 2, alpha=0.0), "data.alpha=0.0"),
        (
            lambda: pathological([0, 1, 1], 2, classes_per_client=2),
            "data.classes_per_client=2: 2 clients need 4 shards",
        ),
        (lambda: pathological([0, 1, 1], 2, classes_per_client=0), "data.classes_per_client=0"),
        (lambda: pathological([0] * 9, 3, min_samples=4), "data.min_samples=4"),
        (lambda: practical(DIGITS, 20, groups=11), "data.groups=11: must be between 1 and the number of classes, 10"),
        (lambda: practical(DIGITS, 3, groups=4), "data.groups=4: must be between 1 and the number of clients, 3"),
        (lambda: practical(DIGITS, 20, dominant=1.5), "data.dominant=1.5"),
        (lambda: practical(DIGITS, 20, min_samples=80), "data.min_samples=80"),
        (lambda: practical(DIGITS, 20, sizes=[1]), "data.train_sizes=[1]: needs 5"),
    ],
)
def test_what_cannot_be_done_names_the_key(call: Callable[[], Partition], words: str) -> None:
    with pytest.raises(RequestError) as caught:
        call()
    assert words in str(caught.value)


def test_test_samples_that_do_not_fit_are_named() -> None:
    with pytest.raises(RequestError, match=r"and 100000 test samples each .* lower data\.test_size, data\.min_samples"):
        practical(DIGITS, 10, groups=2, sizes=[60, 40], test_size=100_000)
