"""Numbers on their way into the page: short, safe inside a script element, and never too many."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Budget", "packed", "plain", "short", "to_script"]

_DIGITS = 5  # significant ones, more than any screen shows


def short(value: float | None) -> float | int | None:
    """A number of five significant digits; None for what JSON cannot hold.

    >>> short(81.2512345), short(3.0), short(float("nan")), short(0.000123456789)
    (81.251, 3, None, 0.00012346)
    """
    if value is None or not math.isfinite(value):
        return None
    if value == int(value) and abs(value) < 1e15:
        return int(value)
    return float(f"{value:.{_DIGITS}g}")


def plain(values: Iterable[float | None]) -> list[float | int | None]:
    """A list of short numbers."""
    return [short(None if value is None else float(value)) for value in values]


def packed(values: npt.NDArray[Any], kind: str) -> dict[str, Any]:
    """An array as base64 of small whole numbers, with what turns them back: value = low + code * step.

    Args:
        values: any shape.
        kind: "u1" (256 steps) or "u2" (65,536 steps) between the smallest and the largest value.
    """
    most = 255 if kind == "u1" else 65_535
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 1.0)
    step = (high - low) / most or 1.0
    codes = np.rint((values - low) / step).astype(f"<{kind}")
    text = base64.b64encode(codes.tobytes()).decode()
    return {"kind": kind, "shape": list(values.shape), "low": low, "step": step, "data": text}


def to_script(content: Any) -> str:
    r"""JSON that may stand inside a script element, whatever strings are in it.

    >>> to_script({"name": "</script><b>&"})
    '{"name":"\\u003c/script\\u003e\\u003cb\\u003e\\u0026"}'
    """
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))  # ASCII: no line separators of JavaScript either
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


class Budget:
    """Room for what is heavy: matrices, maps over rounds, details of clients. First come, first served.

    Attributes:
        left: characters.
        refused: how many pieces had no room.
    """

    def __init__(self, characters: int) -> None:
        self.left, self.refused = characters, 0

    def take(self, piece: Any) -> Any:
        """The piece, or None if there is no room for it."""
        size = len(json.dumps(piece, separators=(",", ":")))
        if size > self.left:
            self.refused += 1
            return None
        self.left -= size
        return piece
