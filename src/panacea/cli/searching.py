"""The command that searches for good settings."""

from __future__ import annotations

from typing import Annotated

import typer

from panacea.cli.root import AsJson, Cluster, Debug, PlainCommand, Quiet, app

__all__ = ["sweep"]


@app.command(cls=PlainCommand)
def sweep(
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="FILE.yaml | NAME [key=value ...]", show_default=False)
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="show the searches that come with the package")] = False,
    workers: Annotated[int | None, typer.Option("--workers", help="processes; default: one per core")] = None,
    cluster: Cluster = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Search for good settings, chosen on validation data; finished runs are not repeated.

    FILE has the keys all runs share under base, method or methods, and what is varied under space: a list of values, or
    {uniform: [a, b]}, {log_uniform: [a, b]}, {int: [a, b]}; space.NAME.key is for that method alone. Further keys:
    search (grid, random, optuna), trials, seeds, stop (none, halving; stop.grace, stop.factor), search_seed, batch,
    name, about, out. Keys of a run given on the command line are fixed at that value.

    Writes trials.csv, best.yaml (for panacea run), sweep.md and a figure into OUT/sweep-NAME-xxxxxx.

    Example: panacea sweep --list

    Example: panacea sweep quick data.clients=8 rounds=20

    Example: panacea sweep panacea-journal search=random trials=20 rounds=200
    """
    from panacea.cli.sweeping import list_sweeps, run_sweep  # noqa: PLC0415

    if listed:
        list_sweeps(as_json=as_json)
    else:
        run_sweep(arguments or [], workers, cluster, as_json=as_json, quiet=quiet)
