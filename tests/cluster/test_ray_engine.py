"""`engine=ray`: the numbers of one process, whatever happens to the workers."""

from __future__ import annotations

import gc
import os
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import panacea
from panacea.core.method import Method
from panacea.core.records import Tree
from panacea.engines.ray_engine import RayEngine
from panacea.engines.ray_session import RaySession
from panacea.errors import RequestError, RunFailure
from panacea.experiment.config import build_config, identity
from panacea.experiment.experiment import Experiment
from panacea.experiment.rundir import RunDirectory
from panacea.experiment.runner import Callback, run_experiment
from panacea.methods import method_names
from panacea.methods.fedavg import FedAvg
from tests.parity.targets import TARGETS
from tests.toy import largest_difference, outcome, play, toy_experiment

pytestmark = pytest.mark.network


def on_ray(method: str, workers: int = 2, **keys: Any) -> Experiment:
    return toy_experiment(method, engine="ray", **{"engine.workers": workers, **keys})


@pytest.fixture(autouse=True)
def _one_ray(ray_here: RaySession) -> None:
    """Every test finds it warm."""


@pytest.mark.parametrize("method", method_names())
def test_every_method_has_the_numbers_of_one_process(method: str) -> None:
    alone, shared = toy_experiment(method), on_ray(method)
    for experiment in (alone, shared):
        play(experiment, 3)
    assert largest_difference(outcome(alone), outcome(shared)) < 1e-12
    assert shared.engine.gradient_evaluations == alone.engine.gradient_evaluations > 0


class TestNumbers:
    @pytest.mark.parametrize("workers", [1, 3])
    def test_they_do_not_depend_on_the_number_of_workers(self, workers: int) -> None:
        alone = toy_experiment("scaffold", cohort=5, local_epochs=2)
        shared = on_ray("scaffold", workers, cohort=5, local_epochs=2)
        for experiment in (alone, shared):
            play(experiment, 3)
        assert largest_difference(outcome(alone), outcome(shared)) < 1e-12

    @pytest.mark.parametrize("target", ["gru", "cnn_with_statistics"])
    def test_ragged_clients_with_batch_norm_and_windows(self, target: str) -> None:
        federation, module = TARGETS[target]()
        flat = {
            "data": "own", "method": "fedavg", "rounds": 3, "local_steps": 4, "cohort": 3, "lr": 0.05, "batch_size": 7,
            "dtype": "float64", "eval_every": 1,
        }  # fmt: skip
        keys: list[dict[str, Any]] = [{}, {"engine": "ray", "engine.workers": 2}]
        alone, shared = (Experiment(build_config({**flat, **more}), federation, module) for more in keys)
        summaries = [run_experiment(experiment) for experiment in (alone, shared)]
        found = [experiment.to_checkpoint().tensors for experiment in (alone, shared)]
        assert largest_difference(found[0], found[1]) < 1e-9
        assert summaries[1]["mean"] == pytest.approx(summaries[0]["mean"], abs=1e-6)

    def test_single_precision_within_the_stated_tolerance(self) -> None:
        alone, shared = toy_experiment("fedavg", dtype="float32"), on_ray("fedavg", dtype="float32")
        for experiment in (alone, shared):
            play(experiment, 20)
        assert largest_difference(outcome(alone), outcome(shared)) < 2e-5

    def test_a_run_is_one_run_whoever_computes_it(self) -> None:
        """Neither the number of workers nor the cluster is part of its identity; that it is Ray is."""
        plain, two, three = toy_experiment("fedavg"), on_ray("fedavg", 2), on_ray("fedavg", 3)
        assert identity(two.config) == identity(three.config) != identity(plain.config)

    def test_a_method_that_changes_between_rounds_is_sent_again(self) -> None:
        alone, shared = toy_experiment("fedavg"), on_ray("fedavg")
        for experiment in (alone, shared):
            experiment.method = Fading()
            play(experiment, 3)
        assert largest_difference(outcome(alone), outcome(shared)) < 1e-12

    def test_resumed_on_another_number_of_workers(self, tmp_path: Path) -> None:
        keys = {"rounds": 4, "eval_every": 1, "out": str(tmp_path)}
        whole = toy_experiment("ditto", **keys)
        expected = run_experiment(whole)
        first = on_ray("ditto", 2, **keys)
        directory = RunDirectory.of(first.config, "ditto")
        stopper = Callback()
        stopper.stopping = True
        with pytest.raises(Exception, match="interrupted after round 1"):
            run_experiment(first, directory, [stopper])
        found = run_experiment(on_ray("ditto", 3, **keys), directory)
        assert found["mean"] == pytest.approx(expected["mean"], abs=1e-9)


class TestAttacks:
    @pytest.mark.parametrize("start", [1, 3])
    def test_poisoned_labels_reach_the_workers(self, start: int) -> None:
        keys = {"attack": "label_flip", "attack.ratio": 0.4, "attack.start": start, "cohort": 5, "eval_every": 1}
        alone, shared = toy_experiment("fedavg", **keys), on_ray("fedavg", **keys)
        clean = toy_experiment("fedavg", cohort=5)
        for experiment in (alone, shared, clean):
            run_experiment(experiment)
        assert largest_difference(outcome(alone), outcome(shared)) < 1e-12
        assert largest_difference(outcome(alone), outcome(clean)) > 1e-3

    def test_triggers_reach_the_workers(self, real_data: Path) -> None:
        flat = {
            "data": "digits", "data.root": str(real_data), "data.clients": 6, "method": "fedavg", "rounds": 2,
            "local_steps": 3, "attack": "backdoor_patch", "attack.ratio": 0.5, "eval_every": 1, "lr": 0.1,
            "dtype": "float64",
        }  # fmt: skip
        alone, shared = (Experiment(build_config({**flat, "engine": name})) for name in ("vectorised", "ray"))
        assert alone.triggered is not None
        summaries = [run_experiment(experiment) for experiment in (alone, shared)]
        assert largest_difference(alone.to_checkpoint().tensors, shared.to_checkpoint().tensors) < 1e-9
        assert summaries[0]["asr_mean"] == pytest.approx(summaries[1]["asr_mean"])


class TestFaults:
    def test_a_killed_worker_is_replaced(self, tmp_path: Path) -> None:
        """In the middle of a run: the files are the same to the last byte. The new one has the poisoned labels, too."""
        keys = {"rounds": 5, "cohort": 5, "attack": "label_flip", "attack.ratio": 0.8, "attack.start": 2}
        keys["eval_every"] = 5  # so that whoever is killed after a round is missed in training
        calm = on_ray("ditto", out=str(tmp_path / "calm"), **keys)
        run_experiment(calm, there := RunDirectory.of(calm.config, "ditto"))
        struck = on_ray("ditto", out=str(tmp_path / "struck"), **keys)
        killer = _Killer()
        run_experiment(struck, here := RunDirectory.of(struck.config, "ditto"), [killer])
        assert here.metrics.read_bytes() == there.metrics.read_bytes()
        assert largest_difference(outcome(calm), outcome(struck)) == 0
        assert len(killer.killed) == 2
        told = [note for note in killer.notes if "died; a new one" in note]
        assert len(told) == 2
        assert str(killer.killed[0]) in told[0]

    def test_workers_that_always_die_end_the_run_with_one_line(self) -> None:
        experiment = on_ray("fedavg", cohort=1)
        experiment.method = Deadly()
        with pytest.warns(UserWarning, match="died"), pytest.raises(RunFailure, match="3 Ray workers died"):
            play(experiment, 1)

    def test_an_error_in_a_method_names_method_client_and_round(self) -> None:
        experiments = [toy_experiment("fedavg", engine="sequential"), on_ray("fedavg")]
        words = []
        for experiment in experiments:
            experiment.method = Failing()
            with pytest.raises(RunFailure) as caught:
                play(experiment, 1)
            words.append(str(caught.value))
        assert words[0] == words[1]
        assert "in round 1, step 2: ValueError: no more" in words[1]

    def test_notes_of_workers_are_told_once(self) -> None:
        experiment = Experiment(build_config({"data": "own", "method": "fedavg", "engine": "ray", "rounds": 2,
            "local_steps": 2, "lr": 0.1}), toy_experiment("fedavg").federation, Stubborn())  # fmt: skip
        heard = _Killer(of=0)
        run_experiment(experiment, None, [heard])
        assert len([note for note in heard.notes if "Stubborn cannot be vectorised" in note]) == 1


class TestRequests:
    def test_ray_is_imported_in_one_place_which_keeps_it_on_loopback(self, ray_here: RaySession) -> None:
        """Ray reads its settings at its import; whoever imports it earlier opens it to the network."""
        source = Path(panacea.__file__).parent
        found = [
            path.name for path in source.rglob("*.py") if re.search(r"^\s*(import|from) ray\b", path.read_text(), re.M)
        ]
        assert sorted(found) == ["ray_session.py", "ray_worker.py"]
        assert [node["NodeManagerAddress"] for node in ray_here.ray.nodes()] == ["127.0.0.1"]

    def test_a_gpu_is_refused(self) -> None:
        with pytest.raises(RequestError, match="device=cuda"):
            on_ray("fedavg", device="cuda")

    def test_another_cluster_in_the_same_process_is_refused(self) -> None:
        experiment = toy_experiment("fedavg", engine="ray", **{"engine.address": "auto"})
        with pytest.raises(RequestError, match="this process is connected to the Ray 'local'"):
            play(experiment, 1)

    def test_a_ray_client_is_refused(self) -> None:
        experiment = toy_experiment("fedavg", engine="ray", **{"engine.address": "ray://127.0.0.1:10001"})
        with pytest.raises(RequestError, match="run the command on a node"):
            play(experiment, 1)

    def test_experiments_that_are_gone_hold_nothing(self, ray_here: RaySession) -> None:
        experiment = on_ray("fedavg")
        gc.collect()
        before = ray_here.users
        play(experiment, 1)
        assert ray_here.users == before + 1
        del experiment
        gc.collect()
        assert ray_here.users == before


class _Killer(Callback):
    """Kills a worker after rounds 2 and 4, the second time while all of them are at work."""

    def __init__(self, of: int = 2) -> None:
        self.of, self.killed, self.notes = of, list[int](), list[str]()

    def on_round(self, experiment: Experiment, report: object) -> None:
        if experiment.state.round in (2, 4) and self.of:
            assert isinstance(experiment.engine, RayEngine)
            process = experiment.engine.pool.processes[len(self.killed)]
            assert process is not None
            os.kill(process, signal.SIGKILL)
            self.killed.append(process)

    def on_note(self, note: str) -> None:
        self.notes.append(note)


class Fading(FedAvg):
    """Looks at a number of its own that the server changes."""

    factor = 1.0

    def download(self, server: Tree, cohort: Any) -> Tree:
        self.factor = 1.0 / cohort.round
        return super().download(server, cohort)

    def step(self, carry: Tree, download: Tree, client: Tree, batches: Any, local: Any) -> Tree:
        new = super().step(carry, download, client, batches, local)
        return type(new)(new.params * self.factor, *[getattr(new, f) for f in list(vars(new))[1:]])


class Failing(Method):
    name = "failing"
    steps = 0

    def step(self, carry: Tree, download: Tree, client: Tree, batches: Any, local: Any) -> Tree:
        self.steps += 1
        if self.steps % 2 == 0:
            raise ValueError("no more")
        return super().step(carry, download, client, batches, local)


class Deadly(Method):
    name = "deadly"

    def step(self, carry: Tree, download: Tree, client: Tree, batches: Any, local: Any) -> Tree:
        os.kill(os.getpid(), signal.SIGKILL)
        return carry


class Stubborn(nn.Module):
    """Looks at values, which neither tracing nor vmap can do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) if float(x.sum()) < np.inf else x
