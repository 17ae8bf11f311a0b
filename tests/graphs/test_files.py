"""Graphs from files and from objects of other libraries: what is read, and the one line for what is not."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.data import Data

import panacea as pn
from panacea.errors import RequestError
from panacea.graphs import ClientGraph, as_graph, read_graph
from panacea.graphs.convert import graph_of_adjacency

NAMES = ("rome", "oslo", "bonn", "lima")
CHAIN = [(0, 1), (1, 2), (2, 3)]
WEIGHTS = [1.0, 0.5, 2.0]


def chain(directed: bool = False) -> ClientGraph:
    return ClientGraph.from_edges(4, CHAIN, WEIGHTS, directed=directed)[0]


def same(found: ClientGraph, wanted: ClientGraph) -> bool:
    return (
        found.directed == wanted.directed
        and found.n == wanted.n
        and np.array_equal(found.edges, wanted.edges)
        and np.array_equal(found.weights, wanted.weights)
    )


def refusal(call: object, *arguments: object, **keys: object) -> str:
    with pytest.raises(RequestError) as caught:
        call(*arguments, **keys)  # type: ignore[operator]
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_csv_by_name_and_by_position(tmp_path: Path):
    (tmp_path / "a.csv").write_text("source,target,weight\nrome,oslo,1\nbonn,oslo,0.5\nbonn,lima,2\n")
    (tmp_path / "b.csv").write_text("Source, Target, Weight\n0,1,1\n\n2,1,.5\n2,3,2\n")
    for name in ("a.csv", "b.csv"):
        assert same(read_graph(tmp_path / name, NAMES)[0], chain())
    (tmp_path / "c.csv").write_text("source,target,weight\nrome,oslo,1\noslo,bonn,0.5\nbonn,lima,2\n")
    assert same(read_graph(tmp_path / "c.csv", NAMES, directed=True)[0], chain(directed=True))
    (tmp_path / "d.csv").write_text("source,target\nrome,rome\nrome,oslo\noslo,rome\n")
    graph, notes = read_graph(tmp_path / "d.csv", NAMES, directed=True)
    assert graph.edges.tolist() == [[0, 1], [1, 0]]
    assert notes == ("d.csv: 1 self loop(s) dropped",)


def test_npz_of_our_own_of_scipy_and_with_an_adjacency(tmp_path: Path):
    path = tmp_path / "g.npz"
    for graph in (chain(), chain(directed=True)):
        graph.save(path)
        assert same(read_graph(path, NAMES)[0], graph)
        for form in ("csr", "csc", "coo"):
            sp.save_npz(path, sp.coo_matrix(graph.dense()).asformat(form))
            assert same(read_graph(path, NAMES)[0], graph)
        np.savez(path, adjacency=graph.dense())
        assert same(read_graph(path, NAMES)[0], graph)


def test_graphml_by_name_and_by_position(tmp_path: Path):
    for titles in (NAMES, ("0", "1", "2", "3")):
        for kind in (nx.Graph, nx.DiGraph):
            graph = kind()
            graph.add_nodes_from(titles)
            graph.add_weighted_edges_from((titles[a], titles[b], w) for (a, b), w in zip(CHAIN, WEIGHTS, strict=True))
            nx.write_graphml(graph, tmp_path / "g.graphml")
            assert same(read_graph(tmp_path / "g.graphml", NAMES)[0], chain(directed=kind is nx.DiGraph))


def test_objects_of_other_libraries():
    directed = nx.DiGraph()
    directed.add_nodes_from(range(4))
    directed.add_weighted_edges_from((a, b, w) for (a, b), w in zip(CHAIN, WEIGHTS, strict=True))
    index = torch.tensor(CHAIN).T
    weight = torch.tensor(WEIGHTS, requires_grad=True)
    both = Data(
        edge_index=torch.cat([index, index.flip(0)], dim=1), edge_attr=torch.tensor(2 * WEIGHTS)[:, None], num_nodes=4
    )
    triples = [(NAMES[a], NAMES[b], w) for (a, b), w in zip(CHAIN, WEIGHTS, strict=True)]
    for value in (
        chain(), directed.to_undirected(), both, chain().dense(), torch.from_numpy(chain().dense()),
        sp.csr_array(chain().dense()), triples, pd.DataFrame(triples),
    ):  # fmt: skip
        assert same(as_graph(value, NAMES)[0], chain()), value
    for value in (
        chain(directed=True), directed, Data(edge_index=index, edge_weight=weight, num_nodes=4),
        chain(directed=True).dense(), sp.csr_matrix(chain(directed=True).dense()),
    ):  # fmt: skip
        assert same(as_graph(value, NAMES)[0], chain(directed=True)), value
    uneven = chain().dense()
    uneven[0, 1] = 9.0
    assert as_graph(uneven, NAMES)[0].directed  # both ways, but with two weights
    assert (as_graph(uneven, NAMES)[0].dense() == uneven).all()
    loops = chain().dense() + 3 * np.eye(4)
    graph, notes = as_graph(loops, NAMES)
    assert same(graph, chain())
    assert notes == ("adjacency: 4 self loop(s) dropped",)


def test_a_federation_takes_any_of_them(tmp_path: Path):
    chain().save(tmp_path / "g.npz")
    x, y = [np.ones((4, 2), np.float32)] * 4, [[0, 1, 0, 1]] * 4
    for value in (chain(), chain().dense(), tmp_path / "g.npz", str(tmp_path / "g.npz")):
        fed = pn.Federation.from_arrays(x, y, edges=value, names=NAMES)
        assert same(fed.graph, chain())  # type: ignore[arg-type]
        assert same(fed.with_graph(chain(directed=True)).graph, chain(directed=True))  # type: ignore[arg-type]


BAD_FILES = [
    ("g.txt", "", "a graph file ends in .csv, .npz, .graphml"),
    ("g.csv", "a,b\n", "g.csv line 1: the header must be source,target"),
    ("g.csv", "", "g.csv line 1: the header must be"),
    ("g.csv", b"source,target\n\xff\xfe,1\n", "g.csv: not a text file in UTF-8"),
    ("g.csv", "source,target\nrome,olso\n", "g.csv line 2 names an unknown client 'olso'; did you mean 'oslo'?"),
    ("g.csv", "source,target\n0,4\n", "g.csv line 2 names an unknown client 4; positions are 0..3"),
    ("g.csv", "source,target\n0,1,1\n", "g.csv line 2: 3 values, the header has 2"),
    ("g.csv", "source,target\n0,1\n1,0\n", "g.csv line 3: the edge between 'oslo' and 'rome' is given twice"),
    ("g.csv", "source,target,weight\n0,1,-2\n", "g.csv line 2: weight '-2' is not a positive number"),
    ("g.csv", "source,target,weight\n0,1,nan\n", "g.csv line 2: weight 'nan' is not a positive number"),
    ("g.csv", "source,target,weight\n0,1,\n", "g.csv line 2: weight '' is not a positive number"),
    ("g.csv", "source,target\n" + "9" * 5000 + ",1\n", "g.csv line 2 names an unknown client"),
    ("g.csv", "source,target\n" + "x" * 200_000 + ",1\n", "g.csv line 2: not readable as CSV"),
    ("g.npz", "no", "not an npz file"),
    ("g.graphml", "no", "g.graphml: not a readable GraphML file"),
    ("g.graphml", "", "g.graphml: not a readable GraphML file"),
]


@pytest.mark.parametrize(("name", "content", "words"), BAD_FILES)
def test_a_wrong_file_is_one_line(name: str, content: str | bytes, words: str, tmp_path: Path):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert words in refusal(read_graph, tmp_path / name, NAMES)


def test_files_that_do_not_fit(tmp_path: Path):
    assert refusal(read_graph, tmp_path / "no.csv", NAMES).endswith("no.csv: no such file")
    assert refusal(read_graph, tmp_path, NAMES).endswith("a graph file ends in .csv, .npz, .graphml")
    path = tmp_path / "g.npz"
    ClientGraph.from_edges(5, [(0, 1)])[0].save(path)
    assert refusal(read_graph, path, NAMES) == "g.npz: the graph has 5 nodes but there are 4 clients"
    assert "directed is for CSV files" in refusal(read_graph, path, NAMES, directed=True)
    np.savez(path, adjacency=np.eye(3))
    assert "3 nodes but there are 4 clients" in refusal(read_graph, path, NAMES)
    np.savez(path, x=np.eye(3))
    assert "needs n and edges, an adjacency, or a scipy.sparse matrix, but holds x" in refusal(read_graph, path, NAMES)
    sp.save_npz(path, sp.dia_matrix(np.eye(4)))
    assert "csr, csc or coo is needed, not 'dia'" in refusal(read_graph, path, NAMES)
    np.savez(path, format=b"csr", shape=(4, 4), data=np.ones(2), indices=[0, 1], indptr=[0, 9, 9, 9, 2])
    assert "not a sound sparse matrix" in refusal(read_graph, path, NAMES)
    np.savez(path, format=b"csr", shape=(4, 4), data=np.ones(1), indices=[1], indptr=[0, 1, 1])
    assert "indptr and shape do not fit" in refusal(read_graph, path, NAMES)
    sound = {"format": b"coo", "shape": (4, 4), "data": np.ones(1), "row": [0], "col": [1]}
    for wrong in ({"shape": 4}, {"shape": ["a", "b"]}, {"shape": []}, {"row": [0.5]}, {"row": 0}, {"data": [1j]}):
        np.savez(path, **{**sound, **wrong})
        assert refusal(read_graph, path, NAMES).startswith("g.npz: ")
    np.savez(path, n=4, edges=[[0, 1]], weights=[1 + 2j])
    assert "weights are positive numbers" in refusal(read_graph, path, NAMES)
    np.savez(path, format=b"coo", shape=(4, 4), data=np.ones(2), row=[0, 9], col=[1, 1])
    assert "names an unknown client; clients are 0..3" in refusal(read_graph, path, NAMES)


def test_objects_that_do_not_fit():
    matrix = chain().dense()
    for value in (np.nan, -1.0, np.inf):
        matrix[1, 2] = value
        said = refusal(as_graph, matrix, NAMES)
        assert said == f"adjacency: entry [1, 2] is {value}; weights are positive numbers, 0 where there is no edge"
        assert refusal(as_graph, sp.csr_matrix(matrix), NAMES) == said
    assert "5 nodes but there are 4 clients" in refusal(as_graph, np.ones((5, 5)), NAMES)
    assert "not complex128 values" in refusal(as_graph, np.ones((4, 4), complex), NAMES)
    assert "[clients, clients], not [2, 4]" in refusal(graph_of_adjacency, np.ones((2, 4)), 4)
    assert "5 nodes" in refusal(as_graph, nx.path_graph(5), NAMES)
    assert "graph: node 'lmia' names an unknown client 'lmia'; did you mean 'lima'?" in refusal(
        as_graph, nx.relabel_nodes(nx.path_graph(4), dict(enumerate(["rome", "oslo", "bonn", "lmia"]))), NAMES
    )
    graph = nx.path_graph(4)
    graph[1][2]["weight"] = -3
    assert refusal(as_graph, graph, NAMES) == "graph: edge (1, 2): weight -3 is not a positive number"
    index = torch.tensor(CHAIN).T
    assert "3 nodes" in refusal(as_graph, Data(edge_index=index, num_nodes=3), NAMES)
    assert "edge_index is [2, E], not [3, 2]" in refusal(as_graph, SimpleNamespace(edge_index=index.T), NAMES)
    assert "3 edges but an array [3, 2] of weights" in refusal(
        as_graph, Data(edge_index=index, edge_attr=torch.ones(3, 2), num_nodes=4), NAMES
    )
    assert refusal(as_graph, ClientGraph.from_edges(3, [])[0], NAMES).startswith("graph: the graph has 3 nodes")
    assert "3.5 is not a graph" in refusal(as_graph, 3.5, NAMES)
