"""Tables for people: Markdown and LaTeX, the best of a column bold and the second underlined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from panacea.experiment.table import fixed, markdown_table, shown

__all__ = ["Mark", "latex_table", "marked_markdown", "ranks"]


@dataclass(frozen=True)
class Mark:
    """A cell: what is marked, what follows it, and its place in the column (1 best, 2 second, 0 neither)."""

    text: str
    around: str = ""
    rank: int = 0

    def __str__(self) -> str:
        return self.text + self.around


def ranks(values: Sequence[float | None], higher_is_better: bool, decimals: int | None = None) -> list[int]:
    """1 for the best, 2 for the second, 0 for all others; what looks equal in the table ranks equal.

    Without `decimals` every number is shown by itself, see `shown`.

    >>> ranks([81.254, 90.0, 81.249, None], True), ranks([81.254, 90.0, 81.249, None], False), ranks([5.0], True)
    ([2, 1, 2, 0], [1, 2, 1, 0], [0])
    """
    if sum(value is not None for value in values) < 2:  # best of one says nothing
        return [0] * len(values)
    seen = [
        None if value is None else float(shown(value) if decimals is None else fixed(value, decimals))
        for value in values
    ]
    order = sorted({value for value in seen if value is not None}, reverse=higher_is_better)[:2]
    return [0 if value is None or value not in order else order.index(value) + 1 for value in seen]


def marked_markdown(header: Sequence[str], rows: Sequence[Sequence[Mark]]) -> str:
    """A table in Markdown, with its marks."""
    wrap = {0: "{}", 1: "**{}**", 2: "<u>{}</u>"}
    return markdown_table(header, [[wrap[cell.rank].format(cell.text) + cell.around for cell in row] for row in rows])


_SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": "$<$", ">": "$>$", "±": r"$\pm$", "\n": " ",
}  # fmt: skip


def _escaped(text: str) -> str:
    return "".join(_SPECIAL.get(letter, letter) for letter in text)


def latex_table(header: Sequence[str], rows: Sequence[Sequence[Mark]], caption: str) -> str:
    r"""A table for a paper, with the rules of the package booktabs; the first column is text, all others numbers.

    >>> print(latex_table(["method", "mean"], [[Mark("a_b"), Mark("81", " ± 3", 1)]], "50 % & more"), end="")
    % needs \usepackage{booktabs}
    \begin{table}
    \centering
    \caption{50 \% \& more}
    \begin{tabular}{lr}
    \toprule
    method & mean \\
    \midrule
    a\_b & \textbf{81} $\pm$ 3 \\
    \bottomrule
    \end{tabular}
    \end{table}
    """
    wrap = {0: "{}", 1: r"\textbf{{{}}}", 2: r"\underline{{{}}}"}
    lines = [[wrap[cell.rank].format(_escaped(cell.text)) + _escaped(cell.around) for cell in row] for row in rows]
    return "\n".join(
        [
            r"% needs \usepackage{booktabs}",
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_escaped(caption)}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}",
            r"\toprule",
            " & ".join(map(_escaped, header)) + r" \\",
            r"\midrule",
            *(" & ".join(line) + r" \\" for line in lines),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )
