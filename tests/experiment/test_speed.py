"""What `panacea bench` measures with: timing, agreement of results, targets, growth. Few steps, few clients."""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from panacea.errors import RequestError, RunFailure
from panacea.experiment.config import build_config
from panacea.experiment.speed import Bench, Curve, Plan, Point, Request, Row, check_growth, check_rows, measure_engines
from panacea.experiment.speed import workloads as all_workloads
from panacea.experiment.speed.baselines import plain_round
from panacea.experiment.speed.engines import engine_keys
from panacea.experiment.speed.growth import large_round, measure_growth
from panacea.experiment.speed.measuring import WARM_UP, Timing, interleave, one_thread
from panacea.experiment.speed.peers import Peers
from panacea.experiment.speed.roofline import Roofline, gemm_peak, step_flops
from panacea.experiment.speed.runners import EngineRunner, PlainRunner
from panacea.experiment.speed.workloads import experiment_of, find_workload
from panacea.report.bench import write_bench
from tests.toy import without_compiling


class Clock:
    """A runner whose rounds take given times."""

    def __init__(self, seconds: list[float], fails_at: int = 0) -> None:
        self.seconds, self.fails_at, self.seen = seconds, fails_at, list[int]()

    def round(self, number: int) -> float:
        self.seen.append(number)
        if number == self.fails_at:
            raise RunFailure("it broke")
        return self.seconds[number - 1]

    def score(self) -> float | None:
        return 50.0


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """All workloads with two local steps."""
    made = tuple(dataclasses.replace(work, steps=2) for work in all_workloads._WORKLOADS)
    monkeypatch.setattr(all_workloads, "_WORKLOADS", made)
    without_compiling(monkeypatch)


def row(scores: dict[str, float | None], metric: str = "accuracy", seconds: float = 1.0) -> Row:
    timings = {name: Timing((seconds,), seconds, score) for name, score in scores.items()}
    return Row(find_workload("W1"), 50, 354, metric, timings, Roofline(10, 100, 1e9))


def test_the_first_rounds_are_not_timed_and_the_median_is_taken() -> None:
    clock = Clock([9.0, 5.0, 1.0, 3.0, 2.0])
    timings, notes = interleave({"a": clock}, 3)
    assert WARM_UP == 2
    assert clock.seen == [1, 2, 3, 4, 5]
    assert timings["a"].seconds == (1.0, 3.0, 2.0)
    assert timings["a"].median == 2.0
    assert timings["a"].wait == 7.0
    assert notes == []


def test_a_runner_that_fails_leaves_the_others_running() -> None:
    good, bad = Clock([1.0] * 4), Clock([1.0] * 4, fails_at=2)
    timings, notes = interleave({"bad": bad, "good": good}, 2)
    assert list(timings) == ["good"]
    assert good.seen == [1, 2, 3, 4]
    assert bad.seen == [1, 2]
    assert notes == ["bad: it broke"]


def test_a_runner_that_cannot_be_scored_is_left_out() -> None:
    class Lost(Clock):
        def score(self) -> float | None:
            raise RunFailure("it ended")

    timings, notes = interleave({"lost": Lost([1.0] * 3), "good": Clock([1.0] * 3)}, 1)
    assert list(timings) == ["good"]
    assert notes == ["lost: it ended"]


def test_a_warning_becomes_one_note() -> None:
    class Talks(Clock):
        def round(self, number: int) -> float:
            warnings.warn("compiled in a while", stacklevel=1)
            return 1.0

    _, notes = interleave({"talks": Talks([])}, 2)
    assert notes == ["talks: compiled in a while"]


def test_a_busy_machine_shows() -> None:
    assert Timing((2.0, 3.0, 4.0), 9.0, None, (1.0, 1.5, 2.0)).busy == 2.0
    assert Timing((2.0,), 9.0).busy == 1.0
    timings, _ = interleave({"asleep": Clock([1.0] * 3)}, 1)
    assert timings["asleep"].busy > 100  # it says a second and computed nothing


def fixed(runners: Mapping[str, object], *_: object) -> tuple[dict[str, Timing], list[str]]:
    """Every round takes a second, whoever runs it."""
    return {name: Timing((1.0,), 1.0) for name in runners}, []


def test_what_loops_over_fewer_clients_is_multiplied(monkeypatch: pytest.MonkeyPatch) -> None:
    few = dataclasses.replace(find_workload("W1"), steps=2, looped=2)
    monkeypatch.setattr(all_workloads, "_WORKLOADS", (few,))
    monkeypatch.setattr("panacea.experiment.speed.engines.interleave", fixed)
    without_compiling(monkeypatch)
    (found,) = measure_engines(Request(only=("W1",)))
    assert found.scaled == ("plain", "sequential")
    assert found.timings["plain"].median == 2.5  # 5 clients instead of 2
    assert found.timings["vectorised"].median == 1.0
    monkeypatch.setattr("panacea.experiment.speed.growth.interleave", fixed)
    monkeypatch.setattr(Plan, "sizes", lambda self, curve: (4, 40))
    (curve,) = measure_growth(Plan(only=("cohort",)))
    assert [point.ms["sequential"] for point in curve.points] == [1000.0, 2000.0]
    assert [point.ms["vectorised"] for point in curve.points] == [1000.0, 1000.0]


def test_one_thread_is_given_back() -> None:
    before = torch.get_num_threads()
    with one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


def test_all_ways_to_run_a_workload_end_with_the_same_model() -> None:
    work = dataclasses.replace(find_workload("W1"), steps=3)
    reference = experiment_of(work, {"engine": "sequential"}, "cpu")
    fast = experiment_of(work, {"engine": "vectorised"}, "cpu")
    runners = {"plain": PlainRunner(reference, work), "sequential": EngineRunner(reference), "fast": EngineRunner(fast)}
    timings, _ = interleave(runners, 1)
    plain = torch.cat([value.detach().flatten() for value in runners["plain"].network.parameters()])  # type: ignore[attr-defined]
    torch.testing.assert_close(plain, reference.state.server.params, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(fast.state.server.params, reference.state.server.params, rtol=1e-4, atol=1e-6)
    assert not torch.equal(plain, reference.target.initial)
    assert len({round(timing.score or 0, 6) for timing in timings.values()}) == 1


def test_a_plain_round_is_the_mean_of_the_clients_descents() -> None:
    network = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(network.weight, 1.0)
    one = [(torch.tensor([[2.0]]), torch.tensor([[0.0]]))]  # gradient of (2 w)^2 is 8 w
    two = [(torch.tensor([[1.0]]), torch.tensor([[0.0]]))]  # of w^2: 2 w
    new = plain_round(network, [one, two], 0.1, torch.nn.functional.mse_loss)
    assert new.weight.item() == pytest.approx((0.2 + 0.8) / 2)  # type: ignore[union-attr, operator]
    assert network.weight.item() == 1.0  # the given one is left alone


def test_engines_are_those_of_the_device() -> None:
    assert list(engine_keys("cpu")[0]) == ["sequential", "vectorised", "compiled"]
    assert engine_keys("cpu")[0]["compiled"] == {"engine": "vectorised", "engine.compile": True}
    keys, notes = engine_keys("cpu", quick=True)
    assert list(keys) == ["sequential", "vectorised"]
    assert "--quick" in notes[0]
    keys, notes = engine_keys("cuda", quick=True)
    assert keys["vectorised"] == {"engine": "vectorised", "engine.capture": False}
    assert keys["captured"] == {"engine": "vectorised", "engine.capture": True}
    assert "compiled" not in keys
    assert keys["deterministic"] == {**keys["captured"], "engine.deterministic": True}
    keys, notes = engine_keys("cuda")
    assert list(keys) == ["sequential", "vectorised", "captured", "compiled", "deterministic"]
    assert notes == []
    for own in keys.values():
        build_config({"data": "fl60", "method": "fedavg", **own})  # they are keys


@pytest.mark.usefixtures("short")
def test_a_workload_is_measured_in_every_engine() -> None:
    said: list[str] = []
    (found,) = measure_engines(Request(only=("W1",), repeats=1), said.append)
    assert {"plain", "sequential", "vectorised"} <= set(found.timings)
    assert len(said) == len(found.timings) * (WARM_UP + 1)
    assert found.ratio("vectorised", "plain") == pytest.approx(
        found.timings["plain"].median / found.timings["vectorised"].median
    )
    assert found.ratio("vectorised", "pfl") is None
    for name in found.timings:
        assert found.agrees(name, 1.0) is True
    record = Bench("cpu", [found]).record()
    assert json.loads(json.dumps(record)) == record
    assert record["machine"]["threads"] == 1
    assert record["versions"]["torch"]
    assert record["workloads"][0]["ratios"]["plain"]["vectorised"] == found.ratio("vectorised", "plain")


@pytest.mark.usefixtures("short")
def test_panacea_is_measured_against_a_naive_loop() -> None:
    pytest.importorskip("torch_geometric")
    (found,) = measure_engines(Request(only=("W1-panacea",), repeats=1))
    assert {"plain", "sequential", "vectorised"} <= set(found.timings)
    assert found.agrees("plain", 1.0) is None  # another start: nothing to compare
    assert found.agrees("vectorised", 1.0) is True


@pytest.mark.parametrize(
    ("metric", "own", "agrees"),
    [("accuracy", 50.9, True), ("accuracy", 51.1, False), ("mse", 0.0504, True), ("mse", 0.052, False)],
)
def test_another_result_is_noticed(metric: str, own: float, agrees: bool) -> None:
    made = row({"sequential": 50.0 if metric == "accuracy" else 0.05, "pfl": own}, metric)
    assert made.agrees("pfl", 1.0) is agrees
    assert bool(Bench("cpu", [made]).mismatches()) is not agrees


def test_targets_hold_fail_or_were_not_measured() -> None:
    timings = {"plain": 4.0, "sequential": 4.0, "vectorised": 1.0}
    made = dataclasses.replace(row({}), timings={name: Timing((s,), s) for name, s in timings.items()})
    checks = {check.what: check for check in check_rows([made], "cpu")}
    assert checks["W1: vectorised against plain"].holds is True
    assert checks["W1: vectorised against plain"].measured == 4.0
    assert checks["W1: vectorised against sequential"].holds is False
    assert checks["W1: vectorised against pfl"].holds is None
    assert not any(what.startswith("W2") for what in checks)  # not asked for
    assert checks["W1: first wait of vectorised"].holds is True
    assert check_rows([made], "cuda")[0].holds is None


def test_targets_of_growth() -> None:
    points = (Point(1_000, {"vectorised": 10.0}, 10**8), Point(100_000, {"vectorised": 29.0}, 3 * 10**9))
    checks = check_growth([Curve("clients", "", points)], "cpu")
    assert [check.holds for check in checks] == [True, False]
    seeds = (Point(1, {"W1": 10.0, "W2": 10.0}), Point(5, {"W1": 16.0, "W2": 14.0}))
    assert [check.holds for check in check_growth([Curve("replicas", "", seeds)], "cuda")] == [False, True]
    assert check_growth([Curve("replicas", "", seeds)], "cpu") == []  # promised on a GPU only


def test_operations_are_counted_from_the_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    work = dataclasses.replace(find_workload("W1"), steps=1)
    found = step_flops(experiment_of(work, {"engine": "sequential"}, "cpu"), work)
    forward = 2 * 64 * (2 * 16 + 16 * 16 + 16 * 2)
    backward = 2 * forward - 2 * 64 * 2 * 16  # the gradient at the inputs is not needed
    assert found == forward + backward
    assert Roofline(found, 10 * found, 1e6).share(2.0) == pytest.approx(5 * found / 1e6)
    monkeypatch.setattr("panacea.experiment.speed.roofline.timed", lambda *_: 0.5)
    assert gemm_peak("cpu") == 4 * 1024**3


@pytest.mark.usefixtures("short")
def test_growth_in_clients_and_models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Plan, "sizes", lambda self, curve: {"cohort": (2, 40), "model": (4, 8)}[curve])
    curves = list(measure_growth(Plan(only=("cohort", "model"), repeats=1)))
    assert [curve.name for curve in curves] == ["cohort", "model"]
    cohort, model = curves
    assert [point.size for point in cohort.points] == [2, 40]
    assert cohort.points[1].scaled == ("sequential",)  # 20 of the 40 were really looped over
    assert cohort.points[0].scaled == ()
    assert [point.size for point in model.points] == [
        2 * 4 + 4 + 4 * 4 + 4 + 4 * 2 + 2,
        2 * 8 + 8 + 8 * 8 + 8 + 8 * 2 + 2,
    ]
    write_bench(Bench("cpu", curves=curves), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"growth.json", "growth.png", "growth.svg"}


def test_a_round_among_many_clients_says_its_memory() -> None:
    point = large_round(50, 1, "cpu")
    assert point.size == 50
    assert point.ms["vectorised"] > 0
    assert 5e7 < (point.memory or 0) < 1e11


def test_seeds_in_lock_step_are_measured(tmp_path: Path) -> None:
    (curve,) = measure_growth(Plan(only=("replicas",), repeats=1, quick=True))
    assert [point.size for point in curve.points] == [1, 5]
    for point in curve.points:
        assert 0 < point.ms["W1 training"] < 30 * point.ms["W1"]  # both are of all seeds, in milliseconds
        assert point.ms["W1"] < 30 * point.ms["W1 training"]
    write_bench(Bench("cpu", curves=[curve]), tmp_path)
    assert (tmp_path / "growth.png").exists()


# --- peers ------------------------------------------------------------------------------------------------------------

FAKE_SERVER = """
import copy
from flcore.clients.clientavg import clientAVG

def read_client_data(*_, **__):
    raise RuntimeError("files are not read")

class FedAvg:
    def __init__(self, args, times):
        from flcore.servers import serverbase
        print("a peer may print")
        self.global_model, self.num_join_clients = copy.deepcopy(args.model), 0
        self.clients = [
            clientAVG(args, i, serverbase.read_client_data(args.dataset, i, is_train=True))
            for i in range(args.num_clients)
        ]
        assert args.never_heard_of == 0
        self.sent = self.mixed = 0
    def send_models(self):
        assert self.sent == self.mixed, "the round before was not aggregated"
        self.sent += 1
        for client in self.clients:
            client.model.load_state_dict(self.global_model.state_dict())
    def receive_models(self):
        self.uploaded = [client.model for client in self.selected_clients]
    def aggregate_parameters(self):
        self.mixed += 1
        for mean, *own in zip(self.global_model.parameters(), *(m.parameters() for m in self.uploaded)):
            mean.data = sum(p.data for p in own) / len(own)
"""
FAKE_CLIENT = """
import copy, torch
class clientAVG:
    def __init__(self, args, number, samples):
        self.model, self.samples, self.args = copy.deepcopy(args.model), samples, args
    def train(self):
        x = torch.stack([x for x, _ in self.samples])[: self.args.batch_size]
        y = torch.stack([y for _, y in self.samples])[: self.args.batch_size]
        optimiser = torch.optim.SGD(self.model.parameters(), lr=self.args.local_learning_rate)
        for _ in range(self.args.local_epochs):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(self.model(x), y).backward()
            optimiser.step()
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the classes and methods of PFLlib that its adapter calls."""
    files = {"servers/serveravg.py": FAKE_SERVER, "servers/serverbase.py": "", "clients/clientavg.py": FAKE_CLIENT}
    for name, text in {**files, "clients/clientbase.py": ""}.items():
        path = tmp_path / "system" / "flcore" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.usefixtures("short")
def test_a_peer_takes_turns_in_a_process_of_its_own(checkout: Path) -> None:
    request = Request(only=("W1",), repeats=1, peers=Peers(("pfllib",), checkout))
    (found,) = measure_engines(request)
    assert found.notes[-1:] == () or "pfllib" not in found.notes[-1]
    assert found.timings["pfllib"].median > 0
    assert found.versions == {"pfllib": "checkout"}
    assert found.timings["pfllib"].score is not None
    assert found.timings["pfllib"].score > 0


@pytest.mark.usefixtures("short")
def test_a_peer_that_is_not_there_is_a_note(tmp_path: Path) -> None:
    (found,) = measure_engines(Request(only=("W1",), repeats=1, peers=Peers(("pfl",), python=_python(tmp_path))))
    assert "pfl" not in found.timings
    assert any("pip install 'pfl==0.6.0'" in note for note in found.notes)


def _python(folder: Path) -> Path:
    """An interpreter that has torch and us, and no pfl."""
    import sys

    path = folder / "python"
    (folder / "pfl.py").write_text("raise ImportError('No module named pfl')\n")
    path.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}:$PYTHONPATH" exec {sys.executable} "$@"\n')
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("peers", "word"),
    [
        ({"names": ("flowre",)}, "did you mean 'flower'"),
        ({"names": ("pfllib",)}, "--pfllib PATH"),
        ({"pfllib": Path("/nowhere")}, "system/flcore"),
        ({"python": Path("/nowhere/python")}, "no such file"),
    ],
)
def test_wrong_peers_are_refused(peers: dict[str, object], word: str) -> None:
    with pytest.raises(RequestError, match=word):
        Peers(**peers)  # type: ignore[arg-type]
