"""The result of a search as rows, Markdown, and the file that `panacea run` takes."""

from __future__ import annotations

import math
from typing import Any

import yaml

from panacea.core.files import write_atomically, write_csv
from panacea.errors import RequestError
from panacea.experiment.search.study import Found, Trial
from panacea.experiment.table import markdown_table, shown

__all__ = ["best_yaml", "caption", "chosen_line", "markdown", "records", "texts", "title", "write_tables"]


def title(found: Found) -> str:
    """What was searched."""
    request, unit = found.request, "%" if found.higher_is_better else "MSE"
    seeds = ", ".join(map(str, request.seeds))
    return (
        f"{request.name}: {request.base['data']}, {request.search} search, {len(found.trials)} trials, "
        f"validation {found.metric} ({unit}), {found.rounds} rounds, seeds {seeds}"
    )


def caption(found: Found) -> str:
    """How to read it, and what test data was used for."""
    several = len(found.request.seeds) > 1
    around = "; ± is the standard deviation over seeds" if several else ""
    rule = "; nothing was stopped early"
    if found.request.stop is not None and found.rungs:
        rungs = " and ".join(map(str, found.rungs))
        rule = f"; stopped: not among the best 1/{found.request.stop.factor:g} of its method at round {rungs}"
    return (
        f"validation: mean over {'clients and seeds' if several else 'clients'} at the round each run chose on "
        f"validation data{around}{rule}. * is chosen, on validation data alone; the test metric is shown for chosen "
        "settings only"
    )


def records(found: Found) -> list[dict[str, Any]]:
    """A row for every trial, for CSV and JSON; test metrics for chosen settings only."""
    keys = list(dict.fromkeys(key for trial in found.trials for key in trial.setting))
    rows = []
    for trial in found.trials:
        chosen = trial is found.best(trial.method)
        row: dict[str, Any] = {"trial": trial.number, "method": trial.method}
        row |= {key: trial.setting.get(key) for key in keys}
        row |= {"seeds": len(trial.outcomes), "val_mean": trial.score, "val_std": trial.spread, "rounds": trial.rounds}
        row |= {"state": trial.state, "seconds": round(trial.seconds, 2), "chosen": int(chosen)}
        row |= {"test_mean": trial.mean("mean") if chosen else None, "error": trial.error}
        rows.append(row)
    return rows


def chosen_line(found: Found, trial: Trial) -> str:
    """One chosen setting in words, the only place where test data appears."""
    unit = " %" if found.higher_is_better else ""
    keys = " ".join(f"{key}={value}" for key, value in trial.setting.items())
    novel = trial.mean("novel_mean")
    return (
        f"{trial.method}: {keys} (trial {trial.number}), validation {shown(trial.score)}{unit}, "
        f"test {shown(trial.mean('mean'))}{unit}"
        + (f", novel clients {shown(novel)}{unit}" if novel is not None else "")
    )


def texts(found: Found) -> tuple[list[str], list[list[str]]]:
    """Header and rows as a person reads them; within a method the best first, then the stopped, then the failed."""
    header = ["trial", "method", "setting", "validation", "rounds", "", "seconds", "test (chosen only)"]
    rows = []
    for trial in sorted(found.trials, key=lambda trial: _order(found, trial)):
        chosen = trial is found.best(trial.method)
        value = shown(trial.score) + (f" ± {shown(trial.spread)}" if trial.spread is not None else "")
        state = "*" if chosen else "" if trial.state == "finished" else trial.state
        keys = " ".join(f"{key}={one}" for key, one in trial.setting.items())
        test = shown(trial.mean("mean")) if chosen else ""
        cells = (trial.number, trial.method, keys, value, trial.rounds, state, f"{trial.seconds:.1f}", test)
        rows.append([str(cell) for cell in cells])
    return header, rows


def _order(found: Found, trial: Trial) -> tuple[int, int, int, float, float, int]:
    """Method, how it ended, how far it came, and then as it is ranked."""
    ended = ("finished", "stopped", "diverged", "failed").index(trial.state)
    score, loss = trial.standing or (0.0, math.inf)
    worth = -score if found.higher_is_better else score
    return list(found.request.spaces).index(trial.method), ended, -trial.rounds, worth, loss, trial.number


def markdown(found: Found) -> str:
    """The table with its title, caption and the chosen settings."""
    best = [found.best(method) for method in found.request.spaces]
    lines = [f"- {chosen_line(found, trial)}\n" for trial in best if trial is not None]
    about = f"{found.request.about}\n\n" if found.request.about else ""
    words = caption(found)
    return (
        f"**{title(found)}**\n\n{about}Chosen:\n\n{''.join(lines)}\n{markdown_table(*texts(found))}\n"
        f"{words[0].upper()}{words[1:]}.\n"
    )


def best_yaml(found: Found, trial: Trial) -> str:
    """The chosen setting as a file for `panacea run`: all keys of its run on the first seed."""
    keys = found.request.keys(trial.method, trial.setting, found.request.seeds[0])
    unit = " %" if found.higher_is_better else ""
    seeds = ", ".join(map(str, found.request.seeds))
    return (
        f"# Chosen on validation data among {sum(t.method == trial.method for t in found.trials)} settings of "
        f"{trial.method}: validation {found.metric} {shown(trial.score)}{unit}, seeds {seeds}.\n"
        f"# From the search '{found.request.name}'; panacea run FILE trains it, seed=1 on another seed.\n"
        + yaml.safe_dump(keys, sort_keys=False, allow_unicode=True)
    )


def write_tables(found: Found) -> None:
    """Write trials.csv, sweep.md, best.yaml (the best of all) and, of several methods, best-<method>.yaml each.

    Raises:
        RequestError: the folder cannot be written to.
    """
    folder, rows, best = found.request.folder, records(found), found.best()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_csv(folder / "trials.csv", list(rows[0]), [list(row.values()) for row in rows])
        write_atomically(folder / "sweep.md", markdown(found))
        if best is not None:
            write_atomically(folder / "best.yaml", best_yaml(found, best))
        for method in found.request.spaces:
            mine = found.best(method)
            if mine is not None and len(found.request.spaces) > 1:
                write_atomically(folder / f"best-{method.replace(':', '.')}.yaml", best_yaml(found, mine))
    except OSError as error:
        raise RequestError(f"out: {folder} cannot be written ({error.strerror or error})") from error
