"""The large numbers on top of the page."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from panacea.report.page.overview import headline
from panacea.report.page.reading import StoredRun
from panacea.report.page.series import Series, Suite


def _series(label: str, **numbers: Any) -> Series:
    summary = {"method": label, "clients": 4, "rounds": 2, **numbers}
    return Series(label, {}, (cast("StoredRun", SimpleNamespace(summary=summary, seed=0)),))


def _cards(metric: str, *series: Series) -> dict[str, tuple[str, str]]:
    return {card["name"]: (card["value"], card["note"]) for card in headline(Suite("fl60", metric, series))}


def test_every_number_is_of_the_method_that_is_best_there() -> None:
    some = (
        _series("a", mean=90.0, worst_decile=50.0, novel_mean=None),
        _series("b", mean=80.0, worst_decile=60.0, novel_mean=70.0),
        _series("c", mean=70.0, worst_decile=60.001, novel_mean=75.0),
    )
    high = _cards("accuracy", *some)
    assert high["best accuracy: a"] == ("90.00 %", "")
    assert high["worst decile"] == ("60.00 %", "c and 1 more")
    assert high["novel clients"] == ("75.00 %", "c")
    low = _cards("mse", *some)
    assert low["best mse: c"] == ("70.00", "")
    assert low["worst decile"] == ("50.00", "a")
    assert low["novel clients"] == ("70.00", "b")


def test_one_method_has_nothing_to_beat() -> None:
    cards = _cards("accuracy", _series("a", mean=90.0, worst_decile=50.0))
    assert cards["accuracy"] == ("90.00 %", "")
    assert cards["worst decile"] == ("50.00 %", "a")
    assert "novel clients" not in cards
