"""Every client's own model on its own data: the only place where models are scored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from torch import Tensor

from panacea.core.method import Adaptation, Method, Model
from panacea.core.round import State
from panacea.core.types import ClientIds, Cohort, Newcomers
from panacea.data.federation import Federation
from panacea.engines.base import Engine, Samples, Scores
from panacea.models.target import TargetModel

__all__ = [
    "Evaluation",
    "RemoteScorer",
    "adapted",
    "admitted_models",
    "evaluate_alternatives",
    "evaluate_clients",
    "personal_models",
]


@dataclass(frozen=True)
class Evaluation:
    """Per-client scores of one round: `test` and `val` in the order of `train_ids`, `novel` in that of `novel_ids`.

    `asr` and `novel_asr` likewise: percent of a client's triggered test samples that are taken for the attack's target;
    None where there is no trigger. Where clients score themselves, `answered` is how many told their numbers, and
    `traffic` how many bytes went to them for it and came back.
    """

    test: Scores
    val: Scores
    novel: Scores
    asr: npt.NDArray[np.float64] | None = None
    novel_asr: npt.NDArray[np.float64] | None = None
    answered: int | None = None
    traffic: tuple[int, int] = (0, 0)


@runtime_checkable
class RemoteScorer(Protocol):
    """An engine whose clients have their samples elsewhere, score themselves and tell the numbers."""

    def scored(self, method: Method, state: State, federation: Federation) -> Evaluation:
        """As `evaluate_clients`; NaN of a client that did not answer."""
        ...

    def scored_alternatives(
        self, method: Method, state: State, federation: Federation
    ) -> dict[str, npt.NDArray[np.float64]]:
        """As `evaluate_alternatives`."""
        ...


def personal_models(
    method: Method, state: State, engine: Engine, federation: Federation, ids: ClientIds, *, novel: bool
) -> tuple[Tensor, Tensor]:
    """``[rows, P]`` and ``[rows, S]``: the parameters and statistics that are each of these clients' own.

    Training clients get `personal`, novel ones `admit`; both then go through the method's adaptation, if it has one,
    on the client's own train split.
    """
    server = state.server
    cohort = Cohort.of(ids, federation.counts("train"), state.round, engine.home)
    if novel:
        newcomers = Newcomers(cohort.ids, federation.graph, federation.features)
        params, statistics = admitted_models(method, state, engine.target, newcomers)
        adaptation = method.adapt_newcomer(server, newcomers)
    else:
        params = method.personal(server, state.clients, cohort)
        statistics = state.statistics.send(cohort)
        adaptation = method.adapt()
    return adapted(adaptation, params, statistics, engine, cohort)


def admitted_models(method: Method, state: State, target: TargetModel, newcomers: Newcomers) -> tuple[Tensor, Tensor]:
    """``[rows, P]`` and ``[rows, S]``: what newcomers receive, before any adaptation."""
    params = method.admit(state.server, state.clients, newcomers)
    known = target.statistics if method.isolated else state.statistics.average()
    known = known.to(params.device)
    return params, known.expand(len(newcomers.ids), -1)


def adapted(
    adaptation: Adaptation | None, params: Tensor, statistics: Tensor, engine: Engine, cohort: Cohort
) -> tuple[Tensor, Tensor]:
    """``[rows, P]`` and ``[rows, S]`` after a method's local programme, if it has one."""
    purpose = "adapt"
    while adaptation is not None:
        download = Model(params) if adaptation.download is None else adaptation.download
        trained = engine.train(
            adaptation.method, download, adaptation.kept, statistics, cohort, steps=adaptation.steps, purpose=purpose
        )
        params, statistics = trained.uploads.params, trained.statistics
        adaptation = None if adaptation.then is None else adaptation.then(params)
        purpose += " more"  # other batches than those of the programme before
    return params, statistics


_MODEL_BYTES = 2**29  # personal models held at a time
_TRIED = 2_000  # clients whose alternatives are scored, at most


def evaluate_clients(
    method: Method, state: State, engine: Engine, federation: Federation, triggered: Samples | None = None
) -> Evaluation:
    """Score all clients, some at a time, so that memory does not grow with the number of clients.

    Args:
        method: whose models.
        state: after some round.
        engine: how.
        federation: the clients.
        triggered: the same clients' test samples with a backdoor's trigger, labelled with its target, if there is one.
    """
    if isinstance(engine, RemoteScorer):
        return engine.scored(method, state, federation)
    chunk = _chunk(engine)
    test, val, asr, novel_asr = [], [], [], []
    for ids in _chunks(federation.train_ids, chunk):
        params, statistics = personal_models(method, state, engine, federation, ids, novel=False)
        test.append(engine.evaluate(params, statistics, ids, "test"))
        val.append(engine.evaluate(params, statistics, ids, "val"))
        asr.append(_success(engine, params, statistics, ids, triggered))
    novel = []
    for ids in _chunks(federation.novel_ids, chunk):
        params, statistics = personal_models(method, state, engine, federation, ids, novel=True)
        novel.append(engine.evaluate(params, statistics, ids, "test"))
        novel_asr.append(_success(engine, params, statistics, ids, triggered))
    if triggered is None:
        return Evaluation(_join(test), _join(val), _join(novel))
    return Evaluation(_join(test), _join(val), _join(novel), _column(asr), _column(novel_asr))


def _success(
    engine: Engine, params: Tensor, statistics: Tensor, ids: ClientIds, triggered: Samples | None
) -> npt.NDArray[np.float64]:
    """``[rows]``: percent of the triggered samples that are taken for what they are labelled with; NaN without any."""
    if triggered is None or not len(triggered.y):
        return np.full(len(ids), np.nan)
    return engine.evaluate(params, statistics, ids, "test", triggered).metric


def evaluate_alternatives(
    method: Method,
    state: State,
    engine: Engine,
    federation: Federation,
    further: Callable[[Engine, Cohort], dict[str, Adaptation]] | None = None,
    triggered: Samples | None = None,
) -> dict[str, npt.NDArray[np.float64]]:
    """By name of each alternative: the test metric of every client, ``[clients]``; of ``<name>_asr`` its success rate.

    An alternative is local training at every client, longer than all rounds together where clients are many. So of more
    than 2,000 training (or novel) clients only 2,000 are tried, evenly spaced; the others are NaN, which never counts.

    Args:
        method: whose alternatives.
        state: after the last round.
        engine: how.
        federation: the clients.
        further: more of them, for any method: a defence's.
        triggered: see `evaluate_clients`.
    """
    if isinstance(engine, RemoteScorer):
        return engine.scored_alternatives(method, state, federation)
    found: dict[str, npt.NDArray[np.float64]] = {}
    chunk = _chunk(engine)
    for novel, group in ((False, federation.train_ids), (True, federation.novel_ids)):
        for ids in _chunks(_spaced(group), chunk):
            cohort = Cohort.of(ids, federation.counts("train"), state.round, engine.home)
            programmes = method.alternatives(state.server, state.clients, cohort)
            programmes |= {} if further is None else further(engine, cohort)
            for name, adaptation in programmes.items():
                own = personal_models(method, state, engine, federation, ids, novel=novel)
                params, statistics = adapted(adaptation, *own, engine, cohort)
                metric = found.setdefault(name, np.full(len(federation), np.nan))
                metric[ids] = engine.evaluate(params, statistics, ids, "test").metric
                if triggered is not None:
                    asr = found.setdefault(f"{name}_asr", np.full(len(federation), np.nan))
                    asr[ids] = _success(engine, params, statistics, ids, triggered)
    return found


def _spaced(ids: ClientIds) -> ClientIds:
    """All of them, or 2,000 of more."""
    return ids if len(ids) <= _TRIED else ids[np.arange(_TRIED) * len(ids) // _TRIED]


def _chunk(engine: Engine) -> int:
    return max(1, min(1024, _MODEL_BYTES // (16 * engine.target.layout.size)))


def _chunks(ids: ClientIds, size: int) -> Iterator[ClientIds]:
    return (ids[first : first + size] for first in range(0, len(ids), size))


def _join(parts: list[Scores]) -> Scores:
    return Scores(_column([p.metric for p in parts]), _column([p.loss for p in parts]))


def _column(values: list[npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
    return np.concatenate(values) if values else np.zeros(0)
