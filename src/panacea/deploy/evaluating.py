"""What clients are sent to score themselves with, and what they may say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from panacea.core.method import Method
from panacea.core.records import leaves, named_leaves
from panacea.core.round import State
from panacea.core.types import ClientIds, Cohort, Newcomers
from panacea.data.federation import Federation
from panacea.data.task import Task
from panacea.deploy.orders import Packed
from panacea.deploy.wire import row_of
from panacea.engines.base import Scores
from panacea.evaluation.evaluate import Evaluation, admitted_models
from panacea.models.target import TargetModel

__all__ = ["Sheet", "evaluation_ranges", "implausible", "models_to_score", "without_repeats"]

_LARGEST = 1e30
_BELIEVED = 1e6  # times the middle value of all clients, or 1 if that is less


def evaluation_ranges(task: Task, alternatives: tuple[str, ...], *, scores: bool) -> dict[str, tuple[float, float]]:
    """The numbers of an evaluation by name, with the range each may be in."""
    metric = (0.0, 100.0) if task.kind == "classification" else (0.0, _LARGEST)
    found = {f"{name}.metric": metric for name in alternatives}
    if scores:
        found |= {f"{split}.metric": metric for split in ("test", "val")}
        found |= {f"{split}.loss": (0.0, _LARGEST) for split in ("test", "val")}
    return found


def implausible(said: Mapping[int, Mapping[str, float]], names: Sequence[str]) -> dict[int, str]:
    """Clients whose numbers would rule every mean, and why; found by the middle of what at least three say.

    What a client says within that range is believed: nobody else has its samples.
    """
    found: dict[int, str] = {}
    for name in names:
        values = {client: numbers[name] for client, numbers in said.items() if name in numbers}
        middle = float(np.median(list(values.values()))) if len(values) > 2 else _LARGEST
        for client, value in values.items():
            if value > _BELIEVED * max(middle, 1.0):
                found.setdefault(client, f"{name} is {value:.4g}, the middle of all is {middle:.4g}")
    return found


def models_to_score(
    method: Method, state: State, federation: Federation, target: TargetModel, *, alternatives: bool
) -> dict[int, dict[str, Packed]]:
    """By client, training and novel ones: the arrays of an order to evaluate.

    A model that the server can make is sent as it is; where it depends on what a client keeps, the client makes it of
    its download.
    """
    found: dict[int, dict[str, Packed]] = {}
    shared = state.statistics.policy == "shared" and state.statistics.common.numel() > 0
    for novel, ids in ((False, federation.train_ids), (True, federation.novel_ids)):
        if not len(ids):
            continue
        cohort = Cohort.of(ids, federation.counts("train"), state.round, target.initial)
        if novel:
            rows, statistics = _admitted(method, state, federation, target, cohort.ids)
            sent = statistics.numel() > 0
        else:
            rows, statistics, sent = _own(method, state, cohort, alternatives), state.statistics.send(cohort), shared
        if sent:
            rows = {**rows, "statistics": statistics}
        found |= {int(client): row_of(rows, row) for row, client in enumerate(cohort.ids)}
    return found


def _own(method: Method, state: State, cohort: Cohort, alternatives: bool) -> dict[str, Tensor]:
    rows: dict[str, Tensor] = {}
    if method.keeps_model or alternatives:
        download = method.download(state.server, cohort)
        if method.keeps_model or leaves(method.init_client(download)):
            rows = dict(named_leaves(download, "own", travelling=True))
    if method.keeps_model:
        return rows
    model = method.personal(state.server, state.clients, cohort)
    same = "own.params" in rows and torch.equal(rows["own.params"], model)
    return rows if same else {**rows, "model": model}


def _admitted(
    method: Method, state: State, federation: Federation, target: TargetModel, ids: ClientIds
) -> tuple[dict[str, Tensor], Tensor]:
    newcomers = Newcomers(ids, federation.graph, federation.features)
    params, statistics = admitted_models(method, state, target, newcomers)
    return {"admitted": params}, statistics


def without_repeats(scored: Mapping[str, Packed], download: Mapping[str, Packed]) -> dict[str, Packed]:
    """The arrays of an order that has both; what is evaluated is left out where it is what is trained from."""
    own = {name: packed for name, packed in scored.items() if name.startswith("own.")}
    rest = {name: packed for name, packed in scored.items() if name not in own}
    if own and {f"download.{name[4:]}": packed for name, packed in own.items()} == dict(download):
        own = {}
    if not own and "model" in rest and rest["model"] == download.get("download.params"):
        del rest["model"]
    return {**rest, **own, **download}


@dataclass
class Sheet:
    """What clients said, ``[clients]`` by name; NaN where one did not. `sent` is how many bytes went to them for it."""

    numbers: dict[int, Mapping[str, float]]
    clients: int
    sent: int = 0

    def column(self, name: str) -> npt.NDArray[np.float64]:
        """One number of all clients."""
        said = [self.numbers.get(client, {}).get(name, np.nan) for client in range(self.clients)]
        return np.array(said, np.float64)

    def scores(self, split: str, ids: ClientIds) -> Scores:
        """Of these clients."""
        return Scores(self.column(f"{split}.metric")[ids], self.column(f"{split}.loss")[ids])

    def evaluation(self, federation: Federation) -> Evaluation:
        """All of it."""
        train, novel = federation.train_ids, federation.novel_ids
        scores = self.scores("test", train), self.scores("val", train), self.scores("test", novel)
        back = 8 * sum(len(numbers) for numbers in self.numbers.values())
        return Evaluation(*scores, answered=len(self.numbers), traffic=(self.sent, back))
