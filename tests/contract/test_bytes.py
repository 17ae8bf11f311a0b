"""The bytes of a round: the numbers of the papers, and the formulas every method states of itself."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import pytest

from panacea.methods import method_names
from tests.toy import play, toy_experiment

METHODS = method_names()

# bytes of one round over the cohort, in models sent down and up (one model is 4 (P + S) bytes per client)
MODELS_SENT = {
    "separate": (0, 0),
    **dict.fromkeys(("fedavg", "fedavg_ft", "fedprox", "fedprox_ft", "perfedavg"), (1, 1)),
    **dict.fromkeys(("ditto", "pfedme", "apfl", "fedamp", "heurfedamp"), (1, 1)),
    "scaffold": (2, 2),
    "sfl": (2, 1),
    **dict.fromkeys(("fedper", "fedrep"), (20 / 32, 20 / 32)),  # likewise
    "fedbn": (32 / 42, 32 / 42),  # scales and shifts of five units stay, and so do their statistics
    **dict.fromkeys(("panacea", "panacea_gn", "panacea_mlp", "pfedhn"), (1, 1)),
    "pfedhn_pc": (20 / 32, 20 / 32),  # the last layer (12 of 32 parameters) stays with the client
    "fedcg": (1, Fraction(633, 1165)),  # all but teacher (516) and A (16); tests/methods/test_fedcg.py has the formula
}


@pytest.mark.parametrize("name", METHODS)
def test_the_models_sent_are_those_of_the_paper(name: str) -> None:
    experiment = toy_experiment(name, dtype="float32")
    (report,) = play(experiment, 1)
    unit = 4 * experiment.target.layout.size * 3
    down, up = MODELS_SENT[name]
    assert (report.bytes_down, report.bytes_up) == (down * unit, up * unit)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("norm", ["none", "batch"])
def test_a_method_states_the_right_formula(name: str, norm: str) -> None:
    """U is 4 (P + B) where the B statistics of BatchNorm are shared, and 4 P where they stay or there are none."""
    experiment = toy_experiment(name, dtype="float32", **({} if name == "fedbn" else {"model.norm": norm}))
    (report,) = play(experiment, 1)
    layout, facts = experiment.target.layout, experiment.method.facts
    shared = experiment.target.statistics.numel() if experiment.config.buffers == "shared" else 0
    assert facts is not None
    given = sum(size for tensor, size in zip(layout.names, layout.sizes, strict=True) if tensor.startswith("given."))
    values = {
        "U": 4 * (layout.size + shared),
        "P": layout.size,
        "P_own": _kept_locally(experiment),
        "P_given": given,  # FedCG's teacher and adjacency are not sent back
    }
    for formula, found in ((facts.down, report.bytes_down), (facts.up, report.bytes_up)):
        product = re.sub(r"(\d)(?=[A-Z(])", r"\1*", formula)  # 4P is 4 * P
        assert eval(product, {"__builtins__": {}}, values) == found / 3, f"{name}: {formula}"


def _kept_locally(experiment: Any) -> int:
    """Parameters of the network that never travel, of a method that divides it."""
    scope = getattr(experiment.method, "scope", None)
    if scope is None or scope.chosen is None:
        return 0
    return len(scope.rest if experiment.method.name == "pfedhn_pc" else scope.chosen)
