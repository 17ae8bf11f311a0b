"""Who is chosen, who is stopped, what is run again: on pretended runs whose curves are known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from panacea.errors import RequestError
from panacea.experiment.config import ExperimentConfig
from panacea.experiment.interrupt import Interrupted
from panacea.experiment.search.study import Found, run_search
from panacea.experiment.search.tables import records
from tests.experiment.search.pretended import Pretended, request


def _lr(config: ExperimentConfig, round: int = 0) -> float:
    assert config.lr is not None
    return config.lr


def _table(found: Found) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != "seconds"} for row in records(found)]


def test_the_choice_is_made_on_validation_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Pretended(_lr, test=lambda config: -_lr(config)).install(monkeypatch)  # the better on validation, the worse on test
    found = run_search(request(tmp_path, space__lr=[3, 9, 5], stop="none"))
    best = found.best()
    assert best is not None
    assert best.setting == {"lr": 9}
    rows = records(found)
    assert [row["test_mean"] for row in rows] == [None, -9, None]  # nothing else of the test data is shown
    assert [row["chosen"] for row in rows] == [0, 1, 0]
    assert [row["rounds"] for row in rows] == [40, 40, 40]


def test_a_settings_score_is_the_mean_over_seeds_of_the_best_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed 0 of lr 1 shines at round 10 only; lr 2 is better on the mean."""
    values = {(1, 0): 90.0, (1, 1): 10.0, (2, 0): 60.0, (2, 1): 60.0}

    def value(config: ExperimentConfig, round: int) -> float:
        return values[int(_lr(config)), config.seed] - abs(round - 10)

    Pretended(value).install(monkeypatch)
    found = run_search(request(tmp_path, space__lr=[1, 2], seeds=[0, 1], stop="none"))
    assert [trial.score for trial in found.trials] == [50, 60]
    assert found.trials[0].spread == pytest.approx(80 / 2**0.5)
    assert found.best() is found.trials[1]


def test_equal_scores_are_decided_by_loss_and_then_by_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Pretended(lambda config, round: 7.0).install(monkeypatch)
    assert run_search(request(tmp_path / "a", space__lr=[3, 1, 2], stop="none")).best().setting == {"lr": 3}  # type: ignore[union-attr]
    Pretended(lambda config, round: 7.0, loss=_lr).install(monkeypatch)
    assert run_search(request(tmp_path / "b", space__lr=[3, 1, 2], stop="none")).best().setting == {"lr": 1}  # type: ignore[union-attr]


def test_halving_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight settings, rungs at 10 and 20 of 40 rounds: four go on, then two; the late winner is lost, as documented."""

    def value(config: ExperimentConfig, round: int) -> float:
        late = _lr(config) == 1 and round > 30
        return 100.0 if late else _lr(config)

    pretended = Pretended(value).install(monkeypatch)
    found = run_search(request(tmp_path, space__lr=[1, 2, 3, 4, 5, 6, 7, 8]))
    assert found.rungs == (10, 20)
    assert [trial.state for trial in found.trials] == ["stopped"] * 6 + ["finished"] * 2
    assert [trial.rounds for trial in found.trials] == [10, 10, 10, 10, 20, 20, 40, 40]
    assert found.best() is found.trials[7]
    assert sum(map(len, pretended.trained.values())) * 5 == 4 * 10 + 2 * 20 + 2 * 40  # half of 8 * 40
    assert all(rounds == sorted(set(rounds)) for rounds in pretended.trained.values())  # went on, not begun anew
    assert pretended.trained["fedavg", 8, 0] == [5, 10, 15, 20, 25, 30, 35, 40]


def test_what_a_run_did_after_the_rung_does_not_count_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that an earlier search took to the end are read, but judged by what they were at the rung."""

    def value(config: ExperimentConfig, round: int) -> float:
        return 100.0 if _lr(config) == 1 and round > 30 else _lr(config)

    Pretended(value).install(monkeypatch)
    fresh = _table(run_search(request(tmp_path / "fresh", space__lr=[1, 2, 3, 4])))
    run_search(request(tmp_path / "shared", space__lr=[1, 2, 3, 4], stop="none"))
    again = Pretended(value).install(monkeypatch)
    assert _table(run_search(request(tmp_path / "shared", space__lr=[1, 2, 3, 4]))) == fresh
    assert again.trained == {}


def test_methods_are_compared_with_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def value(config: ExperimentConfig, round: int) -> float:
        return _lr(config) + (50 if config.method.name == "ditto" else 0)

    Pretended(value).install(monkeypatch)
    found = run_search(request(tmp_path, space__lr=[1, 2], method=["fedavg", "ditto"]))
    assert [(trial.method, trial.state) for trial in found.trials] == [
        ("fedavg", "stopped"), ("fedavg", "finished"), ("ditto", "stopped"), ("ditto", "finished"),
    ]  # fmt: skip
    assert found.best("fedavg") is found.trials[1]
    assert found.best() is found.trials[3]


def test_what_diverges_is_out_and_the_rest_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def value(config: ExperimentConfig, round: int) -> float | None:
        return None if _lr(config) == 9 and round > 5 and config.seed == 1 else _lr(config)

    pretended = Pretended(value).install(monkeypatch)
    asked = request(tmp_path, space__lr=[9, 2, 1], seeds=[0, 1])
    found = run_search(asked)
    assert [trial.state for trial in found.trials] == ["diverged", "finished", "stopped"]
    assert found.trials[0].score is None
    assert "diverged in round 10" in (found.trials[0].error or "")
    before = _table(found)
    pretended.trained.clear()
    assert _table(run_search(asked)) == before
    assert pretended.trained == {}  # not even the one that diverged was tried again


def test_errors_go_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from panacea.data.task import Task

    monkeypatch.setattr(Task, "higher_is_better", False)
    Pretended(_lr).install(monkeypatch)
    found = run_search(request(tmp_path, space__lr=[4, 1, 2, 3]))
    assert [trial.state for trial in found.trials] == ["stopped", "finished", "stopped", "stopped"]


def test_a_failure_of_the_machine_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = request(tmp_path, space__lr=[1, 2], stop="none")
    Pretended(_lr, fails=lambda config: config.lr == 2).install(monkeypatch)
    found = run_search(asked)
    assert [trial.state for trial in found.trials] == ["finished", "failed"]
    assert found.best() is found.trials[0]
    again = Pretended(_lr).install(monkeypatch)
    assert run_search(asked).best().setting == {"lr": 2}  # type: ignore[union-attr]
    assert list(again.trained) == [("fedavg", 2, 0)]


SEARCHES: list[dict[str, Any]] = [
    {"space__lr": [1, 2, 3, 4, 5, 6], "seeds": [0, 1]},
    {"space__lr__log_uniform": [0.1, 10], "search": "random", "trials": 9},
    {"space__lr__log_uniform": [0.1, 10], "search": "optuna", "trials": 10, "batch": 3},
]


@pytest.mark.parametrize("keys", SEARCHES, ids=["grid", "random", "optuna"])
@pytest.mark.parametrize("most", [1, 7, 20, 33])
def test_a_stop_at_any_moment_changes_nothing(
    keys: dict[str, Any], most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def value(config: ExperimentConfig, round: int) -> float:
        return 10 - abs(_lr(config) - 4) + round / 100 + config.seed

    whole = Pretended(value).install(monkeypatch)
    expected = _table(run_search(request(tmp_path / "whole", **keys)))
    asked, total = request(tmp_path / "cut", **keys), dict[Any, list[int]]()
    cut = Pretended(value, most=most).install(monkeypatch)
    with pytest.raises(Interrupted):
        run_search(asked)
    notes = asked.folder / "runs.jsonl"
    if notes.exists():
        with notes.open("a") as file:
            file.write('{"run": "half a li')  # and a kill in the middle of a line
    rest = Pretended(value).install(monkeypatch)
    assert _table(run_search(asked)) == expected
    for part in (cut, rest):
        for key, rounds in part.trained.items():
            total.setdefault(key, []).extend(rounds)
    assert total == whole.trained  # nothing was left out, nothing done twice


def test_optuna_ranks_a_batch_among_all_that_came_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Pretended(_lr).install(monkeypatch)
    keys = {"space__lr__uniform": [1, 9], "search": "optuna", "trials": 9, "batch": 3}
    found = run_search(request(tmp_path, **keys))
    assert len(found.trials) == 9
    seen: list[float] = []
    for first in (0, 3, 6):
        batch = found.trials[first : first + 3]
        seen += [trial.setting["lr"] for trial in batch]
        allowed = sorted(seen, reverse=True)[: -(-len(seen) // 2)]
        assert [trial.rounds > 10 for trial in batch] == [trial.setting["lr"] in allowed for trial in batch]


def test_without_validation_data_there_is_nothing_to_choose_on(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"validation data.*data\.val"):
        run_search(request(tmp_path, space__lr=[1, 2], base__data__val=0))


def test_one_run_serves_equal_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Optuna may propose a setting again; it is not run again, and no two jobs share a directory."""
    pretended = Pretended(_lr).install(monkeypatch)
    found = run_search(request(tmp_path, space__lr=[1, 2], search="optuna", trials=8))
    assert len(found.trials) == 8
    assert len(pretended.trained) <= 2


def test_notes_that_are_no_notes_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = request(tmp_path, space__lr=[1, 2])
    asked.folder.mkdir(parents=True)
    (asked.folder / "runs.jsonl").write_text(json.dumps({"nothing": 1}) + "\n")
    with pytest.raises(RequestError, match=r"runs\.jsonl cannot be read; delete it"):
        run_search(asked)
