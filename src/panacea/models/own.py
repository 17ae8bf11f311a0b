"""The user's own network: a module, a class or a factory, given as an object or as ``package.module:factory``."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from panacea.errors import RequestError

if TYPE_CHECKING:
    from panacea.data.task import Task

__all__ = ["call_factory", "import_factory", "name_of", "one_line"]


def name_of(spec: object) -> str:
    """How messages call an own network."""
    if isinstance(spec, str):
        return spec
    if isinstance(spec, nn.Module):
        return type(spec).__name__
    return str(getattr(spec, "__qualname__", type(spec).__name__))


def import_factory(spec: str) -> object:
    """What ``package.module:factory`` names; the current folder is searched first.

    Raises:
        RequestError: the module or the attribute does not exist, or importing the module fails.
    """
    module_name, _, attribute = spec.partition(":")
    if not module_name or not attribute or module_name.endswith(".py") or "/" in module_name:
        raise RequestError(f"model '{spec}': write package.module:factory, for example networks:Net for networks.py")
    with _current_folder_importable():
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is None or not (module_name + ".").startswith(error.name + "."):
                raise RequestError(f"model '{spec}': importing '{module_name}' failed: {one_line(error)}") from error
            raise RequestError(
                f"model '{spec}': there is no module '{error.name}' in the current folder or among the installed ones"
            ) from error
        except Exception as error:
            raise RequestError(f"model '{spec}': importing '{module_name}' failed: {one_line(error)}") from error
    found: object = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise RequestError(f"model '{spec}': module '{module_name}' has no '{attribute}'")
        found = getattr(found, part)
    return found


def call_factory(factory: object, label: str, task: Task) -> nn.Module:
    """A module from a factory or a module class; a module is returned as it stands.

    A factory with a parameter called ``task``, or with one required parameter, is given the task; any other is called
    with nothing.

    Raises:
        RequestError: not callable, needs more than a task, fails, or does not return a module.
    """
    if isinstance(factory, nn.Module):
        return factory
    if not callable(factory):
        raise RequestError(
            f"model '{label}': an object of type {type(factory).__name__} is neither a torch.nn.Module nor callable"
        )
    positional, named = _arguments(factory, label, task)
    with _current_folder_importable():
        try:
            model = factory(*positional, **named)
        except RequestError:
            raise
        except Exception as error:
            raise RequestError(f"model '{label}': building it failed: {one_line(error)}") from error
    if not isinstance(model, nn.Module):
        raise RequestError(
            f"model '{label}': returned an object of type {type(model).__name__}, expected a torch.nn.Module"
        )
    return model


def one_line(error: Exception, limit: int = 300) -> str:
    """An exception as one line: its type and the start of its message."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _arguments(factory: Callable[..., object], label: str, task: Task) -> tuple[list[Task], dict[str, Task]]:
    """Positional and named arguments of the call: the task or nothing."""
    try:
        parameters = list(inspect.signature(factory).parameters.values())
    except (TypeError, ValueError):  # some callables of C extensions have no signature
        return [], {}
    single = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    required = [p for p in single if p.default is p.empty]
    target = next((p for p in single if p.name == "task"), required[0] if len(required) == 1 else None)
    others = [p.name for p in required if p is not target]
    if others:
        raise RequestError(f"model '{label}': it may take the task or nothing, but it requires {', '.join(others)}")
    if target is None:
        return [], {}
    return ([task], {}) if target.kind is target.POSITIONAL_ONLY else ([], {target.name: task})


@contextlib.contextmanager
def _current_folder_importable() -> Iterator[None]:
    """Put the current folder first on the import path, and take it off again."""
    folder = str(Path.cwd())
    importlib.invalidate_caches()
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)
