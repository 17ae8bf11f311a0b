"""The bytes of a round where the network has BatchNorm, whose statistics travel or stay."""

from __future__ import annotations

import pytest

from tests.contract.test_contract import METHODS, kept_locally, value_of
from tests.toy import play, toy_experiment


@pytest.mark.parametrize("name", METHODS)
def test_the_formula_of_bytes_counts_statistics_where_they_travel(name: str) -> None:
    """A network with BatchNorm: U is 4 (P + B) where its B statistics are shared, and 4 P where they stay."""
    experiment = toy_experiment(name, dtype="float32", **{"model.norm": "batch"})
    (report,) = play(experiment, 1)
    size = experiment.target.layout.size
    shared = experiment.target.statistics.numel() if experiment.config.buffers == "shared" else 0
    facts = experiment.method.facts
    assert facts is not None
    values = {"U": 4 * (size + shared), "P": size, "P_own": kept_locally(experiment)}
    for formula, found in ((facts.down, report.bytes_down), (facts.up, report.bytes_up)):
        assert value_of(formula, values) == found / 3, f"{name}: {formula}"
