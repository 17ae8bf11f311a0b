"""`panacea federate local` is `panacea run` between processes: same parameters, same table, nothing left behind."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from panacea.cli import run_command_line
from panacea.experiment.rundir import RunDirectory
from tests.network.stage import processes_of

pytestmark = pytest.mark.network
pytest.importorskip("flwr", reason="needs the extra federation")

SAME = ("mean", "std", "final_mean", "best_mean", "selected_round", "novel_mean", "worst_decile", "clients", "rounds")


def federate(*words: str, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "panacea", "federate", "local", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def simulated(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()
    assert run_command_line(["run", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def parameters(directory: str) -> dict[str, np.ndarray]:
    """The server's tensors in the newest checkpoint."""
    checkpoint, _ = RunDirectory(Path(directory)).checkpoints.load()
    assert checkpoint is not None
    return {name: tensor.numpy() for name, tensor in checkpoint.tensors.items() if name.startswith("server")}


def rows(directory: str) -> list[dict[str, str]]:
    with (Path(directory) / "clients.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def same(there: dict[str, Any], here: dict[str, Any]) -> None:
    """A federated run and a simulated one are the same run."""
    for key in SAME:
        known = here[key] is not None  # there may be no novel clients
        assert there[key] == (pytest.approx(here[key], rel=1e-4, abs=1e-4) if known else None), key
    remote, local = parameters(there["directory"]), parameters(here["directory"])
    assert remote.keys() == local.keys()
    assert remote
    for name, value in local.items():
        np.testing.assert_allclose(remote[name], value, rtol=1e-5, atol=1e-5, err_msg=name)
    for one, other in zip(rows(there["directory"]), rows(here["directory"]), strict=True):
        assert one["name"] == other["name"]
        for key in ("metric", "loss", "n_train", "n_test", "novel"):
            assert float(one[key]) == pytest.approx(float(other[key]), rel=1e-4, abs=1e-4), (one["name"], key)


def test_a_federation_of_six_is_the_simulation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = ["data=fl60", "method=panacea", "rounds=3", "seed=0", "data.clients=6"]
    process = federate(*keys, f"out={tmp_path / 'there'}", "--clients", "6", "--json", "--keep")
    out, err = process.communicate(timeout=400)
    assert process.returncode == 0, err
    same(json.loads(out), simulated(capsys, *keys, f"out={tmp_path / 'here'}"))
    deployment = next((tmp_path / "there").glob(".federation-*"))
    nodes = json.loads((deployment / "nodes.json").read_text())["clients"]
    assert len({entry["node_id"] for entry in nodes.values()}) == 6  # every client came in with a key of its own
    assert "insecure: false" in (deployment / "server.yaml").read_text()
    assert processes_of(tmp_path / "there") == []


@pytest.mark.paper
@pytest.mark.parametrize("method", ["fedrep", "scaffold", "apfl"])
def test_methods_that_keep_state_at_clients(tmp_path: Path, capsys: pytest.CaptureFixture[str], method: str) -> None:
    """The same as client by client. All clients at once round otherwise, and here 150 steps make 5e-3 of that."""
    keys = ["data=digits", "data.clients=5", f"method={method}", "rounds=3", "seed=1", "eval_every=2"]
    process = federate(*keys, f"out={tmp_path / 'there'}", "--clients", "5", "--json")
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    same(json.loads(out), simulated(capsys, *keys, "engine=sequential", f"out={tmp_path / 'here'}"))


@pytest.mark.paper
def test_temperatures_of_stations(tmp_path: Path, capsys: pytest.CaptureFixture[str], real_data: Path) -> None:
    keys = ["data=tpt48", f"data.root={real_data}", "method=panacea", "rounds=3", "seed=0", "data.clients=6"]
    if not list(real_data.glob("tpt*48*")):
        pytest.skip("tpt48 is not at hand")
    process = federate(*keys, f"out={tmp_path / 'there'}", "--clients", "6", "--json")
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    same(json.loads(out), simulated(capsys, *keys, f"out={tmp_path / 'here'}"))


@pytest.mark.paper
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_behind(tmp_path: Path, how: signal.Signals) -> None:
    process = federate("data=fl60", "method=fedavg", "rounds=500", f"out={tmp_path}", "--clients", "2", "--quiet")
    end = time.monotonic() + 240
    while not list(tmp_path.glob("*/timings.jsonl")) and time.monotonic() < end:
        time.sleep(0.5)
    process.send_signal(how)
    _, err = process.communicate(timeout=60)
    assert process.returncode == (130 if how != signal.SIGKILL else -9), err
    end = time.monotonic() + 30
    while processes_of(tmp_path) and time.monotonic() < end:
        time.sleep(0.5)
    assert processes_of(tmp_path) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["data=fl60", "method=fedavgg", "--clients", "2"], "did you mean 'fedavg'"),
        (["data=fl60", "method=fedavg", "rounds=0"], "rounds=0"),
        (["data=fl60", "method=fedavg", "--clients", "0"], "data.clients"),
        (["data=fl60", "method=fedavg", "--deadline", "-3"], "deadline=-3"),
    ],
)
def test_wrong_requests_start_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert run_command_line(["federate", "local", f"out={tmp_path}", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.strip().splitlines()) == 1
    assert processes_of(tmp_path) == []
