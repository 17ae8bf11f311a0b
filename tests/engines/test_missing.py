"""Missing targets (NaN) count in no loss and no metric, in any engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from panacea.core.random import Streams
from panacea.data.federation import Federation
from panacea.data.task import Task
from panacea.engines.base import Samples
from panacea.errors import RequestError
from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment
from panacea.experiment.runner import run_experiment
from panacea.methods import FedAvg, FedProx, Separate
from panacea.models import GruSeq2Seq, Mlp
from panacea.models.target import sample_losses, sample_metric, sample_weights

from .build import RAGGED, cohort_of, engine_of, everything, federation, initial_state, run, seeded
from .test_derivatives import Asks
from .test_parity import assert_same

pytestmark = pytest.mark.engine

NAN = float("nan")
TASK = Task("forecasting", (4, 2), (3,), missing=True)
EMPTY = 4  # a client most of whose targets are missing: batches without any observed value


def gappy(task: Task = TASK) -> Federation:
    """Ragged clients, a third of their targets missing; two have nothing or next to nothing to learn from."""
    fed = federation(task)
    y = fed.y.clone()
    y[torch.rand(y.shape, generator=torch.Generator().manual_seed(1)) < 1 / 3] = NAN
    first, end = fed.bounds[EMPTY, :2]
    y[first:end] = NAN
    y[first, 0] = 0.5
    first, end = fed.bounds[0, :2]  # a single train sample, unobserved
    y[first:end] = NAN
    y[fed.bounds[:, 2]] = 0.25  # everyone can be scored
    return replace(fed, y=y)


def mlp() -> Mlp:
    return Mlp((4, 2), (3,), (9,))


def numbers_of(
    name: str, method: Any, fed: Federation, rounds: int = 20, build: Any = mlp, **options: Any
) -> dict[str, Tensor]:
    engine = engine_of(name, seeded(build), fed, **options)
    state, reports = run(method, engine, fed, rounds, size=5)
    found = everything(method, state, engine, fed)
    found["round losses"] = torch.tensor([report.loss for report in reports], dtype=torch.float64)
    found["gradient evaluations"] = torch.tensor(engine.gradient_evaluations)
    return found


class TestLosses:
    def test_worked_example(self) -> None:
        """Errors 1, -, 3 of one sample: loss (1 + 9) / 2, weight 2. Nothing observed: loss 0, weight 0."""
        outputs = torch.tensor([[1.0, 5.0, 3.0], [7.0, 7.0, 7.0], [1.0, 2.0, 3.0]], requires_grad=True)
        targets = torch.tensor([[0.0, NAN, 0.0], [NAN, NAN, NAN], [0.0, 0.0, 0.0]])
        losses = sample_losses(TASK, outputs, targets)
        assert losses.tolist() == [5.0, 0.0, pytest.approx(14 / 3)]
        assert sample_metric(TASK, outputs, targets).tolist() == losses.tolist()
        assert sample_weights(TASK, targets).tolist() == [2.0, 0.0, 3.0]
        (gradient,) = torch.autograd.grad(losses.sum(), outputs)
        assert gradient.tolist()[:2] == [[1.0, 0.0, 3.0], [0.0, 0.0, 0.0]]

    def test_scalar_targets(self) -> None:
        task = Task("regression", (2,), (), missing=True)
        outputs, targets = torch.tensor([[3.0, 1.0]]), torch.tensor([[1.0, NAN]])
        assert sample_losses(task, outputs, targets).tolist() == [[4.0, 0.0]]
        assert sample_weights(task, targets).tolist() == [[1.0, 0.0]]

    def test_nothing_missing_is_as_before(self) -> None:
        whole = replace(TASK, missing=False)
        outputs, targets = torch.rand(2, 5, 3), torch.rand(2, 5, 3)
        assert torch.allclose(sample_losses(TASK, outputs, targets), sample_losses(whole, outputs, targets))
        assert sample_weights(TASK, targets).unique().tolist() == [3.0]
        assert sample_weights(whole, targets).unique().tolist() == [1.0]

    def test_without_the_flag_it_is_an_error(self) -> None:
        with pytest.raises(RequestError, match="client 'site 0' has a NaN or infinite target"):
            replace(gappy(), task=replace(TASK, missing=False))

    def test_infinity_is_not_a_gap(self) -> None:
        fed = gappy()
        y = fed.y.clone()
        y[fed.bounds[3, 0], 1] = float("inf")
        with pytest.raises(RequestError, match="client 'site 3' has a NaN or infinite target"):
            replace(fed, y=y)

    def test_a_gap_in_an_input_is_an_error(self) -> None:
        fed = gappy()
        x = fed.x.clone()
        x[fed.bounds[2, 0]] = NAN
        with pytest.raises(RequestError, match="client 'site 2' has a NaN or infinite input"):
            replace(fed, x=x)


class TestBatches:
    def samples(self, fed: Federation) -> Samples:
        return Samples(fed, Streams(4), torch.device("cpu"), torch.float64)

    def test_weights_are_shares_of_observed_values(self) -> None:
        fed = gappy()
        ids = np.arange(len(fed))
        seen = 0
        for (batch,) in self.samples(fed).batches(ids, 1, "train", 4, 1, 3):
            assert batch.present is not None
            observed = (~batch.y.isnan()).sum(dim=-1) * batch.present
            total = observed.sum(dim=-1, keepdim=True)
            assert torch.allclose(batch.weight, observed.double() / total.clamp_min(1))
            sums = batch.weight.sum(dim=-1)
            assert torch.allclose(sums, (total[:, 0] > 0).double())
            seen += int((sums == 0).sum())
        assert seen >= 4 + 1  # client 0 in every step, and the nearly empty one in some

    @pytest.mark.parametrize("batch_size", [1, 7, 64])
    def test_weights_of_a_pass_sum_to_one(self, batch_size: int) -> None:
        fed = gappy()
        ids = np.arange(len(fed))
        total = torch.zeros(len(fed), dtype=torch.float64)
        for batch, active in self.samples(fed).passes(ids, batch_size):
            rows = torch.from_numpy(active)
            total += torch.where(rows, batch.weight.sum(dim=-1), 0.0)
            # a value weighs the same wherever it is
            counts = (~batch.y.isnan()).sum(dim=-1)
            for client in np.flatnonzero(active):
                first, end = fed.bounds[client, :2]
                whole = max(1, int((~fed.y[first:end].isnan()).sum()))
                here = batch.weight[client] > 0
                assert torch.allclose(batch.weight[client][here], counts[client][here].double() / whole)
        assert total.tolist() == pytest.approx([0.0] + [1.0] * (len(fed) - 1))


class TestEngines:
    def test_parity(self) -> None:
        """Twenty rounds in float64: batches without an observed value, padded clients."""
        expected = numbers_of("sequential", FedAvg(), gappy())
        assert_same(numbers_of("vectorised", FedAvg(), gappy()), expected)

    @pytest.mark.parametrize("method", [FedProx, Separate])
    def test_parity_of_every_way_to_run(self, method: Any) -> None:
        expected = numbers_of("sequential", method(), gappy(), 4)
        for options in ({"block": 2}, {"traced": True}, {"forward": "vmap"}):
            assert_same(numbers_of("vectorised", method(), gappy(), 4, **options), expected)

    def test_parity_of_the_traffic_network(self) -> None:
        expected, found = (
            numbers_of(engine, FedAvg(), gappy(), 3, lambda: GruSeq2Seq(2, 5, horizon=3))
            for engine in ("sequential", "vectorised")
        )
        assert_same(found, expected)

    @pytest.mark.parametrize("batch_size", [1, 64])
    def test_parity_at_other_batch_sizes(self, batch_size: int) -> None:
        fed = gappy()
        options = {"batch_size": batch_size, "rounds": 3, "momentum": 0.9, "lr": 0.05}
        expected = numbers_of("sequential", FedAvg(), fed, **options)
        assert_same(numbers_of("vectorised", FedAvg(), fed, **options), expected)

    @pytest.mark.parametrize("engine", ["sequential", "vectorised"])
    def test_what_stands_in_a_gap_does_not_matter(self, engine: str) -> None:
        """Nothing observed at a client: its model stays. A gap is a gap whatever else is there."""
        fed = gappy()
        made = engine_of(engine, seeded(mlp), fed)
        cohort = cohort_of(made, fed, 1)
        state = initial_state(FedAvg(), made, fed)
        trained = made.train(
            FedAvg(), FedAvg().download(state.server, cohort), None, state.statistics.send(cohort), cohort
        )
        assert torch.equal(trained.uploads.params[0], made.target.initial)
        assert trained.loss[0] == 0
        assert trained.uploads.params.isfinite().all()
        assert all(not torch.equal(row, made.target.initial) for row in trained.uploads.params[[1, 2, 3, 5, 6]])

    @pytest.mark.parametrize("engine", ["sequential", "vectorised"])
    def test_all_observed_is_the_ordinary_loss(self, engine: str) -> None:
        ordinary = federation(replace(TASK, missing=False))
        flagged = federation(TASK)
        expected = numbers_of(engine, FedAvg(), ordinary, rounds=3)
        assert_same(numbers_of(engine, FedAvg(), flagged, rounds=3), expected, 1e-12)

    @pytest.mark.parametrize("engine", ["sequential", "vectorised"])
    @pytest.mark.parametrize("batch_size", [1, 7, 64])
    def test_full_is_the_gradient_over_all_observed_values(self, engine: str, batch_size: int) -> None:
        fed = gappy()
        made = engine_of(engine, seeded(mlp), fed, batch_size=batch_size)
        cohort = cohort_of(made, fed, 1)
        state = initial_state(FedAvg(), made, fed)
        download = FedAvg().download(state.server, cohort)
        rows = made.train(Asks("full"), download, None, state.statistics.send(cohort), cohort, steps=1).uploads.params
        for client, row in enumerate(rows):
            first, end = fed.bounds[client, :2]
            initial = made.target.initial.clone().requires_grad_(True)
            outputs, _ = made.target.forward(initial, made.target.statistics, fed.x[first:end].double(), training=True)
            there = ~fed.y[first:end].isnan()
            loss = (outputs[there] - fed.y[first:end][there].double()).square().sum() / max(1, int(there.sum()))
            (expected,) = torch.autograd.grad(loss, initial)
            assert torch.allclose(row, expected, atol=1e-12), client


class TestScores:
    @pytest.mark.parametrize("engine", ["sequential", "vectorised"])
    @pytest.mark.parametrize("shared", [True, False])
    @pytest.mark.parametrize("split", ["train", "test"])
    def test_mean_over_observed_values(
        self, engine: str, shared: bool, split: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("panacea.engines.scoring._EVALUATION_BYTES", 16 * 64 * 5)  # five samples a call
        fed = gappy()
        made = engine_of(engine, seeded(mlp), fed, block=3)
        ids = np.arange(len(fed))
        params = made.target.initial.expand(len(fed), -1)
        params = params if shared else params + torch.linspace(0, 0.1, len(fed), dtype=torch.float64)[:, None]
        scores = made.evaluate(params, made.target.statistics.expand(len(fed), -1), ids, split)
        for client in ids:
            x, y = fed.client(client, split)
            with torch.no_grad():
                outputs, _ = made.target.forward(params[client], made.target.statistics, x.double(), training=False)
            expected = float((outputs - y.double()).square().nanmean())  # NaN where nothing was observed
            assert scores.metric[client] == pytest.approx(expected, rel=1e-12, nan_ok=True)
            assert scores.loss[client] == pytest.approx(expected, rel=1e-12, nan_ok=True)
        assert np.isnan(scores.metric[0]) == (split == "train")


def test_a_whole_experiment() -> None:
    """From keys to a summary, in both engines; one client cannot be validated for want of observed values."""
    fed = gappy()
    y = fed.y.clone()
    y[fed.bounds[2, 1] : fed.bounds[2, 2]] = NAN
    y[fed.bounds[2, 2]] = 0.25
    fed = replace(fed, y=y, name="gappy")
    results = []
    for engine in ("sequential", "vectorised"):
        keys: dict[str, Any] = {
            "data": "gappy", "method": "fedavg", "rounds": 4, "local_steps": 5, "cohort": 4, "lr": 0.05,
            "batch_size": 7, "dtype": "float64", "engine": engine,
        }  # fmt: skip
        experiment = Experiment(build_config(keys), fed, seeded(mlp))
        summary = run_experiment(experiment)
        assert np.isfinite([summary["mean"], summary["final_mean"]]).all()
        results.append((experiment.state.server.params, summary["mean"], summary["best_round"]))
    assert float((results[0][0] - results[1][0]).abs().max()) < 1e-9
    assert results[0][1] == pytest.approx(results[1][1], abs=1e-9)
    assert results[0][2] == results[1][2]
    assert len(fed) == len(RAGGED)
