"""`panacea bench`: the speed of this installation."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from panacea.cli.bench_tables import show_bench, show_methods_speed
from panacea.cli.progress import say
from panacea.engines.ray_session import require_ray
from panacea.errors import RequestError, RunFailure, unknown
from panacea.experiment.speed import (
    WORKLOAD,
    Bench,
    Peers,
    Plan,
    Request,
    check_growth,
    check_rows,
    choose,
    measure_engines,
    measure_growth,
    measure_methods,
    one_thread,
    planned_rounds,
)
from panacea.methods import method_names
from panacea.report.bench import write_bench
from panacea.report.theory import make_folder

__all__ = ["BenchOptions", "bench_command"]

_WHAT = ("engines", "growth", "methods")
_DEVICES = ("auto", "cpu", "cuda")
_METHOD_REPEATS, _GROWTH_REPEATS = 7, 5


@dataclass(frozen=True)
class BenchOptions:
    """The options of the command, as given."""

    what: str | None = None
    only: str | None = None
    methods: str | None = None
    device: str = "auto"
    against: str | None = None
    pfllib: Path | None = None
    python: Path | None = None
    repeats: int | None = None
    quick: bool = False
    check: bool = False
    out: Path | None = None
    ray: bool = False
    as_json: bool = False
    quiet: bool = False


def bench_command(options: BenchOptions) -> None:
    """Measure, print, write; with `check` fails if a target is missed."""
    what = options.what or ("methods" if options.methods else "engines")
    if what not in _WHAT:
        raise unknown("bench", what, _WHAT)
    if options.repeats is not None and options.repeats < 1:
        raise RequestError(f"--repeats={options.repeats}: at least 1")
    _refuse_idle(options, what)
    if what == "methods":
        _methods(options)
        return
    if options.out is not None:
        make_folder(options.out)
    bench = Bench(_device(options.device))
    try:
        with one_thread():
            {"engines": _engines, "growth": _growth}[what](options, bench)
    except KeyboardInterrupt:
        bench.interrupted = True
        if bench.rows or bench.curves:
            _write(options, bench)
        raise
    if options.check:
        bench.checks = [*check_rows(bench.rows, bench.device), *check_growth(bench.curves, bench.device)]
    if options.as_json:
        print(json.dumps(bench.record()))  # noqa: T201
    elif not options.quiet:
        show_bench(bench)
    _write(options, bench)
    missed = [check.what for check in bench.checks if check.holds is False]
    if missed:
        raise RunFailure(f"{len(missed)} of {len(bench.checks)} targets are missed: {'; '.join(missed)}")


def _refuse_idle(options: BenchOptions, what: str) -> None:
    """An option that would do nothing here is a mistake."""
    allowed = {"methods": "methods", **dict.fromkeys(("against", "pfllib", "python", "ray"), "engines")}
    allowed |= dict.fromkeys(("only", "quick", "check", "out"), "engines and growth")
    for name, tables in allowed.items():
        if getattr(options, name) not in (None, False) and what not in tables.split():
            raise RequestError(f"--{name} is for `panacea bench` of {tables}, not of {what}")


def _engines(options: BenchOptions, bench: Bench) -> None:
    if options.ray:
        require_ray("--ray")
    peers = Peers(_names(options.against), options.pfllib, options.python)
    request = Request(bench.device, _names(options.only), options.repeats, options.quick, peers, options.ray)
    if not choose(request.only, bench.device):
        raise RequestError(f"--only {options.only}: none of these is measured on {bench.device}")
    with _progress(planned_rounds(request), options.quiet) as bar:
        for row in measure_engines(request, bar):
            bench.rows.append(row)


def _growth(options: BenchOptions, bench: Bench) -> None:
    plan = Plan(bench.device, _names(options.only), options.repeats or _GROWTH_REPEATS, options.quick)
    with _progress(sum(len(plan.sizes(name)) for name in plan.names()), options.quiet) as bar:
        for curve in measure_growth(plan, bar):
            bench.curves.append(curve)


def _methods(options: BenchOptions) -> None:
    names = _names(options.methods)
    with _progress(len(names or method_names()), options.quiet) as bar:
        rows = measure_methods(names, options.repeats or _METHOD_REPEATS, bar)
    if options.as_json:
        print(json.dumps({"workload": WORKLOAD, "methods": [dataclasses.asdict(row) for row in rows]}))  # noqa: T201
    elif not options.quiet:
        show_methods_speed(rows)


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def _device(name: str) -> str:
    if name not in _DEVICES:
        raise unknown("device", name, _DEVICES)
    there = torch.cuda.is_available()
    if name == "cuda" and not there:
        raise RequestError("--device cuda: torch sees no CUDA device here; use cpu or auto")
    return name if name != "auto" else "cuda" if there else "cpu"


def _write(options: BenchOptions, bench: Bench) -> None:
    if options.out is not None:
        write_bench(bench, options.out)
        if not options.quiet:
            say(f"written: {options.out}")


class _Bar:
    """A progress bar that is told what was just done."""

    def __init__(self, bar: Progress, total: int) -> None:
        self.bar, self.task = bar, bar.add_task("", total=total)

    def __call__(self, name: str) -> None:
        self.bar.update(self.task, description=name, advance=1)


@contextmanager
def _progress(total: int, quiet: bool) -> Iterator[_Bar]:
    errors = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True, disable=quiet or not errors.is_terminal) as bar:
        yield _Bar(bar, total)
