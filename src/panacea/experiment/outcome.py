"""One run of a comparison, as its directory tells it: nothing is computed again."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from panacea.core.files import read_lines
from panacea.errors import RequestError
from panacea.experiment.batch import Finished
from panacea.experiment.planning import Planned
from panacea.experiment.rundir import RunDirectory

__all__ = ["Clients", "Outcome", "cohort_title", "read_outcome"]


@dataclass(frozen=True)
class Clients:
    """``[clients]`` each: number, whether novel, whether malicious, and the metric at the round the run chose."""

    number: npt.NDArray[np.int64]
    novel: npt.NDArray[np.bool_]
    malicious: npt.NDArray[np.bool_]
    metric: npt.NDArray[np.float64]

    @property
    def counted(self) -> npt.NDArray[np.float64]:
        """``[honest training clients]`` metrics: those that a summary's `mean` is over."""
        return self.metric[~self.novel & ~self.malicious]


@dataclass(frozen=True)
class Outcome:
    """One run of a comparison.

    Attributes:
        method: its name in the table.
        values: those of the varied keys.
        seed: its seed.
        summary: None if it failed.
        data_seed: which draw of the data it is of.
        clients: its table of clients, None if it failed.
        lines: its evaluations, as in `metrics.jsonl`.
        directory: where it is.
        error: why it failed.
        cohort: clients per round.
    """

    method: str
    values: tuple[Any, ...]
    seed: int
    summary: Mapping[str, Any] | None
    data_seed: int = 0
    clients: Clients | None = None
    lines: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    directory: Path | None = None
    error: str | None = None
    cohort: int | None = None


def cohort_title(outcome: Outcome) -> str:
    """What a title adds about clients per round."""
    return "" if outcome.cohort is None else f", cohort {outcome.cohort}"


def read_outcome(planned: Planned, finished: Finished, data_seed: int | None = None) -> Outcome:
    """What became of a planned run; its clients and evaluations are read from its directory.

    Args:
        planned: what was asked for.
        finished: what became of it.
        data_seed: where the data do not come from the keys.
    """
    where, config = RunDirectory(finished.directory), planned.job.config
    data_seed = planned.data_seed if data_seed is None else data_seed
    if finished.summary is None:
        return Outcome(
            planned.label, planned.values, config.seed, None, data_seed, directory=where.path, error=finished.error
        )
    return Outcome(
        planned.label, planned.values, config.seed, {**finished.summary, "method": planned.label}, data_seed,
        _read_clients(where.clients), tuple(read_lines(where.metrics)), where.path,
        cohort=where.read_config().cohort,
    )  # fmt: skip


def _read_clients(path: Path) -> Clients:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        return Clients(
            np.array([int(row["client"]) for row in rows]),
            np.array([row["novel"] == "1" for row in rows]),
            np.array([row["malicious"] == "1" for row in rows]),
            np.array([float(row["metric"] or math.nan) for row in rows]),
        )
    except (OSError, UnicodeDecodeError, KeyError, ValueError) as error:
        raise RequestError(f"{path} cannot be read; delete summary.json beside it to have both written anew") from error
