"""FL-60: the spiral of GRDA, and the printed formula."""

from __future__ import annotations

import math

import numpy as np
import pytest

from panacea.data import Federation, load
from panacea.data.sources import fl60


@pytest.fixture(scope="module")
def spiral() -> Federation:
    return load("fl60", seed=0)


@pytest.fixture(scope="module")
def text() -> Federation:
    return load("fl60_text", seed=0, clients=600)


def everything(fed: Federation) -> tuple[np.ndarray, np.ndarray]:
    n = len(fed)
    return fed.x.numpy().reshape(n, 100, 2), fed.y.numpy().reshape(n, 100)


def test_counts(spiral: Federation) -> None:
    assert len(spiral) == 60
    assert [int(c) for split in ("train", "val", "test") for c in np.unique(spiral.counts(split))] == [72, 8, 20]
    assert spiral.novel.sum() == 12
    assert spiral.task.inputs == (2,)
    assert spiral.task.classes == 2
    _, y = everything(spiral)
    assert (y.sum(axis=1) == 50).all()


@pytest.mark.parametrize("seed", range(3))
def test_the_own_direction_separates_every_client(seed: int) -> None:
    fed = load("fl60", seed=seed)
    x, y = everything(fed)
    side = np.einsum("nsd,nd->ns", x, fed.features) < 0
    assert (side == y).all()  # oracle accuracy 1.0 at every client


def test_points_lie_in_unit_discs_around_the_spiral(spiral: Federation) -> None:
    x, y = everything(spiral)
    mu = spiral.features
    assert mu is not None
    gap = x - np.where(y[..., None] == 0, 1, -1) * mu[:, None, :]
    radius = np.linalg.norm(gap, axis=-1)
    assert radius.max() <= 1 + 1e-6
    # a normal cut off at 1: P(r <= s) = (1 - exp(-s^2/2)) / (1 - exp(-1/2))
    for s in (0.3, 0.5, 0.7, 0.9):
        expected = (1 - math.exp(-s * s / 2)) / (1 - math.exp(-0.5))
        assert (radius <= s).mean() == pytest.approx(expected, abs=0.02)
    assert np.abs(gap.mean(axis=(0, 1))).max() < 0.03
    length = np.linalg.norm(mu, axis=1)
    angle = np.arctan2(mu[:, 1], mu[:, 0]) % (2 * np.pi)
    np.testing.assert_allclose(length, 1 + 6 * angle / (2 * np.pi), rtol=1e-5)
    assert length.min() < 1.6
    assert length.max() > 6.4


def test_no_single_line_serves_all(spiral: Federation) -> None:
    x, y = everything(spiral)
    turns = np.linspace(0, 2 * np.pi, 360, endpoint=False)
    lines = np.stack([np.cos(turns), np.sin(turns)])
    best = max(float(((x @ lines[:, i] < 0) == y).mean()) for i in range(360))
    assert 0.5 < best < 0.75


def test_links_follow_the_angle() -> None:
    fed = load("fl60", seed=3, clients=800)
    assert fed.graph is not None
    dense = fed.graph.dense()
    assert (dense == dense.T).all()
    assert (np.diag(dense) == 0).all()
    unit = fed.features / np.linalg.norm(fed.features, axis=1, keepdims=True)
    cosine = unit @ unit.T
    assert cosine[dense > 0].min() >= 0.2 - 1e-5
    pairs = np.triu_indices(800, k=1)
    assert dense[pairs].mean() == pytest.approx(math.sin(math.acos(0.2)) / math.pi, abs=0.005)  # 0.312
    for low in (0.2, 0.4, 0.6, 0.8):
        here = (cosine[pairs] >= low) & (cosine[pairs] < low + 0.2)
        assert dense[pairs][here].mean() == pytest.approx(cosine[pairs][here].mean(), abs=0.01)


def test_sixty_clients_are_well_connected(spiral: Federation) -> None:
    assert spiral.graph is not None
    assert len(spiral.graph.edges) / (60 * 59 / 2) == pytest.approx(0.31, abs=0.05)
    reached = np.eye(60, dtype=bool)[0]
    for _ in range(60):
        reached = reached | (spiral.graph.dense()[reached] > 0).any(axis=0)
    assert reached.all()
    edges = spiral.graph.edges
    assert (edges[:, 0] < edges[:, 1]).all()
    assert (np.lexsort((edges[:, 1], edges[:, 0])) == np.arange(len(edges))).all()


def test_same_seed_same_data_and_the_seed_matters(spiral: Federation) -> None:
    again, other = load("fl60", seed=0), load("fl60", seed=1)
    assert bool((again.x == spiral.x).all())
    assert np.array_equal(again.novel, spiral.novel)
    assert again.graph is not None
    assert spiral.graph is not None
    assert np.array_equal(again.graph.edges, spiral.graph.edges)
    assert bool((other.x != spiral.x).any())


def test_more_clients_leave_the_first_ones_as_they_are(spiral: Federation) -> None:
    more = load("fl60", seed=0, clients=90)
    assert bool((more.x[:6000] == spiral.x).all())
    assert more.graph is not None
    assert spiral.graph is not None
    assert np.array_equal(more.graph.take(np.arange(60)).edges, spiral.graph.edges)


def test_many_clients_get_thinned_links(monkeypatch: pytest.MonkeyPatch) -> None:
    fed = load("fl60", clients=20_000)
    assert fed.graph is not None
    assert fed.graph.degree.mean() == pytest.approx(18.4, abs=0.3)
    assert "thinned" in fed.notes[0]
    assert len(np.unique(fed.graph.edges, axis=0)) == len(fed.graph.edges)
    unit = fed.features / np.linalg.norm(fed.features, axis=1, keepdims=True)
    ends = fed.graph.edges
    assert np.einsum("ed,ed->e", unit[ends[:, 0]], unit[ends[:, 1]]).min() >= 0.2 - 1e-5
    assert load("fl60", clients=200).notes == ()
    whole = load("fl60", clients=200)
    monkeypatch.setattr(fl60, "_BLOCK", 37)  # the block size must not matter
    assert np.array_equal(load("fl60", clients=200).graph.edges, whole.graph.edges)


def test_one_client() -> None:
    fed = load("fl60", clients=1)
    assert len(fed) == 1
    assert fed.novel.sum() == 0


def test_pair_numbers_are_right_far_out() -> None:
    stream = np.random.default_rng(0)
    pairs = np.concatenate(list(fl60._pairs(3_000_000, 1e-8, stream)))
    assert (pairs[:, 0] >= 0).all()
    assert (pairs[:, 0] < pairs[:, 1]).all()
    assert pairs[:, 1].max() < 3_000_000
    assert pairs[:, 1].max() > 2_990_000
    j = np.array([2, 3, 1000, 2_999_999, 30_000_000])
    for i in (j * 0, j - 1):  # the first and the last pair of every j
        assert np.array_equal(fl60._pair_of(j * (j - 1) // 2 + i), np.stack([i, j], axis=1))
    few = np.concatenate(list(fl60._pairs(6, 1.0, stream)))
    assert {tuple(pair) for pair in few.tolist()} == {(i, j) for j in range(6) for i in range(j)}


def test_printed_formula_overlaps(text: Federation) -> None:
    x, y = everything(text)
    vector = text.features
    assert vector is not None
    np.testing.assert_allclose(np.linalg.norm(vector, axis=1), 1, rtol=1e-5)
    omega = np.arctan2(vector[:, 1], vector[:, 0])
    middle = np.where(y[..., None] == 0, x, -x).mean(axis=1)
    slope = (np.einsum("nd,nd->n", middle, vector) * omega).sum() / (omega**2).sum()
    assert slope == pytest.approx(1 / math.pi, rel=0.025)
    towards = np.sign(omega)[:, None] * vector
    right = ((np.einsum("nsd,nd->ns", x, towards) < 0) == y).mean(axis=1)
    best = np.array([0.5 * (1 + math.erf(abs(w) / math.pi / math.sqrt(2))) for w in omega])
    assert right.mean() == pytest.approx(best.mean(), abs=0.01)
    assert best.mean() == pytest.approx(0.68, abs=0.01)
    assert best.max() <= 0.8414
    assert text.graph is not None
    assert len(text.graph.edges) / (600 * 599 / 2) == pytest.approx(0.5, abs=0.01)
    cosine = vector @ vector.T
    assert text.graph.dense()[cosine < -0.95].mean() < 0.03
