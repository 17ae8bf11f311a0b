"""The Python API: `train` and `compare` on a federation, and what they return."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from panacea.data.federation import Federation
from panacea.errors import RequestError
from panacea.evaluation.evaluate import personal_models
from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment
from panacea.experiment.rundir import RunDirectory
from panacea.experiment.runner import Callback, client_columns, client_table, run_experiment
from panacea.experiment.table import TABLE_COLUMNS, comparison_rows
from panacea.report.run_page import ReportWriter

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Comparison", "Run", "compare", "train"]


class Run:
    """A finished run.

    Attributes:
        summary: the numbers of `summary.json`.
        metrics: one dict per evaluated round.
        directory: where its files are, None if nothing was written.
    """

    def __init__(
        self, experiment: Experiment, summary: dict[str, Any], metrics: list[dict[str, Any]], directory: Path | None
    ) -> None:
        self._experiment = experiment
        self.summary, self.metrics, self.directory = summary, metrics, directory

    def __repr__(self) -> str:
        s = self.summary
        mean = "unknown" if s["mean"] is None else f"{s['mean']:.4g}"
        return f"Run({s['method']} on {s['data']}, seed {s['seed']}, {s['metric']} {mean})"

    @property
    def clients(self) -> pd.DataFrame:
        """One row per client, novel ones included, as in `clients.csv`."""
        import pandas as pd  # noqa: PLC0415

        return pd.DataFrame(client_table(self._experiment), columns=list(client_columns(self._experiment)))

    def model(self, client: int) -> nn.Module:
        """An ordinary `torch.nn.Module` with a client's weights after the last round, in evaluation mode."""
        experiment = self._experiment
        federation = experiment.federation
        if not 0 <= client < len(federation):
            raise RequestError(f"client {client} does not exist; clients are 0..{len(federation) - 1}")
        params, statistics = personal_models(
            experiment.method,
            experiment.state,
            experiment.engine,
            federation,
            np.array([client], np.int64),
            novel=bool(federation.novel[client]),
        )
        return experiment.target.to_module(params[0], statistics[0]).eval()


class _Metrics(Callback):
    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def on_evaluation(self, experiment: Experiment, line: dict[str, Any]) -> None:
        self.lines.append(line)


def train(
    federation: Federation | str,
    method: str = "fedavg",
    *,
    parameters: Mapping[str, object] | None = None,
    model: str | nn.Module = "auto",
    out: str | Path | None = None,
    callbacks: Sequence[Callback] = (),
    **keys: Any,
) -> Run:
    """Train one experiment.

    Args:
        federation: the clients, or the name of a data set.
        method: a registered method, or ``module:Class``.
        parameters: the method's hyper-parameters.
        model: a registered network, ``module:factory``, or your own module as it stands.
        out: folder for the run's directory; nothing is written by default.
        callbacks: called around rounds and evaluations.
        keys: any key of `panacea run`: ``rounds=800, lr=0.1, seed=0, engine="sequential"``.

    >>> run = train("fl60", "fedprox", parameters={"mu": 0.1}, rounds=2, cohort=3)
    >>> list(run.clients.columns[:4]), len(run.clients)
    (['client', 'name', 'novel', 'malicious'], 60)
    >>> run.model(17)
    Mlp(
      (hidden): Sequential(
        (0): Linear(in_features=2, out_features=16, bias=True)
        (1): ReLU()
        (2): Linear(in_features=16, out_features=16, bias=True)
        (3): ReLU()
      )
      (fc): Linear(in_features=16, out_features=2, bias=True)
    )
    """
    own = None if isinstance(federation, str) else federation
    flat: dict[str, Any] = {
        "data": federation if isinstance(federation, str) else federation.name,
        "method": method,
        **{f"method.{key}": value for key, value in (parameters or {}).items()},
        **({"model": model} if isinstance(model, str) else {}),
        **{key: value for key, value in keys.items() if value is not None},
    }
    if out is not None:
        flat["out"] = str(out)
    experiment = Experiment(build_config(flat), own, None if isinstance(model, str) else model)
    directory = None if out is None else RunDirectory.of(experiment.config, experiment.method.name)
    metrics = _Metrics()
    pages = [] if directory is None else [ReportWriter()]
    summary = run_experiment(experiment, directory, [metrics, *pages, *callbacks])
    if directory is None:
        return Run(experiment, summary, metrics.lines, None)
    lines = directory.metrics.read_text(encoding="utf-8").splitlines()  # those before a resume, too
    return Run(experiment, summary, [json.loads(line) for line in lines], directory.path)


@dataclass(frozen=True)
class Comparison:
    """Several methods on several seeds."""

    summaries: list[dict[str, Any]]

    def table(self) -> pd.DataFrame:
        """One row per method: mean, spread over clients and over seeds, worst decile, novel clients, speed."""
        import pandas as pd  # noqa: PLC0415

        return pd.DataFrame(comparison_rows(self.summaries), columns=list(TABLE_COLUMNS))


def compare(
    federation: Federation | str, methods: Iterable[str], seeds: Iterable[int] = range(3), **keys: Any
) -> Comparison:
    """Train methods x seeds and put them side by side.

    >>> compare("fl60", ["separate", "fedavg"], seeds=[0], rounds=2).table()[["method", "seeds"]]
         method  seeds
    0  separate      1
    1    fedavg      1
    """
    names, seeds = list(methods), list(seeds)
    return Comparison([train(federation, name, seed=seed, **keys).summary for name in names for seed in seeds])
