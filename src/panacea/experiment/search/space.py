"""What a search may vary: keys with lists of values, or with distributions to draw from."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from panacea.errors import RequestError, unknown
from panacea.experiment.keys import SECTIONS, parse_value

__all__ = ["Choice", "Dimension", "Integer", "Range", "Setting", "Space", "parse_space"]

Setting = dict[str, Any]
"""Values of the varied keys, in the order of the space."""

_FORMS = ("uniform", "log_uniform", "int", "choice")
_DIGITS = 4  # drawn numbers are rounded: a file that says 0.03162 is read, and typed, more easily


@dataclass(frozen=True)
class Choice:
    """Some values, all alike: a list in the file."""

    values: tuple[Any, ...]

    @property
    def corners(self) -> tuple[Any, ...]:
        """Values that show whether the key takes them."""
        return self.values

    def at(self, u: float) -> Any:
        """The value at `u` in [0, 1): each has the same share."""
        return self.values[int(u * len(self.values))]


@dataclass(frozen=True)
class Range:
    """Numbers between two bounds: `uniform`, or `log_uniform` where their logarithm is.

    With u uniform in [0, 1): ``low + u (high - low)``, or ``low (high / low)^u``, rounded to four digits.
    """

    low: float
    high: float
    log: bool = False

    @property
    def corners(self) -> tuple[Any, ...]:
        """The bounds."""
        return (self.low, self.high)

    def at(self, u: float) -> float:
        """The number at `u` in [0, 1)."""
        value = self.low * (self.high / self.low) ** u if self.log else self.low + u * (self.high - self.low)
        return self.rounded(value)

    def rounded(self, value: float) -> float:
        """A drawn number as it is used: few digits, within the bounds."""
        return min(max(float(f"{value:.{_DIGITS}g}"), self.low), self.high)


@dataclass(frozen=True)
class Integer:
    """Whole numbers from low to high, both included: `int`."""

    low: int
    high: int

    @property
    def corners(self) -> tuple[Any, ...]:
        """The bounds."""
        return (self.low, self.high)

    def at(self, u: float) -> int:
        """The number at `u` in [0, 1)."""
        return self.low + int(u * (self.high - self.low + 1))


Dimension = Choice | Range | Integer


@dataclass(frozen=True)
class Space:
    """The varied keys of one method, in the order of the file."""

    dimensions: Mapping[str, Dimension]

    @property
    def size(self) -> int | None:
        """How many settings there are; None where a key is drawn from an interval."""
        sizes = [len(d.values) if isinstance(d, Choice) else None for d in self.dimensions.values()]
        return None if None in sizes else math.prod(size for size in sizes if size is not None)

    def grid(self) -> Iterator[Setting]:
        """Every setting; the last key changes fastest.

        Raises:
            RequestError: a key is a distribution, of which there is no grid.
        """
        values = []
        for key, dimension in self.dimensions.items():
            if not isinstance(dimension, Choice):
                raise RequestError(
                    f"space.{key} is a distribution, search=grid needs a list of values; "
                    "or search=random trials=20, which draws from it"
                )
            values.append(dimension.values)
        for combination in itertools.product(*values):
            yield dict(zip(self.dimensions, combination, strict=True))

    def draw(self, numbers: np.random.Generator) -> Setting:
        """One setting at random."""
        return {key: dimension.at(float(numbers.random())) for key, dimension in self.dimensions.items()}

    def corners(self) -> Iterator[Setting]:
        """Settings in which every value of a list and both bounds of an interval occur, to check that keys take them.

        One key moves at a time, the others stay at their first value.
        """
        first = {key: dimension.corners[0] for key, dimension in self.dimensions.items()}
        yield dict(first)
        for key, dimension in self.dimensions.items():
            for value in dimension.corners[1:]:
                yield {**first, key: value}


def parse_space(flat: Mapping[str, Any], methods: Sequence[str]) -> dict[str, Space]:
    """The space of each method from the flat keys below `space`.

    `lr: [0.01, 0.1]` is for all methods, `ditto.method.lam: [0.1, 1]` for ditto alone and wins there.

    >>> spaces = parse_space({"lr": [0.01, 0.1], "ditto.method.lam.log_uniform": [0.1, 2]}, ["fedavg", "ditto"])
    >>> spaces["fedavg"].size, list(spaces["ditto"].dimensions)
    (2, ['lr', 'method.lam'])

    Raises:
        RequestError: a key has one value only, an empty list, or something that is no distribution.
    """
    common: dict[str, Dimension] = {}
    own: dict[str, dict[str, Dimension]] = {method: {} for method in methods}
    for name, value in flat.items():
        whose = next((method for method in methods if name.startswith(f"{method}.")), None)
        there = common if whose is None else own[whose]
        key, form = _key_and_form(name if whose is None else name[len(whose) + 1 :])
        if key in there:
            raise RequestError(f"space.{name}: the values of {key} are given twice")
        if key in _NOT_SEARCHED:
            raise RequestError(f"space.{name}: {key} is not searched" + _NOT_SEARCHED[key])
        there[key] = _dimension(f"space.{name}", form, value)
    return {method: Space({**common, **own[method]}) for method in methods}


_NOT_SEARCHED = {
    "seed": "; seeds=0..2 runs every setting on several",
    "seeds": "; it says on which seeds every setting runs",
    "method": "; methods=a,b searches for each of them",
    "data": "; scores on different data cannot be compared",
    **dict.fromkeys(("out", "threads", "block", "checkpoint_every", "data_digest"), ", it changes no result"),
}


def _key_and_form(name: str) -> tuple[str, str]:
    """`lr.log_uniform` is the key `lr` with a distribution, `method.lam` a key with a list."""
    key, _, form = name.rpartition(".")
    if form in _FORMS and key:
        return key, form
    if name.count(".") > (1 if name.partition(".")[0] in SECTIONS else 0):
        raise unknown(f"distribution of space.{key}", form, _FORMS)
    return name, ""


def _dimension(name: str, form: str, value: Any) -> Dimension:
    """One key's values as the file states them."""
    if not isinstance(value, list):
        hint = "" if form else "; a key with one value belongs under base"
        raise RequestError(f"{name}={value}: {_needs(form)}{hint}")
    values = [_number(one) for one in value]
    if form in ("", "choice"):
        if not values:
            raise RequestError(f"{name} is an empty list; {_needs(form)}")
        if len({repr(one) for one in values}) != len(values):
            raise RequestError(f"{name}={_listed(values)}: a value is given twice")
        return Choice(tuple(values))
    numeric = all(isinstance(one, int | float) and not isinstance(one, bool) for one in values)
    if len(values) != 2 or not numeric or not all(map(math.isfinite, values)) or not values[0] < values[1]:
        raise RequestError(f"{name}={_listed(values)}: {_needs(form)}")
    low, high = values
    if form == "int":
        if low != int(low) or high != int(high):
            raise RequestError(f"{name}={_listed(values)}: {_needs(form)}")
        return Integer(int(low), int(high))
    if form == "log_uniform" and low <= 0:
        raise RequestError(f"{name}={_listed(values)}: the lower bound of log_uniform must be above 0")
    return Range(float(low), float(high), form == "log_uniform")


def _needs(form: str) -> str:
    if form in ("", "choice"):
        return "a list of values is needed, for example [0.01, 0.1]"
    kind = "whole numbers" if form == "int" else "numbers"
    return (
        f"{form} needs two {kind}, the smaller first, for example {form}: {'[1, 8]' if form == 'int' else '[0.001, 1]'}"
    )


def _listed(values: Sequence[Any]) -> str:
    return ",".join(map(str, values))


def _number(value: Any) -> Any:
    """`1e-3`, which YAML reads as text, is a number in a list too."""
    if isinstance(value, str):
        read = parse_value(value) if value.strip() else value
        return read if isinstance(read, int | float) and not isinstance(read, bool) else value
    return value
