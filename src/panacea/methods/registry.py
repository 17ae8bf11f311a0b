"""The registry of methods: a decorator for ours, entry points and ``module:Class`` for everyone else's."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import TypeVar

from panacea.core.method import Method
from panacea.core.validation import validated
from panacea.errors import RequestError, unknown

__all__ = ["find_method", "foreign", "make_method", "method", "method_names"]

ENTRY_POINTS = "panacea.methods"

_METHODS: dict[str, type[Method]] = {}
_M = TypeVar("_M", bound=type[Method])


def method(name: str) -> Callable[[_M], _M]:
    """Register a method class under its public name."""

    def register(cls: _M) -> _M:
        cls.name = name
        _METHODS[name] = cls
        return cls

    return register


def method_names() -> list[str]:
    """Every name `find_method` knows: built in, and from installed packages' entry points."""
    import panacea.methods  # noqa: F401, PLC0415  (registers the built-in ones)

    return [*_METHODS, *(entry.name for entry in entry_points(group=ENTRY_POINTS) if entry.name not in _METHODS)]


def foreign(name: str) -> bool:
    """Whether a name stands for another package's code, which `find_method` would import."""
    return ":" in name or (name in method_names() and name not in _METHODS)


def find_method(name: str) -> type[Method]:
    """The class of a registered name, of an entry point, or of ``package.module:Class`` (also in this directory)."""
    names = method_names()
    if name in _METHODS:
        return _METHODS[name]
    if ":" in name:
        cls = _import(name)
    elif name in names:
        try:
            cls = next(iter(entry_points(group=ENTRY_POINTS, name=name))).load()
        except Exception as error:
            raise RequestError(
                f"method={name}: its package cannot be loaded ({type(error).__name__}: {error})"
            ) from error
    else:
        raise unknown("method", name, names)
    if not (isinstance(cls, type) and issubclass(cls, Method)):
        raise RequestError(f"method={name}: {cls!r} is not a subclass of panacea.methods.Method")
    return cls


def _import(path: str) -> object:
    module_name, _, attribute = path.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever is wrong in a user's file
        said = f"{type(error).__name__}: {error}"
        raise RequestError(f"method={path}: cannot import '{module_name}' ({said})") from error
    if not hasattr(module, attribute):
        raise RequestError(f"method={path}: module '{module_name}' has no '{attribute}'")
    found: object = getattr(module, attribute)
    return found


def make_method(name: str, parameters: Mapping[str, object] | None = None) -> Method:
    """A method with validated hyper-parameters (keys without the prefix ``method.``)."""
    cls = find_method(name)
    made = cls(validated(cls.parameter_model, parameters or {}, "method"))
    made.name = name.replace(":", ".")  # two classes of one name in two modules stay apart
    return made
