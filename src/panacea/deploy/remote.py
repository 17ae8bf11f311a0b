"""The engine of a federation: clients train and score themselves, elsewhere; the rest is the simulator's.

When an evaluation is due after round r, the orders to the cohort of round r + 1 carry its training as well, since a
message costs a client a new process; the engine keeps those replies until that round asks for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from panacea.core.method import Method
from panacea.core.records import Tree, named_leaves, tree_index, tree_map
from panacea.core.round import State, Trained
from panacea.core.types import ClientIds, Cohort, Steps
from panacea.data.federation import Federation
from panacea.deploy.asking import Desk
from panacea.deploy.blank import blank_uploads
from panacea.deploy.evaluating import Sheet, evaluation_ranges, implausible, models_to_score, without_repeats
from panacea.deploy.orders import Asked, Order, Packed, Reply
from panacea.deploy.visiting import AskedRound, Returned, Visit
from panacea.deploy.wire import array_bytes, checked_numbers, opened, row_of
from panacea.engines.base import LocalSettings, Samples, Scores
from panacea.errors import RequestError, RunFailure
from panacea.evaluation.evaluate import Evaluation
from panacea.experiment.config import ExperimentConfig
from panacea.models.target import TargetModel

__all__ = ["RemoteEngine"]


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
        self._ahead: AskedRound | None = None
        self._sheet: tuple[int, Sheet] | None = None
        self._left_out = 0  # rounds in a row
        self._usual_loss = 0.0  # of the last round that somebody trained in

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

        Where too few replies are sound, however often it was tried, none is used: the round is left out.

        Raises:
            RunFailure: too many rounds in a row would be left out.
        """
        if steps is not None or purpose != "train":
            raise RequestError("clients' own models are made and kept at the clients")
        self.desk.log.round = cohort.round
        asked = self._taken_ahead(downloads, cohort) or self._prepared(method, downloads, statistics, cohort)
        orders = {c: self._order(c, cohort.round, ("train",), arrays) for c, arrays in asked.orders.items()}

        def check(client: int, reply: Reply) -> Visit:
            self.desk.told(client, reply)
            return asked.read(client, reply, {})

        needed = self._quorum(len(cohort))
        asked.visits, asked.reasons = self.desk.ask_enough(
            orders, check, needed, found=asked.visits, reasons=asked.reasons
        )
        self._leave_out(asked, needed)
        self._refuse_longest(asked)
        return self._trained(asked, statistics)

    def _quorum(self, clients: int) -> int:
        return max(1, math.ceil(self.desk.patience.quorum * clients))

    def _leave_out(self, asked: AskedRound, needed: int) -> None:
        """Use nothing of a round below the quorum."""
        if len(asked.visits) >= needed:
            self._left_out = 0
            return
        said = f"{len(asked.visits)} of {len(asked.cohort)} clients answered soundly, {needed} are needed"
        self._left_out += 1
        if self._left_out > self.desk.patience.left_out:
            before = f"; {self._left_out - 1} rounds before it were left out" if self._left_out > 1 else ""
            self.desk.log.note("given up", said + before)
            raise RunFailure(f"round {asked.cohort.round}: {said}{before}; the run is saved and can be resumed")
        self.desk.log.note("left out", f"{said}; nothing is averaged")
        asked.leave_out(said)

    def _refuse_longest(self, asked: AskedRound) -> None:
        """Nobody's update may rule the mean: see `AskedRound.refuse_longest`."""
        fixed = self.config.local_epochs is None
        trained = [1.0] * len(asked.cohort) if fixed else asked.cohort.counts[:, 0].tolist()
        steps = dict(zip(asked.cohort.ids.tolist(), trained, strict=True))
        for client, why in asked.refuse_longest(steps).items():
            self.desk.log.note("refused", why, self.desk.names[client])

    def _prepared(self, method: Method, downloads: Tree, statistics: Tensor, cohort: Cohort) -> AskedRound:
        sgd = self.local.sgd(cohort.ids, self.home)
        shared = self.config.buffers == "shared" and statistics.numel() > 0
        unchanged = Returned(blank_uploads(method, downloads, sgd), statistics if shared else None)
        rows = dict(named_leaves(downloads, "download", travelling=True))
        if shared:
            rows["statistics"] = statistics
        orders = {int(client): row_of(rows, row) for row, client in enumerate(cohort.ids)}
        return AskedRound(cohort, orders, unchanged, {}, {})

    def _taken_ahead(self, downloads: Tree, cohort: Cohort) -> AskedRound | None:
        """The round as it was asked for with the last evaluation, if it was."""
        ahead, self._ahead = self._ahead, None
        if ahead is None or ahead.cohort.round != cohort.round or list(ahead.cohort.ids) != list(cohort.ids):
            return None
        return ahead

    def _order(self, client: int, round: int, asks: tuple[Asked, ...], arrays: Mapping[str, Packed]) -> Order:
        return Order(client, self.desk.names[client], round, asks, self.settings, arrays)

    def _trained(self, asked: AskedRound, statistics: Tensor) -> Trained:
        rows = [tree_index(asked.unchanged, slice(row, row + 1)) for row in range(len(asked.cohort))]
        for row, client in enumerate(asked.cohort.ids.tolist()):
            if client in asked.visits:
                rows[row] = asked.visits[client].returned
        whole: Returned = tree_map(lambda *parts: torch.cat(parts), rows[0], *rows[1:])
        said = {client: visit.numbers for client, visit in asked.visits.items()}
        losses = {c: numbers["loss"] for c, numbers in said.items() if c not in implausible(said, ("loss",))}
        if losses:
            self._usual_loss = float(np.mean(list(losses.values())))
        every = torch.tensor([losses.get(c, self._usual_loss) for c in asked.cohort.ids.tolist()], dtype=torch.float64)
        back = statistics[:, :0] if self.config.buffers != "shared" else whole.statistics
        back = statistics if back is None else back
        return Trained(whole.upload, None, back, every, asked.reasons)

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
        sent = sum(array_bytes(own) for own in arrays.values())
        ranges = evaluation_ranges(federation.task, alternatives, scores=scores)
        coming: AskedRound | None = None
        cohort = self.plan(state.round + 1) if ahead else None
        if cohort is not None:
            downloads = method.download(state.server, cohort)
            coming = self._prepared(method, downloads, state.statistics.send(cohort), cohort)
            for client, own in coming.orders.items():
                both = without_repeats(arrays[client], own)
                sent += array_bytes(both) - array_bytes(own) - array_bytes(arrays[client])
                orders[client] = self._order(client, cohort.round, ("evaluate", "train"), both)

        def check(client: int, reply: Reply) -> Visit:
            self.desk.told(client, reply)
            if coming is not None and client in coming.orders:
                return coming.read(client, reply, ranges)
            opened(reply.arrays, {})
            return Visit(Returned(None), checked_numbers(reply.numbers, ranges, set()))

        last = state.round >= (self.config.rounds or 0)
        found, reasons = self.desk.ask_enough(orders, check, self._quorum(len(orders)), everyone=last)
        if coming is not None:
            coming.visits = {client: visit for client, visit in found.items() if client in coming.orders}
            coming.reasons = {client: why for client, why in reasons.items() if client in coming.orders}
            self._ahead = coming
        numbers = {client: visit.numbers for client, visit in found.items()}
        for client, why in implausible(numbers, tuple(ranges)).items():
            self.desk.log.note("not believed", why, self.desk.names[client])
            del numbers[client]
        return Sheet(numbers, len(federation), sent)

    def evaluate(
        self, params: Tensor, statistics: Tensor, ids: ClientIds, split: str, samples: Samples | None = None
    ) -> Scores:
        """Nothing is scored at a server."""
        raise RequestError("clients' samples are at the clients; nothing can be scored here")
