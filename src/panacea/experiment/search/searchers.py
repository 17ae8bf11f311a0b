"""Who proposes settings: a grid, chance, or Optuna's tree-structured Parzen estimator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from panacea.errors import RequestError, unknown
from panacea.experiment.search.space import Choice, Integer, Range, Setting, Space

if TYPE_CHECKING:
    import optuna

__all__ = ["SEARCHES", "Answer", "GridSearch", "OptunaSearch", "RandomSearch", "Searcher", "make_searcher"]

BATCH = 4
"""Settings that Optuna proposes before it hears of any of them; in the file, so that no machine changes the trials."""


@dataclass(frozen=True)
class Answer:
    """What became of a setting.

    Attributes:
        score: mean over seeds of the validation metric, as far as it ran; None if it diverged or failed.
        rounds: how far it ran.
        whole: whether it ran to the end.
    """

    score: float | None
    rounds: int
    whole: bool


class Searcher(ABC):
    """Proposes settings in batches; told how each did before it is asked for the next."""

    @abstractmethod
    def ask(self) -> list[Setting]:
        """The next settings; none when the search is over."""

    def tell(self, answers: Sequence[Answer]) -> None:
        """How the settings of the last `ask` did, in their order."""
        del answers  # most searches do not listen


class _Listed(Searcher):
    """All settings are known beforehand: one batch."""

    def __init__(self, settings: Sequence[Setting]) -> None:
        self.settings = list(settings)

    def ask(self) -> list[Setting]:
        """Everything, once."""
        settings, self.settings = self.settings, []
        return settings


class GridSearch(_Listed):
    """Every combination of the listed values."""

    def __init__(self, space: Space, trials: int | None) -> None:
        settings = list(space.grid())
        if trials is not None and trials != len(settings):
            raise RequestError(
                f"trials={trials}: a grid runs all its settings, here {len(settings)}; "
                "search=random takes as many of them as you say"
            )
        super().__init__(settings)


class RandomSearch(_Listed):
    """Settings drawn independently, none twice; of lists only, a random part of the grid.

    The draws of a method depend on the search seed and the space alone, so a longer search begins with the trials of a
    shorter one.
    """

    _PATIENCE = 1000  # draws in a row that repeat earlier ones before the space counts as exhausted

    def __init__(self, space: Space, trials: int | None, seed: int) -> None:
        numbers, found, repeats = np.random.default_rng(seed), dict[str, Setting](), 0
        wanted = _needed(trials, "random")
        wanted = wanted if space.size is None else min(wanted, space.size)
        while len(found) < wanted and repeats < self._PATIENCE * wanted:
            setting = space.draw(numbers)
            repeats = repeats + 1 if repr(setting) in found else 0
            found.setdefault(repr(setting), setting)
        super().__init__(list(found.values()))


class OptunaSearch(Searcher):
    """Optuna's TPE: models where good and bad settings lie, and proposes where good ones are likelier.

    Settings come in batches of `batch`; within one, TPE takes those still running for bad ones (its constant liar), so
    that they differ. A stopped setting counts by how far it came and then by its score, a diverged one as the worst.
    The study lives in memory: a search that was killed asks the same questions of the same seed again and hears the
    same answers from the finished runs, so it goes on exactly where it was, which a stored study (it keeps no state of
    its random numbers) could not.
    """

    def __init__(self, space: Space, trials: int | None, seed: int, batch: int, higher_is_better: bool) -> None:
        try:
            import optuna  # noqa: PLC0415
        except ImportError as error:
            raise RequestError("search=optuna needs Optuna: pip install 'panacea-fl[search]'") from error
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.space, self.left, self.batch = space, _needed(trials, "optuna"), batch
        startup = min(10, max(self.left // 3, 1))  # a short search learns from something too
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=startup, constant_liar=True)
        self.study = optuna.create_study(direction="maximize" if higher_is_better else "minimize", sampler=sampler)
        self.pruned = optuna.trial.TrialState.PRUNED
        self.asked: list[optuna.Trial] = []

    def ask(self) -> list[Setting]:
        """The next batch."""
        count = min(self.batch, self.left)
        self.left -= count
        self.asked = [self.study.ask() for _ in range(count)]
        return [self._setting(trial) for trial in self.asked]

    def _setting(self, trial: optuna.Trial) -> Setting:
        setting: dict[str, Any] = {}
        for key, dimension in self.space.dimensions.items():
            match dimension:
                case Choice():
                    place = trial.suggest_categorical(key, list(range(len(dimension.values))))
                    setting[key] = dimension.values[int(place)]
                case Integer():
                    setting[key] = trial.suggest_int(key, dimension.low, dimension.high)
                case Range():
                    drawn = trial.suggest_float(key, dimension.low, dimension.high, log=dimension.log)
                    setting[key] = dimension.rounded(drawn)
        return setting

    def tell(self, answers: Sequence[Answer]) -> None:
        """Finished, stopped and diverged settings, each in Optuna's terms."""
        for trial, answer in zip(self.asked, answers, strict=True):
            if answer.score is not None and answer.whole:
                self.study.tell(trial, answer.score)
                continue
            if answer.score is not None:
                trial.report(answer.score, answer.rounds)
            self.study.tell(trial, state=self.pruned)  # without any report: the worst there is


def _needed(trials: int | None, search: str) -> int:
    if trials is None:
        raise RequestError(f"trials is missing: search={search} needs to know how many settings to try, e.g. trials=20")
    return trials


SEARCHES = ("grid", "random", "optuna")


def make_searcher(
    search: str, space: Space, *, trials: int | None, seed: int, batch: int, higher_is_better: bool
) -> Searcher:
    """The search of that name.

    Raises:
        RequestError: there is none, it needs `trials`, or the space is not for it.
    """
    if search == "grid":
        return GridSearch(space, trials)
    if search == "random":
        return RandomSearch(space, trials, seed)
    if search == "optuna":
        return OptunaSearch(space, trials, seed, batch, higher_is_better)
    raise unknown("search", search, SEARCHES)
