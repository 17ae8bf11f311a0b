"""`panacea datasets floors`: what trivial predictors score."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from panacea.cli.progress import say
from panacea.cli.show import console
from panacea.core.files import write_csv
from panacea.data.federation import Federation
from panacea.data.load import load_keys, resolve_keys
from panacea.errors import RequestError
from panacea.evaluation.floor_table import FLOOR_GROUPS, client_floors, floor_rows
from panacea.evaluation.floors import floors
from panacea.experiment.keys import parse_value

__all__ = ["show_floors"]

_PATIENCE = 2.0  # seconds before a bar appears


class _Bar:
    """A progress bar on standard error, on a terminal, from the second second on."""

    def __init__(self, quiet: bool, label: str) -> None:
        errors = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(compact=True))
        self.bar = Progress(*columns, console=errors, transient=True, disable=quiet or not errors.is_terminal)
        self.task = self.bar.add_task(label, total=None)
        self.begun = time.perf_counter()

    def expect(self, more: int) -> None:
        """So many steps are to come."""
        self.bar.update(self.task, total=(self.bar.tasks[0].total or 0) + more)

    def advance(self) -> None:
        """One step is done."""
        self.bar.advance(self.task)
        if not self.bar.live.is_started and time.perf_counter() - self.begun > _PATIENCE:
            self.bar.start()


def show_floors(
    name: str, keys: dict[str, Any], seeds: str | None, csv: Path | None, *, as_json: bool, quiet: bool
) -> None:
    """Load, score, print."""
    numbers = _seeds(seeds, keys)
    runs = []
    bar = _Bar(quiet, f"floors of {name}")
    try:
        for place, seed in enumerate(numbers):
            federation = load_keys(name, resolve_keys(name, keys, seed))
            bar.expect(2 * len(federation) * (len(numbers) if place == 0 else 0))
            runs.append((federation, floors(federation, bar.advance)))
    finally:
        bar.bar.stop()
    first = runs[0][0]
    for note in () if quiet else dict.fromkeys(note for federation, _ in runs for note in federation.notes):
        say(f"note: {note}")
    rows = floor_rows(runs)
    if csv is not None:
        try:
            write_csv(csv, *client_floors(runs, numbers))
        except OSError as error:
            raise RequestError(f"{csv} cannot be written: {error.strerror or error}") from None
    if as_json:
        about = {"data": name, "partial": first.partial, "metric": first.task.metric, "scale": _scale(first)}
        print(json.dumps({**about, "seeds": numbers, "floors": rows}))  # noqa: T201
    elif not quiet:
        console().print(_table(first, rows, numbers))
    if csv is not None and not quiet:
        say(f"written: {csv}")


def _seeds(text: str | None, keys: dict[str, Any]) -> list[int]:
    """The data seeds asked for."""
    if text is None:
        return [_whole(keys.get("seed", 0), "data.seed")]
    if "seed" in keys:
        raise RequestError("data.seed and --seeds say the same thing in two ways; give one of them")
    value = parse_value(text)
    found = [_whole(seed, "--seeds") for seed in (value if isinstance(value, list) else [value])]
    if not found or len(set(found)) != len(found):
        raise RequestError(f"--seeds {text}: needs different whole numbers, for example 0..4")
    return found


def _whole(value: object, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise RequestError(f"{what} {value}: seeds are whole numbers from 0, for example 0..4")
    return value


def _scale(federation: Federation) -> str | None:
    return federation.task.scale if federation.task.metric == "mse" else None


def _table(federation: Federation, rows: list[dict[str, Any]], seeds: list[int]) -> Table:
    power = _power(rows) if federation.task.metric == "mse" else 0
    unit = "accuracy (%)" if federation.task.metric == "accuracy" else f"MSE, scale '{federation.task.scale}'"
    times = f", x 1e{power}" if power else ""
    several = len(seeds) > 1
    table = Table(
        title=f"{federation.title}: {unit}{times}, test split, data seed{'s' if several else ''} "
        + ", ".join(map(str, seeds)),
        caption="mean ± spread over clients" + (", both averaged over seeds" if several else "") + "; what is made for "
        "everybody is made from training clients, what is each client's own from its own train split",
        title_justify="left",
        caption_justify="left",
    )
    shown = [group for group in FLOOR_GROUPS if any(row[group] for row in rows)]
    if "novel" not in shown:
        shown = ["all"]
    table.add_column("floor")
    for group in shown:
        table.add_column(f"{rows[0][group]['clients']} {group}", justify="right", no_wrap=True)
    if several:
        table.add_column("± seeds", justify="right", no_wrap=True)
    table.add_column("what it is", overflow="fold")
    for row in rows:
        cells = [_cell(row[group], power) for group in shown]
        between = [_number(row["all"]["std_seeds"], power)] if several else []
        table.add_row(row["name"], *cells, *between, row["meaning"])
    return table


def _power(rows: list[dict[str, Any]]) -> int:
    """The power of ten that is taken out of small errors: a multiple of three."""
    least = min(row["all"]["mean"] for row in rows)
    return 3 * math.floor(math.log10(least) / 3) if 0 < least < 0.1 else 0


def _cell(numbers: dict[str, Any] | None, power: int) -> str:
    return "-" if numbers is None else f"{_number(numbers['mean'], power)} ± {_number(numbers['std'], power)}"


def _number(value: float, power: int) -> str:
    scaled = value / 10.0**power
    return f"{scaled:.2f}" if scaled < 1000 else f"{scaled:,.0f}"
