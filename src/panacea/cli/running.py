"""The commands that train, and those that write trained models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from panacea.cli.root import (
    Arguments,
    AsJson,
    Cluster,
    Debug,
    Fresh,
    KeysCommand,
    ModelFormat,
    PlainCommand,
    Quiet,
    RunDir,
    TunableCommand,
    app,
)

__all__ = ["compare", "export_", "join", "resume", "run"]


@app.command(cls=KeysCommand)
def run(
    arguments: Arguments = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    fresh: Fresh = False,
    debug: Debug = False,
) -> None:
    """Train one experiment and write its run directory.

    Example: panacea run data=fl60 method=fedavg rounds=800 seed=0
    """
    from panacea.cli.arguments import flat_keys  # noqa: PLC0415
    from panacea.experiment.config import build_config  # noqa: PLC0415

    config = build_config(flat_keys(arguments or []))  # a wrong key is answered before torch is imported
    from panacea.cli.training import run_one  # noqa: PLC0415

    run_one(config, as_json=as_json, quiet=quiet, fresh=fresh)


@app.command(cls=PlainCommand)
def resume(
    directory: RunDir,
    as_json: AsJson = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Go on with a run after a stop or a crash; the result is the same as without it.

    Example: panacea resume runs/fl60-fedavg-s0-1a2b3c
    """
    from panacea.cli.training import resume_one  # noqa: PLC0415

    resume_one(directory, as_json=as_json, quiet=quiet)


@app.command(cls=TunableCommand)
def compare(
    arguments: Arguments = None,
    workers: Annotated[
        int | None, typer.Option("--workers", help="processes; default: one per core", show_default=False)
    ] = None,
    cluster: Cluster = None,
    target: Annotated[
        float | None,
        typer.Option("--target", help="validation metric whose price in bytes is wanted", show_default=False),
    ] = None,
    tune: Annotated[
        int | None,
        typer.Option(
            "--tune", metavar="[N]", help="tune every method on N settings first (9 if left out)", show_default=False
        ),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Train several methods on several seeds: one table, and tests between every two. Finished runs are not repeated.

    A key given several values where it takes one is varied: a table and a curve per method. Two such keys at most.
    method.KEY goes to every method, method.NAME.KEY to one; a method may also be a file of settings (best.yaml of
    panacea sweep). --tune gives every method the same search on the first seed (learning rate and its most important
    key), chosen on validation data; the table then is of the settings chosen. Tables as CSV, Markdown, LaTeX and JSON,
    and a figure, are in OUT/compare-DATA-xxxxxx.

    Example: panacea compare data=fl60 methods=separate,fedavg,fedavg_ft seeds=0..2 rounds=200

    Example: panacea compare data=fl60 methods=fedavg,panacea seeds=0..2 attack=label_flip attack.ratio=0..0.5:0.1

    Example: panacea compare data=fl60 methods=fedavg,ditto seeds=0..2 rounds=200 --tune
    """
    from panacea.cli.comparing import compare_methods  # noqa: PLC0415

    compare_methods(arguments or [], workers, target, tune, cluster=cluster, as_json=as_json, quiet=quiet)


@app.command("export", cls=PlainCommand)
def export_(
    directory: RunDir,
    client: Annotated[str, typer.Option("--client", help="number or name", show_default=False)],
    format: ModelFormat = None,
    out: Annotated[Path | None, typer.Option("--out", help="file to write; default: here, named after the run")] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Write the model of one client, with a card that says what it is and how to load it.

    Example: panacea export runs/fl60-panacea-s0-1a2b3c --client 17 --format onnx
    """
    from panacea.cli.exporting import export_client  # noqa: PLC0415

    export_client(directory, client, format, out, as_json=as_json, quiet=quiet)


@app.command(cls=PlainCommand)
def join(
    directory: RunDir,
    out: Annotated[Path, typer.Option("--out", help="file to write", show_default=False)],
    neighbours: Annotated[
        str | None, typer.Option("--neighbors", "--neighbours", help="clients it is related to: numbers or names")
    ] = None,
    weights: Annotated[str | None, typer.Option("--weights", help="of these links, e.g. 1,0.5; default all 1")] = None,
    features: Annotated[str | None, typer.Option("--features", help="the newcomer's, where clients have some")] = None,
    format: ModelFormat = None,
    untrained: Annotated[
        bool, typer.Option("--untrained", help="also where the method trains newcomers on data of their own")
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Write a model for a new client from its links to old ones, without any training.

    Example: panacea join runs/fl60-panacea-s0-1a2b3c --neighbors 3,17 --out model.safetensors
    """
    from panacea.cli.exporting import join_newcomer  # noqa: PLC0415

    join_newcomer(
        directory, neighbours, weights, features, format, out, untrained=untrained, as_json=as_json, quiet=quiet
    )
