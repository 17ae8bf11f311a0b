"""`panacea compare`: methods x seeds, one table."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console
from rich.table import Table

from panacea.cli.arguments import flat_keys
from panacea.cli.progress import ProgressBar, say
from panacea.cli.training import build_experiment, train_or_read
from panacea.errors import RequestError
from panacea.experiment.config import build_config
from panacea.experiment.rundir import RunDirectory
from panacea.experiment.table import TABLE_COLUMNS, comparison_rows, data_title
from panacea.methods import make_method

__all__ = ["compare_methods", "print_table"]


def compare_methods(arguments: list[str], *, as_json: bool, quiet: bool) -> None:
    """Train every method on every seed, then print the table."""
    keys = flat_keys(arguments)
    methods = _several(keys, "methods", "fedavg,fedavg_ft")
    seeds = _several(keys, "seeds", "0..2")
    for extra in ("method", "seed"):
        if extra in keys:
            raise RequestError(f"{extra} is for `panacea run`; compare takes {extra}s")
    if not all(isinstance(seed, int) and not isinstance(seed, bool) for seed in seeds):
        raise RequestError(f"seeds={seeds}: seeds are whole numbers, for example seeds=0..4")
    configs = [build_config({**keys, "method": str(m), "seed": s}) for m in methods for s in seeds]
    for config in configs:  # nothing is trained while a later request is wrong
        try:
            make_method(config.method.name, config.method.keys)
        except RequestError as error:
            message = f"{config.method.name}: {error} (method.* goes to every method of a comparison)"
            raise RequestError(message) from error
    summaries: list[dict[str, Any]] = []
    said: set[str] = set()
    for number, config in enumerate(configs, start=1):
        experiment = build_experiment(config, quiet or number > 1)
        directory = RunDirectory.of(experiment.config, experiment.method.name)
        label = f"[{number}/{len(configs)}] {experiment.federation.title} {experiment.method.name} seed {config.seed}"
        with ProgressBar(quiet, label, said) as progress:
            summaries.append(train_or_read(experiment, directory, progress))
    if as_json:
        rows = [dict(zip(TABLE_COLUMNS, row, strict=True)) for row in comparison_rows(summaries)]
        about = {"data": summaries[0]["data"], "partial": summaries[0].get("partial", "")}
        print(json.dumps({**about, "table": rows, "runs": summaries}))  # noqa: T201
    elif not quiet:
        print_table(summaries)
        say(f"runs: {config.out}")


def _several(keys: dict[str, Any], name: str, example: str) -> list[Any]:
    """A key that is a list; one value is a list of one."""
    value = keys.pop(name, None)
    values = value if isinstance(value, list) else [] if value is None else [value]
    if not values:
        raise RequestError(f"{name} is missing; for example {name}={example}")
    if len(set(map(str, values))) != len(values):
        raise RequestError(f"{name}={','.join(map(str, values))}: a name is given twice")
    return values


def print_table(summaries: list[dict[str, Any]]) -> None:
    """The table on standard output."""
    first = summaries[0]
    unit = "%" if first["metric"] == "accuracy" else "MSE"
    seeds = sorted({summary["seed"] for summary in summaries})
    table = Table(
        title=f"{data_title(first)}: {first['metric']} ({unit}), {first['rounds']} rounds, {first['clients']} clients, "
        f"seeds {', '.join(map(str, seeds))}",
        caption="mean over clients and seeds at the round chosen on validation data; ± is over clients\n"
        "novel clients: * after training on their own train split, + by their links alone, otherwise nothing of them",
        title_justify="left",
        caption_justify="left",
    )
    star = {summary["method"]: _MARKS[summary["novel_uses"]] for summary in summaries}
    table.add_column("method")
    for column in ("mean ± clients", "± seeds", "last round", "worst decile", "novel clients", "rounds/s"):
        table.add_column(column, justify="right")
    for row in comparison_rows(summaries):
        r = dict(zip(TABLE_COLUMNS, row, strict=True))
        table.add_row(
            r["method"],
            f"{_shown(r['mean'])} ± {_shown(r['std_clients'])}",
            _shown(r["std_seeds"]),
            _shown(r["final_mean"]),
            _shown(r["worst_decile"]),
            "-"
            if r["novel_mean"] is None
            else f"{_shown(r['novel_mean'])} ± {_shown(r['novel_std'])}{star[r['method']]}",
            _shown(r["rounds_per_second"], 1),
        )
    console = Console(width=None if Console().is_terminal else 120)
    console.print(table)


_MARKS = {"nothing": "  ", "links": " +", "train split": " *"}


def _shown(value: float | None, digits: int = 2) -> str:
    if value is None:
        return "-"
    return f"{value:.{digits}f}" if abs(value) >= 1 or value == 0 else f"{value:.3g}"
