"""Numbers as a paper prints them: `97.9±9.7`, `99.27`, and a whole table of them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from panacea.errors import RequestError

__all__ = ["Printed", "parse_printed", "parse_table"]

_CELL = re.compile(r"^(\d+(?:\.(\d+))?)(?:\s*±\s*(\d+(?:\.\d+)?))?$")
_NOTHING = ("", "-")


@dataclass(frozen=True)
class Printed:
    """A published cell.

    Attributes:
        mean: the number.
        spread: what stands after ±, the standard deviation over clients; None where none is printed.
        decimals: digits after the point, which say how far the number was rounded.
    """

    mean: float
    spread: float | None
    decimals: int

    @property
    def rounding(self) -> float:
        """The most that rounding to the printed digits can have changed: half a unit of the last one."""
        return 0.5 * 10.0**-self.decimals

    def __str__(self) -> str:
        text = f"{self.mean:.{self.decimals}f}"
        return text if self.spread is None else f"{text}±{self.spread:.{self.decimals}f}"


def parse_printed(text: str) -> Printed | None:
    """One cell; None where nothing is printed.

    >>> parse_printed("97.9±9.7"), parse_printed("99.30"), parse_printed("-")
    (Printed(mean=97.9, spread=9.7, decimals=1), Printed(mean=99.3, spread=None, decimals=2), None)
    """
    if text.strip() in _NOTHING:
        return None
    found = _CELL.match(text.strip())
    if found is None:
        raise RequestError(f"published: '{text.strip()}' is neither MEAN±SPREAD, MEAN nor -")
    spread = None if found[3] is None else float(found[3])
    return Printed(float(found[1]), spread, len(found[2] or ""))


def parse_table(text: str) -> dict[str, dict[str, Printed]]:
    r"""Rows of cells by name, from lines of cells between bars; the first line names the columns.

    >>> table = parse_table("method | A | B\nFedAvg | 97.9±9.7 | -")
    >>> str(table["FedAvg"]["A"]), "B" in table["FedAvg"]
    ('97.9±9.7', False)
    """
    lines = [[cell.strip() for cell in line.split("|")] for line in text.strip().splitlines()]
    table: dict[str, dict[str, Printed]] = {}
    for name, *cells in lines[1:]:
        if len(cells) != len(lines[0]) - 1:
            raise RequestError(f"published: the row '{name}' has {len(cells)} cells, the header {len(lines[0]) - 1}")
        if name in table:
            raise RequestError(f"published: the row '{name}' is given twice")
        read = {column: parse_printed(cell) for column, cell in zip(lines[0][1:], cells, strict=True)}
        table[name] = {column: cell for column, cell in read.items() if cell is not None}
    return table
