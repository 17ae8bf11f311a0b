"""What a GPU is asked to do, tried on one that is none (see `tests.gpu`): its own tests, and what those cannot see."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from panacea.cli.app import run_command_line
from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment
from panacea.methods import method_names
from panacea.robustness import DEFENCES
from tests.gpu import stand_in
from tests.gpu.streams import Machine
from tests.parity.test_gpu import (  # noqa: F401
    compare_with_runs_alone,
    test_batches_drawn_by_a_graph_are_the_same,
    test_captured_steps_equal_those_taken_one_by_one,
    test_convolutions_twice_the_same_bits,
    test_gates_by_the_gpus_own_kernel,
    test_methods,
    test_methods_captured,
    test_runs_in_lanes_of_their_own,
    test_seeds_together_on_the_gpu,
    test_targets,
)
from tests.robustness.playing import fight
from tests.toy import largest_difference, play, toy_experiment, trajectory


@pytest.fixture(autouse=True)
def gpu() -> Iterator[Machine]:
    with stand_in() as machine:
        yield machine


@pytest.mark.parametrize("method", method_names())
def test_a_round_waits_once_for_what_it_has_trained(method: str, gpu: Machine) -> None:
    """And for nothing before: what is brought to the host then has all been made, so more copies wait for nothing."""
    experiment = toy_experiment(method, device="cuda", rounds=20)
    play(experiment, 5)  # everybody was seen, and graphs are captured
    gpu.waits.clear()
    play(experiment, 3)
    if experiment.engine.home.device.type == "cuda":
        assert gpu.waits.total() <= 3 * 2  # whether it is finite, and the loss
    else:
        assert set(gpu.waits) == {"copy to the host"}


def compare_with_cpu(method: str, rounds: int, **keys: Any) -> None:
    found = []
    for device, how in (("cpu", "sequential"), ("cuda", "vectorised")):
        experiment = toy_experiment(method, engine=how, device=device, rounds=rounds, **keys)
        fight(experiment, rounds)
        found.append({name: value.cpu() for name, value in trajectory(experiment).items()})
    assert largest_difference(*found) < 1e-9


@pytest.mark.parametrize(
    "keys",
    [
        {"method.heads": "low_rank"},
        {"method.encoder": "gat"},
        {"method.execution": "sparse"},
        {"method.execution": "neighbourhood", "method.fanout": 2},
        {"method.preset": "paper"},
        {"method.update": "frozen_delta"},
    ],
)
def test_ways_of_panacea(keys: dict[str, object]) -> None:
    compare_with_cpu("panacea", 6, **keys)


@pytest.mark.parametrize(
    "attack", ["label_flip", "model_poisoning", "gaussian", "absent", "alie", "minmax", "malformed"]
)
def test_attacks(attack: str) -> None:
    compare_with_cpu("panacea", 5, **{"attack": attack, "attack.ratio": 0.4})


@pytest.mark.parametrize("defence", sorted(DEFENCES))
def test_defences(defence: str) -> None:
    keys = {"defence": defence, "attack": "sign_flip", "attack.ratio": 0.3, "engine.server": "device"}
    compare_with_cpu("fedavg", 5, **keys)


@pytest.mark.parametrize("method", sorted(set(method_names()) - {"panacea", "sfl", "ditto", "separate"}))
def test_every_method_in_lanes(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In two sides, with their servers on the GPU; what a newcomer trains is in lanes as well."""
    monkeypatch.setattr("panacea.experiment.replicas._TWO_SIDES", 2)
    compare_with_runs_alone(method, runs=3, rounds=3, **{"engine.server": "device", "eval_every": 2})


def test_a_large_graph_waits_for_nothing_more(gpu: Machine) -> None:
    """Plans are made anew in every round, of sparse matrices."""
    flat = {"data": "fl60", "data.clients": 2500, "method": "panacea", "device": "cuda", "rounds": 4, "local_steps": 2}
    experiment = Experiment(build_config(flat))
    play(experiment, 3)
    gpu.waits.clear()
    play(experiment, 1)
    assert gpu.waits.total() == 2  # whether all is finite, and the loss
    assert torch.isfinite(trajectory(experiment)["evaluated.True"]).all()


@pytest.mark.parametrize("method", ["panacea", "scaffold", "fedamp"])
def test_going_on_from_a_checkpoint(method: str) -> None:
    found = []
    for stops in (False, True):
        experiment = toy_experiment(method, device="cuda", rounds=6)
        play(experiment, 3)
        if stops:
            checkpoint = experiment.to_checkpoint()
            experiment = toy_experiment(method, device="cuda", rounds=6)
            experiment.restore(checkpoint)
        play(experiment, 3)
        found.append({name: value.cpu() for name, value in trajectory(experiment).items()})
    assert largest_difference(*found) == 0


def test_the_commands(tmp_path: Path) -> None:
    """A run from the command line, a newcomer's model from it, and methods compared."""
    keys = ["data=fl60", "device=cuda", "eval_every=2", "rounds=3", f"out={tmp_path}", "--quiet"]
    assert run_command_line(["run", "method=panacea", *keys]) == 0
    (run,) = tmp_path.glob("fl60-panacea-*")
    about = yaml.safe_load((run / "config.yaml").read_text())["environment"]
    assert about["accelerator"] == torch.cuda.get_device_name()
    newcomer = tmp_path / "newcomer.safetensors"
    assert run_command_line(["join", str(run), "--neighbors", "3,17", "--out", str(newcomer)]) == 0
    assert newcomer.exists()
    assert run_command_line(["compare", "methods=panacea,sfl,fedamp", "seeds=0..1", "--workers", "1", *keys]) == 0
