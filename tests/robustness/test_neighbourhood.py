"""The defence by the relation graph, by numbers worked out by hand and in whole runs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from panacea.core.method import Method, Model
from panacea.core.random import Streams
from panacea.core.records import named_leaves, nbytes
from panacea.core.round import run_round
from panacea.core.screening import Judged
from panacea.core.types import Cohort
from panacea.errors import RequestError
from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment
from panacea.experiment.rundir import RunDirectory
from panacea.experiment.runner import run_experiment
from panacea.graphs import ClientGraph
from panacea.robustness import make_defence
from panacea.robustness.measures import trust_auc
from panacea.robustness.neighbourhood import Heard, Neighbourhood
from panacea.robustness.sketch import Sketch
from tests.toy import toy_experiment, toy_federation, trajectory


class Likely(Method):
    """A method that thinks links to client 1 half and to client 2 a quarter likely."""

    def link_probability(self, server: Any, a: Any, b: Any) -> Tensor:
        return torch.tensor([0.5 if j == 1 else 0.25 for j in b], dtype=torch.float64)


def guard(
    n: int, edges: list[tuple[int, int]], weights: list[float] | None = None, method: Method | None = None, **keys: Any
) -> Neighbourhood:
    made = make_defence("neighbourhood", keys, method or Method())
    assert isinstance(made, Neighbourhood)
    graph, _ = ClientGraph.from_edges(n, edges, weights)
    made.begin(SimpleNamespace(graph=graph, streams=Streams(0)), method or Method())  # type: ignore[arg-type]
    return made


def hear(made: Neighbourhood, memory: Any, ids: list[int], updates: list[list[float]]) -> tuple[Any, Judged]:
    rows = torch.tensor(updates, dtype=torch.float64)
    cohort = Cohort.of(np.array(ids), np.ones(100, np.int64), 1, rows)
    judged = Judged(Model(torch.zeros_like(rows)), Model(rows), rows[:, :0], cohort.trust, {})
    return made.judge(memory, judged, rows[:, :0], cohort)


ALL_LINKED = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]


def test_a_liar_among_three_that_agree_by_hand() -> None:
    made = guard(4, ALL_LINKED)
    memory, judged = hear(made, None, [0, 1, 2, 3], [[1, 0], [1, 0], [1, 0], [-1, 0]])
    # honest: p = (1 + 1 - 1) / 3, q = 1/3, cos 1: c = 1/2 + 1/2 * 1/3 * 1/2; the liar: q = 1, cos -1
    assert torch.allclose(memory.agreement, torch.tensor([7 / 12, 7 / 12, 7 / 12, -1 / 4], dtype=torch.float64))
    assert judged.trust[:, 0].tolist() == [1, 1, 1, 0]
    assert judged.reasons == {3: "contradicts its neighbours"}
    assert not judged.uploads.params[3].any()
    memory, judged = hear(made, memory, [0], [[2, 0]])  # the liar is not listened to any more: q = 1
    assert torch.allclose(memory.agreement[0], torch.tensor(7 / 12 + 1 / 2 * 5 / 12, dtype=torch.float64))
    memory, judged = hear(made, memory, [3], [[1, 0]])  # an odd round is made good by the next
    assert torch.allclose(memory.agreement[3], torch.tensor(-1 / 4 + 1 / 2 * 5 / 4, dtype=torch.float64))
    assert judged.trust.tolist() == [[1]]


def test_edges_generator_and_lengths_weigh_by_hand() -> None:
    made = guard(3, [(0, 1), (0, 2)], [2, 1], Likely())
    memory, _ = hear(made, None, [1, 2], [[1, 0], [0, 1]])
    memory, _ = hear(made, memory, [0], [[0, 1]])
    p = np.array([0.8, 0.2])  # weights 2 * 1/2 and 1 * 1/4
    q = np.linalg.norm(p)
    assert float(memory.agreement[0]) == pytest.approx(0.5 + 0.5 * q * (0.2 / q - 0.5))
    # a third of the median length: loudness 2 * (1/3) / (4/3) = 1/2, in the memory and in the evidence
    memory, _ = hear(made, memory, [0], [[0, -1 / 3]])
    assert memory.directions[0].tolist() == pytest.approx([0, (1 - 0.5) / 2])
    before = 0.5 + 0.5 * q * (0.2 / q - 0.5)
    assert float(memory.agreement[0]) == pytest.approx(before + 0.5 * 0.5 * q * (-0.2 / q - before))


def test_who_cannot_be_compared_is_believed() -> None:
    made = guard(5, [(0, 1), (2, 3), (2, 4)])
    memory, judged = hear(made, None, [0, 1, 2], [[1, 0], [-1, 0], [-1, 0]])
    assert judged.trust.tolist() == [[1], [1], [1]]  # one neighbour heard, one, none
    assert memory.agreement.tolist() == [0.5] * 5


def test_a_neighbourhood_at_odds_with_itself_accuses_nobody() -> None:
    made = guard(3, [(0, 1), (0, 2)])
    memory, judged = hear(made, None, [0, 1, 2], [[-1, 0], [1, 0.01], [-1, 0.01]])
    assert memory.agreement[0] > 0.49
    assert judged.trust[0] == 1


def test_half_of_the_clients_keep_full_trust_whatever_happens() -> None:
    made = guard(6, [(i, j) for i in range(6) for j in range(i)])
    generator, memory = np.random.default_rng(0), None
    for _ in range(40):
        updates = generator.normal(size=(6, 2)) + np.repeat([[2, 0], [-2, 0]], 3, axis=0)  # two camps
        memory, judged = hear(made, memory, list(range(6)), updates.tolist())
        assert int((judged.trust > 0.999).sum()) >= 3


def test_an_update_longer_than_any_honest_one_is_refused_and_remembered() -> None:
    made = guard(12, [(i, j) for i in range(12) for j in range(i)])
    memory = None
    for length in (1, 1, 1, 1, 1, *[1e-3] * 20):  # in the end all are short
        memory, _ = hear(made, memory, list(range(12)), [[length, 0]] * 12)
    memory, judged = hear(made, memory, [3, 4], [[4.9, 0], [5.1, 0]])
    assert judged.reasons == {4: "too long an update"}
    assert judged.trust[:, 0].tolist() == [1, 0]
    assert float(memory.agreement[4]) < 0.1 < float(memory.agreement[3])
    memory, judged = hear(made, memory, [5], [[1e200, -1e200]])  # its square is no number
    assert judged.trust.tolist() == [[0]]
    assert all(torch.isfinite(leaf[~leaf.isnan()]).all() for _, leaf in named_leaves(memory))
    assert not memory.agreement.isnan().any()


def test_sketches_keep_angles_and_do_not_grow() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 20_011, generator=generator, dtype=torch.float64)
    y = x + torch.randn(40, 20_011, generator=generator, dtype=torch.float64)
    sketch = Sketch(256, Streams(3))
    a, b = sketch(x), sketch(y)
    assert a.shape == (40, 256)
    cosine = torch.nn.functional.cosine_similarity
    error = cosine(a, b) - cosine(x, y)
    assert float(error.abs().max()) < 4 / 16  # 1/sqrt(256)
    assert abs(float(error.mean())) < 1.5 / 16 / 40**0.5 * 2
    assert float(sketch(torch.ones(1, 20_011)).norm()) == pytest.approx(20_011**0.5, rel=0.3)  # by the signs
    assert torch.equal(Sketch(256, Streams(3))(x), a)
    assert not torch.equal(Sketch(256, Streams(4))(x), a)
    assert torch.equal(sketch(x[:, :256]), x[:, :256])


@pytest.mark.parametrize("width", [300, 5_000])
def test_memory_does_not_depend_on_the_size_of_the_model(width: int) -> None:
    made = guard(4, ALL_LINKED, sketch=64)
    memory, _ = hear(made, None, [0, 1], torch.randn(2, width, generator=torch.Generator().manual_seed(1)).tolist())
    assert nbytes(memory) == 8 * (4 * 64 + 4 + 200 + 1)


def test_without_a_graph_it_says_so() -> None:
    bare = dataclasses.replace(toy_federation(), graph=None)
    flat = {"data": "toy", "method": "pfedhn", "rounds": 1, "cohort": 2, "local_steps": 1, "batch_size": 2, "lr": 0.1}
    with pytest.raises(RequestError, match=r"^defence=neighbourhood needs a relation graph .* try graph=knn$"):
        Experiment(build_config(flat | {"defence": "neighbourhood"}), bare)


def _rounds(experiment: Experiment, count: int) -> None:
    for _ in range(count):
        cohort = experiment.cohort(experiment.state.round + 1)
        experiment.state, report = run_round(
            experiment.method, experiment.state, cohort, experiment.engine, experiment.attackers, experiment.defence
        )
        experiment.visits[cohort.ids] += 1
        experiment.trust[cohort.ids] = report.trust


LIED_TO = {"defence": "neighbourhood", "attack": "sign_flip", "attack.clients": [2], "cohort": 4, "rounds": 40}


@pytest.mark.parametrize("method", ["panacea", "pfedhn", "fedamp", "sfl", "fedavg"])
def test_resumes_bit_by_bit(method: str) -> None:
    one, two, three = (toy_experiment(method, **LIED_TO) for _ in range(3))
    _rounds(one, 6)
    _rounds(two, 3)
    three.restore(two.to_checkpoint())
    assert isinstance(three.state.memory, Heard)
    _rounds(three, 3)
    expected, found = one.to_checkpoint().tensors, three.to_checkpoint().tensors
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        if name not in ("visits", "trust"):
            assert torch.equal(value.nan_to_num(-7), found[name].nan_to_num(-7)), name


@pytest.mark.parametrize("method", ["panacea", "pfedhn", "sfl"])
def test_both_engines_judge_alike(method: str) -> None:
    made = [toy_experiment(method, engine=engine, **LIED_TO) for engine in ("vectorised", "sequential")]
    for experiment in made:
        _rounds(experiment, 4)
    assert np.allclose(made[0].trust, made[1].trust, atol=1e-8)
    a, b = (trajectory(experiment) for experiment in made)
    assert torch.allclose(a["memory.agreement"], b["memory.agreement"], atol=1e-8)


def test_panacea_says_how_likely_a_link_is() -> None:
    experiment = toy_experiment("panacea")
    method, server = experiment.method, experiment.state.server
    a, b = np.array([0, 0, 5]), np.array([1, 6, 4])  # client 6 is novel
    likely = method.link_probability(server, a, b)
    assert likely is not None
    z = method.encode(server, np.arange(6))  # type: ignore[attr-defined]
    parts = method.parts(server)  # type: ignore[attr-defined]
    hidden = torch.relu(z @ parts["links.0.weight"].T + parts["links.0.bias"])
    rows = hidden @ parts["links.1.weight"].T + parts["links.1.bias"]
    expected = torch.sigmoid((rows @ rows.T) / rows.shape[1] ** 0.5)
    assert torch.allclose(likely, torch.stack([expected[0, 1], torch.zeros(()).double(), expected[5, 4]]))
    assert toy_experiment("panacea_gn").method.link_probability(server, a, b) is None


def test_auc_of_trust() -> None:
    trust, visits = np.array([1.0, 0.4, 0.4, 0.9]), np.array([1, 2, 1, 0])
    assert trust_auc(trust, visits, np.array([False, False, True, True])) == 0.75
    assert np.isnan(trust_auc(trust, visits, np.zeros(4, bool)))


FL60 = {
    "data": "fl60", "data.clients": 30, "method": "pfedhn", "rounds": 80, "seed": 10, "eval_every": 80,
    "attack": "model_poisoning", "attack.ratio": 0.25, "method.hidden": 50, "local_steps": 20, "server_lr": 0.02,
}  # fmt: skip


def test_it_recovers_most_of_what_poisoning_costs(tmp_path: Path) -> None:
    without = run_experiment(Experiment(build_config(FL60)))
    experiment = Experiment(build_config(FL60 | {"defence": "neighbourhood"}))
    directory = RunDirectory(tmp_path / "run")
    held = run_experiment(experiment, directory)
    assert without["final_mean"] < 85
    assert held["final_mean"] > (100 + without["final_mean"]) / 2
    assert held["detection_precision"] > 0.9
    assert held["detection_recall"] > 0.5
    assert held["trust_auc"] > 0.95
    header, *rows = [line.split(",") for line in directory.clients.read_text().splitlines()]
    trust = {int(row[0]): float(row[header.index("trust")]) for row in rows}
    assert {i for i, value in trust.items() if value < 0.5} <= set(np.flatnonzero(experiment.malicious).tolist())
    assert all(f'"{name}":' in directory.metrics.read_text() for name in ("doubted", "trust"))


def test_honest_clients_lose_nothing() -> None:
    clean = {key: value for key, value in FL60.items() if not key.startswith("attack")} | {"rounds": 25}
    experiment = Experiment(build_config(clean | {"defence": "neighbourhood"}))
    summary = run_experiment(experiment)
    assert summary["doubted"] == 0
    assert (experiment.trust > 0.99).all()
