"""Large heads: plain SGD by the factors of a gradient, and how many models are looked at after a round."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from panacea.core.parameters import Layout
from panacea.hypernets import GeneratingMethod, generating
from tests.hypernets.build import random_graph, rounds, server

COHORTS = [[0, 2, 5], [1, 2], [0, 4]]


@pytest.mark.parametrize("extra", [{}, {"weight_decay": 0.2, "clip": 0.05}, {"newcomer_view": 0.0, "lambda_d": 0.0}])
@pytest.mark.parametrize("name", ["panacea", "panacea_mlp"])
def test_plain_sgd_takes_the_factors(name: str, extra: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Three rounds with the rank-|S| update end where the ordinary gradient does."""
    keys = {"optimiser": "sgd"} | ({} if name == "panacea_mlp" else {"newcomer_view": 0.5}) | extra
    keys = {k: v for k, v in keys.items() if name == "panacea" or k not in ("newcomer_view", "lambda_d")}
    method, start = server(name, random_graph(7, 2), keys, server_lr=0.05)
    assert method.factored == "head.weight"
    thin = rounds(method, start, COHORTS)
    monkeypatch.setattr(GeneratingMethod, "factored", None)
    plain = rounds(*server(name, random_graph(7, 2), keys, server_lr=0.05), COHORTS)
    assert torch.allclose(thin.weights, plain.weights, rtol=0, atol=1e-12)
    assert torch.allclose(thin.table, plain.table, rtol=0, atol=1e-12)
    assert torch.allclose(thin.terms, plain.terms, rtol=0, atol=1e-10)
    assert (thin.weights - start.weights).abs().max() > 1e-3


@pytest.mark.parametrize("keys", [{"optimiser": "momentum"}, {"optimiser": "sgd", "heads": "low_rank"}])
def test_what_has_no_factors(keys: dict[str, Any]) -> None:
    assert server("panacea", random_graph(7, 2), keys)[0].factored is None


def test_of_large_models_few_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen clients besides the cohort, or as many as fit: memory grows with the cohort, not by sixteen models."""
    graph, layout = random_graph(30, 2), Layout(("fc.weight",), ((10, 10),))
    assert len(server("panacea", graph, layout=layout)[0]._probed) == 16
    monkeypatch.setattr(generating, "_PROBED_NUMBERS", 350)
    assert len(server("panacea", graph, layout=layout)[0]._probed) == 3
    monkeypatch.setattr(generating, "_PROBED_NUMBERS", 50)
    assert len(server("panacea", graph, layout=layout)[0]._probed) == 1
