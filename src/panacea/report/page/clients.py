"""Every client of every run, its relations, its place on maps, and matrices over clients."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

from panacea.graphs.client_graph import ClientGraph
from panacea.graphs.draw import DRAWN_UP_TO
from panacea.graphs.layout import force_layout
from panacea.report.page.packing import Budget, packed, plain
from panacea.report.page.reading import StoredRun
from panacea.report.page.series import Suite

__all__ = ["ClientViews"]

_FIXED = ("novel", "malicious", "n_train", "n_val", "n_test", "degree", "group", "hops")
_DETAILS = ("val_metric", "final_metric", "loss", "visits", "refused", "trust", "final_local", "asr")
_EDGES = 20_000  # drawn, at most
_MATRIX = 256  # clients of a matrix, at most


class ClientViews:
    """Collects what the page shows of single clients; tables and graphs that several runs share are kept once.

    Attributes:
        tables: columns that do not depend on the method.
        graphs: places and edges.
    """

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.tables: list[dict[str, Any]] = []
        self.graphs: list[dict[str, Any]] = []
        self._known: dict[str, int | None] = {}

    def runs(self, suite: Suite) -> list[dict[str, Any]]:
        """A record per run, series by series; the heavy parts of first seeds come first."""
        records = {run.path: self._record(suite, number, run) for number, run in _numbered(suite)}
        depth = max(len(one.runs) for one in suite.series)
        for add in (self._details, self._matrices, self._embeddings):
            for place in range(depth):
                for one in suite.series:
                    if place < len(one.runs):
                        run = one.runs[place]
                        records[run.path] |= add(run)
        return [records[run.path] for _, run in _numbered(suite)]

    def _record(self, suite: Suite, number: int, run: StoredRun) -> dict[str, Any]:
        return {
            "series": number, "seed": run.seed, "name": run.name, "metric": plain(run.columns["metric"]),
            "table": self._table(run), "graph": self._graph(run),
        }  # fmt: skip

    def _table(self, run: StoredRun) -> int | None:
        """Names and what a client has of its own."""
        columns = {key: run.columns[key] for key in _FIXED if key in run.columns}
        columns = {key: values for key, values in columns.items() if not np.isnan(values).all()}
        for quiet in ("malicious",):
            if quiet in columns and not columns[quiet].any():
                columns.pop(quiet)
        if "property" in run.views and str(run.views["property_name"]) not in ("group", "degree", "train samples"):
            columns[str(run.views["property_name"])] = run.views["property"].astype(float)
        content = {"names": run.names, "columns": {key: plain(values) for key, values in columns.items()}}
        return self._once("table", content, self.tables, free=True)

    def _once(self, kind: str, content: dict[str, Any], into: list[dict[str, Any]], *, free: bool) -> int | None:
        """The place of some content in a list, where it stands only once; None if there is no room."""
        key = kind + hashlib.sha256(repr(content).encode()).hexdigest()
        if key not in self._known:
            kept = content if free else self.budget.take(content)
            self._known[key] = None if kept is None else len(into)
            if kept is not None:
                into.append(kept)
        return self._known[key]

    def _graph(self, run: StoredRun) -> int | None:
        graph, positions = run.graph, run.views.get("positions")
        if graph is None or not 2 <= graph.n <= DRAWN_UP_TO or graph.n != len(run.names):
            return None
        digest = hashlib.sha256(graph.edges.tobytes() + (b"" if positions is None else positions.tobytes())).hexdigest()
        key = f"layout{graph.n}{digest}"
        if key not in self._known:
            self._known[key] = self._once("graph", _laid_out(graph, positions), self.graphs, free=False)
        return self._known[key]

    def _details(self, run: StoredRun) -> dict[str, Any]:
        columns = {key: plain(run.columns[key]) for key in _DETAILS if key in run.columns and _varies(run.columns[key])}
        kept = self.budget.take(columns)
        return {} if kept is None else {"details": kept}

    def _matrices(self, run: StoredRun) -> dict[str, Any]:
        found = {}
        mixed = run.collaboration
        if "weights" in mixed and len(mixed["weights"]) > 1:
            found["weights"] = self._matrix(run, mixed["clients"], mixed["weights"])
        if "similarity" in run.views:
            found["similarity"] = self._matrix(run, run.views["similarity_clients"], run.views["similarity"])
        return {key: value for key, value in found.items() if value is not None}

    def _matrix(self, run: StoredRun, ids: npt.NDArray[Any], values: npt.NDArray[Any]) -> dict[str, Any] | None:
        """Rows and columns in the order of the property that tells clients apart; the first 256 clients."""
        ids, values = ids[:_MATRIX], values[:_MATRIX, :_MATRIX].astype(np.float64)
        name = str(run.views.get("property_name", "number"))
        order = (
            np.argsort(run.views["property"][ids], kind="stable") if "property" in run.views else np.arange(len(ids))
        )
        content = {"clients": ids[order].tolist(), "order": name, **packed(values[np.ix_(order, order)], "u1")}
        return self.budget.take(content)  # type: ignore[no-any-return]

    def _embeddings(self, run: StoredRun) -> dict[str, Any]:
        views = run.views
        if "embeddings" not in views:
            return {}
        content = {
            "rounds": views["embedding_rounds"].tolist(), "clients": views["embedding_clients"].tolist(),
            **packed(views["embeddings"].astype(np.float64), "u2"),
        }  # fmt: skip
        kept = self.budget.take(content)
        return {} if kept is None else {"embeddings": kept}


def _numbered(suite: Suite) -> list[tuple[int, StoredRun]]:
    return [(number, run) for number, one in enumerate(suite.series) for run in one.runs]


def _varies(values: npt.NDArray[Any]) -> bool:
    known = values[~np.isnan(values)]
    return len(known) > 0 and bool((known != known[0]).any())


def _laid_out(graph: ClientGraph, positions: npt.NDArray[Any] | None) -> dict[str, Any]:
    """Places in [0, 1000] and the two ends of every edge, or of as many as can be drawn."""
    places = force_layout(graph) if positions is None else positions.astype(np.float64)
    low, span = places.min(axis=0), np.maximum(np.ptp(places, axis=0), 1e-9)
    even = float(span.max()) <= 4 * float(span.min())
    scaled = 1000 * (places - low) / (span.max() if even else span)
    edges = graph.edges
    if len(edges) > _EDGES:
        edges = edges[np.sort(np.random.default_rng(0).permutation(len(edges))[:_EDGES])]
    return {
        "x": [round(float(x), 1) for x in scaled[:, 0]], "y": [round(float(y), 1) for y in scaled[:, 1]], "even": even,
        "edges": edges.ravel().tolist(), "all": len(graph.edges), "map": positions is not None,
        "directed": bool(graph.directed),
    }  # fmt: skip
