"""SFL by hand and against dense products.

Two clients with a link of weight 0.5, one layer: At = [[2/3, 1/3], [1/3, 2/3]]. One step a round, rho_1 = 0.3,
rho_2 = 0.6; the network of tests/methods/test_worked_examples.py.
Round 1: all models are (1, 0, 0) and nothing pulls: w_0 = (1.4, 0.8, 0.4), w_1 = (1, -0.2, -0.2). Then
u_0 = (2 w_0 + w_1) / 3 = (19/15, 7/15, 0.2), u_1 = (w_0 + 2 w_1) / 3 = (17/15, 2/15, 0), w_g = (1.2, 0.3, 0.1).
Round 2, from w_g: client 0, prediction 1.9, error -1.1, gradient (-2.2, -4.4, -2.2), pull 0.3 (w_g - u_0) =
    0.3 (-1/15, -1/6, -0.1) = (-0.02, -0.05, -0.03), w_0 = (1.422, 0.745, 0.323); client 1, prediction 0.4, error 1.4,
    gradient (0, 2.8, 2.8), pull (0.02, 0.05, 0.03), w_1 = (1.198, 0.015, -0.183).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from panacea.core.types import Cohort, Newcomers
from panacea.errors import RequestError
from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment
from panacea.graphs import ClientGraph
from tests.hypernets.build import complete_graph, graph_of, random_graph
from tests.methods.test_worked_examples import example, trajectory_of_all
from tests.methods.visits import after, both_engines, close, evaluated, everyone, look, sampled
from tests.toy import largest_difference, play, toy_experiment, toy_federation, trajectory

FREE = {"rho_graph": 0.0, "rho_global": 0.0}


def linked_example(parameters: dict[str, Any], engine: str, steps: int = 1) -> Experiment:
    plain = example("fedavg", steps)
    federation = dataclasses.replace(plain.federation, graph=graph_of(2, [(0, 1)], [0.5]))
    flat: dict[str, Any] = {"data": "hand", "method": "sfl", "lr": 0.1, "dtype": "float64", "cohort": 2, "rounds": 3}
    flat |= {"local_steps": steps, "engine": engine} | {f"method.{key}": value for key, value in parameters.items()}
    return Experiment(build_config(flat), federation, plain.target.module)


def linked_toy(graph: ClientGraph, monkeypatch: pytest.MonkeyPatch, parameters: Any = None, **keys: Any) -> Experiment:
    federation = dataclasses.replace(toy_federation(), graph=graph)
    monkeypatch.setattr("tests.toy.toy_federation", lambda: federation)
    return toy_experiment("sfl", parameters, **keys)


@both_engines
class TestByHand:
    def test_two_rounds(self, engine: str) -> None:
        experiment = linked_example({"layers": 1, "rho_graph": 0.3, "rho_global": 0.6}, engine)
        play(experiment, 1)
        assert trajectory_of_all(experiment).tolist() == [
            pytest.approx([19 / 15, 7 / 15, 0.2]),
            pytest.approx([17 / 15, 2 / 15, 0.0]),
        ]
        seen = look(experiment)
        assert seen.downloads.overall.tolist() == [pytest.approx([1.2, 0.3, 0.1])] * 2
        assert seen.uploads.params.tolist() == [
            pytest.approx([1.422, 0.745, 0.323]),
            pytest.approx([1.198, 0.015, -0.183]),
        ]

    def test_both_pulls_hold_from_the_second_step_on(self, engine: str) -> None:
        """In round 1 both centres are (1, 0, 0): 0.2 and 0.3 together are FedProx's 0.5 (see there)."""
        for parameters in ({"rho_graph": 0.2, "rho_global": 0.3}, {"rho_graph": 0.5, "rho_global": 0.0}):
            seen = look(linked_example(parameters, engine, steps=2))
            assert seen.uploads.params.tolist() == [
                pytest.approx([1.3, 0.6, 0.3]),
                pytest.approx([1.0, -0.31, -0.31]),
            ]

    def test_a_layer_more_smooths_once_more(self, engine: str) -> None:
        """At^2 = [[5, 4], [4, 5]] / 9; half of it with mix 0.5: [[14, 4], [4, 14]] / 18."""
        for mix, own, other in ((1.0, 5 / 9, 4 / 9), (0.5, 7 / 9, 2 / 9)):
            experiment = linked_example({"layers": 2, "mix": mix}, engine)
            play(experiment, 1)
            expected = [
                [own * a + other * b for a, b in zip(*rows, strict=True)]
                for rows in (([1.4, 0.8, 0.4], [1.0, -0.2, -0.2]), ([1.0, -0.2, -0.2], [1.4, 0.8, 0.4]))
            ]
            assert trajectory_of_all(experiment).tolist() == [pytest.approx(row) for row in expected]


@pytest.mark.parametrize("layers", [1, 3])
def test_a_complete_graph_with_everyone_present_is_fedavg(layers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sfl = linked_toy(complete_graph(7), monkeypatch, {**FREE, "layers": layers}, cohort=6)
    play(sfl, 4)
    fedavg = after(4, "fedavg", {"weighting": "uniform"}, cohort=6)
    assert close(evaluated(sfl), evaluated(fedavg))
    assert close(sfl.method.overall(sfl.state.server), fedavg.state.server.params)


def test_pulls_without_a_gradient_are_no_pulls() -> None:
    detached = after(4, "sfl", {"detached_reg": True, "rho_graph": 2.0, "rho_global": 3.0})
    free = after(4, "sfl", FREE)
    assert largest_difference(trajectory(detached), trajectory(free)) == 0.0
    assert largest_difference(trajectory(after(4, "sfl")), trajectory(free)) > 1e-4


def operator(graph: ClientGraph, layers: int, mix: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    """``(1 - a) I + a At^L`` with At the row-normalised adjacency, self loops of weight one added."""
    adjacency = np.asarray(graph.dense(), np.float64) + np.eye(graph.n)
    adjacency /= adjacency.sum(axis=1, keepdims=True)
    return (1 - mix) * np.eye(graph.n) + mix * np.linalg.matrix_power(adjacency, layers)


@pytest.mark.parametrize("layers", [0, 1, 2, 3])
@pytest.mark.parametrize("mix", [1.0, 0.5])
@pytest.mark.parametrize("directed", [False, True])
def test_centres_and_newcomers_are_those_of_the_dense_product(
    layers: int, mix: float, directed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six training clients and the novel seventh, random links of random weights, one client without any.

    Training and the read-out know the graph among training clients only; a newcomer's row is smoothed over the whole
    graph, from w_g.
    """
    graph = random_graph(7, 3, weighted=True, directed=directed, alone=0)
    assert graph.dense()[6].any()
    experiment = linked_toy(graph, monkeypatch, {"layers": layers, "mix": mix})
    play(experiment, 3)
    models = experiment.state.server.models.numpy()
    inner = operator(graph.take(np.arange(6)), layers, mix)
    u, overall = inner @ models, (inner @ models).mean(axis=0)
    assert np.allclose(evaluated(experiment).numpy(), u, rtol=0, atol=1e-12)
    cohort = experiment.cohort(4)
    download = experiment.method.download(experiment.state.server, cohort)
    assert np.allclose(download.near.numpy(), u[cohort.ids], rtol=0, atol=1e-12)
    assert np.allclose(download.overall.numpy(), overall, rtol=0, atol=1e-12)
    mixing = experiment.method.collaboration(experiment.state.server, everyone(experiment))
    assert np.allclose(mixing.numpy(), inner, rtol=0, atol=1e-12)
    newcomer = (operator(graph, layers, mix) @ np.vstack([models, overall]))[6]
    assert np.allclose(evaluated(experiment, novel=True)[0].numpy(), newcomer, rtol=0, atol=1e-12)


def test_a_newcomer_without_a_graph_has_the_global_model() -> None:
    experiment = after(2, "sfl")
    state = experiment.state
    found = experiment.method.admit(state.server, state.clients, Newcomers(np.array([6]), None))
    assert torch.equal(found[0], experiment.method.overall(state.server))
    assert not close(evaluated(experiment, novel=True), found, 1e-6)  # with its links it has another


def test_clients_that_are_not_sampled_keep_their_model() -> None:
    experiment = toy_experiment("sfl", cohort=2)
    for _ in range(3):
        before, seen = experiment.state.server.models.clone(), look(experiment)
        play(experiment, 1)
        after_it, rows = experiment.state.server.models, seen.cohort.ids
        assert torch.equal(after_it[rows], seen.uploads.params)
        idle = np.setdiff1d(np.arange(6), rows)
        assert torch.equal(after_it[idle], before[idle])
    never = ~sampled(experiment)
    assert never.any()
    assert bool((experiment.state.server.models[never] == experiment.target.initial).all())


def test_a_row_that_is_not_trusted_moves_by_its_trust() -> None:
    experiment = after(1, "sfl")
    seen, server = look(experiment), experiment.state.server
    trust = torch.tensor([[1.0], [0.25], [0.0]], dtype=torch.float64)
    cohort: Cohort = dataclasses.replace(seen.cohort, trust=trust)
    rows = cohort.ids
    found = experiment.method.aggregate(server, seen.uploads, cohort).models[rows]
    assert close(found, server.models[rows] + trust * (seen.uploads.params - server.models[rows]))


def test_it_asks_for_a_graph_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RequestError, match=r"^method=sfl needs a relation graph[^\n]*$"):
        linked_toy(None, monkeypatch)  # type: ignore[arg-type]
