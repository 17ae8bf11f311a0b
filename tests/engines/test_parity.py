"""Every engine gives the same numbers: float64 within 1e-9 after 20 rounds, float32 within 1e-5 after one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from panacea.core.method import Method
from panacea.core.random import Streams, sample_batches
from panacea.core.statistics import BufferPolicy
from panacea.data.task import Task
from panacea.engines import Engine
from panacea.methods import FedAvg, FedProx, Separate
from panacea.models import GruSeq2Seq, Mlp

from .build import RAGGED, cohort_of, engine_of, everything, federation, labels, numbers, run, seeded
from .networks import mlp

pytestmark = pytest.mark.engine

ROUNDS, COHORT = 20, 5


def cnn(*after: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 3, 3), *after, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 3))


def norm(channels: int) -> nn.Module:
    """BatchNorm of vectors, tamed: with torch's eps, two samples that nearly agree make a round chaotic.

    A change of the start in its last bit then grows to 1e-7 within one engine, and tells nothing about two.
    """
    return nn.BatchNorm1d(channels, eps=0.03)


def normed_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.2), nn.Flatten(),
        nn.Linear(12, 7), norm(7), nn.Tanh(), nn.Dropout(0.4), nn.Linear(7, 3),
    )  # fmt: skip


class OwnParameter(nn.Module):
    """For vmap: a parameter used directly, with BatchNorm and Dropout around it."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.body = mlp(norm(9), nn.Tanh(), nn.Dropout(0.3))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) * self.scale


class FunctionalDropout(nn.Module):
    """For the loop: it draws from torch's global generator, and its samples see each other."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(5, 9), nn.Linear(9, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.a(x))
        h = h - 0.1 * h.mean(dim=0) if self.training else h
        return self.b(F.dropout(h, 0.4, self.training))


EVERYTHING = ("plain", "momentum", "decay and clip", "own steps", "rates")
PAIRS = {
    "mlp": EVERYTHING,
    "regression": ("plain", "rates"),
    "gru": ("momentum", "decay and clip", "own steps"),
    "gru of two layers": ("plain",),
    "cnn": ("decay and clip", "rates"),
    "cnn with norm and dropout": ("momentum", "decay and clip", "own steps"),
    "mlp with norm": ("momentum", "own steps"),
    "mlp with dropout": ("plain", "own steps"),
    "vmap": ("momentum", "own steps"),
    "loop": ("decay and clip", "own steps"),
}

Case = tuple[Callable[[], nn.Module], Task, str]

NETWORKS: dict[str, Case] = {
    "mlp": (lambda: Mlp((2,), 3, (9, 33)), labels((2,)), "batched"),
    "regression": (lambda: Mlp((3,), (2, 2), (9,)), numbers((3,), (2, 2)), "batched"),
    "gru": (lambda: GruSeq2Seq(2, 5, horizon=3), Task("forecasting", (4, 2), (3,)), "batched"),
    "gru of two layers": (lambda: GruSeq2Seq(2, 3, 2, horizon=2), Task("forecasting", (4, 2), (2,)), "batched"),
    "cnn": (cnn, labels((1, 6, 6)), "batched"),
    "cnn with norm and dropout": (normed_cnn, labels((1, 6, 6)), "batched"),
    "mlp with norm": (lambda: mlp(norm(9), nn.Tanh()), labels((5,)), "batched"),
    "mlp with dropout": (lambda: mlp(nn.ReLU(), nn.Dropout(0.5)), labels((5,)), "batched"),
    "vmap": (OwnParameter, labels((5,)), "vmap"),
    "loop": (FunctionalDropout, labels((5,)), "loop"),
}
METHODS: dict[str, Callable[[], Method]] = {"fedavg": FedAvg, "fedprox": FedProx, "separate": Separate}
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "momentum": {"momentum": 0.9, "lr": 0.05},
    "decay and clip": {"weight_decay": 0.01, "clip": 0.3, "momentum": 0.5},
    "own steps": {"steps": np.array([9, 1, 6, 2, 7, 3, 4])},  # local epochs are such numbers; all stop somewhere
    "rates": {"lr": np.linspace(0.02, 0.2, len(RAGGED))},
}


def numbers_of(
    name: str,
    engine: str,
    method: Method,
    rounds: int = ROUNDS,
    policy: BufferPolicy = "shared",
    **options: Any,
) -> tuple[dict[str, Tensor], Engine]:
    """Everything an experiment gives, by name, and its engine."""
    build, task, _ = NETWORKS[name]
    fed = federation(task)
    made = engine_of(engine, seeded(build), fed, frozen_statistics=policy == "frozen", **options)
    state, reports = run(method, made, fed, rounds, size=COHORT, policy=policy)
    found = everything(method, state, made, fed)
    found["round losses"] = torch.tensor([report.loss for report in reports], dtype=torch.float64)
    found["bytes"] = torch.tensor([(report.bytes_down, report.bytes_up) for report in reports])
    found["gradient evaluations"] = torch.tensor(made.gradient_evaluations)
    return found, made


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float = 1e-9) -> None:
    for what, value in expected.items():
        assert found[what].isfinite().all(), what
        torch.testing.assert_close(
            found[what], value, rtol=tolerance, atol=tolerance, msg=lambda m, what=what: f"{what}: {m}"
        )


@pytest.mark.filterwarnings("ignore:.*cannot be vectorised.*")
@pytest.mark.parametrize(("name", "settings"), [(name, s) for name, several in PAIRS.items() for s in several])
def test_vectorised_equals_sequential(name: str, settings: str):
    method = list(METHODS.values())[(list(NETWORKS).index(name) + list(SETTINGS).index(settings)) % 3]()
    expected, _ = numbers_of(name, "sequential", method, **SETTINGS[settings])
    found, engine = numbers_of(name, "vectorised", method, **SETTINGS[settings])
    assert engine.forward.kind == NETWORKS[name][2]
    assert_same(found, expected)


@pytest.mark.parametrize("method", ["fedavg", "separate"])
@pytest.mark.parametrize("policy", ["shared", "local", "frozen"])
@pytest.mark.parametrize("name", ["mlp with norm", "cnn with norm and dropout"])
def test_batch_norm_under_every_policy(name: str, policy: BufferPolicy, method: str):
    rounds = ROUNDS if name == "mlp with norm" else 8
    expected, _ = numbers_of(name, "sequential", METHODS[method](), rounds, policy)
    found, _ = numbers_of(name, "vectorised", METHODS[method](), rounds, policy)
    assert_same(found, expected)
    rows = found["statistics"]
    assert {"shared": bool((rows == rows[0]).all()), "local": len(rows.unique(dim=0)) > 1}.get(policy, True)
    initial = engine_of("sequential", seeded(NETWORKS[name][0]), federation(NETWORKS[name][1])).target.statistics
    assert bool((rows == initial).all()) is (policy == "frozen")


@pytest.mark.parametrize("policy", ["shared", "local"])
def test_a_client_that_stands_still_keeps_its_statistics(policy: BufferPolicy):
    """Steps per client with BatchNorm and Dropout: neither statistics nor losses go on when a row has finished."""
    options = {"policy": policy, "rounds": 8, **SETTINGS["own steps"]}
    expected, _ = numbers_of("cnn with norm and dropout", "sequential", FedAvg(), **options)
    for block in (100, 3):
        found, _ = numbers_of("cnn with norm and dropout", "vectorised", FedAvg(), block=block, **options)
        assert_same(found, expected)


@pytest.mark.parametrize("block", [1, 2, 3])
@pytest.mark.parametrize("name", ["mlp", "gru", "cnn with norm and dropout", "vmap"])
def test_any_block_size(name: str, block: int):
    settings = {"momentum": 0.9, "lr": 0.05}
    whole, _ = numbers_of(name, "vectorised", Separate(), rounds=3, **settings)
    parts, _ = numbers_of(name, "vectorised", Separate(), rounds=3, block=block, **settings)
    assert_same(parts, whole, 1e-12)


@pytest.mark.parametrize("forward", ["batched", "vmap", "loop"])
@pytest.mark.parametrize("name", ["mlp", "gru", "cnn with norm and dropout"])
def test_every_way_to_run_a_network(name: str, forward: str):
    expected, _ = numbers_of(name, "sequential", FedProx(), rounds=5, momentum=0.9, lr=0.05)
    found, engine = numbers_of(name, "vectorised", FedProx(), rounds=5, momentum=0.9, lr=0.05, forward=forward)
    assert engine.forward.kind == forward
    assert_same(found, expected)


@pytest.mark.parametrize("batch_size", [1, 2, 64])
@pytest.mark.parametrize("name", ["mlp", "mlp with norm", "mlp with dropout"])
def test_any_batch_size(name: str, batch_size: int):
    """One sample a step, and a batch larger than most clients."""
    expected, _ = numbers_of(name, "sequential", FedAvg(), rounds=8, batch_size=batch_size)
    found, _ = numbers_of(name, "vectorised", FedAvg(), rounds=8, batch_size=batch_size)
    assert_same(found, expected)


@pytest.mark.parametrize("name", ["mlp", "regression", "gru", "cnn", "mlp with norm", "mlp with dropout"])
def test_single_precision_after_one_round(name: str):
    """1e-5, the tolerance the project states; beyond one round rounding may grow."""
    results = [
        numbers_of(name, engine, FedAvg(), rounds=1, dtype=torch.float32, momentum=0.9)[0]
        for engine in ("sequential", "vectorised")
    ]
    assert results[0]["params"].dtype == torch.float32
    assert_same(results[1], results[0], 1e-5)


@pytest.mark.parametrize("engine", ["sequential", "vectorised"])
def test_a_run_repeats_itself_bit_for_bit(engine: str):
    first, _ = numbers_of("cnn with norm and dropout", engine, FedProx(), rounds=3)
    torch.rand(7)  # the global generator is nobody's business
    second, _ = numbers_of("cnn with norm and dropout", engine, FedProx(), rounds=3)
    assert all(torch.equal(first[what], second[what]) for what in first)


@pytest.mark.parametrize("engine", ["sequential", "vectorised"])
@pytest.mark.parametrize("policy", ["shared", "local"])
def test_two_rounds_of_fedavg_equal_plain_torch(engine: str, policy: BufferPolicy):
    """Not one engine against another but both against torch's own layers, optimiser and loss, written out."""
    build, task, _ = NETWORKS["mlp with norm"]
    fed = federation(task, train=(2, 5, 7, 30, 90))
    options = {"momentum": 0.9, "weight_decay": 0.01, "lr": 0.05}
    made = engine_of(engine, seeded(build), fed, **options)
    state, _ = run(FedAvg(), made, fed, 2, policy=policy)

    server = seeded(build).double()
    names = [name for name, _ in server.named_parameters()]
    own_norms: dict[int, dict[str, Tensor]] = {}
    counts = fed.counts("train")
    for round in (1, 2):
        keys = Streams(4).keys("train batches 0", round, np.arange(5))
        values = []
        for client in range(5):
            model = seeded(build).double()
            model.load_state_dict(server.state_dict())
            if policy == "local" and client in own_norms:
                model.load_state_dict(own_norms[client], strict=False)
            model.train()
            optimiser = torch.optim.SGD(model.parameters(), **options)
            x, y = fed.client(client)
            for chosen in sample_batches(keys[client : client + 1], counts[client : client + 1], 3, 7)[:, 0]:
                optimiser.zero_grad()
                F.cross_entropy(model(x[chosen].double()), y[chosen]).backward()
                optimiser.step()
            values.append(model.state_dict())
            own_norms[client] = {name: value for name, value in model.state_dict().items() if "running" in name}
        shares = counts / counts.sum()
        mean = {name: sum(share * v[name] for share, v in zip(shares, values, strict=True)) for name in values[0]}
        mean["1.num_batches_tracked"] = values[0]["1.num_batches_tracked"]
        server.load_state_dict(mean)
    expected = torch.cat([server.state_dict()[name].flatten() for name in names])
    torch.testing.assert_close(state.server.params, expected, rtol=1e-11, atol=1e-11)
    found = state.statistics.send(cohort_of(made, fed, 2))
    for client in range(5):
        source = server.state_dict() if policy == "shared" else own_norms[client]
        rows = torch.cat([source["1.running_mean"], source["1.running_var"]])
        torch.testing.assert_close(found[client], rows, rtol=1e-11, atol=1e-11)
