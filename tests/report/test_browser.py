"""The page in a real browser: every tab is opened, nothing complains, nothing is asked of any network."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from panacea.report.page import write_page
from panacea.report.page.reading import read_runs
from tests.report.browser import Browser
from tests.report.conftest import NASTY

TABS = [
    "overview", "convergence", "clients", "graph", "embeddings", "collaboration", "novel", "robustness",
    "communication", "fairness", "configuration", "tables",
]  # fmt: skip


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as made:
        yield made


@pytest.fixture(scope="module")
def page(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _page(runs, tmp_path_factory.mktemp("page") / "report.html")


def _page(folder: Path, out: Path) -> Path:
    found, notes = read_runs([folder])
    assert write_page(found, out, notes) < 8_000_000
    return out


def _tabs(browser: Browser) -> list[str]:
    return list(browser.run("return [...document.querySelectorAll('[role=tab]')].map((tab) => tab.id.slice(4))"))


def _quiet(browser: Browser) -> None:
    assert browser.errors() == []
    assert browser.asked_for() == []


def _drawn(browser: Browser, tab: str) -> None:
    """A tab is shown alone, fits into the window, and each of its figures has something in it."""
    browser.wait(f"!document.getElementById('panel-{tab}').hidden")
    assert browser.run("return [...document.querySelectorAll('[role=tabpanel]')].filter((p) => !p.hidden).length") == 1
    assert browser.run("return document.documentElement.scrollWidth") <= 1280
    places = f"[...document.querySelectorAll('#panel-{tab} .plot')]"
    browser.wait(f"{places}.every((place) => place.querySelector('.main-svg'))")
    assert browser.run(f"return {places}.every((place) => place.data.some((trace) => (trace.y || trace.z).length))")
    assert len(browser.run(f"return document.getElementById('panel-{tab}').innerText")) > 50


def test_every_tab_opens(page: Path, browser: Browser) -> None:
    fastest = min(browser.open(page) for _ in range(3))
    assert fastest < 3000, f"{fastest} ms"
    assert browser.errors() == []
    assert set(browser.asked_for()) <= {page.resolve().as_uri()}
    assert _tabs(browser) == TABS
    for tab in TABS:
        browser.click(f"#tab-{tab}")
        _drawn(browser, tab)
        assert browser.run("return location.hash") == f"#{tab}"
        _quiet(browser)
    clouds = "return [...document.querySelectorAll('.modebar-btn')].filter((b) => /cloud|share/i.test(b.dataset.title))"
    assert browser.run(clouds + ".length") == 0


def test_what_is_chosen_is_drawn(page: Path, browser: Browser) -> None:
    browser.open(page, "#convergence")
    _drawn(browser, "convergence")
    axis = "document.querySelector('#panel-convergence .plot').layout.xaxis.title.text"
    assert browser.run(f"return {axis}") == "round"
    buttons = "#panel-convergence .controls label:nth-of-type({}) button:nth-of-type({})"
    browser.click(buttons.format(2, 2))
    assert browser.run(f"return {axis}") == "MiB sent, down and up"
    browser.click(buttons.format(1, 2))  # validation instead of test
    browser.click("#tab-embeddings")
    _drawn(browser, "embeddings")
    first = browser.run("return document.querySelector('#panel-embeddings .plot').data[0].x")
    browser.press("#panel-embeddings input[type=range]", "\ue012\ue012")  # two rounds back with the arrow keys
    assert browser.run("return document.querySelector('#panel-embeddings output').textContent") == "round 2"
    assert browser.run("return document.querySelector('#panel-embeddings .plot').data[0].x") != first
    browser.click("#tab-communication")
    browser.run(
        "const field = document.querySelector('#panel-communication input'); field.value = '1000';"
        "field.dispatchEvent(new Event('input'))"
    )
    assert "not reached" in browser.run("return document.getElementById('panel-communication').innerText")
    _quiet_but_for_the_page(browser)


def _quiet_but_for_the_page(browser: Browser) -> None:
    assert browser.errors() == []
    assert all(address.startswith("file:") for address in browser.asked_for())


def test_tabs_are_worked_by_keyboard(page: Path, browser: Browser) -> None:
    browser.open(page)
    browser.press("#tab-overview", "\ue014")  # right
    assert browser.run("return document.activeElement.id") == "tab-convergence"
    browser.press("#tab-convergence", "\ue012\ue012")  # left, left: round to the last
    assert browser.run("return document.activeElement.id") == f"tab-{TABS[-1]}"
    browser.press(f"#tab-{TABS[-1]}", "\ue011")  # home
    assert browser.run("return document.querySelector('[aria-selected=true]').id") == "tab-overview"
    _quiet_but_for_the_page(browser)


def test_the_dark_page_draws_too(page: Path, browser: Browser) -> None:
    browser.open(page, "#clients")
    browser.click("#tools button")
    assert browser.run("return document.documentElement.dataset.theme") == "dark"
    _drawn(browser, "clients")
    _quiet_but_for_the_page(browser)


def test_325_clients_on_a_map_and_names_that_are_scripts(many: Path, tmp_path: Path, browser: Browser) -> None:
    page = _page(many, tmp_path / "report.html")
    assert min(browser.open(page) for _ in range(2)) < 3000
    names = browser.run("return report.suites[0].clients[0].names.slice(0, 4)")
    assert names == list(NASTY)  # every letter arrived
    for tab in _tabs(browser):
        browser.click(f"#tab-{tab}")
        _drawn(browser, tab)
    browser.click("#tab-graph")
    nodes = browser.run("return document.querySelectorAll('#panel-graph .plot .points path.point').length")
    assert nodes == 325
    assert "on the map" in browser.run("return document.getElementById('panel-graph').innerText")
    traces = browser.run("return document.querySelector('#panel-graph .plot').data.length")
    assert traces == 2  # all links are one, so that the browser stays quick
    for name in NASTY:  # find it, see its row, and point at it
        browser.run(
            "const field = document.querySelector('#panel-graph input[type=text]'); field.value = arguments[0];"
            "field.dispatchEvent(new Event('input'))",
            name[:20],
        )
        assert browser.run("return document.querySelector('#panel-graph [aria-live] h2').textContent") == name
    point = (
        "Plotly.Fx.hover(document.querySelector('#panel-graph .plot'), [{curveNumber: 1, pointNumber: arguments[0]}])"
    )
    foreign = "document.querySelectorAll('.hoverlayer a, .hoverlayer img, main script, main img')"
    for client in range(len(NASTY)):
        browser.run(point, client)
        beginning = json.dumps(NASTY[client][:12])  # shown as it is written, not as markup
        browser.wait(f"document.querySelector('#panel-graph .hoverlayer').textContent.includes({beginning})", 5)
        assert browser.run(f"return {foreign}.length") == 0
    assert browser.run("return window.hacked === undefined")
    _quiet_but_for_the_page(browser)


def test_a_run_alone_has_the_tabs_it_has_data_for(tmp_path: Path, runs: Path, browser: Browser) -> None:
    alone = next(path for path in sorted(runs.iterdir()) if path.name.startswith("fl60-fedavg-s1"))
    browser.open(_page(alone, tmp_path / "report.html"), "#robustness")  # a tab that is not there: the first is shown
    _drawn(browser, "overview")
    assert _tabs(browser) == [tab for tab in TABS if tab not in ("embeddings", "collaboration", "robustness")]
    _quiet_but_for_the_page(browser)
