from __future__ import annotations

import numpy as np
import pytest

from panacea.engines.base import Scores
from panacea.evaluation.evaluate import Evaluation
from panacea.evaluation.metrics import mean, spread, worst_decile
from panacea.experiment.history import History

EVERYBODY = np.ones(2, np.bool_)


def _evaluation(test: float, val: float, val_loss: float = 1.0, novel: float = 0.0) -> Evaluation:
    def scores(value: float, loss: float = 1.0) -> Scores:
        return Scores(np.array([value - 1, value + 1]), np.array([loss, loss]))

    return Evaluation(scores(test), scores(val, val_loss), scores(novel))


def test_the_round_is_chosen_on_validation_and_never_on_test() -> None:
    history = History(higher_is_better=True, honest=EVERYBODY)
    for round, (test, val) in enumerate([(50, 60), (90, 55), (40, 70), (80, 65)], start=1):
        history.add(round, _evaluation(test, val))
    assert history.numbers["selected_round"] == 3
    assert history.selected is not None
    assert mean(history.selected.test.metric) == 40
    assert (history.numbers["best_round"], history.numbers["best_mean"]) == (2, 90)
    assert history.last is not None
    assert mean(history.last.test.metric) == 80


def test_ties_go_to_the_lower_validation_loss_then_to_the_earlier_round() -> None:
    history = History(higher_is_better=True, honest=EVERYBODY)
    for round, loss in enumerate([0.5, 0.3, 0.3, 0.4], start=1):
        history.add(round, _evaluation(1, 100, loss))
    assert history.numbers["selected_round"] == 2


def test_errors_are_minimised() -> None:
    history = History(higher_is_better=False, honest=EVERYBODY)
    for round, val in enumerate([3.0, 1.5, 2.0], start=1):
        history.add(round, _evaluation(val, val))
    assert history.numbers["selected_round"] == history.numbers["best_round"] == 2


def test_without_validation_samples_the_last_round_counts() -> None:
    history = History(higher_is_better=True, honest=EVERYBODY)
    for round, test in enumerate([80, 60], start=1):
        history.add(round, _evaluation(test, np.nan, np.nan))
    assert history.numbers["selected_round"] == 2


def test_restoring_gives_the_same_object() -> None:
    a = History(higher_is_better=True, honest=EVERYBODY)
    a.add(1, _evaluation(50, 60))
    b = History(higher_is_better=True, honest=EVERYBODY)
    b.restore(a.to_tensors(), a.numbers)
    b.add(2, _evaluation(70, 50))
    assert b.selected is not None
    assert mean(b.selected.test.metric) == 50
    assert b.numbers["best_round"] == 2


@pytest.mark.parametrize(("count", "expected"), [(1, 0.0), (10, 0.0), (11, 0.5), (20, 0.5), (21, 1.0)])
def test_worst_decile(count: int, expected: float) -> None:
    values = np.arange(float(count))
    assert worst_decile(values, higher_is_better=True) == expected
    assert worst_decile(-values, higher_is_better=False) == -expected


def test_clients_without_samples_do_not_count() -> None:
    values = np.array([1.0, np.nan, 3.0])
    assert (mean(values), spread(values), worst_decile(values, True)) == (2.0, 1.0, 1.0)
    assert np.isnan(mean(np.array([np.nan])))
    assert np.isnan(mean(np.zeros(0)))


def test_attackers_do_not_count() -> None:
    history = History(higher_is_better=True, honest=np.array([True, False]))
    assert history.add(1, _evaluation(50, 60))["mean"] == 49
    assert history.numbers["selected_val"] == 59


def _answers(val: tuple[float, float, float], test: float = 50.0) -> Evaluation:
    scores = Scores(np.array(val), np.where(np.isnan(val), np.nan, 1.0))
    return Evaluation(Scores(scores.metric + test, scores.loss), scores, Scores(np.zeros(0), np.zeros(0)), answered=3)


ABSENT = np.nan


def test_rounds_are_compared_on_clients_that_answered_in_both() -> None:
    history = History(higher_is_better=True, honest=np.ones(3, np.bool_))
    history.add(1, _answers((50, 60, 10)))
    history.add(2, _answers((40, 50, ABSENT)))  # a higher mean, only since the worst is absent
    assert history.numbers["selected_round"] == 1
    history.add(3, _answers((51, 61, ABSENT)))
    assert history.numbers["selected_round"] == 3


def test_a_round_that_few_or_none_answered_is_not_chosen() -> None:
    history = History(higher_is_better=True, honest=np.ones(3, np.bool_))
    history.add(1, _answers((50, 60, 70)))
    history.add(2, _answers((99, ABSENT, ABSENT)))
    line = history.add(3, _answers((ABSENT, ABSENT, ABSENT)))
    assert history.numbers["selected_round"] == 1
    assert line["answered"] == 3
