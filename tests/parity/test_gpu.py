"""The same experiment on a GPU: float64 within 1e-9 of the reference engine on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from panacea.data.federation import Federation
from panacea.engines.drawing import DrawGraphs
from panacea.engines.gru import gates_of, gru_cell
from panacea.engines.rows import Party, Rows
from panacea.engines.vectorised import VectorisedEngine
from panacea.experiment import experiment as experiment_module
from panacea.experiment.batch import Job, run_batch
from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment
from panacea.experiment.replicas import Meeting, run_together
from panacea.experiment.runner import run_experiment
from panacea.hypernets.learning import LearningServer
from panacea.methods import method_names
from tests.parity.targets import TARGETS
from tests.toy import largest_difference, outcome, play, toy_experiment, trajectory

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA"),
]


@pytest.mark.parametrize("method", method_names())
def test_methods(method: str) -> None:
    """Twenty rounds of every method; the fast engine on the GPU."""
    results = []
    for device, how in (("cpu", "sequential"), ("cuda", "vectorised")):
        experiment = toy_experiment(method, engine=how, device=device, rounds=20)
        losses = torch.tensor([report.loss for report in play(experiment, 20)], dtype=torch.float64)
        results.append({"losses": losses, **{name: value.cpu() for name, value in trajectory(experiment).items()}})
    assert largest_difference(*results) < 1e-9


@pytest.mark.parametrize("method", method_names())
def test_methods_captured(method: str) -> None:
    """Steps of every method are captured, ragged numbers of steps too, and the numbers stay."""
    results = []
    for device, how in (("cpu", "sequential"), ("cuda", "vectorised")):
        experiment = toy_experiment(method, engine=how, device=device, rounds=6, local_epochs=2)
        losses = torch.tensor([report.loss for report in play(experiment, 6)], dtype=torch.float64)
        results.append({"losses": losses, **{name: value.cpu() for name, value in trajectory(experiment).items()}})
        if isinstance(experiment.engine, VectorisedEngine):
            assert experiment.engine.graphs is not None
            assert experiment.engine.graphs.graphs
            assert not experiment.engine.graphs.hopeless
            if isinstance(experiment.method, LearningServer):
                assert experiment.method._graphs.graphs
                assert not experiment.method._graphs.hopeless
    assert largest_difference(*results) < 1e-7


@pytest.mark.parametrize("method", method_names())
def test_float32_and_twice_the_same(method: str) -> None:
    """Within a point of the reference engine on the CPU after twenty rounds; two runs on the GPU are identical."""
    metrics = []
    for keys in ({"engine": "sequential"}, _ON_THE_GPU, _ON_THE_GPU):
        flat = {"data": "fl60", "method": method, "rounds": 20, **keys, **_CALM.get(method, {})}
        experiment = Experiment(build_config(flat))
        run_experiment(experiment)
        if isinstance(experiment.engine, VectorisedEngine):
            assert experiment.engine.graphs is not None
            assert not experiment.engine.graphs.hopeless
        assert experiment.history.last is not None
        metrics.append(experiment.history.last.test.metric)
    assert metrics[1].tolist() == metrics[2].tolist()
    assert metrics[0].mean() == pytest.approx(metrics[1].mean(), abs=1.0)


_ON_THE_GPU = {"device": "cuda", "engine": "vectorised", "engine.deterministic": True}
_CALM = {"fedbn": {"model.norm": "batch", "lr": 0.01, "cohort": 48, "local_steps": 5}}
"""With five clients a round batch norms make points of a last bit: float32 and float64 of one engine differ as much."""


def test_convolutions_twice_the_same_bits() -> None:
    """With `engine.deterministic`."""
    params = []
    for _ in range(2):
        federation, module = TARGETS["cnn"]()
        flat = {
            "data": "own", "method": "fedavg", "rounds": 5, "local_steps": 6, "cohort": 3, "lr": 0.05, "batch_size": 7,
            "device": "cuda", "engine.deterministic": True,
        }  # fmt: skip
        experiment = Experiment(build_config(flat), federation, module)
        play(experiment, 5)
        params.append(experiment.state.server.params.cpu())
    assert torch.equal(*params)


def test_seeds_together_on_the_gpu(tmp_path: Path) -> None:
    """Five seeds in one call have the numbers they have alone."""
    found = []
    for together in (True, False):
        keys = {
            "data": "fl60",
            "method": "fedavg",
            "rounds": 10,
            "device": "cuda",
            "out": str(tmp_path / str(together)),
        }
        jobs = [Job(build_config({**keys, "seed": seed, "engine.together": together})) for seed in range(5)]
        found.append([one.summary for one in run_batch(jobs, workers=1, pages=False)])
    for a, b in zip(*found, strict=True):
        assert a is not None
        assert b is not None
        assert a["mean"] == pytest.approx(b["mean"], abs=1.0)


def test_batches_drawn_by_a_graph_are_the_same() -> None:
    """Of two runs in one call, several times; and again after an attacker has changed its labels."""
    flat = {"data": "fl60", "method": "fedavg", "device": "cuda", "rounds": 1}
    samples = [Experiment(build_config({**flat, "seed": seed})).engine.samples for seed in (0, 1)]
    graphs = DrawGraphs()
    for round in range(1, 9):
        if round == 5:
            first, end = samples[0].bounds[3, :2]
            samples[0].replace_targets(int(first), 1 - samples[0].y[first:end])
        ids = np.random.default_rng(round).choice(60, (2, 5), replace=False)
        rows = Rows(tuple(Party(own, np.sort(ids[n]), round, "train") for n, own in enumerate(samples)))
        ours, expected = list(graphs.stretches(rows, 50, 2, 64)), list(rows.stretches(50, 2, 64))
        assert len(ours) == len(expected) == 1
        for name in ("x", "y", "weight"):
            assert torch.equal(getattr(ours[0], name), getattr(expected[0], name))
    assert len(graphs.graphs) == 2


@pytest.mark.parametrize("two_sides_from", [2, 8])
@pytest.mark.parametrize("method", ["panacea", "sfl", "ditto"])
def test_runs_in_lanes_of_their_own(method: str, two_sides_from: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers of several runs work at the same time, and nobody reads what another has not finished."""
    monkeypatch.setattr("panacea.experiment.replicas._TWO_SIDES", two_sides_from)
    compare_with_runs_alone(method, runs=4, rounds=12)


def compare_with_runs_alone(method: str, runs: int, rounds: int, **keys: Any) -> None:
    """Runs that advance together, each made in its own lane, as `panacea compare` does, give what they give alone."""

    def made(seed: int) -> Experiment:
        return toy_experiment(method, device="cuda", rounds=rounds, seed=seed, **keys)

    alone = [made(seed) for seed in range(runs)]
    for experiment in alone:
        run_experiment(experiment)
    others: dict[int, Experiment] = {}

    def run(number: int, meeting: Meeting, asked: object) -> None:
        others[number] = made(number)
        meeting.join(number, others[number])
        run_experiment(others[number])

    run_together(range(runs), run)
    for number, one in enumerate(alone):
        engine = others[number].engine
        assert isinstance(engine, VectorisedEngine)
        engine.together = None  # the others are over
        assert largest_difference(outcome(one), outcome(others[number])) < 1e-9


def test_captured_steps_equal_those_taken_one_by_one() -> None:
    """The same kernels in the same order."""
    params = []
    for capture in (True, False):
        flat = {"data": "fl60", "method": "fedavg", "rounds": 5, "device": "cuda", "engine.capture": capture}
        experiment = Experiment(build_config(flat))
        play(experiment, 5)
        params.append(experiment.state.server.params.cpu())
    assert torch.equal(*params)


def test_gates_by_the_gpus_own_kernel() -> None:
    """First and second derivatives equal those of the formulas, which the same layer uses on a CPU."""
    found = []
    for device in ("cpu", "cuda"):
        torch.manual_seed(0)
        given = [torch.randn(*shape, dtype=torch.float64) for shape in ((3, 4, 2), (3, 4, 5), (3, 15, 2), (3, 15, 5))]
        given = [one.to(device).requires_grad_() for one in (*given, *torch.randn(2, 3, 15, dtype=torch.float64))]
        state = gru_cell(*given[:2], gates_of(*given[2:]))
        first = torch.autograd.grad(state.square().sum(), given, create_graph=True)
        second = torch.autograd.grad(sum((one.square().sum() for one in first), state.new_zeros(())), given)
        found.append([one.detach().cpu() for one in (state, *first, *second)])
    for ours, reference in zip(*found, strict=True):
        assert torch.allclose(ours, reference, rtol=0, atol=1e-12)


def test_a_deep_network_is_vectorised_in_float32() -> None:
    """The comparison with the loop must not be in TF32, in which eighteen layers differ by more than it allows."""
    generator = np.random.default_rng(0)
    x = [generator.normal(size=(8, 3, 32, 32)).astype(np.float32) for _ in range(3)]
    federation = Federation.from_arrays(x, [generator.integers(0, 10, 8) for _ in x], classes=10)
    keys = {"model": "resnet18", "model.stem": "cifar", "model.norm": "group", "device": "cuda", "rounds": 1}
    experiment = Experiment(build_config({"data": "own", "method": "fedavg", **keys}), federation)
    assert isinstance(experiment.engine, VectorisedEngine)
    assert experiment.engine.forward.kind == "batched"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("traced", [False, True])
def test_targets(target: str, traced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment_module, "_TRACE_FROM", 1 if traced else 10**9)  # recurrences are recorded, too
    results = []
    for device, how in (("cpu", "sequential"), ("cuda", "vectorised")):
        federation, module = TARGETS[target]()
        flat: dict[str, Any] = {
            "data": "own", "method": "fedavg", "rounds": 5, "local_steps": 6, "cohort": 3, "lr": 0.05, "batch_size": 7,
            "dtype": "float64", "engine": how, "device": device,
        }  # fmt: skip
        experiment = Experiment(build_config(flat), federation, module)
        summary = run_experiment(experiment)
        results.append((experiment.state.server.params.cpu(), summary["mean"]))
    assert float((results[0][0] - results[1][0]).abs().max()) < 1e-9
    assert results[0][1] == pytest.approx(results[1][1], abs=0.2)
