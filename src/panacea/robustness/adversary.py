"""The clients that attack, and when: one object that the round and the runner ask."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from panacea.core.random import Streams
from panacea.core.records import Tree, leaves, named_leaves, tree_where
from panacea.core.types import Cohort
from panacea.data.federation import Federation
from panacea.engines.base import Samples
from panacea.errors import RequestError
from panacea.robustness.base import Attack
from panacea.robustness.updates import applied, updates_of

__all__ = ["Attackers", "choose_attackers"]


@dataclass(frozen=True)
class Attackers:
    """An attack and who carries it out; `panacea.core.round.Adversary`.

    Attributes:
        attack: what they do.
        who: ``[clients]`` bool.
        streams: the experiment's randomness.
    """

    attack: Attack
    who: npt.NDArray[np.bool_]
    streams: Streams

    def corrupt(self, unchanged: Tree, uploads: Tree, cohort: Cohort) -> Tree:
        """The cohort's uploads with those of attackers changed."""
        mask = self.who[cohort.ids]
        if type(self.attack).updates is Attack.updates or not self._attacks(mask, uploads, cohort):
            return uploads
        attacks = torch.from_numpy(mask).to(leaves(uploads)[0].device)
        changed = self.attack.updates(updates_of(unchanged, uploads), attacks, self.streams, cohort.round)
        return uploads if changed is None else tree_where(attacks[:, None], applied(unchanged, changed), uploads)

    def messages(self, uploads: Tree, cohort: Cohort) -> dict[int, object]:
        """What attackers send that is no upload, by client; see `Attack.message`."""
        mask = self.who[cohort.ids]
        if type(self.attack).message is Attack.message or not self._attacks(mask, uploads, cohort):
            return {}
        sent = dict(named_leaves(uploads, travelling=True))
        streams = {
            row: self.streams.numpy("attack messages", cohort.round, int(cohort.ids[row])) for row in mask.nonzero()[0]
        }
        return {
            int(cohort.ids[row]): self.attack.message({name: leaf[row] for name, leaf in sent.items()}, stream)
            for row, stream in streams.items()
        }

    def lies(self, cohort: Cohort) -> npt.NDArray[np.bool_]:
        """``[cohort]`` whose uploads of this round are an attacker's; nobody's before the attack's first round."""
        return self.who[cohort.ids] & (cohort.round >= self.attack.keys.start)

    def _attacks(self, mask: npt.NDArray[np.bool_], uploads: Tree, cohort: Cohort) -> bool:
        """Whether anything happens to a cohort in which these rows attack."""
        return cohort.round >= self.attack.keys.start and bool(mask.any()) and bool(leaves(uploads))

    def poison(self, samples: Samples, round: int) -> None:
        """Change the attackers' train targets and inputs, once, before the attack's first round (or after a resume)."""
        if round < self.attack.keys.start or samples.poisoned:
            return
        for client in np.flatnonzero(self.who):
            first, end = samples.bounds[client, :2]
            old = samples.y[first:end]
            if samples.task.kind == "classification":
                labels = self.attack.labels(old.cpu().numpy(), samples.task.classes, self._stream(int(client)))
                changed = None if labels is None else torch.from_numpy(labels).to(old)
            else:
                changed = self.attack.targets(old)
            if changed is not None:
                samples.replace_targets(int(first), changed)
            marked = self.attack.marked(int(end - first), self._stream(int(client)))
            if marked is not None:
                samples.replace_inputs(first + marked, self.attack.trigger)
        samples.poisoned = True

    def _stream(self, client: int) -> np.random.Generator:
        return self.streams.numpy("attack labels", client=client)


def choose_attackers(attack: Attack, federation: Federation, streams: Streams) -> Attackers | None:
    """Who attacks: `attack.clients`, else as many as the attack says by the seed; None if nobody.

    Raises:
        RequestError: the attack does not suit the task, or a client is unknown or novel.
    """
    keys, kind = attack.keys, federation.task.kind
    if attack.name == "none":
        return None
    if attack.tasks != "any" and (attack.tasks == "classification") != (kind == "classification"):
        suits = "classification" if attack.tasks == "classification" else "regression and forecasting"
        raise RequestError(f"attack={attack.name} is for {suits}; {federation.name} is a {kind} task")
    attack.check(federation)
    who = np.zeros(len(federation), np.bool_)
    if keys.clients is not None:
        who[[_client(federation, given) for given in keys.clients]] = True
    else:
        able = federation.train_ids
        who[streams.numpy("attackers").choice(able, attack.attackers(len(able)), replace=False)] = True
    return Attackers(attack, who, streams) if who.any() else None


def _client(federation: Federation, given: int | str) -> int:
    if isinstance(given, str) and given in federation.names:
        client = federation.names.index(given)
    elif isinstance(given, int) and 0 <= given < len(federation):
        client = given
    elif str(given) in federation.names:  # a name of digits
        client = federation.names.index(str(given))
    else:
        raise RequestError(f"attack.clients: no client '{given}'; there are {len(federation)}, numbered from 0")
    if federation.novel[client]:
        raise RequestError(f"attack.clients: client '{given}' is novel, it takes no part in training")
    return client
