"""The command `panacea` itself: its group, and the options its commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import click
import typer
from typer.core import TyperCommand, TyperGroup

from panacea import __version__
from panacea.errors import nearest

__all__ = [
    "Arguments",
    "AsJson",
    "Cluster",
    "Debug",
    "Fresh",
    "Group",
    "KeysCommand",
    "ModelFormat",
    "PlainCommand",
    "Quiet",
    "RunDir",
    "TunableCommand",
    "app",
]


class Group(TyperGroup):
    """A group that knows the nearest command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command of a name, or which it may have been."""
        if args and self.get_command(ctx, args[0]) is None:
            close = nearest(args[0], self.commands)
            hint = f" did you mean '{close}'?" if close else ""
            raise click.UsageError(f"unknown command '{args[0]}';{hint} allowed: {', '.join(self.commands)}")
        return super().resolve_command(ctx, args)


class PlainCommand(TyperCommand):
    """A command whose help is plain text: typer escapes brackets for rich even where rich does not print them."""

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The usual help."""
        super().format_help(ctx, formatter)
        formatter.buffer = [text.replace("\\[", "[") for text in formatter.buffer]


class KeysCommand(PlainCommand):
    """A command that takes `key=value`: its help ends with every key."""

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The usual help, and the keys."""
        super().format_help(ctx, formatter)
        from panacea.cli.show import print_keys  # noqa: PLC0415

        print_keys()


class TunableCommand(KeysCommand):
    """A command whose `--tune` may stand without its number, which typer's options cannot."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the usual number where there is none."""
        for place, argument in enumerate(args):
            if argument == "--tune" and not "".join(args[place + 1 : place + 2]).lstrip("-").isdigit():
                return super().parse_args(ctx, [*args[: place + 1], "9", *args[place + 1 :]])
        return super().parse_args(ctx, args)


app = typer.Typer(
    name="panacea",
    cls=Group,
    help="Personalised federated learning on relation graphs: one personal model each, without sharing data.\n\n"
    "Example: panacea run data=fl60 method=fedavg rounds=200",
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)

Arguments = Annotated[list[str] | None, typer.Argument(metavar="[FILE.yaml] [key=value ...]", show_default=False)]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster", metavar="ADDRESS", help="runs on a Ray cluster: auto, host:port or local", show_default=False
    ),
]
RunDir = Annotated[Path, typer.Argument(metavar="RUN_DIR", show_default=False)]
ModelFormat = Annotated[
    str | None,
    typer.Option("--format", help="safetensors, torch or onnx; default by the file's name, else safetensors"),
]
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
