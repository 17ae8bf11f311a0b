"""The page put together: one file with the library that draws, the numbers, and a policy that lets nothing else in."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from panacea import __version__
from panacea.core.files import write_atomically
from panacea.errors import RequestError
from panacea.report.curves import COLOURS
from panacea.report.page.attacks import attack_table, attacks
from panacea.report.page.clients import ClientViews
from panacea.report.page.comparing import intervals, pairs_table
from panacea.report.page.curves import WHAT, curves
from panacea.report.page.overview import fairness_table, main_table, novel_table, overview
from panacea.report.page.packing import Budget, to_script
from panacea.report.page.reading import StoredRun
from panacea.report.page.series import Suite, group_runs, skewed
from panacea.report.page.settings import settings

__all__ = ["MOST_BYTES", "build_page", "page_content", "write_page"]

MOST_BYTES = 8_000_000  # of the page
_HEAVY = 2_000_000  # characters for matrices, maps and details
_SCRIPTS = (
    "base.js", "plots.js", "overview.js", "curves.js", "clients.js", "graph.js", "matrices.js", "attacks.js",
    "settings.js", "start.js",
)  # fmt: skip


def page_content(runs: Sequence[StoredRun], notes: Sequence[str] = ()) -> dict[str, Any]:
    """Everything the page knows, as plain values."""
    budget = Budget(_HEAVY)
    suites = [_suite(suite, budget) for suite in group_runs(runs)]
    said = list(notes)
    if budget.refused:
        said.append(
            f"{budget.refused} maps, matrices or details of clients were left out, so that the page stays small; "
            "a report of fewer runs has them"
        )
    return {"version": __version__, "suites": suites, "notes": said, "colours": COLOURS, "curves": WHAT}


def _suite(suite: Suite, budget: Budget) -> dict[str, Any]:
    known, views, attacked = intervals(suite), ClientViews(budget), attacks(suite)
    main, fair, novel, tests = main_table(suite, known), fairness_table(suite), novel_table(suite), pairs_table(suite)
    under = attack_table(suite, attacked.get("curves", []))
    tables = {"main": main, "tests": tests, "fairness": fair, "novel": novel, "attacks": under}
    return {
        "title": suite.title, "metric": suite.metric, "axis": suite.axis, "higher": suite.higher_is_better,
        "skewed": skewed(suite), "whose": "honest clients" if suite.attacked else "clients",
        "series": [
            {"label": one.label, "method": one.method, "seeds": [run.seed for run in one.runs]} for one in suite.series
        ],
        "overview": overview(suite), "curves": curves(suite), "runs": views.runs(suite),
        "tables": {name: table.payload() for name, table in tables.items() if table is not None},
        "clients": views.tables, "graphs": views.graphs, "attacks": attacked, "settings": settings(suite),
    }  # fmt: skip


def _asset(name: str) -> str:
    return resources.files("panacea.report.page").joinpath("assets", name).read_text(encoding="utf-8")


def _library() -> str:
    """The text of plotly.js, as the installed package carries it."""
    try:
        from plotly.offline import get_plotlyjs  # noqa: PLC0415
    except ImportError as error:
        raise RequestError("the page needs the package plotly: pip install plotly") from error
    return str(get_plotlyjs())


def _script(text: str, attributes: str = "") -> tuple[str, str]:
    """A script element, and the word of the policy that lets it run."""
    safe = text.replace("</script", "<\\/script")
    digest = base64.b64encode(hashlib.sha256(safe.encode()).digest()).decode()
    return f"<script{attributes}>{safe}</script>", f"'sha256-{digest}'"


def build_page(runs: Sequence[StoredRun], notes: Sequence[str] = ()) -> str:
    r"""The page as text.

    Names of clients and the like come from others. They are only ever text here: inside a JSON element whose ``<`` is
    written as ``\u003c``, and on the page through `textContent`. As a second wall the page's policy runs no script but
    our own, known by their digests, and loads nothing from anywhere.
    """
    content = page_content(runs, notes)
    library, first = _script(_library(), ' type="text/plain" id="library"')  # run by our own script, when it is time
    own, second = _script("\n".join(_asset(name) for name in _SCRIPTS))
    policy = f"default-src 'none'; script-src {first} {second}; style-src 'unsafe-inline'; img-src data: blob:"
    policy += "; form-action 'none'; base-uri 'none'"
    titles = " · ".join(suite["title"] for suite in content["suites"])
    parts = {
        "POLICY": html.escape(policy, quote=True),
        "TITLE": html.escape(f"{titles} · panacea"),
        "STYLE": _asset("style.css"),
        "DATA": f'<script type="application/json" id="data">{to_script(content)}</script>',
        "LIBRARY": library,
        "OWN": own,
    }
    pieces = _asset("page.html").split("%%")  # text, name, text, name, ... so that what is put in is not looked at
    return "".join(parts[piece] if place % 2 else piece for place, piece in enumerate(pieces))


def write_page(runs: Sequence[StoredRun], out: Path, notes: Sequence[str] = ()) -> int:
    """Write the page; returns its size in bytes.

    Raises:
        RequestError: the file cannot be written, or the page would be too large.
    """
    data = build_page(runs, notes).encode()
    if len(data) > MOST_BYTES:
        raise RequestError(
            f"a page of {len(runs)} runs would have {len(data) / 1e6:.1f} MB (at most {MOST_BYTES / 1e6:.0f}); "
            "name fewer runs"
        )
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, data)
    except OSError as error:
        raise RequestError(f"--out {out}: cannot be written ({error.strerror or error})") from None
    return len(data)
