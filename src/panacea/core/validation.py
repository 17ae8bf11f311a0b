"""From a pydantic error to the one line a user reads."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ValidationError

from panacea.errors import RequestError, nearest

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

__all__ = ["validated"]

Model = TypeVar("Model", bound=BaseModel)


def validated(model: type[Model], values: Mapping[str, object], prefix: str) -> Model:
    """Check values against a model.

    Args:
        model: the pydantic model of the keys.
        values: what the user gave, by key.
        prefix: what stands before a key in messages: ``data`` gives ``data.clients``; a prefix that ends in a space
            (``"task.yaml: "``) is put as it is, and an empty one adds nothing.

    Raises:
        RequestError: one line that names the key, what was given and what is allowed. An unknown key is reported
            first, with the nearest known one, because it often explains the other errors.

    >>> class Keys(BaseModel, extra="forbid"):
    ...     clients: int = 60
    >>> validated(Keys, {"clients": "6"}, "data").clients
    6
    >>> validated(Keys, {"cleints": 6}, "data")
    Traceback (most recent call last):
    panacea.errors.RequestError: unknown key 'data.cleints'; did you mean 'data.clients'? allowed: clients
    """
    start = f"{prefix}." if prefix and not prefix.endswith(" ") else prefix
    try:
        return model.model_validate(dict(values))
    except ValidationError as caught:
        errors = caught.errors(include_url=False)
    first = next((error for error in errors if error["type"] == "extra_forbidden"), errors[0])
    path = _path(values, first["loc"])
    alike = [error for error in errors if _path(values, error["loc"]) == path]  # one for each branch of a union
    raise RequestError(_sentence(model, path, alike, start))


def _sentence(model: type[BaseModel], path: tuple[str, ...], errors: Sequence[ErrorDetails], start: str) -> str:
    error = errors[0]
    key = start + ".".join(path)
    fields = _owner(model, path).model_fields
    if error["type"] == "extra_forbidden":
        close = nearest(path[-1], fields)
        hint = f" did you mean '{start}{'.'.join((*path[:-1], close))}'?" if close else ""
        return f"unknown key '{key}';{hint} allowed: {', '.join(sorted(fields))}"
    if error["type"] == "missing":
        about = fields[path[-1]].description if path[-1] in fields else None
        return f"{key} is missing" + (f": {about}" if about else "")
    said = " or ".join(dict.fromkeys(_words(error["msg"]) for error in errors))
    if not path:
        return f"{start.rstrip('.: ')}: {said}" if start else said
    if error["type"] == "literal_error":
        close = nearest(str(error["input"]), re.findall(r"'([^']*)'", error["msg"]))
        said += f"; did you mean '{close}'?" if close else ""
    return f"{key}={_shown(error['input'])}: {said}"


def _words(message: str) -> str:
    message = re.sub(r"^(Value error|Assertion failed), |, unable to parse.*$", "", message)
    return message.replace("Input should be", "must be")


def _path(values: object, location: Sequence[int | str]) -> tuple[str, ...]:
    """The part of pydantic's location that is a path in what was given (the rest names branches of a union)."""
    path: list[str] = []
    for place, step in enumerate(location):
        if isinstance(values, Mapping) and (step in values or place == len(location) - 1):
            path.append(str(step))
            values = values.get(step)
        elif isinstance(values, list | tuple) and isinstance(step, int) and step < len(values):
            path.append(str(step))
            values = values[step]
    return tuple(path)


def _owner(model: type[BaseModel], path: Sequence[str]) -> type[BaseModel]:
    """The (nested) model whose field the last step of a path is."""
    for step in path[:-1]:
        field = model.model_fields.get(step)
        if field is None or not (isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)):
            break
        model = field.annotation
    return model


def _shown(value: object) -> str:
    text = value if isinstance(value, str) and value.strip() else repr(value)
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:57] + "..."
