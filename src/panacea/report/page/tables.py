"""Tables of the page, each also as CSV, Markdown and LaTeX to copy."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from panacea.experiment.table import markdown_table

__all__ = ["Column", "PageTable", "column_cells", "latex_table"]

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}", "±": r"$\pm$",
}  # fmt: skip


@dataclass(frozen=True)
class Column:
    """A column of numbers, one per row.

    Attributes:
        name: its heading.
        values: None where it is not known.
        better: 1 if more is better, -1 if less is, 0 if neither.
        digits: behind the point.
    """

    name: str
    values: tuple[float | None, ...]
    better: int = 0
    digits: int = 2


@dataclass(frozen=True)
class PageTable:
    """A table.

    Attributes:
        title: above it.
        note: below it: how to read it.
        header: headings.
        rows: cells as a person reads them.
        raw: the same cells with all digits, for CSV.
        marks: "best" or "second" by (row, column).
    """

    title: str
    note: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    raw: tuple[tuple[Any, ...], ...]
    marks: dict[tuple[int, int], str]

    @classmethod
    def of(cls, title: str, note: str, first: tuple[str, Sequence[str]], columns: Sequence[Column]) -> PageTable:
        """A table of a name and numbers per row; columns that nobody has a number in are left out."""
        kept = [column for column in columns if any(value is not None for value in column.values)]
        marks = {(row, place): mark for place, column in enumerate(kept, 1) for row, mark in _ranks(column).items()}
        texts = [column_cells(column) for column in kept]
        rows = tuple((name, *(text[i] for text in texts)) for i, name in enumerate(first[1]))
        raw = tuple((name, *(column.values[i] for column in kept)) for i, name in enumerate(first[1]))
        return cls(title, note, (first[0], *(column.name for column in kept)), rows, raw, marks)

    def payload(self) -> dict[str, Any]:
        """For the page."""
        return {
            "title": self.title, "note": self.note, "header": self.header, "rows": self.rows,
            "marks": [[row, column, mark] for (row, column), mark in self.marks.items()],
            "copies": {"CSV": self.csv(), "Markdown": self.markdown(), "LaTeX": self.latex()},
        }  # fmt: skip

    def csv(self) -> str:
        """Comma-separated values, all digits."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.header)
        writer.writerows([[_csv_cell(cell) for cell in row] for row in self.raw])
        return text.getvalue()

    def markdown(self) -> str:
        """Markdown, the best in bold."""
        rows = [
            [f"**{cell}**" if self.marks.get((i, j)) == "best" else cell for j, cell in enumerate(row)]
            for i, row in enumerate(self.rows)
        ]
        return markdown_table(self.header, rows)

    def latex(self) -> str:
        """A `booktabs` table, the best bold and the second underlined."""
        return latex_table(self.header, self.rows, self.marks)


def latex_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], marks: dict[tuple[int, int], str] | None = None
) -> str:
    r"""A `booktabs` table.

    >>> print(latex_table(["method", "%"], [["fed_avg", "1 ± 2"]], {(0, 1): "best"}), end="")
    \begin{tabular}{lr}
    \toprule
    method & \% \\
    \midrule
    fed\_avg & \textbf{1 $\pm$ 2} \\
    \bottomrule
    \end{tabular}
    """
    style = {"best": r"\textbf{%s}", "second": r"\underline{%s}", "": "%s"}
    marks = marks or {}

    def line(cells: Sequence[str]) -> str:
        return " & ".join(cells) + r" \\"

    body = [
        line([style[marks.get((i, j), "")] % _escaped(cell) for j, cell in enumerate(row)])
        for i, row in enumerate(rows)
    ]
    begin = r"\begin{tabular}{l" + "r" * (len(header) - 1) + "}"
    lines = [begin, r"\toprule", line([_escaped(cell) for cell in header]), r"\midrule", *body]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _csv_cell(cell: Any) -> Any:
    """A cell of a CSV file: whole numbers without a point, nothing for None."""
    if isinstance(cell, float) and cell.is_integer():
        return int(cell)
    return "" if cell is None else cell


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text)


def column_cells(column: Column) -> list[str]:
    """The numbers as text: all with the same digits behind the point, or all with three significant ones if small.

    >>> column_cells(Column("mean", (99.965, 0.06, None))), column_cells(Column("mse", (0.0123, 0.5)))
    (['99.97', '0.06', '-'], ['0.0123', '0.5'])
    """
    known = [abs(value) for value in column.values if value is not None]
    small = column.digits == 2 and max(known, default=0.0) < 1

    def cell(value: float | None) -> str:
        if value is None:
            return "-"
        return f"{value:.3g}" if small else f"{value:,.{column.digits}f}"

    return [cell(value) for value in column.values]


def _ranks(column: Column) -> dict[int, str]:
    """The rows with the best and the second best number, as shown; nothing where all are alike."""
    if not column.better:
        return {}
    texts = column_cells(column)
    known = {i: column.better * float(text.replace(",", "")) for i, text in enumerate(texts) if text != "-"}
    order = sorted(set(known.values()), reverse=True)[:2]
    if len(order) < 2:
        return {}
    return {i: "best" if value == order[0] else "second" for i, value in known.items() if value in order}
