"""`panacea sweep`: run a search, show it live, print its table."""

from __future__ import annotations

import json
from typing import Any

from rich.table import Table

from panacea.cli.progress import say
from panacea.cli.search_progress import SearchProgress
from panacea.cli.show import console
from panacea.errors import RequestError, RunFailure
from panacea.experiment.keys import parse_overrides
from panacea.experiment.search.request import SearchRequest, read_request, shipped_sweeps
from panacea.experiment.search.study import Found, run_search
from panacea.experiment.search.tables import caption, chosen_line, records, texts, title, write_tables
from panacea.report.search_figure import write_search_figure

__all__ = ["list_sweeps", "run_sweep"]

_MOST_ROWS = 30


def list_sweeps(*, as_json: bool) -> None:
    """The searches inside the package."""
    rows = [_facts(name, request) for name, request in shipped_sweeps().items()]
    if as_json:
        print(json.dumps({"sweeps": rows}))  # noqa: T201
        return
    table = Table(title="sweeps", title_justify="left", caption="panacea sweep NAME runs one", caption_justify="left")
    for column in ("name", "data", "methods", "search", "trials", "seeds", "what"):
        table.add_column(column, overflow="fold", justify="right" if column in ("trials", "seeds") else "left")
    for row in rows:
        table.add_row(*(", ".join(cell) if isinstance(cell, list) else str(cell) for cell in row.values()))
    console().print(table, markup=False, highlight=False)


def _facts(name: str, request: SearchRequest) -> dict[str, Any]:
    sizes = [request.trials or space.size or 0 for space in request.spaces.values()]
    about = {"name": name, "data": request.base["data"], "methods": list(request.spaces), "search": request.search}
    return {**about, "trials": sum(sizes), "seeds": len(request.seeds), "about": request.about}


def run_sweep(arguments: list[str], workers: int | None, cluster: str | None, *, as_json: bool, quiet: bool) -> None:
    """Search, write the files, print the table."""
    sources = [argument for argument in arguments if "=" not in argument]
    if len(sources) != 1:
        if len(sources) > 1:
            raise RequestError(f"'{sources[1]}' is neither key=value nor the only file")
        raise RequestError("a file or a name is missing; `panacea sweep --list` shows what there is")
    if workers is not None and workers < 1:
        raise RequestError(f"workers={workers}: at least one is needed")
    request = read_request(sources[0], parse_overrides(argument for argument in arguments if "=" in argument))
    with SearchProgress(request, quiet) as progress:
        found = run_search(request, workers=workers, listener=progress, cluster=cluster)
    write_tables(found)
    note = write_search_figure(found)
    best = found.best()
    if as_json:
        print(json.dumps(_content(found)))  # noqa: T201
    elif not quiet:
        _print(found)
    if note and not quiet:
        say(f"note: {note}")
    failed = [trial for trial in found.trials if trial.state == "failed"]
    if best is None:
        first = next((trial.error for trial in found.trials if trial.error is not None), "")
        raise RunFailure(f"no setting of {request.name} came to its end; the first: {first}")
    if failed:
        raise RunFailure(
            f"{len(failed)} of {len(found.trials)} settings failed; the first: {failed[0].error}; "
            "the same command tries them again"
        )


def _content(found: Found) -> dict[str, Any]:
    chosen = {row["method"]: row for row in records(found) if row["chosen"]}
    best = found.best()
    return {
        "name": found.request.name,
        "data": found.request.base["data"],
        "metric": found.metric,
        "search": found.request.search,
        "seeds": list(found.request.seeds),
        "rounds": found.rounds,
        "rungs": list(found.rungs),
        "best": None if best is None else chosen[best.method],
        "chosen": chosen,
        "trials": records(found),
        "folder": str(found.request.folder),
    }


def _print(found: Found) -> None:
    header, rows = texts(found)
    table = Table(title=title(found), caption=caption(found), title_justify="left", caption_justify="left")
    for column in header:
        table.add_column(column, justify="left" if column in ("method", "setting", "") else "right", overflow="fold")
    for row in rows[:_MOST_ROWS]:
        table.add_row(*row)
    console().print(table, markup=False, highlight=False)
    folder = found.request.folder
    if len(rows) > _MOST_ROWS:
        say(f"{len(rows) - _MOST_ROWS} more rows: {folder / 'trials.csv'}")
    for method in found.request.spaces:
        trial = found.best(method)
        print(f"chosen {chosen_line(found, trial)}" if trial is not None else f"chosen {method}: nothing")  # noqa: T201
    print(f"files: {folder} (panacea run {folder / 'best.yaml'} trains the best)")  # noqa: T201
