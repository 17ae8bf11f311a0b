"""Ctrl-C and SIGTERM ask a run to stop after the round at hand; a second Ctrl-C stops at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import ClassVar

from panacea.errors import PanaceaError

__all__ = ["Interrupted", "Interrupter"]


class Interrupted(PanaceaError):  # noqa: N818
    """A run stopped early because it was asked to, after saving; the message says how to go on."""

    exit_code = 130


class Interrupter:
    """While it is entered, the first signal only sets `requested`; of one inside another, the outer's."""

    _outermost: ClassVar[Interrupter | None] = None

    def __init__(self) -> None:
        self.requested = False
        self._old: dict[int, object] = {}

    def __enter__(self) -> Interrupter:
        if threading.current_thread() is threading.main_thread() and Interrupter._outermost is None:
            Interrupter._outermost = self
            for number in (signal.SIGINT, signal.SIGTERM):
                self._old[number] = signal.signal(number, self._ask)
        return self

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._old.clear()
        if Interrupter._outermost is self:
            Interrupter._outermost = None
