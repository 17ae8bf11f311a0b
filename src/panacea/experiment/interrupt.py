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
        self._asked = False
        self._outer: Interrupter | None = None
        self._old: dict[int, object] = {}

    @property
    def requested(self) -> bool:
        """Whether somebody asked to stop."""
        return self._asked or (self._outer is not None and self._outer.requested)

    def __enter__(self) -> Interrupter:
        if threading.current_thread() is not threading.main_thread():
            return self  # signals reach the main thread only
        self._outer = Interrupter._outermost
        if self._outer is None:
            for number in (signal.SIGINT, signal.SIGTERM):
                self._old[number] = signal.signal(number, self._ask)
            Interrupter._outermost = self
        return self

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if Interrupter._outermost is self:
            Interrupter._outermost = None
        for number, handler in self._old.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._old.clear()
