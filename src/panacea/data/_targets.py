"""What the targets are: labels, class names or amounts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from panacea.data._samples import Array, Samples, numbers
from panacea.data.task import Kind
from panacea.errors import RequestError, nearest

__all__ = ["Targets", "settle"]

_MANY_CLASSES = 100


@dataclass(frozen=True)
class Targets:
    """The targets of every client, settled.

    Attributes:
        kind: the task's kind.
        values: per client int64 labels ``[samples]`` or float32 targets ``[samples, ...]``.
        classes: number of classes, 0 unless classification.
        class_names: names of the classes, where they have names.
        notes: sentences a user should see.
    """

    kind: Kind
    values: list[Array]
    classes: int = 0
    class_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def settle(clients: Sequence[Samples], kind: Kind | None, classes: int | Sequence[str] | None) -> Targets:
    """Decide what the targets of all clients are and check them.

    Integers and booleans are labels, floats are amounts, words are class names; `kind` overrides the first two.

    Raises:
        RequestError: a target is missing, not a number, not a label, or of another shape than the first client's.
    """
    if classes is not None and kind in ("regression", "forecasting"):
        raise RequestError(f"classes={classes}: only for classification, but the task is {kind}")
    if isinstance(classes, int) and classes < 2:
        raise RequestError(f"classes={classes}: there must be at least 2")
    if kind in ("regression", "forecasting"):
        return _amounts(clients, kind, ())
    read = [_read(samples) for samples in clients]
    words = not isinstance(classes, int | None) or any(values.dtype.kind == "U" for values in read)
    if words:
        if kind is None and classes is None:
            _no_numbers_among_names(clients, read)
        return _names(clients, classes if not isinstance(classes, int) else None)
    if kind == "classification" or classes is not None:
        return _labels(clients, read, classes if isinstance(classes, int) else None)
    single = all(_width(values) == 1 for values in read)
    if single and all(values.dtype.kind == "i" for values in read):
        return _labels(clients, read, None)
    whole = single and all((values == np.rint(values)).all() for values in read)
    note = "targets are whole numbers written as floats: read as regression; task='classification' makes them labels"
    return _amounts(clients, "regression", (note,) if whole else ())


def _read(samples: Samples) -> Array:
    """Targets as int64, float64 or, where one of them is no number, text."""
    values = samples.y
    if values.dtype.kind in "biu":
        return values.astype(np.int64)
    if values.dtype.kind == "f":
        return values
    if values.dtype.kind not in "OUS":
        raise RequestError(f"{_at(samples, 0)}: values of type {values.dtype} are neither numbers nor class names")
    flat = values.reshape(-1).tolist()
    for position, value in enumerate(flat):
        missing = (isinstance(value, str) and not value.strip()) or (isinstance(value, float) and math.isnan(value))
        if missing or not isinstance(value, str | bytes | int | float):
            raise RequestError(f"{_at(samples, position)}: the target is missing")
    try:
        exact = values.astype(np.float64)
    except ValueError:
        return values.astype(np.str_)
    written = str(flat[0]).strip().lstrip("+-") if flat else ""
    integer = np.isfinite(exact).all() and (exact == np.rint(exact)).all() and (written.isdigit() or flat[0] is True)
    return exact.astype(np.int64) if integer else exact


def _no_numbers_among_names(clients: Sequence[Samples], read: Sequence[Array]) -> None:
    """Words and numbers mixed are an error unless the user said that they are names: one may be a slip."""
    first = next(i for i, values in enumerate(read) if values.dtype.kind == "U")
    odd = next(i for i, cell in enumerate(read[first].reshape(-1)) if not _is_number(cell))
    if any(values.dtype.kind != "U" for values in read) or any(
        _is_number(cell) for values in read for cell in values.reshape(-1)
    ):
        raise RequestError(
            f"{_at(clients[first], odd)}: '{read[first].reshape(-1)[odd]}' is not a number; "
            "if targets are class names, give the task as classification"
        )


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _names(clients: Sequence[Samples], given: Sequence[str] | None) -> Targets:
    texts = [_one_column(samples, samples.y).astype(np.str_) for samples in clients]
    names = [str(name) for name in given] if given is not None else sorted({str(v) for text in texts for v in text})
    if len(set(names)) < len(names):
        raise RequestError(f"classes={names}: a name is given twice")
    number = {name: label for label, name in enumerate(names)}
    values: list[Array] = []
    for samples, text in zip(clients, texts, strict=True):
        kinds, inverse = np.unique(text, return_inverse=True)
        for kind in kinds:
            if str(kind) not in number:
                close = nearest(str(kind), names)
                hint = f"; did you mean '{close}'?" if close else ""
                row = int(np.flatnonzero(text == kind)[0])
                raise RequestError(f"{_at(samples, row)}: '{kind}' is not one of the classes {', '.join(names)}{hint}")
        values.append(np.array([number[str(kind)] for kind in kinds], np.int64)[inverse])
    return Targets("classification", values, max(len(names), 2), tuple(names))


def _labels(clients: Sequence[Samples], read: Sequence[Array], classes: int | None) -> Targets:
    values: list[Array] = []
    for samples, raw in zip(clients, read, strict=True):
        flat = _one_column(samples, raw)
        numbers(flat, lambda index, samples=samples: samples.place(index, target=True))  # type: ignore[misc]
        broken = np.flatnonzero(flat != np.rint(flat))
        if len(broken):
            raise RequestError(f"{_at(samples, broken[0])}: label {flat[broken[0]]} is not a whole number")
        values.append(flat.astype(np.int64))
    most = max((int(flat.max()) for flat in values if len(flat)), default=0)
    count = max(most + 1, 2) if classes is None else classes
    for samples, flat in zip(clients, values, strict=True):
        outside = np.flatnonzero((flat < 0) | (flat >= count))
        if len(outside):
            hint = "" if classes is not None else "; if targets are amounts, give the task as regression"
            raise RequestError(f"{_at(samples, outside[0])}: label {flat[outside[0]]} is outside 0..{count - 1}{hint}")
    note = f"targets are integers: read as {count} classes; task='regression' makes them amounts"
    return Targets("classification", values, count, notes=(note,) if classes is None and count > _MANY_CLASSES else ())


def _amounts(clients: Sequence[Samples], kind: Kind, notes: tuple[str, ...]) -> Targets:
    values: list[Array] = []
    for samples in clients:
        exact = numbers(samples.y, lambda index, samples=samples: samples.place(index, target=True))  # type: ignore[misc]
        values.append(exact[:, None] if exact.ndim == 1 else exact)
        if values[-1].shape[1:] != values[0].shape[1:]:
            raise RequestError(
                f"{samples.source} has targets of shape {values[-1].shape[1:]}, "
                f"{clients[0].source} of shape {values[0].shape[1:]}"
            )
    return Targets(kind, values, notes=notes)


def _one_column(samples: Samples, values: Array) -> Array:
    if _width(values) != 1:
        raise RequestError(
            f"{samples.source} has targets of shape {values.shape[1:]}; classification needs one label per sample"
        )
    return values.reshape(-1)


def _width(values: Array) -> int:
    return int(np.prod(values.shape[1:]))


def _at(samples: Samples, position: int) -> str:
    """The place of the n-th target value."""
    index = np.unravel_index(position, samples.y.shape)
    return samples.place([int(i) for i in index], target=True)
