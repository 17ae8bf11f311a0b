"""What `panacea bench` prints."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from panacea.cli.show import console
from panacea.experiment.speed import OURS, WORKLOAD, Bench, Check, Curve, MethodSpeed, Row, tolerance_of

__all__ = ["show_bench", "show_methods_speed"]

_LOOPS = OURS[:2]


def show_bench(bench: Bench) -> None:
    """Workloads, curves, checks and notes."""
    out = console()
    peers = list(dict.fromkeys(name for row in bench.rows for name in row.timings if name not in OURS))
    for row in bench.rows:
        out.print(_row_table(row, peers), "")
    if bench.rows:
        where = "one core" if bench.device == "cpu" else "the GPU"
        out.print(f"medians of interleaved rounds, one thread; peak of {where}: a large matrix product, ", end="")
        out.print(f"{bench.rows[0].roofline.peak / 1e9:,.0f} GFLOP/s", highlight=False)
    for curve in bench.curves:
        if curve.points:
            out.print(_curve_table(curve))
    if bench.checks:
        out.print(_checks_table(bench.checks))
    for line in bench.mismatches():
        out.print(f"not the same work: {line}", highlight=False)
    for note in bench.notes:
        out.print(f"note: {note}", highlight=False, markup=False)


def _row_table(row: Row, peers: Sequence[str]) -> Table:
    work = row.work
    table = _table(
        f"{work.key}  {work.label}, {row.steps} local steps, {row.parameters:,} parameters", " " * 14, left=1
    )
    baselines = [*_LOOPS, *peers]
    ratios = [f"x {name}" for name in baselines]
    for heading in ("ms a round", *ratios, "first wait", "GFLOP/s", "% of peak", "ends with"):
        table.add_column(heading, justify="right", min_width=8)
    for name in sorted(row.timings, key=[*OURS, *peers].index):
        table.add_row(*_cells(row, name, baselines))
    return table


def _cells(row: Row, name: str, baselines: Sequence[str]) -> list[str]:
    timing = row.timings[name]
    about = "~" if name in row.scaled else ""
    ratios = [row.ratio(name, baseline) for baseline in baselines]
    form = "{:.1f} %" if row.metric == "accuracy" else "{:.4f}"
    score = "" if timing.score is None else form.format(timing.score)
    wrong = " !" if row.agrees(name, tolerance_of(name)) is False else ""
    title = "naive loop" if row.work.method == "panacea" and name == "plain" else name
    return [
        title,
        f"{about}{1e3 * timing.median:.1f}",
        *("" if ratio is None else f"{ratio:.2f}" for ratio in ratios),
        f"{timing.wait:.1f} s",
        f"{row.roofline.achieved(timing.median) / 1e9:,.2f}",
        f"{100 * row.roofline.share(timing.median):.2f}",
        score + wrong,
    ]


def _curve_table(curve: Curve) -> Table:
    engines = list(dict.fromkeys(name for point in curve.points for name in point.ms))
    table = _table(curve.title, curve.name)
    for name in engines:
        table.add_column(f"{name} ms", justify="right")
    fast = [name for name in engines if name != "sequential"] if "sequential" in engines else []
    for heading in (*(f"{name} x sequential" for name in fast), "x smallest"):
        table.add_column(heading, justify="right")
    with_memory = any(point.memory is not None for point in curve.points)
    if with_memory:
        table.add_column("peak memory", justify="right")
    best = "vectorised" if "vectorised" in engines else engines[0]
    for point in curve.points:
        cells = [
            f"{'~' if name in point.scaled else ''}{point.ms[name]:.1f}" if name in point.ms else "" for name in engines
        ]
        cells += [f"{point.ms['sequential'] / point.ms[name]:.2f}" if name in point.ms else "" for name in fast]
        cells.append(f"{point.ms[best] / curve.points[0].ms[best]:.2f}" if best in point.ms else "")
        if with_memory:
            cells.append("" if point.memory is None else f"{point.memory / 1e9:.2f} GB")
        table.add_row(f"{point.size:,}", *cells)
    return table


def _checks_table(checks: Sequence[Check]) -> Table:
    table = _table("targets", "what", left=1)
    for heading in ("target", "measured", "holds"):
        table.add_column(heading, justify="right")
    words = {True: "yes", False: "NO", None: "not measured"}
    for check in checks:
        measured = "" if check.measured is None else f"{check.measured:.2f}{check.unit}"
        table.add_row(check.what, check.target, measured, words[check.holds])
    return table


def show_methods_speed(rows: Sequence[MethodSpeed]) -> None:
    """Both engines, method by method."""
    table = _table(WORKLOAD, "method", left=1)
    for header in ("gradients a step", "vectorised ms", "sequential ms", "times faster"):
        table.add_column(header, justify="right")
    for row in rows:
        numbers = (f"{row.vectorised_ms:.1f}", f"{row.sequential_ms:.1f}", f"{row.ratio:.1f}")
        table.add_row(f"{row.method} {row.model}".strip(), str(row.gradients), *numbers)
    console().print(table)


def _table(title: str, first: str, left: int = 0) -> Table:
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1))
    table.add_column(first, justify="left" if left else "right")
    return table
