"""The first tab: headline numbers, the table of methods, and tests between them; and the table of fairness."""

from __future__ import annotations

from typing import Any

from panacea.evaluation.statistics import interval_name
from panacea.experiment.table import between, shown
from panacea.report.page.packing import plain, short
from panacea.report.page.series import Series, Suite
from panacea.report.page.tables import Column, PageTable

__all__ = ["MEGA", "fairness_table", "headline", "main_table", "novel_table", "overview"]

MEGA = 2**20
_USES = {"nothing": "nothing", "links": "links only", "train split": "training on its own data"}


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _column(suite: Suite, name: str, key: str, better: int = 0, digits: int = 2, scale: float = 1.0) -> Column:
    """A number of the summaries, averaged over seeds."""
    means = (_mean(one.numbers(key)) for one in suite.series)
    return Column(name, tuple(None if value is None else value / scale for value in means), better, digits)


def main_table(suite: Suite, intervals: list[tuple[float, float] | None]) -> PageTable:
    """A row per series: what a paper's main table has."""
    up = 1 if suite.higher_is_better else -1
    sent = [_mean(one.numbers("bytes_down")) for one in suite.series]
    back = [_mean(one.numbers("bytes_up")) for one in suite.series]
    traffic = [None if a is None or b is None else (a + b) / MEGA for a, b in zip(sent, back, strict=True)]
    columns = [
        _column(suite, "mean", "mean", up),
        _column(suite, "± clients", "std"),
        Column("± seeds", tuple(between(one.numbers("mean")) for one in suite.series)),
        Column("95 % from", tuple(None if pair is None else pair[0] for pair in intervals)),
        Column("to", tuple(None if pair is None else pair[1] for pair in intervals)),
        _column(suite, "last round", "final_mean", up),
        _column(suite, "worst decile", "worst_decile", up),
        _column(suite, "novel", "novel_mean", up),
        Column("MiB sent", tuple(traffic), -1),
        _column(suite, "seconds", "train_seconds", -1, 1),
        Column("seeds", tuple(float(len(one.runs)) for one in suite.series), 0, 0),
    ]
    whose = "honest clients" if suite.attacked else "clients"
    note = (
        f"Mean {suite.metric} over {whose} and seeds, at the round each run chose on validation data. "
        "± clients: standard deviation over clients, averaged over seeds; ± seeds: of the runs' means. "
        "Worst decile: mean of the worst tenth of the clients. Seconds are of training."
    )
    known = [len(one.runs) for one, pair in zip(suite.series, intervals, strict=True) if pair is not None]
    if known:
        note += f" 95 %: {' or '.join(dict.fromkeys(map(interval_name, sorted(known))))}."
    return PageTable.of(f"{suite.title}: {suite.axis}", note, ("method", [s.label for s in suite.series]), columns)


def fairness_table(suite: Suite) -> PageTable:
    """How evenly the metric is spread over clients."""
    up = 1 if suite.higher_is_better else -1
    columns = [
        _column(suite, "mean", "mean", up),
        _column(suite, "standard deviation", "std", -1),
        _column(suite, "worst decile", "worst_decile", up),
        _column(suite, "best - worst", "gap", -1),
        _column(suite, "Gini", "gini", -1, 3),
        _column(suite, "Jain", "jain", 1, 3),
    ]
    note = (
        "Over the same clients as the mean. Gini: 0 where everybody has the same, near 1 where one has everything. "
        "Jain: 1 where everybody has the same, 1/n where one of n has everything."
    )
    return PageTable.of(f"{suite.title}: fairness", note, ("method", [s.label for s in suite.series]), columns)


def novel_table(suite: Suite) -> PageTable | None:
    """Clients that never took part in training; None where there are none."""
    some = [one for one in suite.series if one.numbers("novel_mean")]
    if not some:
        return None
    part = Suite(suite.title, suite.metric, tuple(some))
    up = 1 if suite.higher_is_better else -1
    columns = [
        _column(part, "novel clients", "novel_mean", up),
        _column(part, "± clients", "novel_std"),
        Column("± seeds", tuple(between(one.numbers("novel_mean")) for one in some)),
        _column(part, "training clients", "mean", up),
        _column(part, "clients held out", "novel_clients", 0, 0),
    ]
    table = PageTable.of(f"{suite.title}: novel clients", "", ("method", [s.label for s in some]), columns)
    uses = [_USES.get(str(one.runs[0].summary.get("novel_uses")), "-") for one in some]
    note = "Clients held out of training entirely; the last column says what a newcomer needs for its model."
    rows = tuple((*row, use) for row, use in zip(table.rows, uses, strict=True))
    raw = tuple((*row, use) for row, use in zip(table.raw, uses, strict=True))
    return PageTable(table.title, note, (*table.header, "it needs"), rows, raw, table.marks)


def _unit(suite: Suite) -> str:
    return " %" if suite.higher_is_better else ""


def headline(suite: Suite) -> list[dict[str, str]]:
    """A few large numbers."""
    cards, found = [], _best(suite, "mean")
    if found is not None:
        value, winner, whose = found
        around = between(winner.numbers("mean"))
        cards.append(
            {
                "value": value,
                "name": suite.metric if len(suite.series) == 1 else f"best {suite.metric}: {whose}",
                "note": "" if around is None else f"± {shown(around)} over {len(winner.runs)} seeds",
            }
        )
    for key, name in (("worst_decile", "worst decile"), ("novel_mean", "novel clients")):
        found = _best(suite, key)
        if found is not None:
            cards.append({"value": found[0], "name": name, "note": found[2]})
    first = suite.runs[0].summary
    many = sorted({int(run.summary["clients"]) for run in suite.runs if run.summary.get("clients")})
    if many:
        held = first.get("novel_clients") or 0
        cards.append({"value": _span(many), "name": "clients in training", "note": f"{held} held out" if held else ""})
    rounds = sorted({int(run.summary["rounds"]) for run in suite.runs if run.summary.get("rounds")})
    seeds = {run.seed for run in suite.runs}
    note = f"{len(seeds)} seed{'s' if len(seeds) > 1 else ''}, {_span(rounds)} rounds"
    return [*cards, {"value": str(len(suite.runs)), "name": "run" if len(suite.runs) == 1 else "runs", "note": note}]


def _span(values: list[int]) -> str:
    return "-".join(dict.fromkeys(f"{value:,}" for value in (values[0], values[-1]))) if values else "-"


def _best(suite: Suite, key: str) -> tuple[str, Series, str] | None:
    """The best of a number, the series that has it, and its name with the count of those that look equal."""
    known = [(mean, one) for one in suite.series if (mean := _mean(one.numbers(key))) is not None]
    if not known:
        return None
    best, winner = (max if suite.higher_is_better else min)(known, key=lambda pair: pair[0])
    more = sum(shown(mean) == shown(best) for mean, _ in known) - 1  # what looks equal is
    return f"{shown(best)}{_unit(suite)}", winner, winner.label + (f" and {more} more" if more else "")


def overview(suite: Suite) -> dict[str, Any]:
    """Cards, and the numbers of the pictures: means over seeds and single seeds of every series."""
    points = []
    for one in suite.series:
        values = one.numbers("mean")
        point: dict[str, Any] = {"seeds": plain(values), "around": short(between(values))}
        keys = {"mean": "mean", "std": "std", "worst": "worst_decile", "novel": "novel_mean"}
        points.append(point | {name: short(_mean(one.numbers(key))) for name, key in keys.items()})
    return {"cards": headline(suite), "points": points}
