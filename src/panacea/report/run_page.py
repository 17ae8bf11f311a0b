"""`report.html` of one run: a self-contained page with numbers, figures, clients and configuration."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from typing import Any

from panacea.core.files import write_atomically
from panacea.experiment.experiment import Experiment
from panacea.experiment.results import client_columns, client_table
from panacea.experiment.rundir import RunDirectory
from panacea.experiment.runner import Callback
from panacea.experiment.table import attack_title, data_title
from panacea.report.html_table import html_table
from panacea.report.robustness import attack_section, fairness_section

__all__ = ["ReportWriter", "write_run_report"]

_MOST_ROWS = 1000
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:62rem;padding:0 1rem;color:#1b2733}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}h3{font-size:1rem}
table{border-collapse:collapse;font-size:13px}
td,th{padding:.2rem .6rem;border-bottom:1px solid #dde3ea;text-align:right}
td:first-child,th:first-child{text-align:left}
.big{display:flex;gap:2.5rem;flex-wrap:wrap}.big div{font-size:1.6rem}
.big span{display:block;font-size:.8rem;color:#5f6b7a}
figure{margin:1rem 0}figure svg{max-width:100%;height:auto}figcaption{font-size:.85rem;color:#5f6b7a}
pre{background:#f4f6f8;padding:1rem;overflow:auto;font-size:12px}.wide{overflow:auto;max-height:32rem}
"""


class ReportWriter(Callback):
    """Writes the page and the figures when a run has come to its end."""

    def __init__(self, say: Callable[[str], None] | None = None) -> None:
        self.say = say
        self.directory: RunDirectory | None = None

    def on_start(self, experiment: Experiment, directory: RunDirectory | None) -> None:
        """Remember where."""
        self.directory = directory

    def on_end(self, experiment: Experiment, summary: dict[str, Any]) -> None:
        """Write, or say why not."""
        note = None if self.directory is None else write_run_report(experiment, self.directory, summary)
        if note and self.say is not None:
            self.say(f"note: {note}")


def write_run_report(experiment: Experiment, directory: RunDirectory, summary: dict[str, Any]) -> str | None:
    """Draw the figures and write the page; returns a note if that could not be done."""
    try:
        from panacea.report.figures import draw_run  # noqa: PLC0415

        captions = draw_run(experiment, directory)
    except ImportError as error:
        return f"no figures and no report.html: {error.name} is not installed"
    figures = "".join(
        f"<figure>{_inline(directory, stem)}<figcaption>{html.escape(caption)}</figcaption></figure>"
        for stem, caption in captions
    )
    title = f"{data_title(summary)}, {summary['method']}, seed {summary['seed']}{attack_title(summary)}"
    page = (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body><h1>{html.escape(title)}</h1>"
        f"{_headline(summary)}{figures}"
        f"{attack_section(experiment, directory, summary)}{fairness_section(summary)}"
        f"<h2>Clients</h2>{_clients(experiment)}"
        f"{_graph(directory)}"
        f"<h2>Summary</h2>{html_table(('key', 'value'), list(summary.items()))}"
        f"<h2>Configuration and environment</h2><pre>{html.escape(directory.config_file.read_text(encoding='utf-8'))}"
        "</pre></body></html>\n"
    )
    write_atomically(directory.report, page)
    if experiment.federation.graph is not None and "graph" not in dict(captions):
        return f"no picture of the graph: {len(experiment.federation):,} clients are too many to draw"
    return None


def _clients(experiment: Experiment) -> str:
    rows = client_table(experiment)
    more = (
        f"<p>The first {_MOST_ROWS} of {len(rows)} clients; all are in clients.csv.</p>"
        if len(rows) > _MOST_ROWS
        else ""
    )
    return f"{more}<div class='wide'>{html_table(client_columns(experiment), rows[:_MOST_ROWS])}</div>"


def _graph(directory: RunDirectory) -> str:
    """The relation graph in numbers, if there is one."""
    if not directory.graph_summary.exists():
        return ""
    numbers = json.loads(directory.graph_summary.read_text(encoding="utf-8"))
    return f"<h2>Relation graph</h2>{html_table(('what', 'value'), list(numbers.items()))}"


def _inline(directory: RunDirectory, stem: str) -> str:
    """A figure's SVG inside the page, its identifiers made unique to the figure."""
    svg = (directory.figures / f"{stem}.svg").read_text(encoding="utf-8")
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'\bid="', f'id="{stem}-', svg)
    return re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{stem}-", svg)


def _headline(summary: dict[str, Any]) -> str:
    unit = " %" if summary["metric"] == "accuracy" else ""
    whose = " of honest clients" if summary.get("attackers") else ""
    cells = [
        (f"{summary['metric']}{whose} (round chosen on validation data)", summary["mean"], summary["std"]),
        ("last round", summary["final_mean"], summary["final_std"]),
        ("worst decile", summary["worst_decile"], None),
        ("novel clients", summary["novel_mean"], summary["novel_std"]),
    ]
    shown = []
    for name, value, spread in cells:
        if value is not None:
            around = "" if spread is None else f" ± {spread:.3g}"
            shown.append(f"<div>{value:.4g}{unit}{around}<span>{html.escape(name)}</span></div>")
    return f"<div class='big'>{''.join(shown)}</div>"
