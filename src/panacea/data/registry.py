"""The registry of data sets: a name, typed keys, the defaults a data set brings, and a loader."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from panacea.data.federation import Federation
from panacea.data.paths import find_data_dir
from panacea.errors import RequestError, unknown

__all__ = [
    "Card",
    "DataKeys",
    "DatasetEntry",
    "NaturalKeys",
    "TrainingDefaults",
    "dataset",
    "dataset_names",
    "find_dataset",
    "found_by",
]


class DataKeys(BaseModel):
    """Keys every data set has (`data.*`); a data set adds its own by subclassing."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    root: Path | None = Field(None, description="folder with data files; default $PANACEA_DATA, else a user cache")
    seed: int = Field(0, ge=0, description="generation, splits and held-out clients; default = seed")
    clients: int | None = Field(None, ge=1, description="take the first n clients, or generate n")
    val: float = Field(0.1, ge=0, lt=1, description="share of each client's train part used to choose rounds")

    @field_validator("root", mode="before")
    @classmethod
    def _as_path(cls, value: object) -> Path | None:
        return None if value is None else Path(str(value)).expanduser()  # a folder may be called 2024


class NaturalKeys(DataKeys):
    """Keys of a data set that has clients of its own."""

    split: Literal["natural"] = Field("natural", description="the data set's own clients; there is nothing to divide")


@dataclass(frozen=True)
class TrainingDefaults:
    """What a data set suggests for keys the user leaves out."""

    lr: float = 0.01
    rounds: int = 800
    cohort: int = 5
    novel: float = 0.0
    model: str = "auto"
    local_steps: int = 50
    batch_size: int = 64


@dataclass(frozen=True)
class Card:
    """What a user should know of a data set before using it; shown by `panacea datasets NAME`.

    Attributes:
        licence: of the data, as published.
        citation: whom to cite.
        used_in: which tables of which papers are about it.
        get: which files to place where, and who publishes them; also the end of the error where they are missing.
        splits: how samples are divided into train, validation and test.
        features: what the clients' features are, one word per column; ``latitude`` and ``longitude``
            (or ``northing`` and ``easting``) make a map.
    """

    licence: str = ""
    citation: str = ""
    used_in: str = ""
    get: str = ""
    splits: str = ""
    features: tuple[str, ...] = ()


@dataclass(frozen=True)
class DatasetEntry:
    """One data set.

    Attributes:
        name: the registry name.
        summary: one line for `panacea datasets`.
        source: where it comes from (paper, package, publisher).
        keys: the model of its `data.*` keys.
        defaults: training defaults it brings.
        card: what a user should know before using it.
        load: keys in, federation out (no novel clients marked yet).
        files: a word on its files for the list, without reading any: ``here``, ``missing``, ``unreadable``,
            ``generated``, ``yours``.
    """

    name: str
    summary: str
    source: str
    keys: type[DataKeys]
    defaults: TrainingDefaults
    card: Card
    load: Callable[[Any], Federation]
    files: Callable[[Path | None], str]


_ENTRIES: dict[str, DatasetEntry] = {}


def dataset(
    name: str,
    *,
    summary: str,
    source: str,
    keys: type[DataKeys],
    defaults: TrainingDefaults,
    card: Card | None = None,
    files: Callable[[Path | None], str] | None = None,
) -> Callable[[Callable[[Any], Federation]], Callable[[Any], Federation]]:
    """Register a loader under a public name.

    Its files are `here` where its folder is, unless `files` knows better (see `found_by`).
    """

    def register(load: Callable[[Any], Federation]) -> Callable[[Any], Federation]:
        about = files or found_by(lambda root: find_data_dir(name, root))
        _ENTRIES[name] = DatasetEntry(name, summary, source, keys, defaults, card or Card(), load, about)
        return load

    return register


def found_by(find: Callable[[Path | None], object]) -> Callable[[Path | None], str]:
    """The word on a data set's files by what its loader looks for: `here` where `find` finds something."""

    def word(root: Path | None) -> str:
        try:
            return "here" if find(root) else "missing"
        except RequestError:
            return "missing"
        except OSError:
            return "unreadable"

    return word


def dataset_names() -> list[str]:
    """All registered names, in alphabetical order."""
    from panacea.data import sources  # noqa: F401, PLC0415  (registers the built-in ones)

    return sorted(_ENTRIES)


def find_dataset(name: str) -> DatasetEntry:
    """The entry of a name, or an error with the nearest one."""
    names = dataset_names()
    if name not in _ENTRIES:
        raise unknown("data set", name, names)
    return _ENTRIES[name]
