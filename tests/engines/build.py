"""Builders shared by the engine tests: ragged federations, networks, engines, experiments in a few lines."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from panacea.core.method import Method
from panacea.core.random import Streams
from panacea.core.round import Report, State, run_round
from panacea.core.statistics import BufferPolicy, Statistics
from panacea.core.store import ClientStore
from panacea.core.types import Cohort, Setting
from panacea.data.federation import Federation
from panacea.data.task import Task
from panacea.engines import Engine, LocalSettings, make_engine
from panacea.models.target import TargetModel

RAGGED = (1, 2, 5, 7, 12, 30, 60)  # one sample; fewer than a batch of 7; exactly one; more; many (both ways to draw)


def labels(inputs: tuple[int, ...], classes: int = 3) -> Task:
    """A classification task."""
    return Task("classification", inputs, (), classes)


def numbers(inputs: tuple[int, ...], outputs: tuple[int, ...]) -> Task:
    """A regression task."""
    return Task("regression", inputs, outputs)


def federation(
    task: Task, train: Sequence[int] = RAGGED, test: Sequence[int] | None = None, seed: int = 0
) -> Federation:
    """Clients with these numbers of train samples, one val sample each, and some (or given numbers of) test samples."""
    test = [3 + i % 4 for i in range(len(train))] if test is None else test
    sizes = np.stack([np.array(train), np.ones(len(train), np.int64), np.array(test)], axis=1)
    ends = np.cumsum(sizes).reshape(sizes.shape)
    bounds = np.concatenate([ends[:, :1] - sizes[:, :1], ends], axis=1).astype(np.int64)
    generator = torch.Generator().manual_seed(seed)
    total = int(sizes.sum())
    x = torch.rand((total, *task.inputs), generator=generator)
    if task.kind == "classification":
        y = torch.randint(task.classes, (total,), generator=generator)
    else:
        y = torch.rand((total, *task.outputs), generator=generator)
    names = tuple(f"site {i}" for i in range(len(train)))
    return Federation("toy", task, x, y, bounds, names)


def target_of(module: nn.Module, task: Task, dtype: torch.dtype = torch.float64) -> TargetModel:
    """The network in functional form."""
    return TargetModel(module, task, dtype)


def seeded(build: Any, seed: int = 0) -> nn.Module:
    """A module built with the global generator at a seed, which is put back afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module: nn.Module = build()
    return module


def engine_of(
    name: str,
    module: nn.Module,
    fed: Federation,
    *,
    dtype: torch.dtype = torch.float64,
    block: int = 100,
    forward: str = "auto",
    traced: bool = False,
    seed: int = 4,
    **local: Any,
) -> Engine:
    """An engine with a target of its own; `local` are settings of local training."""
    settings: dict[str, Any] = {"lr": 0.1, "steps": 3, "batch_size": 7} | local
    return make_engine(
        name,
        target_of(module, fed.task, dtype),
        fed,
        Streams(seed),
        LocalSettings(**settings),
        block=block,
        forward=forward,
        traced=traced,
    )


def initial_state(method: Method, engine: Engine, fed: Federation, policy: BufferPolicy = "shared") -> State:
    """The state before round 1."""
    target = engine.target
    setting = Setting(
        initial=target.initial,
        layout=target.layout,
        statistics_layout=target.statistics_layout,
        counts=fed.counts("train"),
        train_ids=fed.train_ids,
        graph=None,
        streams=engine.samples.streams,
        rounds=10,
        lr=0.1,
        local_steps=3,
        server_lr=0.1,
        server_steps=1,
    )
    return State(method.init_server(setting), ClientStore(len(fed)), Statistics(policy, target.statistics, len(fed)))


def cohort_of(engine: Engine, fed: Federation, round: int, size: int | None = None) -> Cohort:
    """All clients, or a random cohort of a size."""
    ids = fed.train_ids
    if size is not None:
        ids = engine.samples.streams.numpy("cohort", round).choice(ids, size, replace=False)
    return Cohort.of(ids, fed.counts("train"), round, engine.target.initial)


def run(
    method: Method,
    engine: Engine,
    fed: Federation,
    rounds: int,
    *,
    size: int | None = None,
    policy: BufferPolicy = "shared",
) -> tuple[State, list[Report]]:
    """Some rounds from the start."""
    state, reports = initial_state(method, engine, fed, policy), []
    for round in range(1, rounds + 1):
        state, report = run_round(method, state, cohort_of(engine, fed, round, size), engine)
        reports.append(report)
    return state, reports


def everything(method: Method, state: State, engine: Engine, fed: Federation) -> dict[str, Tensor]:
    """All numbers an experiment has: the clients' own models and statistics, and their scores."""
    everyone = cohort_of(engine, fed, state.round)
    params = method.personal(state.server, state.clients, everyone)
    statistics = state.statistics.send(everyone)
    scores = engine.evaluate(params, statistics, everyone.ids, "test")
    return {
        "params": params,
        "statistics": statistics,
        "metric": torch.from_numpy(scores.metric),
        "loss": torch.from_numpy(scores.loss),
    }


def quietly(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Call with every warning an error: nothing may fall back in silence."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return function(*args, **kwargs)
