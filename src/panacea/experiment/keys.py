"""`key=value` as ML people know it: dotted keys, lists, ranges, and YAML files that mean the same.

Everything becomes one flat mapping of dotted keys, ``{"data": "fl60", "data.clients": 6, "rounds": 800}``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml

from panacea.errors import RequestError

__all__ = ["SECTIONS", "flatten", "parse_overrides", "parse_value", "read_yaml"]

SECTIONS = ("data", "model", "method", "graph", "attack", "defence", "engine")
"""Keys that have a name and keys of their own below it."""

_RANGE = re.compile(r"^(-?\d+)\.\.(-?\d+)$")
_EXPONENT = re.compile(r"[+-]?\d+(\.\d*)?[eE][+-]?\d{1,3}")
_STEPPED = re.compile(r"^(-?[\d.]+?)\.\.(-?[\d.]+):([\d.]+)$")

_LONGEST = 10_000


def parse_value(text: str) -> Any:
    """One value of the command line.

    >>> parse_value("0..4"), parse_value("0..0.5:0.25"), parse_value("fedavg,ditto"), parse_value("[16,16]")
    ([0, 1, 2, 3, 4], [0.0, 0.25, 0.5], ['fedavg', 'ditto'], [16, 16])
    >>> parse_value("1e-3"), parse_value("true"), parse_value("none"), parse_value("my.module:Class")
    (0.001, True, None, 'my.module:Class')
    """
    text = text.strip()
    if match := _RANGE.match(text):
        first, last = int(match[1]), int(match[2])
        _check_length(text, abs(last - first) + 1)
        return list(range(first, last + 1)) if first <= last else list(range(first, last - 1, -1))
    if match := _STEPPED.match(text):
        start, stop, step = (Decimal(part) for part in match.groups())
        count = int((stop - start) / step) + 1 if step > 0 else 0
        if count < 1:
            raise RequestError(f"'{text}' is not a range; write start..stop:step with a positive step")
        _check_length(text, count)
        return [float(start + i * step) for i in range(count)]
    if "," in text and not text.startswith(("[", "{")):
        return [parse_value(part) for part in text.split(",") if part.strip()]
    if text.lower() in ("none", "null", ""):
        return None
    if _EXPONENT.fullmatch(text):
        return float(text)  # YAML 1.1 reads 1e-3 as a string
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise RequestError(f"'{text}' cannot be read as a value") from error


def _check_length(text: str, count: int) -> None:
    if count > _LONGEST:
        raise RequestError(f"'{text}' has {count:,} values; a range has at most {_LONGEST:,}")


def parse_overrides(arguments: Iterable[str]) -> dict[str, Any]:
    """``key=value`` arguments as a flat mapping; a key given twice is an error."""
    flat: dict[str, Any] = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        key = key.strip()
        if not equals or not key:
            raise RequestError(f"'{argument}' is not key=value")
        if key in flat:
            raise RequestError(f"{key} is given twice")
        flat[key] = parse_value(value)
    return flat


class _UniqueKeys(yaml.SafeLoader):
    """YAML's safe loader, which however lets the second of two equal keys win; this one refuses."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value]
        for name in names:
            if names.count(name) > 1:
                raise RequestError(f"{name} is given twice")
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML file as a flat mapping."""
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=_UniqueKeys)  # noqa: S506  (a safe loader)
    except FileNotFoundError as error:
        raise RequestError(f"{path}: no such file") from error
    except IsADirectoryError as error:
        raise RequestError(f"{path} is a folder; a YAML file is needed") from error
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"{path}: cannot be read ({error})") from error
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f" line {where.line + 1}" if where else ""
        raise RequestError(f"{path}{line}: not valid YAML") from error
    if not isinstance(content, Mapping):
        raise RequestError(f"{path}: expected keys and values, found {type(content).__name__}")
    return flatten(content)


def flatten(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """``{data: {name: fl60, clients: 6}}`` and ``{data: fl60, data.clients: 6}`` alike.

    >>> flatten({"data": {"name": "fl60", "clients": 6}, "method": "fedavg", "method.weighting": "uniform"})
    {'data': 'fl60', 'data.clients': 6, 'method': 'fedavg', 'method.weighting': 'uniform'}
    """
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        name = f"{prefix}.{key}" if prefix else str(key)
        if name.endswith(".name") and name[:-5] in SECTIONS:
            name = name[:-5]
        entries = flatten(value, name) if isinstance(value, Mapping) else {name: _text_number(value)}
        for entry, content in entries.items():
            if entry in flat:
                raise RequestError(f"{entry} is given twice")
            flat[entry] = content
    return flat


def _text_number(value: Any) -> Any:
    """Ranges and 1e-3 work in YAML files too."""
    if isinstance(value, str) and any(form.fullmatch(value) for form in (_RANGE, _STEPPED, _EXPONENT)):
        return parse_value(value)
    return value
