"""The engine of a federation: clients train and score themselves, elsewhere; the rest is the simulator's.

When an evaluation is due after round r, the orders to the cohort of round r + 1 carry its training as well, since a
message costs a client a new process; the engine keeps those replies until that round asks for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from panacea.core.messages import receive
from panacea.core.method import Method
from panacea.core.records import Tree, named_leaves, record, tree_index, tree_map
from panacea.core.round import State, Trained
from panacea.core.types import ClientIds, Cohort, Steps
from panacea.data.federation import Federation
from panacea.deploy.asking import Desk
from panacea.deploy.blank import blank_uploads
from panacea.deploy.evaluating import Sheet, evaluation_ranges, models_to_score, without_repeats
from panacea.deploy.orders import Asked, Order, Packed, Reply
from panacea.deploy.wire import Refused, checked_numbers, opened, row_of
from panacea.engines.base import LocalSettings, Samples, Scores
from panacea.errors import RequestError, RunFailure
from panacea.evaluation.evaluate import Evaluation
from panacea.experiment.config import ExperimentConfig
from panacea.models.target import TargetModel

__all__ = ["RemoteEngine"]

_LOSS = {"loss": (-1e12, 1e12)}


@record
class Returned:
    """What comes back: the method's upload, and BatchNorm's statistics where they are shared."""

    upload: Tree
    statistics: Tensor | None = None


@dataclass(frozen=True)
class _Visit:
    """A sound reply to an order to train, ``[1, ...]``, and the numbers with it."""

    returned: Returned
    numbers: Mapping[str, float]


@dataclass
class _Round:
    """A round that is being asked for.

    Attributes:
        orders: the arrays of each client's order to train.
        unchanged: ``[rows, ...]`` what is expected back, as an untrained client would send it.
        visits: sound replies so far.
        reasons: why there is none from a client.
    """

    cohort: Cohort
    orders: dict[int, dict[str, Packed]]
    unchanged: Returned
    visits: dict[int, _Visit]
    reasons: dict[int, str]

    def read(self, client: int, reply: Reply, ranges: Mapping[str, tuple[float, float]]) -> _Visit:
        """A reply that may be used; raises `Refused`."""
        row = int(np.searchsorted(self.cohort.ids, client))
        one = slice(row, row + 1)
        unchanged = tree_index(self.unchanged, one)
        arrays = opened(reply.arrays, {name: leaf[0] for name, leaf in named_leaves(unchanged, travelling=True)})
        numbers = checked_numbers(reply.numbers, {**ranges, **_LOSS}, {"loss"})
        own = Cohort(self.cohort.ids[one], self.cohort.counts[one], self.cohort.round, self.cohort.trust[one])
        returned, _, reasons = receive([arrays], unchanged, own)
        if reasons:
            raise Refused(reasons[client])
        return _Visit(returned, numbers)


class RemoteEngine:
    """See the module's docstring.

    Attributes:
        plan: the cohort of a round, by its number, if it may be asked for ahead; known once the experiment is.
        settings: the text of every order.
    """

    name = "remote"
    samples: Samples = None  # type: ignore[assignment]  # they are with the clients

    def __init__(self, config: ExperimentConfig, target: TargetModel, local: LocalSettings, desk: Desk) -> None:
        self.config, self.target, self.local, self.desk = config, target, local, desk
        self.home, self.gradient_evaluations, self.settings = target.initial, 0, "{}"
        self.plan: Callable[[int], Cohort | None] = lambda round: None
        self._ahead: _Round | None = None
        self._sheet: tuple[int, Sheet] | None = None

    # --- training -----------------------------------------------------------------------------------------------

    def train(
        self,
        method: Method,
        downloads: Tree,
        kept: Tree,
        statistics: Tensor,
        cohort: Cohort,
        *,
        steps: Steps = None,
        purpose: str = "train",
    ) -> Trained:
        """One order to each client of the cohort; rows of those without a sound reply are as if they had not trained.

        Raises:
            RunFailure: too few replies are sound, however often it was tried.
        """
        if steps is not None or purpose != "train":
            raise RequestError("clients' own models are made and kept at the clients")
        self.desk.log.round = cohort.round
        asked = self._taken_ahead(downloads, cohort) or self._prepared(method, downloads, statistics, cohort)
        waiting = [int(client) for client in cohort.ids if client not in asked.visits and client not in asked.reasons]
        self._ask(asked, waiting, everyone=False)
        needed = max(1, math.ceil(self.desk.patience.quorum * len(cohort)))
        for attempt in range(self.desk.patience.attempts + 1):
            if len(asked.visits) >= needed:
                break
            said = f"{len(asked.visits)} of {len(cohort)} clients answered soundly, {needed} are needed"
            if attempt == self.desk.patience.attempts:
                self.desk.log.note("given up", said)
                raise RunFailure(f"round {cohort.round}: {said}; the run is saved and can be resumed")
            self.desk.log.note("below quorum", f"{said}; asking again")
            self.desk.rest()
            self._ask(asked, sorted(asked.reasons), everyone=True)
        return self._trained(asked, statistics)

    def _prepared(self, method: Method, downloads: Tree, statistics: Tensor, cohort: Cohort) -> _Round:
        sgd = self.local.sgd(cohort.ids, self.home)
        shared = self.config.buffers == "shared" and statistics.numel() > 0
        unchanged = Returned(blank_uploads(method, downloads, sgd), statistics if shared else None)
        rows = dict(named_leaves(downloads, "download", travelling=True))
        if shared:
            rows["statistics"] = statistics
        orders = {int(client): row_of(rows, row) for row, client in enumerate(cohort.ids)}
        return _Round(cohort, orders, unchanged, {}, {})

    def _taken_ahead(self, downloads: Tree, cohort: Cohort) -> _Round | None:
        """The round as it was asked for with the last evaluation, if it was."""
        ahead, self._ahead = self._ahead, None
        if ahead is None or ahead.cohort.round != cohort.round or list(ahead.cohort.ids) != list(cohort.ids):
            return None
        return ahead

    def _ask(self, asked: _Round, clients: list[int], *, everyone: bool) -> None:
        orders = {c: self._order(c, asked.cohort.round, ("train",), asked.orders[c]) for c in clients}

        def check(client: int, reply: Reply) -> _Visit:
            self.desk.told(client, reply)
            return asked.read(client, reply, {})

        visits, reasons = self.desk.ask(orders, check, everyone=everyone)
        asked.visits |= visits
        asked.reasons = {c: why for c, why in {**asked.reasons, **reasons}.items() if c not in asked.visits}

    def _order(self, client: int, round: int, asks: tuple[Asked, ...], arrays: Mapping[str, Packed]) -> Order:
        return Order(client, self.desk.names[client], round, asks, self.settings, arrays)

    def _trained(self, asked: _Round, statistics: Tensor) -> Trained:
        rows = [tree_index(asked.unchanged, slice(row, row + 1)) for row in range(len(asked.cohort))]
        for row, client in enumerate(asked.cohort.ids.tolist()):
            if client in asked.visits:
                rows[row] = asked.visits[client].returned
        whole: Returned = tree_map(lambda *parts: torch.cat(parts), rows[0], *rows[1:])
        usual = float(np.mean([visit.numbers["loss"] for visit in asked.visits.values()]))
        losses = [
            asked.visits[client].numbers["loss"] if client in asked.visits else usual
            for client in asked.cohort.ids.tolist()
        ]
        back = statistics[:, :0] if self.config.buffers != "shared" else whole.statistics
        back = statistics if back is None else back
        return Trained(whole.upload, None, back, torch.tensor(losses, dtype=torch.float64), asked.reasons)

    # --- evaluation ---------------------------------------------------------------------------------------------

    def scored(self, method: Method, state: State, federation: Federation) -> Evaluation:
        """Every client's own numbers; those of the next round's cohort train in the same message."""
        last = state.round >= (self.config.rounds or 0)
        names = self._alternative_names(method, state, federation) if last else ()
        sheet = self._asked_to_score(method, state, federation, names, ahead=not last)
        if last:
            self._sheet = state.round, sheet
        return sheet.evaluation(federation)

    def scored_alternatives(
        self, method: Method, state: State, federation: Federation
    ) -> dict[str, npt.NDArray[np.float64]]:
        """The test metric of every client, by alternative; NaN where it is not known."""
        names = self._alternative_names(method, state, federation)
        if not names:
            return {}
        if self._sheet is None or self._sheet[0] != state.round:  # a run that was complete already
            sheet = self._asked_to_score(method, state, federation, names, scores=False)
            self._sheet = state.round, sheet
        return {name: self._sheet[1].column(f"{name}.metric") for name in names}

    def _alternative_names(self, method: Method, state: State, federation: Federation) -> tuple[str, ...]:
        if type(method).own_alternatives is Method.own_alternatives:
            return ()
        first = Cohort.of(federation.train_ids[:1], federation.counts("train"), state.round, self.home)
        download = method.download(state.server, first)
        return tuple(method.own_alternatives(download, method.init_client(download)))

    def _asked_to_score(
        self,
        method: Method,
        state: State,
        federation: Federation,
        alternatives: tuple[str, ...],
        *,
        scores: bool = True,
        ahead: bool = False,
    ) -> Sheet:
        asks: list[Asked] = [*(["evaluate"] if scores else []), *(["alternatives"] if alternatives else [])]  # type: ignore[list-item]
        arrays = models_to_score(method, state, federation, self.target, alternatives=bool(alternatives))
        orders = {client: self._order(client, state.round, tuple(asks), own) for client, own in arrays.items()}
        ranges = evaluation_ranges(federation.task, alternatives, scores=scores)
        coming: _Round | None = None
        cohort = self.plan(state.round + 1) if ahead else None
        if cohort is not None:
            downloads = method.download(state.server, cohort)
            coming = self._prepared(method, downloads, state.statistics.send(cohort), cohort)
            for client, own in coming.orders.items():
                both = without_repeats(arrays[client], own)
                orders[client] = self._order(client, cohort.round, ("evaluate", "train"), both)

        def check(client: int, reply: Reply) -> _Visit:
            self.desk.told(client, reply)
            if coming is not None and client in coming.orders:
                return coming.read(client, reply, ranges)
            opened(reply.arrays, {})
            return _Visit(Returned(None), checked_numbers(reply.numbers, ranges, set()))

        found, reasons = self.desk.ask(orders, check)
        if coming is not None:
            coming.visits = {client: visit for client, visit in found.items() if client in coming.orders}
            coming.reasons = {client: why for client, why in reasons.items() if client in coming.orders}
            self._ahead = coming
        return Sheet({client: visit.numbers for client, visit in found.items()}, len(federation))

    def evaluate(
        self, params: Tensor, statistics: Tensor, ids: ClientIds, split: str, samples: Samples | None = None
    ) -> Scores:
        """Nothing is scored at a server."""
        raise RequestError("clients' samples are at the clients; nothing can be scored here")
