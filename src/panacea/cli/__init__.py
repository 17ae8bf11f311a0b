"""The command `panacea`. Nothing here imports torch before a command needs it."""

from panacea.cli.app import main, run_command_line

__all__ = ["main", "run_command_line"]
