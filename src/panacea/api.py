"""The Python API: `train` and `compare` on a federation, `open_run` on a directory, and what they return."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from panacea.core.files import read_lines
from panacea.data.federation import Federation
from panacea.experiment.batch import Given
from panacea.experiment.comparison import run_comparison
from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment
from panacea.experiment.exporting import choose_format, write_model
from panacea.experiment.model_card import client_subject
from panacea.experiment.modules import client_module, find_client, join
from panacea.experiment.opening import open_experiment
from panacea.experiment.planning import plan_comparison
from panacea.experiment.results import client_columns, client_table
from panacea.experiment.rundir import RunDirectory
from panacea.experiment.runner import Callback, run_experiment
from panacea.experiment.tracking import require_packages, trackers_of
from panacea.report.comparison import write_comparison
from panacea.report.frames import Comparison
from panacea.report.run_page import ReportWriter

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Comparison", "Run", "compare", "open_run", "train"]


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

    def model(self, client: int | str) -> nn.Module:
        """An ordinary `torch.nn.Module` with a client's weights after the last round, in evaluation mode."""
        return client_module(self._experiment, find_client(self._experiment.federation, client))

    def join(
        self,
        neighbors: Sequence[int | str] | int = (),
        *,
        weights: Sequence[float] | None = None,
        features: Sequence[float] | None = None,
        untrained: bool = False,
    ) -> nn.Module:
        """A network for a client that was never seen, from its links to others: no training, no data of its own.

        Args:
            neighbors: clients it is related to, by number or name; one need not be in a list.
            weights: of these links, all 1 by default.
            features: side information on the newcomer, for methods that use it.
            untrained: accept a method whose newcomers train on data of their own.

        >>> train("fl60", rounds=1, local_steps=1).join().fc.out_features
        2
        """
        joined = join(self._experiment, neighbors, weights, features, untrained=untrained)
        for note in joined.notes:
            warnings.warn(note, stacklevel=2)
        return joined.module

    def export(self, client: int | str, path: str | Path, format: str | None = None) -> Path:
        """Write a client's network to a file, and a card `<path>.md` beside it.

        Args:
            client: number or name.
            path: the file.
            format: ``safetensors``, ``torch`` (a state dict) or ``onnx``; by default what the file's name says.
        """
        path, experiment = Path(path), self._experiment
        chosen = choose_format(format, path)
        number = find_client(experiment.federation, client)
        module = client_module(experiment, number)
        return write_model(experiment, module, client_subject(experiment, number), path, chosen).path


def open_run(path: str | Path) -> Run:
    """A run back from its directory, at its newest checkpoint.

    The summary of an unfinished run only says what it is, and a warning says that it is unfinished.

    Raises:
        RequestError: there is no run or no checkpoint, or its data or network came from Python and is not in it.
    """
    opened = open_experiment(Path(path))
    for note in opened.notes:
        warnings.warn(note, stacklevel=2)
    experiment, directory = opened.experiment, opened.directory
    if directory.finished:
        summary = directory.read_summary()
    else:
        config = experiment.config
        summary = {"method": experiment.method.name, "data": config.data.name, "seed": config.seed, "mean": None}
        summary["partial"] = experiment.federation.partial
        summary |= {"rounds": experiment.state.round, "metric": experiment.federation.task.metric}
    return Run(experiment, summary, read_lines(directory.metrics, experiment.state.round), directory.path)


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
    config = build_config(flat)
    require_packages(config.track)
    experiment = Experiment(config, own, None if isinstance(model, str) else model)
    directory = None if out is None else RunDirectory.of(experiment.config, experiment.method.name)
    metrics = _Metrics()
    pages = [] if directory is None else [ReportWriter()]
    summary = run_experiment(experiment, directory, [metrics, *pages, *trackers_of(experiment.config), *callbacks])
    if directory is None:
        return Run(experiment, summary, metrics.lines, None)
    lines = read_lines(directory.metrics, experiment.state.round)  # those before a resume, too
    return Run(experiment, summary, lines, directory.path)


def compare(
    federation: Federation | str,
    methods: Iterable[str | Mapping[str, Any]],
    seeds: Iterable[int] = range(3),
    *,
    parameters: Mapping[str, object] | None = None,
    model: str | nn.Module = "auto",
    workers: int = 1,
    target: float | None = None,
    out: str | Path | None = None,
    **keys: Any,
) -> Comparison:
    """Train methods x seeds and put them side by side.

    Args:
        federation: the clients, or the name of a data set.
        methods: registered names, ``module:Class``, files of settings, or ``{"name": "ditto", "lam": 0.1}``.
        seeds: of the runs.
        parameters: hyper-parameters for all methods.
        model: as in `train`.
        workers: processes. More than one needs ``if __name__ == "__main__":`` in a script, and methods that can be
            imported, not ones defined in it.
        target: the validation metric whose price in bytes is asked for.
        out: folder for run directories and tables; runs found there are not repeated. Nothing is kept by default.
        keys: any key of `panacea run`; one given several values is varied, as in ``lr=[0.1, 0.2]``; dotted ones as
            ``**{"method.ditto.lam": 0.1}``.

    >>> found = compare("fl60", ["separate", "fedavg"], seeds=[0], rounds=2)
    >>> found.table()[["method", "seeds"]]
         method  seeds
    0  separate      1
    1    fedavg      1
    >>> found.tests()[["first", "second", "pairs"]]
          first  second  pairs
    0  separate  fedavg     48
    """
    given = Given(None if isinstance(federation, str) else federation, None if isinstance(model, str) else model)
    flat: dict[str, Any] = {
        "data": federation if isinstance(federation, str) else federation.name,
        "methods": list(methods),
        "seeds": list(seeds),
        **{f"method.{key}": value for key, value in (parameters or {}).items()},
        **({"model": model} if isinstance(model, str) else {}),
        **{key: value for key, value in keys.items() if value is not None},
    }
    if target is not None:
        flat["target"] = target
    with tempfile.TemporaryDirectory() if out is None else nullcontext(str(out)) as folder:
        plan = plan_comparison({**flat, "out": folder}, loaded=isinstance(federation, str))
        results = run_comparison(plan, workers=workers, pages=out is not None, given=given)
        if out is not None:
            write_comparison(results, plan.folder)
    return Comparison(results, None if out is None else plan.folder)
