"""Pictures of graphs: they are written, hold what they should, and refuse what they cannot draw."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import panacea as pn
from panacea.data.picture import drawable, graph_picture
from panacea.errors import RequestError
from panacea.graphs import ClientGraph, build
from panacea.graphs import draw as module
from panacea.graphs.draw import draw_graph
from panacea.graphs.layout import force_layout
from panacea.graphs.summary import components


def svg_of(path: Path) -> str:
    return path.read_text()  # every text stands in a comment above its outlines


def test_every_format_is_written_and_the_same_twice(tmp_path: Path):
    graph = build.random(30, 0.1)
    for suffix in ("png", "svg", "pdf"):
        assert draw_graph(graph, tmp_path / "new" / f"g.{suffix}").stat().st_size > 1000
    draw_graph(graph, tmp_path / "again.png")
    assert (tmp_path / "again.png").read_bytes() == (tmp_path / "new" / "g.png").read_bytes()


def test_names_are_written_up_to_sixty_clients(tmp_path: Path):
    names = [f"c{i}" for i in range(12)]
    novel = np.arange(12) < 3
    groups = np.arange(12) % 3
    path = draw_graph(build.knn(np.random.default_rng(0).random((12, 2)), 2), tmp_path / "g.svg", None, groups,
                      names=names, novel=novel, title="mine")  # fmt: skip
    text = svg_of(path)
    assert sorted(re.findall(r'id="name-(\d+)"', text), key=int) == [str(i) for i in range(12)]
    for word in ("mine: 12 clients", "group 0", "group 2", "held out of training"):
        assert word in text
    many = draw_graph(build.empty(61), tmp_path / "m.svg", names=[f"c{i}" for i in range(61)])
    assert 'id="name-' not in svg_of(many)


def test_directions_and_many_edges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    graph, _ = ClientGraph.from_edges(4, [(0, 1), (1, 0), (2, 1)], [1.0, 2.0, 3.0], directed=True)
    draw_graph(graph, tmp_path / "d.svg")
    monkeypatch.setattr(module, "_VECTORS_UP_TO", 1)
    monkeypatch.setattr(module, "_EDGES_DRAWN", 2)
    text = svg_of(draw_graph(graph, tmp_path / "e.svg"))
    assert "3 edges, 2 of them drawn" in text
    assert "<image" in text  # pixels inside the drawing


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("make", [build.empty, build.complete])
def test_the_smallest_graphs(n: int, make: object, tmp_path: Path):
    graph = make(n)  # type: ignore[operator]
    assert np.isfinite(force_layout(graph)).all()
    draw_graph(graph, tmp_path / "g.png", names=[str(i) for i in range(n)], novel=np.ones(n, bool))


def test_the_layout_keeps_linked_clients_near_and_parts_apart():
    groups = np.repeat(np.arange(4), 6)
    edges = [(i, j) for i in range(24) for j in range(i) if groups[i] == groups[j]]
    graph, _ = ClientGraph.from_edges(24, edges)
    places = force_layout(graph)
    distance = np.linalg.norm(places[:, None] - places[None], axis=2)
    same = groups[:, None] == groups[None]
    assert distance[same].mean() < distance[~same].mean() / 2
    for part in range(4):  # boxes of different parts do not overlap
        box = places[components(graph) == part]
        others = places[components(graph) != part]
        assert not ((others >= box.min(axis=0)) & (others <= box.max(axis=0))).all(axis=1).any()
    assert (force_layout(graph, 1) == force_layout(graph, 1)).all()
    ring, _ = ClientGraph.from_edges(40, [(i, (i + 1) % 40) for i in range(40)])
    around = force_layout(ring)
    assert np.linalg.norm(around - around.mean(axis=0), axis=1).min() > 3  # unfolded


def test_what_cannot_be_drawn(tmp_path: Path):
    with pytest.raises(RequestError, match=r"must be a .png, .svg or .pdf file"):
        draw_graph(build.empty(3), tmp_path / "g.gif")
    with pytest.raises(RequestError, match=r"2,001 clients is too large to draw; at most 2,000"):
        draw_graph(build.empty(2001), tmp_path / "g.png")
    with pytest.raises(RequestError, match=r"positions: \[3, 2\] is needed, not \[3, 3\]"):
        draw_graph(build.empty(3), tmp_path / "g.png", np.eye(3))
    fed = pn.load("digits", split="iid")
    assert not drawable(fed)
    with pytest.raises(RequestError, match="digits has no relation graph to draw"):
        graph_picture(fed, tmp_path / "g.png")
    assert not list(tmp_path.iterdir())


def test_coordinates_are_used_where_there_are_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def never(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(module, "force_layout", never)
    graph_picture(pn.load("fl60", clients=6), tmp_path / "g.png")


def test_graphs_import_nothing_heavy():
    heavy = "{'matplotlib', 'networkx', 'scipy', 'pandas', 'torch_geometric'}"
    code = (
        "import sys, panacea.graphs.draw, panacea.graphs.files, panacea.experiment.relations, panacea.graphs.keys\n"
        "from panacea.experiment.relations import graph_summary\nimport panacea as pn\n"
        f"graph_summary(pn.load('fl60', clients=6))\nassert not {heavy} & set(sys.modules), {heavy} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
