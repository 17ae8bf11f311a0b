"""Theorems 3.2 and 3.3: formulas by hand, by simulation, and against published values."""

from __future__ import annotations

import numpy as np
import pytest

from panacea.theory import Row, Settings, check
from panacea.theory.absence import absence_risk, learn, learned_risk
from panacea.theory.absence import simulate as simulate_absence
from panacea.theory.operators import by_columns, by_rows, component_ones, path, power, star
from panacea.theory.recovery import (
    CHECK_B,
    check_recovery,
    corrected_risk,
    descend,
    hypernetwork_risk,
    printed_risk,
    simulate,
)
from panacea.theory.statement import estimate

TRIALS = 20_000


def _near(samples: np.ndarray, expected: float, errors: float = 3, rounding: float = 0.0) -> None:
    mean, error = estimate(samples)
    assert abs(mean - expected) <= errors * error + rounding, (mean, error, expected)


def test_absence_by_hand() -> None:
    assert absence_risk(np.eye(3), n=12, d=20, m=4) == pytest.approx(2 * 20 * 3 * 4 / 12)
    assert absence_risk(np.diag([0.5, 1, 2]), n=12, d=20, m=4) == pytest.approx(20 * 4 / 12 * (3 + 5.25))
    assert absence_risk(np.array([[3.0]]), n=1, d=1, m=1) == 10


@pytest.mark.parametrize("R", [np.eye(3), np.diag([0.5, 1, 2]), np.array([[1.0, 2, 0], [0, 1, 0], [0, 0, -1]])])
def test_absence_by_simulation(R: np.ndarray) -> None:
    _near(simulate_absence(R, TRIALS, np.random.default_rng(0)), absence_risk(R, 12, 20, 4))


def test_learned_networks_are_right_about_unattacked_clients_only() -> None:
    found = learn(60, 0.1, np.random.default_rng(0))
    assert len(found.risk) >= 55
    _near(found.risk, learned_risk(found))
    away = np.linalg.norm(np.swapaxes(found.R, 1, 2) @ found.R - np.eye(3), axis=(1, 2))
    assert away.min() > 0.1


def test_recovery_by_hand() -> None:
    # nobody is linked: M = Q = I[:, :m], r = m, tr(M^T C M) = m, so 2 d k m / n as for pFedHN
    assert printed_risk(np.eye(5), 2, 20, 3) == pytest.approx(2 * 20 * 3 * 2 / 5)
    assert corrected_risk(np.eye(5), 2, 20, 3, np.eye(5)) == pytest.approx(2 * 20 * 3 * 2 / 5)
    assert hypernetwork_risk(np.eye(5), 2, 20, 3) == pytest.approx(2 * 20 * 3 * 2 / 5)
    # path of three, end attacked: M = (0, 1, -1) / 4, r = 1/8, and M sums to 0
    G = by_columns(path(3))
    assert printed_risk(G, 1, 1, 3) == pytest.approx(2 / 8)
    assert corrected_risk(G, 1, 1, 3, np.ones((3, 3))) == pytest.approx(1 / 8)
    assert hypernetwork_risk(G, 1, 1, 3) == pytest.approx(1 + 1 / 2)
    # middle attacked: g = (1, 1, 1) / 3, M = (-1, 1, 1) / 9 with the middle first, r = 1/27, and M sums to 1/9
    G = by_columns(star(3))
    assert printed_risk(G, 1, 1, 3) == pytest.approx(2 / 27)
    assert corrected_risk(G, 1, 1, 3, np.ones((3, 3))) == pytest.approx(1 / 27 + 1 / 81)
    assert hypernetwork_risk(G, 1, 1, 3) == pytest.approx(1 + 1 / 3)


def test_consistent_embeddings_are_constant_on_components() -> None:
    for graph, _, layers in CHECK_B.values():
        G = power(by_columns(graph), layers)
        values, vectors = np.linalg.eig(G.T)
        fixed = np.abs(values - 1) < 1e-9
        C = component_ones(graph)
        assert fixed.sum() == len(np.unique(C, axis=0))
        smoothed = (C / C.sum(axis=0)) @ vectors[:, fixed]  # mean over each component
        np.testing.assert_allclose(smoothed, vectors[:, fixed], atol=1e-9)


# graph, attacked, L, printed, corrected, Monte-Carlo, its standard error: measured independently of this code
PUBLISHED = [
    ("path 8, first 3, L=1", 12.92, 18.13, 17.97, 0.11, 45),
    ("path 12, first 6, L=1", 18.78, 32.88, 33.05, 0.19, 60),
    ("path 12, first 6, L=2", 12.01, 23.83, 23.96, 0.15, 60),
    ("star 8, centre, L=1", 1.05, 2.90, 2.91, 0.02, 15),
]


@pytest.fixture(scope="module")
def rows() -> dict[str, Row]:
    (finding,) = check(["theorem-3.3"], trials=TRIALS)
    assert finding.holds
    assert not finding.printed_holds
    return {row.case: row for row in finding.rows}


@pytest.mark.parametrize(("case", "printed", "corrected", "mean", "error", "pfedhn"), PUBLISHED)
def test_check_b(
    rows: dict[str, Row], case: str, printed: float, corrected: float, mean: float, error: float, pfedhn: float
) -> None:
    row = rows[case]
    assert row.printed == pytest.approx(printed, abs=0.0051)
    assert row.corrected == pytest.approx(corrected, abs=0.0051)
    assert row.reference == pfedhn
    assert row.measured is not None
    assert row.error is not None
    assert abs(row.measured - corrected) <= 3 * row.error + 0.005
    assert abs(row.measured - mean) <= 3 * np.hypot(row.error, error) + 0.005
    assert row.printed_holds is False
    assert "too low" in row.verdict


def test_check_a(rows: dict[str, Row]) -> None:
    panacea, pfedhn = rows["Panacea, G with columns to one"], rows["pFedHN there"]
    assert panacea.corrected == pytest.approx(10.13, abs=0.0051)
    assert panacea.printed == pytest.approx(10.13, abs=0.0051)
    assert pfedhn.corrected == pytest.approx(27.8, abs=0.051)
    assert pfedhn.printed == 40
    assert panacea.distance is not None
    assert pfedhn.distance is not None
    assert max(panacea.distance, pfedhn.distance) < 3
    assert panacea.verdict == "holds"
    assert pfedhn.verdict == "printed formula is 1.4x too high"
    descent = rows["largest |V - Vhat| after descent from V0"]
    assert descent.measured is not None
    assert descent.measured < 1e-9


def test_covariance_in_between() -> None:
    """Clients that are neither independent nor alike."""
    G, C = by_columns(star(6)), 0.5 * np.eye(6) + 0.5
    panacea, _ = simulate(G, 2, 10, 2, C, TRIALS, np.random.default_rng(3))
    _near(panacea, corrected_risk(G, 2, 10, 2, C))


def test_rows_to_one_are_the_same_algebra() -> None:
    G = by_rows(star(8))
    panacea, pfedhn = simulate(G, 1, 20, 3, np.eye(8), TRIALS, np.random.default_rng(4))
    _near(panacea, printed_risk(G, 1, 20, 3))
    _near(pfedhn, hypernetwork_risk(G, 1, 20, 3))
    assert descend(by_columns(path(6)), 2, 8, 2, np.random.default_rng(0)) < 1e-9


def test_a_wrong_formula_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("panacea.theory.recovery.corrected_risk", lambda G, m, d, k, C: printed_risk(G, m, d, k))
    finding = check_recovery(Settings(trials=2_000))
    assert not finding.holds
    assert any(row.verdict.startswith("CORRECTED FORMULA FAILS") for row in finding.rows)
