"""`panacea compare`: methods x seeds, one table; with a key of several values, a curve per method."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from panacea.cli.arguments import flat_keys
from panacea.cli.progress import ProgressBar, say
from panacea.cli.show import console
from panacea.cli.training import build_experiment, train_or_read
from panacea.errors import RequestError, RunFailure
from panacea.experiment.config import WITHOUT_EFFECT, ExperimentConfig, build_config
from panacea.experiment.rundir import RunDirectory
from panacea.experiment.sweep import Axis, check_config, split_sweep
from panacea.experiment.sweep_table import Outcome, Swept
from panacea.experiment.table import TABLE_COLUMNS, attack_title, comparison_rows, data_title, shown
from panacea.report.curves import write_swept
from panacea.robustness import make_attack

__all__ = ["compare_methods", "print_table"]


@dataclass(frozen=True)
class _Wanted:
    """One run: its configuration, the values of the varied keys in it, and its name in the progress bar."""

    config: ExperimentConfig
    values: tuple[Any, ...]
    label: str


def compare_methods(arguments: list[str], *, as_json: bool, quiet: bool) -> None:
    """Train every method on every seed, for every value of a varied key, then print the table."""
    keys = flat_keys(arguments)
    methods = [str(name) for name in _several(keys, "methods", "fedavg,fedavg_ft")]
    seeds = _several(keys, "seeds", "0..2")
    for extra in ("method", "seed"):
        if extra in keys:
            raise RequestError(f"{extra} is for `panacea run`; compare takes {extra}s")
    if not all(isinstance(seed, int) and not isinstance(seed, bool) for seed in seeds):
        raise RequestError(f"seeds={seeds}: seeds are whole numbers, for example seeds=0..4")
    fixed, axes = split_sweep(keys, methods)
    wanted = []
    for method, *values, seed in itertools.product(methods, *(axis.values for axis in axes), seeds):
        varied = {axis.key: value for axis, value in zip(axes, values, strict=True)}
        config = build_config({**fixed, **varied, "method": method, "seed": seed})
        check_config(config)  # nothing is trained while a later request is wrong
        label = "".join(f" {key}={value}" for key, value in varied.items())
        wanted.append(_Wanted(config, tuple(values), f"{label} seed {seed}"))
    if axes:
        _compare_values(wanted, axes, as_json=as_json, quiet=quiet)
        return
    summaries: list[dict[str, Any]] = []
    said: set[str] = set()
    for number in range(len(wanted)):
        summaries.append(_trained(wanted, number, said, quiet)[0])
    if as_json:
        rows = [dict(zip(TABLE_COLUMNS, row, strict=True)) for row in comparison_rows(summaries)]
        about = {"data": summaries[0]["data"], "partial": summaries[0].get("partial", "")}
        print(json.dumps({**about, "table": rows, "runs": summaries}))  # noqa: T201
    elif not quiet:
        print_table(summaries)
        say(f"runs: {wanted[0].config.out}")


def _trained(wanted: Sequence[_Wanted], number: int, said: set[str], quiet: bool) -> tuple[dict[str, Any], str, str]:
    """The summary of one of the runs, its method's name and its directory."""
    one = wanted[number]
    experiment = build_experiment(one.config, quiet or number > 0)
    directory = RunDirectory.of(experiment.config, experiment.method.name)
    label = f"[{number + 1}/{len(wanted)}] {experiment.federation.title} {experiment.method.name}{one.label}"
    with ProgressBar(quiet, label, said) as progress:
        return train_or_read(experiment, directory, progress), experiment.method.name, str(directory.path)


def _compare_values(wanted: Sequence[_Wanted], axes: tuple[Axis, ...], *, as_json: bool, quiet: bool) -> None:
    """Train, write the files of the comparison, print its table; a run that failed leaves its cell empty."""
    outcomes, failures, said = [], [], set[str]()
    for number, one in enumerate(wanted):
        name, summary = one.config.method.name.replace(":", "."), None
        try:
            summary, name, directory = _trained(wanted, number, said, quiet)
            summary = {**summary, "directory": directory}
        except RunFailure as error:
            failures.append(f"{name}{one.label}: {error}")
            say(f"note: {failures[-1]}")
        outcomes.append(Outcome(name, one.values, one.config.seed, summary))
    if len(failures) == len(wanted):
        raise RunFailure(f"every run failed; the first: {failures[0]}")
    swept = Swept(axes, tuple(outcomes), _request(wanted[0].config, axes))
    folder = _folder(wanted, swept)
    note = write_swept(swept, folder)
    if as_json:
        about = {"data": swept.first["data"], "partial": swept.first.get("partial", ""), "request": swept.request}
        varied = [{"key": axis.key, "values": list(axis.values)} for axis in axes]
        runs = [
            {**dict(zip((axis.key for axis in axes), o.values, strict=True)), **o.summary}
            for o in outcomes
            if o.summary is not None
        ]
        content = {**about, "varied": varied, "table": swept.records(), "runs": runs, "failed": failures}
        print(json.dumps({**content, "folder": str(folder)}))  # noqa: T201
    elif not quiet:
        _print_swept(swept)
        say(f"runs: {wanted[0].config.out}; table and curve: {folder}")
    if note and not quiet:
        say(f"note: {note}")
    if failures:
        raise RunFailure(f"{len(failures)} of {len(wanted)} runs failed; the first: {failures[0]}")


def _request(config: ExperimentConfig, axes: tuple[Axis, ...]) -> str:
    """What is attacked and defended, for a title; what is varied the table says itself."""
    varied, parts = {axis.key for axis in axes}, []
    if config.attack.name != "none" and "attack" not in varied:
        ratio = {} if config.attack.keys.get("clients") else {"ratio": make_attack("none", {}).keys.ratio}
        keys = {**ratio, **config.attack.keys}
        given = [f"attack.{key}={value}" for key, value in keys.items() if f"attack.{key}" not in varied]
        parts.append(" ".join([f"attack={config.attack.name}", *given]))
    if config.defence.name != "none" and "defence" not in varied:
        given = [f"defence.{key}={value}" for key, value in config.defence.keys.items()]
        parts.append(" ".join([f"defence={config.defence.name}", *given]))
    return ", ".join(parts)


def _folder(wanted: Sequence[_Wanted], swept: Swept) -> Path:
    """``<out>/compare-<data>-<attack or varied key>-<six hex digits of all that was asked for>``."""
    config = wanted[0].config
    asked = [one.config.model_dump(mode="json", exclude=set(WITHOUT_EFFECT)) for one in wanted]
    digits = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:6]
    about = config.attack.name if swept.axes[0].key.startswith("attack.") else swept.axes[0].key
    return config.out / f"compare-{config.data.name}-{about}-{digits}"


def _print_swept(swept: Swept) -> None:
    header, rows = swept.texts(newline="\n")
    table = Table(title=swept.title, caption=swept.caption, title_justify="left", caption_justify="left")
    table.add_column(header[0])
    for column in header[1:]:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*row)
    console().print(table, markup=False, highlight=False)


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
    whose = "honest clients (attackers do not count)" if any(s.get("attackers") for s in summaries) else "clients"
    table = Table(
        title=f"{data_title(first)}: {first['metric']} ({unit}), {first['rounds']} rounds, {first['clients']} clients, "
        f"seeds {', '.join(map(str, seeds))}{attack_title(first)}",
        caption=f"mean over {whose} and seeds at the round chosen on validation data; ± is over clients\n"
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
            f"{shown(r['mean'])} ± {shown(r['std_clients'])}",
            shown(r["std_seeds"]),
            shown(r["final_mean"]),
            shown(r["worst_decile"]),
            "-"
            if r["novel_mean"] is None
            else f"{shown(r['novel_mean'])} ± {shown(r['novel_std'])}{star[r['method']]}",
            shown(r["rounds_per_second"], 1),
        )
    console().print(table)


_MARKS = {"nothing": "  ", "links": " +", "train split": " *"}
