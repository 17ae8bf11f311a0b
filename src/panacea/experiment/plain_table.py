"""The table of a plain comparison: one row per method."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from panacea.evaluation.statistics import interval_name
from panacea.experiment.formats import Mark, ranks
from panacea.experiment.outcome import Outcome, cohort_title
from panacea.experiment.prices import Prices, target_text
from panacea.experiment.significance import interval_of
from panacea.experiment.table import attack_title, average, between, data_title, decimals_of, fixed

__all__ = ["PLAIN_HEADER", "Plain", "metric_bounds", "size_text"]

PLAIN_HEADER = (
    "method", "mean ± clients", "95 % interval", "± seeds", "worst decile", "novel clients", "bytes to target",
    "rounds to 90 %", "seconds",
)  # fmt: skip
_AVERAGED = (
    "final_mean", "worst_decile", "novel_mean", "novel_std", "train_seconds", "rounds_per_second", "bytes_down",
    "bytes_up", "gini", "jain", "gap",
)  # fmt: skip
_COLUMNS = (("mean", "std_clients"), ("low", "high"), ("std_seeds",), ("worst_decile",), ("novel_mean", "novel_std"))
_MARKS = {"nothing": "", "links": " +", "train split": " *"}


def metric_bounds(metric: str) -> tuple[float, float]:
    """The range of a metric."""
    return (0.0, 100.0) if metric == "accuracy" else (0.0, math.inf)


def size_text(size: float | None) -> str:
    """Bytes for people.

    >>> size_text(1536), size_text(3 * 2**20), size_text(None)
    ('1.5 KiB', '3.0 MiB', '-')
    """
    if size is None:
        return "-"
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


@dataclass(frozen=True)
class Plain:
    """The runs of a comparison without varied keys.

    Attributes:
        outcomes: all runs, method by method.
        target: the validation metric whose price is asked for; None: see `Prices`.
    """

    outcomes: tuple[Outcome, ...]
    target: float | None = None

    @cached_property
    def _done(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.summary is not None]

    @property
    def higher_is_better(self) -> bool:
        """Direction of the metric."""
        return bool((self._done[0].summary or {})["metric"] == "accuracy")

    @property
    def methods(self) -> list[str]:
        """In the order asked for."""
        return list(dict.fromkeys(outcome.method for outcome in self.outcomes))

    @property
    def title(self) -> str:
        """What was done."""
        first = self._done[0].summary or {}
        unit = " (%)" if self.higher_is_better else ""
        seeds = ", ".join(map(str, sorted({outcome.seed for outcome in self.outcomes})))
        return (
            f"{data_title(first)}: {first['metric']}{unit}, {first['rounds']} rounds"
            f"{cohort_title(self._done[0])}, {first['clients']} clients, seeds {seeds}{attack_title(first)}"
        )

    @property
    def caption(self) -> str:
        """How to read it."""
        attacked = any((outcome.summary or {}).get("attackers") for outcome in self._done)
        whose = "honest clients (attackers do not count)" if attacked else "clients"
        seeds = len({outcome.data_seed for outcome in self._done})
        summaries = [outcome.summary or {} for outcome in self._done]
        novel = {summary.get("novel_uses") for summary in summaries if summary.get("novel_mean") is not None}
        uses = [text for use, text in _NOVEL.items() if use in novel]
        return (
            f"mean over {whose} and seeds at the round chosen on validation data; ± clients and ± seeds are standard "
            f"deviations; {interval_name(seeds)}; bytes to target: sent both ways until "
            f"{target_text(self.target, self.methods)}; rounds to 90 % of the last validation metric; seconds of "
            "training per run" + (f"; novel clients: {', '.join(uses)}" if uses else "")
        )

    def records(self) -> list[dict[str, Any]]:
        """A row per method, for CSV and JSON; no number where one of its runs failed."""
        return [dict(record) for record in self._records]

    @cached_property
    def _records(self) -> list[dict[str, Any]]:
        prices = Prices(self.outcomes, self.target, self.higher_is_better)
        return [self._record([o for o in self.outcomes if o.method == m], prices) for m in self.methods]

    def _record(self, runs: Sequence[Outcome], prices: Prices) -> dict[str, Any]:
        summaries = [run.summary for run in runs if run.summary is not None]
        record: dict[str, Any] = {"method": runs[0].method, "seeds": len(summaries)}
        whole = len(summaries) == len(runs)
        interval = interval_of(runs, metric_bounds(summaries[0]["metric"])) if whole else None
        record |= {
            "mean": average(summaries, "mean"),
            "std_clients": average(summaries, "std"),
            "std_seeds": between([summary["mean"] for summary in summaries]),
            "low": interval and interval[0],
            "high": interval and interval[1],
            **{name: average(summaries, name) for name in _AVERAGED},
            **prices.of(runs),
        }
        return record if whole else {k: v if k in ("method", "seeds") else None for k, v in record.items()}

    def cells(self, newline: str = " ") -> list[list[Mark]]:
        """The rows under `PLAIN_HEADER`; they have no second line."""
        records, higher = self._records, self.higher_is_better
        columns = ("mean", "worst_decile", "novel_mean")
        decimals = _decimals(records)
        places = {name: ranks([record[name] for record in records], higher, decimals[name]) for name in columns}
        uses = {outcome.method: (outcome.summary or {}).get("novel_uses", "nothing") for outcome in self._done}
        rows = []
        for number, r in enumerate(records):
            text = {name: fixed(r[name], digits) for name, digits in decimals.items()}
            mean, worst, novel = (
                Mark("failed" if name == "mean" and r[name] is None else text[name], rank=places[name][number])
                for name in columns
            )
            rows.append(
                [
                    Mark(r["method"]),
                    Mark(mean.text, "" if r["mean"] is None else f" ± {text['std_clients']}", mean.rank),
                    Mark("-" if r["low"] is None else f"[{text['low']}, {text['high']}]"),
                    Mark(text["std_seeds"]),
                    worst,
                    Mark(
                        novel.text,
                        "" if r["novel_mean"] is None else f" ± {text['novel_std']}{_MARKS[uses[r['method']]]}",
                        novel.rank,
                    ),
                    Mark(_target_text(r)),
                    Mark("-" if r["rounds_to_90"] is None else f"{r['rounds_to_90']:.0f}"),
                    Mark("-" if r["train_seconds"] is None else f"{r['train_seconds']:.1f}"),
                ]
            )
        return rows


def _decimals(records: Sequence[dict[str, Any]]) -> dict[str, int]:
    """The decimals of the metric's numbers: the same for all that stand in one column."""
    found = {names: decimals_of(record[name] for record in records for name in names) for names in _COLUMNS}
    return {name: digits for names, digits in found.items() for name in names}


def _target_text(record: dict[str, Any]) -> str:
    """The price, or how many runs paid it; nothing where the method has no numbers."""
    if record["bytes_to_target"] is not None or record["reached_target"] is None:
        return size_text(record["bytes_to_target"])
    return f"{record['reached_target']} of {record['seeds']} runs"


_NOVEL = {
    "train split": "* after training on their own train split",
    "links": "+ by their links alone",
    "nothing": "unmarked without any data or links of theirs",
}
