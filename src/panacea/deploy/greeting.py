"""The start of a run: every client says hello, and how many samples it has is kept with the run."""

from __future__ import annotations

import json
import math
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from panacea.core.files import write_json
from panacea.deploy.asking import Desk
from panacea.deploy.backoff import BackOff
from panacea.deploy.orders import Order, Reply
from panacea.deploy.roster import Newcomer, Roster
from panacea.deploy.wire import checked_numbers, opened
from panacea.errors import RequestError, RunFailure

__all__ = ["MOST_SAMPLES", "Known", "Ledger", "counted", "greet", "samples_of"]

MOST_SAMPLES = 10**9
"""Of a client and split: it is the client that says how many, and its weight in a mean goes by it."""

_BELIEVED = 10
"""Times the middle client's train samples that a client's word is taken for; more must be in the roster."""

_SPLITS = ("train", "val", "test")
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Known:
    """A run's name among clients, who takes part (those who joined, too), and how many samples they said they have.

    Attributes:
        starts: how often a server began or went on with the run.
        guessed: who has not said yet.
    """

    run: str
    roster: Roster
    counts: Counts
    joined: list[Newcomer]
    starts: int = 1
    guessed: tuple[str, ...] = ()


class Ledger:
    """`federation.json` in a run's directory: its name among clients, and how many samples they said they have."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @staticmethod
    def new_run() -> str:
        """A name no other run has."""
        return secrets.token_hex(8)

    def read(self, roster: Roster, clients: int | None = None) -> Known | None:
        """Of a run that goes on; None if it must begin.

        Args:
            roster: as it was at the start.
            clients: how many there are in the run's state; some may have joined.
        """
        try:
            values = json.loads(self.path.read_text(encoding="utf-8"))
            for entry in values["joined"][: (clients or 0) - len(roster.names)] if clients else ():
                roster = roster.joined(Newcomer(**entry))
            counts = np.array([values["counts"][name] for name in roster.names], np.int64).reshape(-1, 3)
            joined = [Newcomer(**entry) for entry in values["joined"]]
            starts, guessed = int(values.get("starts", 1)), tuple(map(str, values.get("guessed", ())))
            return Known(str(values["run"]), roster, counts, joined, starts, guessed)
        except (OSError, ValueError, KeyError, TypeError, RequestError):
            return None

    def write(self, known: Known) -> None:
        """Keep it."""
        counts = dict(zip(known.roster.names, known.counts.tolist(), strict=True))
        joined = [newcomer.model_dump(mode="json") for newcomer in known.joined]
        more = {"starts": known.starts, "guessed": list(known.guessed)}
        write_json(self.path, {"run": known.run, "counts": counts, "joined": joined, **more})


def samples_of(client: int, reply: Reply) -> list[int]:
    """Train, val and test samples by an answer to ``hello``; raises `Refused`."""
    ranges = {f"{split}.count": (0.0 if split != "train" else 1.0, float(MOST_SAMPLES)) for split in _SPLITS}
    opened(reply.arrays, {})
    numbers = checked_numbers(reply.numbers, ranges, set(ranges))
    return [int(numbers[f"{split}.count"]) for split in _SPLITS]


def counted(client: int, said: list[int], every: Sequence[int], roster: Roster, desk: Desk) -> list[int]:
    """The samples that a client is taken to have: as the roster has it, or its own word within reason.

    A client's weight in a mean goes by its train samples, so that its word alone must not make it the mean.

    Args:
        client: its number.
        said: what it says.
        every: train samples of all clients that are known, this one's among them.
        roster: all clients.
        desk: where to note what is not believed.
    """
    fixed, name = roster.samples_of(client), roster.names[client]
    if fixed is not None:
        if fixed != said:
            desk.log.note("other samples", f"it says {said}, the roster {fixed}, which counts", name)
        return fixed
    most = max(1, _BELIEVED * sorted(every)[(len(every) - 1) // 2])
    if said[0] > most:
        why = f"taken to have {most}, {_BELIEVED} times the middle; the roster can say otherwise"
        desk.log.note("not believed", f"it says {said[0]} train samples; {why}", name)
    return [min(said[0], most), *said[1:]]


def greet(desk: Desk, roster: Roster, settings: str) -> tuple[Counts, tuple[str, ...]]:
    """``[clients, 3]``: train, val and test samples of every client, see `counted`; and who did not say.

    Clients are asked until all have answered, or `Patience.start` seconds have passed. Then those that did not are
    taken to have as many samples as the roster says or the middle one of the others has, until they answer.

    Raises:
        RunFailure: fewer than the quorum of the training clients answered.
    """
    waiting = {client: Order(client, name, 0, ("hello",), settings) for client, name in enumerate(roster.names)}

    known: dict[int, list[int]] = {}
    end = time.monotonic() + desk.patience.start
    while True:
        left = max(end - time.monotonic(), 0.001)
        found, reasons = desk.ask(waiting, samples_of, everyone=True, deadline=min(desk.patience.deadline, left))
        known |= found
        waiting = {client: order for client, order in waiting.items() if client not in known}
        if not waiting or time.monotonic() + desk.patience.pause >= end:
            break
        desk.rest()
    able = np.flatnonzero(~roster.novel)
    here = sum(int(client) in known for client in able)
    if here < max(1, math.ceil(desk.patience.quorum * len(able))):
        why = "".join(f"; '{roster.names[client]}': {reason}" for client, reason in [*reasons.items()][:1])
        raise RunFailure(f"only {here} of {len(able)} training clients answered{why}")
    every = [said[0] for said in known.values()]
    counts = {client: counted(client, said, every, roster, desk) for client, said in known.items()}
    middle = np.median(np.array(list(counts.values())), axis=0).astype(np.int64).tolist()
    for client in waiting:
        counts[client] = roster.samples_of(client) or middle
        desk.log.note("absent", f"taken to have {counts[client]} samples", roster.names[client])
    desk.backoff = BackOff(desk.patience.longest_backoff)  # who came late is as good as the others
    desk.heard.clear()
    guessed = tuple(roster.names[client] for client in waiting if roster.samples_of(client) is None)
    return np.array([counts[client] for client in range(len(roster.names))], np.int64), guessed
