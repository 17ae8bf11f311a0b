"""What an adapter is given: the work, and the word when to do the next round of it."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from typing import IO, Any

import torch
from torch import Tensor, nn

from panacea.experiment.experiment import Experiment
from panacea.experiment.speed.measuring import settle
from panacea.experiment.speed.runners import score_of_vector
from panacea.experiment.speed.workloads import Workload, client_batches, network_of

__all__ = ["Asked", "Task", "vector_of"]


@dataclass(frozen=True)
class Asked:
    """A round to do.

    Attributes:
        number: from 1.
        ids: the clients that take part.
        samples: by client ``(x, y)``: the samples of all its local steps, one batch after the other, so that one pass
            over them in order with the workload's batch size is its local training.
    """

    number: int
    ids: tuple[int, ...]
    samples: dict[int, tuple[Tensor, Tensor]]


class Task:
    """One workload for one peer, with its ends of the two pipes."""

    def __init__(self, work: Workload, experiment: Experiment, answers: IO[str], pfllib: str = "") -> None:
        self.work, self.experiment, self.pfllib = work, experiment, pfllib
        self.device = experiment.config.device
        self.version = ""
        self._answers, self._started = answers, 0.0

    def network(self) -> nn.Module:
        """A new module with the weights every runner starts from."""
        return network_of(self.experiment)

    @property
    def steps(self) -> int:
        """Local steps of a client in a round."""
        return int(self.experiment.config.local_steps or 1)

    def wait(self, *, gather: bool = True) -> Asked | None:
        """Call before each round; reports the round before. None: it was the last.

        The clock runs from the return of this call to the next one.
        """
        if self._started:
            settle(self.device)
            self.say({"seconds": time.perf_counter() - self._started})
        else:
            self.say({"version": self.version})
        line = sys.stdin.readline()
        number = json.loads(line)["round"] if line else None
        if number is None:
            return None
        ids = tuple(int(client) for client in self.experiment.cohort(number).ids)
        samples = {client: self._samples(client, number) for client in ids} if gather else {}
        settle(self.device)
        self._started = time.perf_counter()
        return Asked(number, ids, samples)

    def _samples(self, client: int, number: int) -> tuple[Tensor, Tensor]:
        xs, ys = zip(*client_batches(self.experiment, client, number), strict=True)
        return torch.cat(xs), torch.cat(ys)

    def finish(self, params: Tensor) -> None:
        """The weights it ended with; they are scored as ours are."""
        like = self.experiment.target.initial
        self.say({"score": score_of_vector(self.experiment, params.to(like))})

    def say(self, content: dict[str, Any]) -> None:
        """Answer."""
        print(json.dumps(content), file=self._answers, flush=True)


def vector_of(network: nn.Module) -> Tensor:
    """All weights of a network, one after the other."""
    return torch.cat([value.detach().flatten() for value in network.parameters()])
