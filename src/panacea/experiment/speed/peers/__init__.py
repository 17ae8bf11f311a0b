"""Other programmes doing the same work: the same model, clients, batches, steps, rate and rounds, in their own loops.

Every peer runs in a process of its own with one thread, so that it can neither slow us down nor share an environment it
does not fit into, and takes turns with our engines. Adapters are ours; peers are not part of this package.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from panacea.errors import RequestError, unknown
from panacea.experiment.speed.peers.remote import PeerMissing, RemotePeer
from panacea.experiment.speed.workloads import Workload

__all__ = ["PEERS", "Peer", "Peers"]

_WORKLOADS = ("W1", "W1-20", "W3")


@dataclass(frozen=True)
class Peer:
    """A programme to compare with.

    Attributes:
        title: what it is called, and which part of it runs.
        install: how to get it.
        tolerance: how far its final accuracy may lie from ours, in points. A peer that draws its own batches ends
            elsewhere than we do; one that is given ours must end where we end.
    """

    title: str
    install: str
    tolerance: float


PEERS = {
    "pfl": Peer("pfl 0.6.0, SimulatedBackend", "pip install 'pfl==0.6.0'", 1.0),
    "flower": Peer("Flower 1.41.0, run_simulation on one CPU", "pip install 'flwr[simulation]==1.41.0'", 1.0),
    "pfllib": Peer("PFLlib, FedAvg without evaluation", "clone PFLlib and give its folder: --pfllib PATH", 5.0),
}


@dataclass(frozen=True)
class Peers:
    """The peers that were asked for.

    Attributes:
        names: which.
        pfllib: the folder of a checkout of PFLlib.
        python: an interpreter that has the peers; this one by default.
    """

    names: Sequence[str] = ()
    pfllib: Path | None = None
    python: Path | None = None

    def __post_init__(self) -> None:
        for name in self.names:
            if name not in PEERS:
                raise unknown("peer", name, PEERS)
        if self.pfllib is not None and not (self.pfllib / "system" / "flcore").is_dir():
            raise RequestError(f"--pfllib {self.pfllib}: no checkout of PFLlib, there is no folder system/flcore in it")
        if "pfllib" in self.names and self.pfllib is None:
            raise RequestError("--against pfllib: it is on no package index; give its folder, --pfllib PATH")
        if self.python is not None and not self.python.is_file():
            raise RequestError(f"--python {self.python}: there is no such file")

    def able(self, work: Workload) -> list[str]:
        """Those of them that can do a workload."""
        return list(self.names) if work.key in _WORKLOADS else []

    def start(self, work: Workload, device: str, stack: ExitStack) -> tuple[dict[str, RemotePeer], list[str]]:
        """Start them for a workload; those that cannot be started are noted. `stack` ends their processes."""
        runners: dict[str, RemotePeer] = {}
        notes = []
        for name in self.able(work):
            try:
                runners[name] = stack.enter_context(RemotePeer(name, work, device, self.pfllib, self.python))
            except PeerMissing as error:
                notes.append(f"{name} is left out: {error}; {PEERS[name].install}")
        return runners, notes
