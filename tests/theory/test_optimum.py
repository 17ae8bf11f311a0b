from __future__ import annotations

import numpy as np
import pytest

from panacea.theory import Settings
from panacea.theory.operators import by_columns, clique, cycle, path, rank, squared, star
from panacea.theory.optimum import best_value, check_optimum, closed_form, descend, known_rank


def test_value_by_hand() -> None:
    theta = np.diag([3.0, 2.0, 1.0])
    assert best_value(theta, np.eye(3), 1) == pytest.approx(4 + 1)
    assert best_value(theta, np.eye(3), 2) == pytest.approx(1)
    # a clique averages all clients: only equal columns are within reach, (3, 2, 1) / 3 in each
    assert best_value(theta, by_columns(clique(3)), 1) == pytest.approx(14 - 14 / 3)


@pytest.mark.parametrize("graph", [path(7), path(8), cycle(6), clique(6), star(6)])
def test_closed_form_and_descent_reach_it(graph: np.ndarray) -> None:
    n, k = len(graph), 2
    stream = np.random.default_rng(0)
    theta, G = stream.standard_normal((9, n)), by_columns(graph)
    expected = best_value(theta, G, k)
    best = closed_form(theta, G, k)
    assert np.linalg.matrix_rank(best, tol=1e-8) <= k
    assert squared(theta - best) == pytest.approx(expected, rel=1e-9)
    assert descend(theta[None], G[None], k, stream)[0] == pytest.approx(expected, rel=1e-6)
    for _ in range(200):  # nothing of the allowed form is better
        W, V = stream.standard_normal((9, k)), stream.standard_normal((k, n))
        assert squared(theta - W @ V @ G) >= expected


@pytest.mark.parametrize("kind", ["path", "cycle", "star", "clique"])
def test_known_ranks(kind: str) -> None:
    make = {"path": path, "cycle": cycle, "star": star, "clique": clique}[kind]
    for n in range(3, 25):
        assert rank(make(n)) == known_rank(kind, n)


def test_the_specified_failures_of_the_rank_condition() -> None:
    for n in (3, 6, 9, 12):
        assert rank(cycle(n)) == n - 2
    finding = check_optimum(Settings(seed=1))
    assert finding.holds
    assert not finding.printed_holds  # uniqueness
    verdicts = {row.case: row.verdict for row in finding.tables[0].rows}
    assert verdicts["path 12"] == "holds"
    assert verdicts["clique 12"].startswith("rank 1 < 12: printed formula is")
    assert "11 different closed neighbourhoods" in next(
        row.verdict for row in finding.tables[2].rows if "twins" in row.case
    )


def test_tpt48_joins_where_its_file_is(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("PANACEA_DATA", str(tmp_path))
    assert not any(row.case == "tpt48" for row in check_optimum(Settings()).rows)
    (tmp_path / "tpt48").mkdir()
    np.savez(tmp_path / "tpt48" / "tpt48.npz", adjacency=cycle(9).astype(np.uint8))
    (row,) = (row for row in check_optimum(Settings()).rows if row.case == "tpt48")
    assert (row.printed, row.measured, row.verdict) == (9, 7, "condition fails: 2 short")
