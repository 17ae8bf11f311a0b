"""Run the command line: one line for every error, an exit code for every end."""

from __future__ import annotations

import signal
import sys
import traceback
from types import FrameType
from typing import Any

import click
import typer

from panacea.cli import federating, running, searching, viewing
from panacea.cli.root import app
from panacea.errors import PanaceaError

__all__ = ["app", "federating", "main", "run_command_line", "running", "searching", "viewing"]


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
