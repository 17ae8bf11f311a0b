"""What a client keeps between rounds, on its own disk.

A run's folder holds a file for each of the last few states: ``round-00000007.state`` is the state after the visit of
round 7. A visit of round r starts from the newest state before r, and replaces all that are of r or later. So an order
that comes again (its server was killed and resumed) gives the same answer, and nothing is applied twice. ``start`` says
how often that server had begun: one that comes late, from before or from an earlier round, is refused.

The newest model of its own that the client was asked to score is there as well, as ``model.safetensors``.

A state is a file of its SHA-256, a line break and safetensors; it is written beside and renamed. A damaged file is put
aside, and the client goes on from the state before it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from panacea.core.files import write_atomically
from panacea.errors import RequestError

__all__ = ["Trail", "locked"]

_STATES = 4  # a server may go back to its checkpoint before last, and ask for a round ahead
_RUNS = 4  # of which a client keeps states; the oldest are forgotten
_SEAL = 65


_BUSY = 30.0  # seconds to wait for another answer of this client


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Nobody else answers for this client meanwhile; the kernel releases the lock even after a kill.

    Raises:
        RequestError: somebody else does, for too long: orders that wait would only pile up.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise RequestError(f"state folder {folder.name}: cannot be used ({error.strerror})") from None
    try:
        _lock(handle)
        yield
    finally:
        os.close(handle)


def _lock(handle: int) -> None:
    end = time.monotonic() + _BUSY
    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                raise RequestError("busy with another order") from None
        time.sleep(0.05)


class Trail:
    """The states of one run.

    Attributes:
        start: of the server that asks; see `panacea.deploy.settings.RunSettings`.
        notes: what was found wrong with files.
    """

    def __init__(self, folder: Path, run: str, start: int = 1) -> None:
        self.folder, self.start = folder / run, start
        self.notes: list[str] = []

    def refuse_late(self, round: int | None) -> None:
        """An order that comes late must not take a client back to where it was.

        Args:
            round: that is to be trained; None if nothing is.

        Raises:
            RequestError: the server went on anew since, or the very same one is past this round.
        """
        newest, known = self._newest_start(), self.rounds()
        if self.start < newest:
            raise RequestError(f"an order of the server's start {self.start}, but it went on anew, {newest} times")
        if round is not None and self.start == newest and known and round < known[-1]:
            raise RequestError(f"an order for round {round}, but this client has gone on to round {known[-1]}")

    def _newest_start(self) -> int:
        try:
            return int((self.folder / "start").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return 0

    def rounds(self) -> list[int]:
        """Visits whose states are there, ascending."""
        names = (path.name[6:-6] for path in self.folder.glob("round-*.state"))
        return sorted(int(name) for name in names if name.isdigit())

    def before(self, round: int) -> dict[str, Tensor] | None:
        """The state that a visit of this round starts from; None for a first visit.

        Raises:
            RequestError: the round is older than all that is kept, and something is.
        """
        known = self.rounds()
        if known and known[0] >= round and self._forgot() and self._read(known[0]) != {}:
            raise RequestError(f"an order for round {round}, but this client has gone on to round {known[-1]}")
        for earlier in reversed([seen for seen in known if seen < round]):
            state = self._read(earlier)
            if state is not None:
                return state
        return None

    def after(self, round: int) -> dict[str, Tensor] | None:
        """The state as a server sees it after this round."""
        return self.before(round + 1)

    def save(self, round: int, state: Mapping[str, Tensor]) -> None:
        """Keep the state after a visit; those of later rounds are of a server that was killed.

        Raises:
            RequestError: the disk does not take it.
        """
        try:
            self._make_folder()
            if self._newest_start() != self.start:
                write_atomically(self.folder / "start", str(self.start))
            content = save(_own_memory(state))
            for later in self.rounds():
                if later > round:
                    self._path(later).unlink(missing_ok=True)
            write_atomically(self._path(round), hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
            known = self.rounds()
            if len(known) > _STATES:
                write_atomically(self.folder / "forgot", str(known[-_STATES - 1]))
            for old in known[:-_STATES]:
                self._path(old).unlink(missing_ok=True)
        except OSError as error:
            raise RequestError(f"the state of round {round} cannot be saved ({error.strerror})") from None

    def keep_model(self, weights: Mapping[str, Tensor]) -> None:
        """Write the client's own model, by the names of its tensors: ``model.safetensors``, to use as it likes."""
        try:
            self._make_folder()
            write_atomically(self.folder / "model.safetensors", save(_own_memory(weights)))
        except OSError as error:
            raise RequestError(f"the client's model cannot be saved ({error.strerror})") from None

    def _make_folder(self) -> None:
        if not self.folder.exists():
            self._forget_runs()
        self.folder.mkdir(parents=True, exist_ok=True)
        for part in self.folder.glob(".*.part"):  # a kill while something was written
            part.unlink(missing_ok=True)

    def _forgot(self) -> bool:
        """Whether earlier states were there once."""
        return (self.folder / "forgot").exists()

    def _path(self, round: int) -> Path:
        return self.folder / f"round-{round:08d}.state"

    def _read(self, round: int) -> dict[str, Tensor] | None:
        path = self._path(round)
        try:
            data = path.read_bytes()
            if hashlib.sha256(data[_SEAL:]).hexdigest().encode() + b"\n" != data[:_SEAL]:
                raise ValueError("checksum")
            return load(data[_SEAL:])
        except (OSError, ValueError, SafetensorError):
            self.notes.append(f"the state of round {round} is damaged; going on from the one before")
            path.replace(path.with_suffix(".damaged"))
            return None

    def _forget_runs(self) -> None:
        runs = sorted((p for p in self.folder.parent.iterdir() if p.is_dir()), key=lambda p: p.stat().st_mtime)
        for old in runs[: max(0, len(runs) - _RUNS + 1)]:
            shutil.rmtree(old, ignore_errors=True)


def _own_memory(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Safetensors takes no tensors that share memory."""
    return {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
