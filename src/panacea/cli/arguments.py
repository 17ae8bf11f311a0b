"""`[FILE.yaml] [key=value ...]` as flat keys; the command line wins over the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from panacea.errors import RequestError
from panacea.experiment.keys import parse_overrides, read_yaml

__all__ = ["flat_keys"]

_RECORDED = ("environment", "data_digest")  # what a stored configuration says about its run, not about the next one


def flat_keys(arguments: list[str]) -> dict[str, Any]:
    """All keys of a command."""
    files = [argument for argument in arguments if "=" not in argument]
    if len(files) > 1:
        raise RequestError(f"'{files[1]}' is neither key=value nor the only file")
    keys = read_yaml(Path(files[0])) if files else {}
    keys = {key: value for key, value in keys.items() if key.partition(".")[0] not in _RECORDED}
    return keys | parse_overrides(argument for argument in arguments if "=" in argument)
