"""Tables of a page."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["html_table"]


def html_table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table; None and NaN are empty cells, numbers have four digits.

    >>> html_table(("a", "b"), [(1.23456, None)])
    '<table><tr><th>a</th><th>b</th></tr><tr><td>1.235</td><td></td></tr></table>'
    """

    def cell(value: Any) -> str:
        text = "" if value is None or value != value else f"{value:.4g}" if isinstance(value, float) else str(value)  # noqa: PLR0124
        return f"<td>{html.escape(text)}</td>"

    head = "".join(f"<th>{html.escape(name)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(cell(value) for value in row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"
