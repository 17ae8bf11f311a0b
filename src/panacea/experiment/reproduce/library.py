"""The reproductions that come with the package: found by name, read and checked."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from panacea.core.validation import validated
from panacea.errors import RequestError, unknown
from panacea.experiment.reproduce.entry import Entry

__all__ = ["entry_names", "find_entry", "read_entry"]


def _folder() -> Path:
    return Path(str(files("panacea"))) / "reproductions"


def entry_names() -> list[str]:
    """All names, in alphabetical order."""
    return sorted(path.stem for path in _folder().glob("*.yaml"))


def find_entry(name: str) -> Entry:
    """The reproduction of a name, or of a YAML file of one's own.

    Raises:
        RequestError: there is none of this name, or the file is wrong; one line.
    """
    if name.endswith((".yaml", ".yml")):
        return read_entry(Path(name).expanduser())
    if name not in entry_names():
        raise unknown("reproduction", name, entry_names())
    return read_entry(_folder() / f"{name}.yaml")


def read_entry(path: Path) -> Entry:
    """Read and check one file."""
    try:
        content: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RequestError(f"{path}: no such file") from error
    except IsADirectoryError as error:
        raise RequestError(f"{path} is a folder; a YAML file is needed") from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise RequestError(f"{path}: cannot be read as YAML") from error
    if not isinstance(content, dict):
        raise RequestError(f"{path}: expected keys and values, found {type(content).__name__}")
    if not set(content) & {"paper", "blocks", "rows", "theory"}:  # a file for `panacea run`, say
        raise RequestError(
            f"{path} is not a reproduction: it has no paper, blocks and rows; docs/reproduce.md says how"
        )
    return validated(Entry, {str(key): value for key, value in content.items()}, f"{path.name}: ")
