"""A peer in a process of its own, as one of the runners that take turns."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

import panacea
from panacea.errors import RunFailure
from panacea.experiment.speed.workloads import Workload

__all__ = ["PeerMissing", "RemotePeer"]

_PATIENCE = 180.0  # seconds without an answer after which a peer is given up
_WORKER = "panacea.experiment.speed.peers.worker"


class PeerMissing(RunFailure):
    """A peer that cannot be started here."""


class RemotePeer:
    """Speaks with `worker` in lines of JSON: a round number goes there, seconds come back; null ends it."""

    def __init__(
        self, name: str, work: Workload, device: str, pfllib: Path | None = None, python: Path | None = None
    ) -> None:
        self.name, self.version = name, ""
        self._folder = tempfile.TemporaryDirectory(prefix="panacea-bench-")
        folder = Path(self._folder.name)
        (folder / "panacea").symlink_to(Path(panacea.__file__).resolve().parent)  # us, and nothing else beside us
        self._errors = (folder / "errors").open("w+b")
        path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
        quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}
        self._process = subprocess.Popen(  # noqa: S603  (our own module)
            [str(python or sys.executable), "-m", _WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,  # Ctrl-C is for us; we end it
            env={**os.environ, **quiet, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        )
        steps = {"steps": work.steps, "cuda_steps": work.cuda_steps}
        asked = {"peer": name, "workload": work.key, "device": device, "pfllib": str(pfllib or ""), **steps}
        try:
            self.version = str(self._ask(asked)["version"])
        except RunFailure as error:
            self.close()
            raise PeerMissing(str(error)) from error

    def round(self, number: int) -> float:
        """The seconds it took by the peer's own clock."""
        return float(self._ask({"round": number})["seconds"])

    def score(self) -> float | None:
        """Of the model it ended with."""
        return float(self._ask({"round": None})["score"])

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            print(json.dumps(message), file=self._process.stdin, flush=True)
        except OSError as error:
            raise RunFailure(f"it ended: {self._last_words()}") from error
        ready, _, _ = select.select([self._process.stdout], [], [], _PATIENCE)
        line = self._process.stdout.readline() if ready else ""
        if not line:
            raise RunFailure(f"it ended: {self._last_words()}" if ready else f"no answer within {_PATIENCE:.0f} s")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RunFailure(str(answer["error"]))
        return answer

    def _last_words(self) -> str:
        """The last line the process wrote."""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "without a word")

    def close(self) -> None:
        """End the process; it ends by itself once nothing more can be asked."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)  # with all it has started
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()
        self._folder.cleanup()

    def __enter__(self) -> RemotePeer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
