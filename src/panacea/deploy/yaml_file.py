"""Checked YAML files: the configuration of a server, of its clients and of a roster."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel

from panacea.core.validation import validated
from panacea.errors import RequestError

__all__ = ["read_keys"]

_Model = TypeVar("_Model", bound=BaseModel)


def read_keys(path: Path, model: type[_Model], hint: str = "") -> _Model:
    """The keys of a file, checked.

    Args:
        path: of the file.
        model: of its keys.
        hint: said where there is no such file.

    Raises:
        RequestError: one line: there is no file, it is no YAML, or a key is wrong.
    """
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RequestError(f"{path}: no such file{hint and f'; {hint}'}") from None
    except OSError as error:
        raise RequestError(f"{path}: cannot be read ({error.strerror})") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise RequestError(f"{path}: not valid YAML") from None
    if not isinstance(values, Mapping):
        raise RequestError(f"{path}: keys and values are expected")
    return validated(model, {str(key): value for key, value in values.items()}, f"{path.name}: ")
