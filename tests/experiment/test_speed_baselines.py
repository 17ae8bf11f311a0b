"""The loops that claims of speed are measured against do the work they are said to do."""

from __future__ import annotations

from unittest import mock

import pytest
import torch

from panacea.core.round import run_round
from panacea.experiment.speed.runners import NaiveRunner, PlainRunner
from panacea.experiment.speed.workloads import experiment_of, find_workload

KEYS = {"engine": "sequential", "dtype": "float64"}


def test_the_plain_loop_is_fedavg() -> None:
    work = find_workload("W1")
    experiment = experiment_of(work, KEYS, "cpu")
    plain = PlainRunner(experiment, work)
    plain.network.double()
    for number in (1, 2):
        plain.round(number)
        experiment.state, _ = run_round(
            experiment.method, experiment.state, experiment.cohort(number), experiment.engine
        )
    found = torch.cat([value.detach().flatten() for value in plain.network.parameters()])
    assert torch.allclose(found, experiment.state.server.params.flatten(), rtol=0, atol=1e-12)


def test_the_naive_loop_is_panacea() -> None:
    """With all links in the view, and nobody practises: the two draw differently."""
    pytest.importorskip("torch_geometric")
    keys = {**KEYS, "method.newcomer_links": "all", "method.newcomer_practice": 0.0, "local_steps": 3}
    experiment = experiment_of(find_workload("W1-panacea"), keys, "cpu")
    method = experiment.method
    naive = NaiveRunner(experiment)
    naive.server.double()
    naive.network.double()

    def named() -> dict[str, torch.Tensor]:
        """What the two call the same, from the experiment's state."""
        parts, table = dict(method.parts(experiment.state.server)), experiment.state.server.table
        made = {"table.weight": table}
        for layer in range(3):
            made[f"layers.{layer}.lin_l.weight"] = parts[f"encoder.{layer}.weight"]
            made[f"layers.{layer}.lin_l.bias"] = parts[f"encoder.{layer}.bias"]
            made[f"layers.{layer}.lin_r.weight"] = parts[f"encoder.{layer}.own"]
        for ours, theirs in (("trunk", "trunk"), ("links", "transform")):
            for layer in (0, 1):
                for kind in ("weight", "bias"):
                    made[f"{theirs}.{2 * layer}.{kind}"] = parts[f"{ours}.{layer}.{kind}"]
        sizes = [head.out_features for head in naive.server.heads]
        for kind in ("weight", "bias"):
            for place, part in enumerate(parts[f"head.{kind}"].split(sizes)):
                made[f"heads.{place}.{kind}"] = part
        return made

    naive.server.load_state_dict(named(), strict=False)
    everybody = lambda rows: [naive.server.index[0][naive.server.index[1] == row] for row in rows]  # noqa: E731
    with (
        mock.patch.object(naive.server, "some_neighbours", everybody),
        mock.patch.object(torch, "rand", return_value=torch.ones(())),
    ):
        for number in (1, 2, 3):
            naive.round(number)
            experiment.state, _ = run_round(method, experiment.state, experiment.cohort(number), experiment.engine)
    theirs = dict(naive.server.named_parameters())
    for name, value in named().items():
        assert torch.allclose(value, theirs[name], rtol=0, atol=1e-9), name
