"""The form of a reproduction: one YAML file per published table or figure. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from panacea.errors import RequestError, unknown
from panacea.experiment.reproduce.printed import Printed, parse_table

__all__ = ["Axis", "Block", "Claim", "Column", "Entry", "Measure", "Quick", "Row", "StandIn", "Wrong"]

Keys = dict[str, Any]


_CHOSEN = {"block": "data", "row": "methods"}


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Measure(_Part):
    """A number of a run: a key of `summary.json`, or one of those that `measures.py` derives."""

    name: str = "main"
    key: str = "mean"
    spread: str | None = Field("std", description="key of its standard deviation over clients")
    better: Literal["higher", "lower"] | None = Field(None, description="default: by the block's metric")
    scaled: bool = Field(True, description="multiplied by the block's scale; off for shares and rounds")


class Axis(_Part):
    """A key that is varied."""

    key: str
    values: tuple[Any, ...] = Field(min_length=2)


class StandIn(_Part):
    """What is run where the data are not at hand; never compared with the paper."""

    data: str
    keys: Keys = Field(default_factory=dict)
    why: str


class Quick(_Part):
    """What `--quick` reduces."""

    keys: Keys = Field(default_factory=dict)
    seeds: tuple[int, ...] | None = None
    values: tuple[Any, ...] | None = Field(None, description="of the block's axis")
    skip: str | None = Field(None, description="the block is left out, for this reason")


class Block(_Part):
    """One data set (in one setting): a column of the table, or a panel of the figure."""

    name: str
    data: str
    keys: Keys = Field(default_factory=dict)
    metric: Literal["accuracy", "mse"] = "accuracy"
    scale: float = Field(1.0, gt=0, description="printed = measured x scale; 1000 for MSE x1e-3")
    clients: int | None = Field(None, ge=1, description="clients the paper's spread is over; default: as many as ours")
    axis: Axis | None = None
    stand_in: StandIn | None = None
    inexact: str | None = Field(None, description="why even whole data are not the paper's setting")
    quick: Quick = Field(default_factory=lambda: Quick.model_validate({}))

    @property
    def unit(self) -> str:
        """What the numbers are."""
        if self.metric == "accuracy":
            return "%"
        return "MSE" if self.scale == 1 else f"MSE x{1 / self.scale:.0e}".replace("e-0", "e-")


class Row(_Part):
    """One method with its keys."""

    name: str
    method: str
    keys: Keys = Field(default_factory=dict)
    only: tuple[str, ...] | None = Field(None, description="blocks it is run on; default all")
    like: str | None = Field(None, description="the row whose published cells it is compared with")


class Wrong(_Part):
    """Published cells that cannot be right, and why."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    why: str


class Claim(_Part):
    """A sentence of the paper that numbers can refute.

    best: the row is at least as good as all others (of `over`), at the printed precision.
    above: it is strictly better, at the printed precision.
    most: it is strictly better than more than half of them. Along an axis these three look at one `value` of it.
    at_least: its number is `value` or more.
    best_at: along the block's axis no value is better than `value`, at two decimals.
    grows: the gain of `row` over `over` is larger at the axis's last value than at its first.
    wilcoxon: paired over clients, the row is better with p below `value` (two-sided signed-rank test).
    """

    text: str
    kind: Literal["best", "above", "most", "at_least", "best_at", "grows", "wilcoxon"]
    row: str
    over: tuple[str, ...] = ()
    columns: tuple[str, ...] = Field((), description="columns, or blocks where there is an axis; default all")
    value: Any = None


@dataclass(frozen=True)
class Column:
    """One column of the result: a measure on a block."""

    name: str
    block: Block
    measure: Measure

    @property
    def higher_is_better(self) -> bool:
        """Direction of the number."""
        by_metric = "higher" if self.block.metric == "accuracy" else "lower"
        return (self.measure.better or by_metric) == "higher"

    @property
    def scale(self) -> float:
        """What our number is multiplied by to be in the paper's unit."""
        return self.block.scale if self.measure.scaled else 1.0


class Entry(_Part):
    """One reproduction.

    Attributes:
        short: the paper in a few words, for lists.
        published: the paper's table, a line per row, cells between bars; empty where a figure has no numbers.
        time: what it takes on two cores, `quick` and `full`, in words.
        figure: what is drawn: curves over rounds, a curve along the axis, clients' values, or weights between clients.
        theory: settings of `panacea theory`, in place of blocks and rows.
    """

    name: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    title: str
    paper: str
    short: str
    where: str
    what: str
    time: dict[Literal["quick", "full"], str]
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    keys: Keys = Field(default_factory=dict)
    blocks: tuple[Block, ...] = ()
    rows: tuple[Row, ...] = ()
    measures: tuple[Measure, ...] = Field(default_factory=lambda: (Measure.model_validate({}),))
    published: str = ""
    wrong: tuple[Wrong, ...] = ()
    claims: tuple[Claim, ...] = ()
    notes: tuple[str, ...] = ()
    figure: Literal["none", "curves", "axis", "clients", "weights"] = "none"
    theory: dict[Literal["trials", "search"], int] | None = None
    quick: Quick = Field(default_factory=lambda: Quick.model_validate({}))

    @field_validator("time")
    @classmethod
    def _both(cls, value: dict[str, str]) -> dict[str, str]:
        if set(value) != {"quick", "full"}:
            raise ValueError("needs quick and full")
        return value

    @model_validator(mode="after")
    def _whole(self) -> Entry:
        """Every name that is used must be there; a wrong one is named with the nearest."""
        try:
            self._check_names()
        except RequestError as error:
            raise ValueError(str(error)) from None
        return self

    def _check_names(self) -> None:
        if self.theory is None and not (self.blocks and self.rows):
            raise RequestError("needs blocks and rows, or theory")
        blocks, rows = [block.name for block in self.blocks], [row.name for row in self.rows]
        columns = [column.name for column in self.columns]
        for kind, names in (("block", blocks), ("row", rows), ("column", columns)):
            if kind != "column" and any("," in name for name in names):
                raise RequestError(f"a {kind}'s name has no comma: it is chosen by {_CHOSEN[kind]}=NAME,NAME")
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                raise RequestError(f"the {kind} '{twice}' is given twice")
        used: list[tuple[str, str, list[str]]] = [("row", name, rows) for name in self.printed]
        used += [("column", name, columns) for row in self.printed.values() for name in row]
        for wrong in self.wrong:
            used += [("row", name, rows) for name in wrong.rows] + [("column", name, columns) for name in wrong.columns]
        for row in self.rows:
            used += [("block", name, blocks) for name in row.only or ()]
            used += [("row", row.like, rows)] if row.like is not None else []
        for claim in self.claims:
            used += [("row", name, rows) for name in (claim.row, *claim.over)]
            used += [("column", name, columns) for name in claim.columns]
        for kind, name, allowed in used:
            if name not in allowed:
                raise unknown(kind, name, allowed)

    @cached_property
    def printed(self) -> dict[str, dict[str, Printed]]:
        """The published cells by row and column."""
        return parse_table(self.published) if self.published.strip() else {}

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """A column for every block and measure, named by what tells them apart."""
        return tuple(self._columns())

    def _columns(self) -> Iterator[Column]:
        for block in self.blocks:
            for measure in self.measures:
                name = block.name if len(self.measures) == 1 else measure.name
                if len(self.blocks) > 1 and len(self.measures) > 1:
                    name = f"{block.name}, {measure.name}"
                yield Column(name, block, measure)

    def cell(self, row: Row, column: str) -> Printed | None:
        """What the paper prints for a row (or the row it is like) in a column."""
        return self.printed.get(row.like or row.name, {}).get(column)

    def impossible(self, row: Row, column: str) -> str | None:
        """Why the published cell cannot be right, if so."""
        for wrong in self.wrong:
            if (row.like or row.name) in wrong.rows and column in wrong.columns:
                return wrong.why
        return None
