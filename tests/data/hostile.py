"""What a hostile file holds."""

from __future__ import annotations

from typing import Any


class Runs:
    """Something to call when it is unpickled, and with what."""

    def __init__(self, function: Any, *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Any, tuple[object, ...]]:
        return self.call
