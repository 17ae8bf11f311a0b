"""The start of a run: every client says hello, and how many samples it has is kept with the run."""

from __future__ import annotations

import json
import math
import secrets
import time
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

__all__ = ["MOST_SAMPLES", "Known", "Ledger", "greet", "samples_of"]

MOST_SAMPLES = 10**9
"""Of a client and split: it is the client that says how many, and its weight in a mean goes by it."""

_SPLITS = ("train", "val", "test")
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Known:
    """A run's name among clients, who takes part (those who joined, too), and how many samples they said they have."""

    run: str
    roster: Roster
    counts: Counts
    joined: list[Newcomer]


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
            return Known(str(values["run"]), roster, counts, [Newcomer(**entry) for entry in values["joined"]])
        except (OSError, ValueError, KeyError, TypeError, RequestError):
            return None

    def write(self, known: Known) -> None:
        """Keep it."""
        counts = dict(zip(known.roster.names, known.counts.tolist(), strict=True))
        joined = [newcomer.model_dump(mode="json") for newcomer in known.joined]
        write_json(self.path, {"run": known.run, "counts": counts, "joined": joined})


def samples_of(client: int, reply: Reply) -> list[int]:
    """Train, val and test samples by an answer to ``hello``; raises `Refused`."""
    ranges = {f"{split}.count": (0.0 if split != "train" else 1.0, float(MOST_SAMPLES)) for split in _SPLITS}
    opened(reply.arrays, {})
    numbers = checked_numbers(reply.numbers, ranges, set(ranges))
    return [int(numbers[f"{split}.count"]) for split in _SPLITS]


def greet(desk: Desk, roster: Roster, settings: str) -> Counts:
    """``[clients, 3]``: train, val and test samples of every client, as they say.

    Clients are asked until all have answered, or `Patience.start` seconds have passed. Then those that did not are
    taken to have as many samples as the middle one of the others, for the whole run.

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
    middle = np.median(np.array(list(known.values())), axis=0).astype(np.int64)
    for client in waiting:
        desk.log.note("absent", f"taken to have {middle.tolist()} samples", roster.names[client])
    desk.backoff = BackOff(desk.patience.longest_backoff)  # who came late is as good as the others
    return np.array([known.get(client, middle.tolist()) for client in range(len(roster.names))], np.int64)
