"""The lemma and the order of the two risks."""

from __future__ import annotations

import numpy as np
import pytest

from panacea.theory import Settings
from panacea.theory.lemma import check_lemma, largest, ratio
from panacea.theory.named import fl60_graph
from panacea.theory.operators import (
    all_graphs,
    by_columns,
    by_rows,
    clique,
    component_ones,
    hubs,
    path,
    power,
    remainder,
)
from panacea.theory.ordering import check_ordering, quotient_a, quotient_b, quotient_printed
from panacea.theory.recovery import corrected_risk, hypernetwork_risk


@pytest.mark.parametrize(("n", "h", "printed"), [(30, 2, 1.125), (60, 2, 1.461), (60, 3, 1.579)])
def test_counter_examples_vanish_with_the_transpose(n: int, h: int, printed: float) -> None:
    assert ratio(hubs(n, h), h, 1, rows=True) == pytest.approx(printed, abs=0.0006)
    assert 0 < ratio(hubs(n, h), h, 1, rows=False) <= 1


def test_extremes() -> None:
    for rows in (True, False):
        assert ratio(np.zeros((6, 6)), 2, 3, rows=rows) == pytest.approx(1)
        for m in (1, 3, 5):
            assert ratio(clique(6), m, 1, rows=rows) == pytest.approx(0, abs=1e-28)


def test_search_by_hand() -> None:
    # two clients: linked gives 0, not linked gives 1
    assert largest(all_graphs(2)) == (1.0, 1.0)
    assert largest(all_graphs(2)[1:]) == pytest.approx((0.0, 0.0), abs=1e-28)
    # a path of three: every case by the definition
    found = []
    for order in ([0, 1, 2], [1, 0, 2]):
        graph = path(3)[np.ix_(order, order)]
        for layers in (1, 2, 3):
            for m in (1, 2):
                found.append(
                    [float((remainder(power(f(graph), layers), m) ** 2).sum()) / m for f in (by_rows, by_columns)]
                )
    both = np.stack([path(3), path(3)[np.ix_([1, 0, 2], [1, 0, 2])]])
    assert largest(both) == pytest.approx(tuple(np.max(found, axis=0)))


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_no_small_counter_example(n: int) -> None:
    by_row, by_column = largest(all_graphs(n))
    assert by_row <= 1 + 1e-9
    assert by_column <= 1 + 1e-9


@pytest.mark.paper
def test_no_counter_example_with_six_clients() -> None:
    assert max(largest(all_graphs(6))) <= 1 + 1e-9


def test_fl60() -> None:
    graph = fl60_graph()
    sums = by_rows(graph).sum(axis=0)
    assert sums.min() < 0.85
    assert 1.15 < sums.max() < 1.4
    np.testing.assert_allclose(by_columns(graph).sum(axis=0), 1)
    assert 1e-3 < ratio(graph, 12, 1, rows=False) < 6e-3
    assert 1e-9 < ratio(graph, 12, 3, rows=False) < 3e-8


def test_findings() -> None:
    lemma = check_lemma(Settings(search=4))
    assert lemma.holds
    assert not lemma.printed_holds
    assert sum("counter-example" in row.verdict for row in lemma.rows) == 3
    ordering = check_ordering(Settings(search=4, trials=4_000))
    assert ordering.holds
    assert not ordering.printed_holds
    broken = {row.case for row in ordering.tables[1].rows if "order broken" in row.verdict}
    assert broken == {"3 hubs, 76 leaves, L=2", "3 hubs, 197 leaves, L=2"}


def test_quotients_are_quotients_of_the_risks() -> None:
    graph, m = path(7), 3
    for layers in (1, 2):
        G = power(by_columns(graph), layers)
        independent = corrected_risk(G, m, 20, 3, np.eye(7)) / hypernetwork_risk(G, m, 20, 3)
        assert quotient_a(graph, m, layers) == pytest.approx(independent)
        alike = corrected_risk(G, m, 20, 3, component_ones(graph)) / (2 * 20 * 3 * m / 7)
        assert quotient_b(graph, m, layers) == pytest.approx(alike)
        assert quotient_printed(graph, m, layers) == pytest.approx(float(ratio(graph, m, layers, rows=True)))


def test_where_the_order_turns_round() -> None:
    assert quotient_b(hubs(78, 3), 3, 2) < 1 < quotient_b(hubs(79, 3), 3, 2)
    # independently: least squares, and the weights of the stand-ins of an attacked hub sum to more than two
    G = power(by_columns(hubs(200, 3)), 2)
    weights = np.linalg.lstsq(G[:, 3:], G[:, :3], rcond=None)[0]
    left = G[:, :3] - G[:, 3:] @ weights
    assert weights.sum(axis=0).min() > 2
    expected = ((left**2).sum() + ((1 - weights.sum(axis=0)) ** 2).sum()) / 6
    assert quotient_b(hubs(200, 3), 3, 2) == pytest.approx(expected)
    assert expected > 2
