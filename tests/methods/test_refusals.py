"""Settings that cannot work are refused before training, in one line that names the key."""

from __future__ import annotations

from typing import Any

import pytest

from panacea.errors import RequestError
from tests.toy import play, toy_experiment


@pytest.mark.parametrize(
    ("method", "parameters", "key"),
    [
        ("ditto", {"lam": 20.0}, "method.lam=20"),
        ("fedprox", {"mu": 25.0}, "method.mu=25"),
        ("fedprox_ft", {"mu": 25.0}, "method.mu=25"),
        ("sfl", {"rho_graph": 15.0, "rho_global": 6.0}, r"method.rho_graph \+ method.rho_global=21"),
        ("pfedme", {"lam": 20.0}, "method.lam=20"),
        ("heurfedamp", {"rho": 30.0}, "method.rho=30"),
    ],
)
def test_a_pull_stronger_than_the_rate_bears(method: str, parameters: dict[str, float], key: str) -> None:
    """lr 0.1: a pull of 20 doubles the distance in every step."""
    with pytest.raises(RequestError, match=rf"^method={method}: lr=0.1 times {key} must be below 2[^\n]*$"):
        toy_experiment(method, parameters)


def test_pulls_without_a_gradient_cannot_diverge() -> None:
    experiment = toy_experiment("sfl", {"rho_graph": 50.0, "detached_reg": True})
    play(experiment, 1)


@pytest.mark.parametrize(
    ("method", "parameters", "keys", "words"),
    [
        ("fedrep", {}, {"local_steps": 1}, "local_steps=1 leaves no step to the body"),
        ("fedcg", {"source": "kmeans", "domains": 7}, {}, "method.domains=7: k-means has 6 training clients only"),
    ],
)
def test_what_could_never_begin(method: str, parameters: dict[str, Any], keys: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        toy_experiment(method, parameters, **keys)


def test_an_oracle_says_that_it_uses_a_newcomers_group() -> None:
    for source, uses in (("teacher", "nothing"), ("kmeans", "nothing"), ("oracle", "group")):
        from panacea.methods import make_method

        assert make_method("fedcg", {"source": source}).newcomer_uses == uses


@pytest.mark.parametrize("engine", ["sequential", "vectorised"])
@pytest.mark.parametrize("keys", [{}, {"local_epochs": 2}])
def test_a_hessian_does_not_count_in_the_training_loss(engine: str, keys: dict[str, Any]) -> None:
    """The passes of the exact variant and of hf are at almost the same points; both log the mean loss of a pass."""
    losses = []
    for variant in ("exact", "hf"):
        experiment = toy_experiment("perfedavg", {"variant": variant, "delta": 1e-6}, engine=engine, **keys)
        losses.append([report.loss for report in play(experiment, 2)])
    assert losses[0] == pytest.approx(losses[1], rel=0.1)
