"""The same file gives the same trials; Optuna hears what became of its proposals and learns from it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from panacea.errors import RequestError
from panacea.experiment.search.searchers import Answer, Searcher, make_searcher
from panacea.experiment.search.space import Setting, Space, parse_space

LISTS = {"lr": [0.01, 0.03, 0.1], "clip": [0, 1]}
DRAWN = {"lr.log_uniform": [1e-4, 1], "local_steps.int": [1, 100], "graph": ["given", "empty"]}


def _space(flat: dict[str, Any]) -> Space:
    return parse_space(flat, ["fedavg"])["fedavg"]


def _make(search: str, flat: dict[str, Any], trials: int | None = None, seed: int = 0, higher: bool = True) -> Searcher:
    return make_searcher(search, _space(flat), trials=trials, seed=seed, batch=4, higher_is_better=higher)


def _play(searcher: Searcher, score: Any) -> list[Setting]:
    """All settings of a search in which each ends with the score of a function."""
    found: list[Setting] = []
    while settings := searcher.ask():
        found += settings
        searcher.tell([Answer(score(setting), 10, whole=True) for setting in settings])
    return found


def test_a_grid_is_one_batch_of_everything() -> None:
    searcher = _make("grid", LISTS)
    assert searcher.ask() == list(_space(LISTS).grid())
    assert searcher.ask() == []
    with pytest.raises(RequestError, match=r"trials=4: a grid runs all its settings, here 6; search=random"):
        _make("grid", LISTS, trials=4)


def test_random_settings_are_the_same_every_time_and_another_seed_gives_others() -> None:
    first = _make("random", DRAWN, 8).ask()
    assert first == _make("random", DRAWN, 8).ask()
    assert first == _make("random", DRAWN, 12).ask()[:8]  # a longer search begins with a shorter one
    assert first != _make("random", DRAWN, 8, seed=1).ask()


def test_random_settings_of_lists_never_repeat() -> None:
    settings = _make("random", LISTS, 5).ask()
    assert len({repr(setting) for setting in settings}) == 5
    everything = _make("random", LISTS, 50).ask()  # there are six
    assert sorted(map(repr, everything)) == sorted(map(repr, _space(LISTS).grid()))


@pytest.mark.parametrize("search", ["random", "optuna"])
def test_a_search_without_an_end_needs_trials(search: str) -> None:
    with pytest.raises(RequestError, match="trials is missing"):
        _make(search, DRAWN)


def test_an_unknown_search_is_named() -> None:
    with pytest.raises(RequestError, match="did you mean 'random'"):
        _make("rondom", DRAWN, 3)


def _closeness(setting: Setting) -> float:
    return -abs(math.log10(setting["lr"]) + 2) - (setting["graph"] == "empty")


def test_optuna_gives_the_same_trials_for_the_same_answers() -> None:
    first = _play(_make("optuna", DRAWN, 14), _closeness)
    assert len(first) == 14
    assert first == _play(_make("optuna", DRAWN, 14), _closeness)
    assert first != _play(_make("optuna", DRAWN, 14, seed=1), _closeness)


@pytest.mark.parametrize("higher", [True, False])
def test_optuna_looks_where_it_was_good(higher: bool) -> None:
    def score(setting: Setting) -> float:
        return _closeness(setting) if higher else -_closeness(setting)

    found = _play(_make("optuna", DRAWN, 60, higher=higher), score)
    late, blind = found[30:], _make("random", DRAWN, 30).ask()
    assert sum(map(_closeness, late)) / 30 > sum(map(_closeness, blind)) / 30 + 0.3


def test_optuna_keeps_away_from_what_diverges_or_is_stopped() -> None:
    """Large lr diverges, small lr is stopped early although its score is the best: the middle is what is left."""

    def answer(setting: Setting) -> Answer:
        if setting["lr"] > 0.1:
            return Answer(None, 5, whole=False)
        return Answer(90.0, 10, whole=False) if setting["lr"] < 0.001 else Answer(80.0, 40, whole=True)

    searcher, found = _make("optuna", {"lr.log_uniform": [1e-5, 10]}, 60), []
    while settings := searcher.ask():
        found += settings
        searcher.tell([answer(setting) for setting in settings])
    good = [0.001 <= setting["lr"] <= 0.1 for setting in found]
    assert sum(good[30:]) > 18  # a third of the range, most of the later trials
