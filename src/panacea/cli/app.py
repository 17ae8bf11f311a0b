"""The commands, their options and their help; what they do is in the modules beside this one."""

from __future__ import annotations

import signal
import sys
import traceback
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import click
import typer
from typer.core import TyperCommand, TyperGroup

from panacea import __version__
from panacea.errors import PanaceaError, nearest

__all__ = ["app", "main", "run_command_line"]


class _Group(TyperGroup):
    """A group that knows the nearest command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and self.get_command(ctx, args[0]) is None:
            close = nearest(args[0], self.commands)
            hint = f" did you mean '{close}'?" if close else ""
            raise click.UsageError(f"unknown command '{args[0]}';{hint} allowed: {', '.join(self.commands)}")
        return super().resolve_command(ctx, args)


class _KeysCommand(TyperCommand):
    """A command that takes `key=value`: its help ends with every key."""

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help(ctx, formatter)
        from panacea.cli.show import print_keys  # noqa: PLC0415

        print_keys()


app = typer.Typer(
    name="panacea",
    cls=_Group,
    help="Personalised federated learning on relation graphs: one personal model each, without sharing data.\n\n"
    "Example: panacea run data=fl60 method=fedavg rounds=200",
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)

Arguments = Annotated[list[str] | None, typer.Argument(metavar="[FILE.yaml] [key=value ...]", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="print the result as JSON on standard output, nothing else there")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="no progress, no summary; only errors")]
Debug = Annotated[bool, typer.Option("--debug", help="show the traceback of an error")]
Fresh = Annotated[bool, typer.Option("--fresh", help="start anew even if this run exists already")]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"panacea {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version and exit")
    ] = False,
) -> None:
    pass


@app.command(cls=_KeysCommand)
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


@app.command()
def resume(
    directory: Annotated[Path, typer.Argument(metavar="RUN_DIR", show_default=False)],
    as_json: AsJson = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Go on with a run after a stop or a crash; the result is the same as without it.

    Example: panacea resume runs/fl60-fedavg-s0-1a2b3c
    """
    from panacea.cli.training import resume_one  # noqa: PLC0415

    resume_one(directory, as_json=as_json, quiet=quiet)


@app.command(cls=_KeysCommand)
def compare(arguments: Arguments = None, as_json: AsJson = False, quiet: Quiet = False, debug: Debug = False) -> None:
    """Train several methods on several seeds and print one table. Finished runs are not repeated.

    Example: panacea compare data=fl60 methods=separate,fedavg,fedavg_ft seeds=0..2 rounds=200
    """
    from panacea.cli.comparing import compare_methods  # noqa: PLC0415

    compare_methods(arguments or [], as_json=as_json, quiet=quiet)


@app.command()
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


@app.command()
def datasets(
    name: Annotated[str | None, typer.Argument(help="explain this one", show_default=False)] = None,
    picture: Annotated[
        Path | None, typer.Option("--picture", help="draw the label distribution of NAME's clients (.png or .svg)")
    ] = None,
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="[data.key=value ...]", help="for --picture", show_default=False)
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """List the data sets, or explain one: source, keys, the training defaults it brings.

    Example: panacea datasets digits data.split=dirichlet --picture digits.png
    """
    from panacea.cli.show import show_datasets  # noqa: PLC0415

    show_datasets(name, picture, keys or [], as_json=as_json)


@app.command(cls=_KeysCommand)
def config(arguments: Arguments = None, debug: Debug = False) -> None:
    """Print every key, or the configuration that FILE and keys would give, as YAML.

    Example: panacea config data=fl60 method=fedprox method.mu=0.01
    """
    from panacea.cli.show import show_config  # noqa: PLC0415

    show_config(arguments or [])


@app.command()
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


def run_command_line(arguments: list[str]) -> int:
    """Run one command; returns the exit code. Errors are one line on standard error."""
    word, code = "error", 1
    failure: Exception
    try:
        command = typer.main.get_command(app)
        result: Any = command.main(args=arguments or ["--help"], prog_name="panacea", standalone_mode=False)
        if result == 130:  # typer's answer to Ctrl-C outside training
            print("stopped: interrupted", file=sys.stderr)  # noqa: T201
        return int(result or 0)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        failure, message, code = error, error.format_message(), 2
    except PanaceaError as error:
        failure, message, code = error, str(error), error.exit_code
        word = "stopped" if code == 130 else word
    except Exception as error:  # a defect of ours, or the machine's: still one line
        failure, message = error, f"{type(error).__name__}: {error} (--debug shows where)"
    if "--debug" in arguments:
        traceback.print_exception(failure)
    print(f"{word}: {' '.join(message.split())}", file=sys.stderr)  # noqa: T201
    return code


def _terminate(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt  # SIGTERM before or after training ends as Ctrl-C does; during it the run saves first


def main() -> None:
    """Entry point."""
    signal.signal(signal.SIGTERM, _terminate)
    sys.exit(run_command_line(sys.argv[1:]))
