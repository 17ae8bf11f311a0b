"""Carry out a search: run what its searchers propose, stop what is hopeless, choose on validation data."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from panacea.engines.ray_session import kept_open
from panacea.errors import RequestError
from panacea.experiment.batch import STOPPED_EARLY, Job, Listener, run_batch
from panacea.experiment.experiment import Experiment
from panacea.experiment.search.record import Notes, NotingListener, Outcome, has_diverged, run_key
from panacea.experiment.search.request import SearchRequest
from panacea.experiment.search.searchers import Answer, make_searcher
from panacea.experiment.search.space import Setting
from panacea.experiment.search.stopping import Standing, ranked
from panacea.experiment.table import between

__all__ = ["Found", "State", "Trial", "run_search"]

State = Literal["finished", "stopped", "diverged", "failed"]


@dataclass
class Trial:
    """One setting of one method, on all seeds.

    Attributes:
        number: from 0, in the order of the proposals.
        method: what is trained.
        setting: values of the varied keys.
        outcomes: a run for each seed, as far as it came.
        state: whether it ran to the end, was stopped by the rule, diverged, or failed for another reason.
    """

    number: int
    method: str
    setting: Setting
    outcomes: list[Outcome] = field(default_factory=list)
    state: State = "finished"

    @property
    def score(self) -> float | None:
        """Mean over seeds of the best validation metric; None where a seed has none."""
        known = [outcome.score for outcome in self.outcomes if outcome.score is not None and outcome.error is None]
        return statistics.fmean(known) if known and len(known) == len(self.outcomes) else None

    @property
    def standing(self) -> Standing | None:
        """What it is ranked by: score, and mean over seeds of the validation loss at the same rounds."""
        score = self.score
        return None if score is None else (score, statistics.fmean(outcome.loss for outcome in self.outcomes))

    @property
    def spread(self) -> float | None:
        """Standard deviation over seeds of the best validation metric."""
        return between(outcome.score for outcome in self.outcomes) if self.score is not None else None

    @property
    def rounds(self) -> int:
        """How far it ran, at most the round at which it was stopped."""
        return max((outcome.rounds for outcome in self.outcomes), default=0)

    @property
    def seconds(self) -> float:
        """Training and evaluation, all seeds."""
        return sum(outcome.seconds for outcome in self.outcomes)

    @property
    def error(self) -> str | None:
        """Why it ended before its time, if so."""
        return next((outcome.error for outcome in self.outcomes if outcome.error is not None), None)

    def mean(self, key: str) -> float | None:
        """A number of the runs' summaries, averaged over seeds."""
        known = [outcome.summary.get(key) for outcome in self.outcomes if outcome.summary is not None]
        numbers = [value for value in known if value is not None]
        return statistics.fmean(numbers) if numbers and len(numbers) == len(self.outcomes) else None


@dataclass(frozen=True)
class Found:
    """The result of a search.

    Attributes:
        request: what was asked for.
        trials: all of them.
        metric: accuracy or mse.
        rounds: of a run that is not stopped (the first setting's, where they differ).
        rungs: rounds at which settings were stopped.
    """

    request: SearchRequest
    trials: tuple[Trial, ...]
    metric: str
    rounds: int
    rungs: tuple[int, ...]

    @property
    def higher_is_better(self) -> bool:
        """Direction of the metric."""
        return self.metric == "accuracy"

    def best(self, method: str | None = None) -> Trial | None:
        """The finished setting with the best validation score (then loss, then the first), of one method or of all."""
        able = [t for t in self.trials if t.state == "finished" and method in (None, t.method)]
        order = ranked([trial.standing for trial in able], self.higher_is_better)
        return able[order[0]] if order else None


def run_search(
    request: SearchRequest,
    *,
    workers: int | None = None,
    listener: Listener | None = None,
    cluster: str | None = None,
) -> Found:
    """Run a search to its end; what was done before is read, not repeated.

    All methods move in step: their proposals of a batch train together up to each rung, and are compared within their
    method only.

    Raises:
        Interrupted: Ctrl-C; the same request goes on later.
        RequestError: a request for a run is wrong, or there is nothing to choose on.
    """
    study = _Study(request, workers, listener, cluster)
    with kept_open():  # every batch of settings uses the same cluster
        return study.run()


class _Study:
    def __init__(
        self, request: SearchRequest, workers: int | None, listener: Listener | None, cluster: str | None
    ) -> None:
        self.request, self.workers, self.listener, self.cluster = request, workers, listener, cluster
        method, space = next(iter(request.spaces.items()))
        probe = Experiment(request.config(method, next(space.corners()), request.seeds[0]))
        if not probe.federation.counts("val")[probe.federation.train_ids].any():
            raise RequestError("a search chooses on validation data and there is none; data.val=0.1 sets some aside")
        self.metric, self.higher = probe.federation.task.metric, probe.federation.task.higher_is_better
        self.rounds = probe.config.rounds or 0
        self.rungs = request.stop.rungs(self.rounds, probe.config.eval_every) if request.stop is not None else ()
        self.searchers = {
            name: make_searcher(
                request.search, space, trials=request.trials, seed=request.search_seed, batch=request.batch,
                higher_is_better=self.higher,
            )
            for name, space in request.spaces.items()
        }  # fmt: skip
        self.notes = Notes(request.folder)
        self.trials: list[Trial] = []
        self.standings: dict[tuple[str, int], list[Standing | None]] = {}

    def run(self) -> Found:
        while begun := self._proposed():
            live = begun
            for rung in self.rungs:
                self._advance(live, rung)
                live = self._going_on(live, rung)
            self._advance(live, None)
            for method, searcher in self.searchers.items():
                mine = [trial for trial in begun if trial.method == method]
                searcher.tell([Answer(trial.score, trial.rounds, trial.state == "finished") for trial in mine])
        return Found(self.request, tuple(self.trials), self.metric, self.rounds, self.rungs)

    def _proposed(self) -> list[Trial]:
        """The next batch of every method."""
        first = len(self.trials)
        for method, searcher in self.searchers.items():
            for setting in searcher.ask():
                self.trials.append(Trial(len(self.trials), method, setting))
        return self.trials[first:]

    def _going_on(self, live: Sequence[Trial], rung: int) -> list[Trial]:
        """Those that the rule lets pass; the others are marked. Earlier batches count for the ranking."""
        assert self.request.stop is not None
        kept = []
        for method in self.request.spaces:
            mine = [trial for trial in live if trial.method == method]
            reached = self.standings.setdefault((method, rung), [])
            reached += [trial.standing for trial in mine]
            decided = self.request.stop.going_on(reached, self.higher)[len(reached) - len(mine) :]
            for trial, passes in zip(mine, decided, strict=True):
                if passes:
                    kept.append(trial)
                elif trial.error is None:  # else it is marked as diverged or failed already
                    trial.state = "stopped"
        return kept

    def _advance(self, live: Sequence[Trial], until: int | None) -> None:
        """Train all runs of some trials up to a round (None: to the end) and read how they stand."""
        wanted: dict[str, Job] = {}
        for trial in live:
            for seed in self.request.seeds:
                config = self.request.config(trial.method, trial.setting, seed)
                key = run_key(config)
                if self.notes.find(key, until, self.higher) is None:
                    wanted.setdefault(key, Job(config, label_of(trial.method, trial.setting, seed)))
        failures = self._train(wanted, until)
        for trial in live:
            keys = [run_key(self.request.config(trial.method, trial.setting, seed)) for seed in self.request.seeds]
            trial.outcomes = [
                failures.get(key) or self.notes.find(key, until, self.higher) or Outcome(error="its files are gone")
                for key in keys
            ]
            if trial.error is not None:
                trial.state = "diverged" if has_diverged(trial.error) else "failed"

    def _train(self, wanted: dict[str, Job], until: int | None) -> dict[str, Outcome]:
        """Run the jobs; returns those that failed for a reason that another attempt may not meet."""
        if not wanted:
            return {}
        keys = list(wanted)

        def enough(number: int, line: Mapping[str, Any]) -> bool:
            return until is not None and line["round"] >= until

        noting = NotingListener(self.notes, keys, self.listener)
        done = run_batch(
            list(wanted.values()), workers=self.workers, listener=noting, stop=enough, pages=False,
            cluster=self.cluster,
        )  # fmt: skip
        failures = {}
        for key, finished in zip(keys, done, strict=True):
            if finished.error is not None and finished.error != STOPPED_EARLY and not has_diverged(finished.error):
                failures[key] = Outcome(error=finished.error, directory=finished.directory)
        return failures


def label_of(method: str, setting: Setting, seed: int) -> str:
    """What progress calls a run."""
    return " ".join([method, *(f"{key}={value}" for key, value in setting.items()), f"seed {seed}"])
