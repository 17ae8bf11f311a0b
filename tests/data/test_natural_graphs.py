"""Chickenpox, England COVID, Montevideo bus and Molene: small files in the original formats, and the real ones."""

from __future__ import annotations

import copy
import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from panacea.data import find_dataset, load
from panacea.errors import RequestError

NAMES = ("chickenpox", "england_covid", "montevideo_bus", "molene")
WEEKS, DAYS, HOURS = 40, 30, 60


def _numbers(*shape: int) -> Any:
    return np.random.default_rng(1).integers(0, 9, shape).tolist()


def chickenpox() -> dict[str, Any]:
    table = np.random.default_rng(0).normal(size=(WEEKS, 3)).tolist()
    edges = [[0, 1], [1, 0], [0, 0], [1, 1], [2, 2], [2, 1], [1, 2]]
    return {"edges": edges, "node_ids": {"VAS": 2, "BACS": 0, "PEST": 1}, "FX": table}


def england_covid() -> dict[str, Any]:
    index = {str(day): [[0, 1], [1, 0], [2, 2]] if day % 2 else [[0, 1], [1, 2]] for day in range(DAYS)}
    weight = {str(day): [30, 10.0, 99.0] if day % 2 else [20.0, 20.0] for day in range(DAYS)}
    mapping = {"edge_index": index, "edge_weight": weight}
    return {"edge_mapping": mapping, "time_periods": DAYS, "y": _numbers(DAYS, 3)}


def montevideo_bus() -> dict[str, Any]:
    nodes = [
        {"bus_stop": stop, "lon": 589196 + 10 * stop, "lat": 6151987.5 - stop, "y": own, "X": {"y": own}, "id": stop}
        for stop, own in zip((50, 7, 8, 9), _numbers(4, HOURS), strict=True)
    ]
    nodes[3]["y"] = [0] * (HOURS - 1) + [3]
    links = [(50, 7, 100.0), (7, 8, 300), (8, 7, 200.0)]
    return {
        "directed": True,
        "nodes": nodes,
        "links": [{"weight": metres, "source": a, "target": b} for a, b, metres in links],
    }


DOCUMENTS: dict[str, Callable[[], dict[str, Any]]] = {
    "chickenpox": chickenpox,
    "england_covid": england_covid,
    "montevideo_bus": montevideo_bus,
}


def write(root: Path, name: str, document: object, folder: str = "") -> Path:
    path = root / (folder or name) / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
    return path


def molene(root: Path) -> Path:
    folder = root / "molene"
    folder.mkdir(parents=True)
    kelvin = 280 + np.arange(HOURS * 3).reshape(HOURS, 3) % 7
    rows = [f"2014-01-{1 + i // 24:02d} {i % 24:02d}:00:00,{a}.5,{b},{c}" for i, (a, b, c) in enumerate(kelvin)]
    (folder / "filtered_data_Molene.csv").write_text("\n".join(["date,111,222,333", *rows]) + "\n")
    (folder / "weather_stations_filtered_Molene.csv").write_text(
        ",Numéro,Nom,Latitude,Longitude,Altitude\n0,333,\"CAP, LE\",48°30'00N,3°00'00W,5\n"
        "4,111,ILE,47°00'00N,3°30'00W,5\n5,222,RAZ,48°00'36N,4°00'00W,5\n9,444,LOIN,50°00'00N,4°00'00W,5\n"
    )
    np.save(folder / "weighted_adjacency.npy", np.array([[0, 0.5, 0], [0.5, 0, 0.25], [0, 0.25, 0]]))
    return folder


def error(name: str, root: Path, **keys: object) -> str:
    with pytest.raises(RequestError) as caught:
        load(name, root=root, **keys)
    said = str(caught.value)
    assert "\n" not in said
    return said


def test_chickenpox(tmp_path: Path) -> None:
    document = chickenpox()
    write(tmp_path, "chickenpox", document)
    fed = load("chickenpox", root=tmp_path, novel=0.0)
    assert repr(fed) == "Federation(chickenpox: 3 clients (0 novel), 108 samples, forecasting, 2 edges)"
    assert fed.names == ("BACS", "PEST", "VAS")
    assert (fed.task.inputs, fed.task.outputs) == ((4, 1), (1,))
    assert fed.task.scale == "standardised per county, as published"
    assert [int(fed.counts(split)[0]) for split in ("train", "val", "test")] == [25, 4, 7]
    assert fed.graph is not None
    assert fed.graph.edges.tolist() == [[0, 1], [1, 2]]
    assert not fed.graph.directed
    assert fed.notes == ("chickenpox.json edges: 3 self loop(s) dropped",)
    x, y = fed.client(2, "test")
    series = np.array(document["FX"], np.float32)[:, 2]
    assert x[0, :, 0].tolist() == series[29:33].tolist()
    assert y[:, 0].tolist() == series[33:].tolist()
    scaled = load("chickenpox", root=tmp_path, scale="client_minmax", length=2, horizon=3)
    assert scaled.task.scale == "per-client min-max"
    assert (scaled.task.inputs, scaled.task.outputs) == ((2, 1), (3,))
    document["edges"] = [[1, 0]]  # one way is enough
    write(tmp_path, "chickenpox", document)
    graph = load("chickenpox", root=tmp_path).graph
    assert graph is not None
    assert graph.edges.tolist() == [[0, 1]]


def test_england_covid(tmp_path: Path) -> None:
    write(tmp_path, "england_covid", england_covid())
    fed = load("england_covid", root=tmp_path, novel=0.0)
    assert fed.task.inputs == (8, 1)
    assert fed.names == ("0", "1", "2")
    assert fed.graph is not None
    assert fed.graph.edges.tolist() == [[0, 1], [1, 2]]
    # half of the days 30 + 10 people move between 0 and 1, on the others 20, and 20 between 1 and 2
    assert fed.graph.weights.tolist() == pytest.approx([1, 10 / 30])
    assert fed.notes == ("england_covid.json edge_mapping: 1 self loop(s) dropped",)
    raw = load("england_covid", root=tmp_path, scale="raw")
    assert raw.task.scale == "cases a day"
    assert raw.client(1, "train")[0][0, :, 0].tolist() == [row[1] for row in england_covid()["y"][:8]]


def test_montevideo_bus(tmp_path: Path) -> None:
    write(tmp_path, "montevideo_bus", montevideo_bus())
    fed = load("montevideo_bus", root=tmp_path, novel=0.0)
    assert fed.names == ("50", "7", "8", "9")
    assert fed.task.inputs == (4, 2)
    assert fed.graph is not None
    assert fed.graph.edges.tolist() == [[0, 1], [1, 2]]
    assert fed.graph.weights.tolist() == pytest.approx([1 / (1 + 0.5), 1 / (1 + 1)])  # mean 200 m; the nearer way
    assert not fed.graph.directed
    clock = fed.client(0)[0][22, :, 1].tolist()
    assert clock == pytest.approx([22 / 24, 23 / 24, 0, 1 / 24])
    assert fed.features is not None
    assert fed.features[:, 1].tolist() == pytest.approx([1, 0, 1 / 43, 2 / 43])  # west to east
    assert fed.features[0, 0] == 0  # the southernmost
    # a stop without a passenger in the train span keeps its unit
    assert fed.notes == ("1 client(s) with one value throughout the train span: divided by 1",)
    assert float(fed.client(3, "test")[1][-1]) == 3
    assert float(fed.client(3, "train")[1].max()) == 0
    assert load("montevideo_bus", root=tmp_path, scale="global_zscore").notes == ()


def test_molene(tmp_path: Path) -> None:
    folder = molene(tmp_path)
    fed = load("molene", root=tmp_path, novel=0.0, scale="raw")
    assert fed.names == ("ILE", "RAZ", "CAP, LE")  # in the order of the columns, not of the table
    assert (fed.task.inputs, fed.task.outputs, fed.task.scale) == ((10, 2), (5,), "kelvin")
    assert fed.features is not None
    assert fed.features == pytest.approx(np.array([[0, 0.5], [1.01 / 1.5, 0], [1, 1]]))
    assert fed.graph is not None
    assert fed.graph.edges.tolist() == [[0, 1], [1, 2]]
    assert fed.graph.weights.tolist() == [0.5, 0.25]
    x, y = fed.client(0)
    assert x[0, :3, 0].tolist() == [280.5, 283.5, 286.5]
    assert x[5, :, 1].tolist() == pytest.approx([hour / 24 for hour in range(5, 15)])
    assert y[0].tolist() == [280.5 + 3 * hour % 7 for hour in range(10, 15)]
    values = folder / "filtered_data_Molene.csv"
    values.write_text(values.read_text().replace("2014-01-01 02:00:00,286.5,", "2014-01-01 02:00:00,,"))
    holed = load("molene", root=tmp_path, scale="raw")
    assert holed.task.missing
    assert holed.notes == ("1 of 180 values (0.56 %) are missing: not scored, not trained on",)
    assert holed.client(0)[0][0, :3, 0].tolist() == [280.5, 283.5, 283.5]


@pytest.mark.parametrize("name", NAMES)
def test_the_common_folder_gzip_and_fewer_clients(tmp_path: Path, name: str) -> None:
    if name == "molene":
        molene(tmp_path)
        own, common = tmp_path / "molene", tmp_path / "natural_graphs" / "molene"
        whole = load(name, root=tmp_path)
        common.parent.mkdir()
        shutil.move(own, common)
    else:
        path = write(tmp_path, name, DOCUMENTS[name]())
        whole = load(name, root=tmp_path)
        packed = tmp_path / "natural-graphs" / f"{name}.json.gz"
        packed.parent.mkdir()
        packed.write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()  # its empty folder stays and is passed over
    again = load(name, root=tmp_path)
    assert np.array_equal(again.x, whole.x)
    assert again.names == whole.names
    few = load(name, root=tmp_path, clients=2)
    assert few.names == whole.names[:2]
    assert few.graph is not None
    assert few.graph.edges.tolist() == [[0, 1]]
    assert f"data.clients=9: {name} has" in error(name, tmp_path, clients=9)


@pytest.mark.parametrize("name", NAMES)
def test_without_files_one_line_says_what_to_get(tmp_path: Path, name: str) -> None:
    said = error(name, tmp_path)
    assert said.startswith(f"data set '{name}': no files in {tmp_path / name}; place ")
    assert said.endswith(find_dataset(name).card.get)
    assert "github.com" in said
    assert "too few to divide" in error(name, _written(tmp_path, name), length=1000)


def _written(root: Path, name: str) -> Path:
    if name == "molene":
        molene(root)
    else:
        write(root, name, DOCUMENTS[name]())
    return root


DELETE = object()
BIG = 10**400


@pytest.mark.parametrize(
    ("name", "place", "value", "words"),
    [
        ("chickenpox", ["FX"], DELETE, "no 'FX'; it needs a list there"),
        ("chickenpox", ["FX"], {}, "'FX' is {}, not a list"),
        ("chickenpox", ["FX"], [], "FX is [], not a list of lists of numbers"),
        ("chickenpox", ["FX", 7], [1.0, 2.0], "FX[7] has 2 values, not 3"),
        ("chickenpox", ["FX", 7, 1], "many", 'FX[7][1] is "many", not a finite number'),
        ("chickenpox", ["FX", 7, 1], None, "FX[7][1] is null, not a finite number"),
        ("chickenpox", ["FX", 7, 1], True, "FX[7][1] is true, not a finite number"),
        ("chickenpox", ["FX", 7, 2], float("nan"), "FX[7][2] is NaN, not a finite number"),
        ("chickenpox", ["FX", 7, 2], BIG, "FX[7][2] is 1000"),
        ("chickenpox", ["FX", 7], "text", 'FX[7] is "text", not a list of numbers'),
        ("chickenpox", ["node_ids", "VAS"], 1, "'node_ids' must give each of the 3 columns of FX, 0..2, one name"),
        ("chickenpox", ["node_ids", "VAS"], "2", "'node_ids' must give"),
        ("chickenpox", ["edges", 3], [1, 3], "edges[3] is [1, 3], an edge to an unknown node; nodes are 0..2"),
        ("chickenpox", ["edges", 3], [1, -1], "edges[3] is [1, -1], an edge to an unknown node"),
        ("chickenpox", ["edges", 3], [1, BIG], "edges[3] is [1, 1000"),
        ("chickenpox", ["edges", 3], [1, 1.0], "edges[3] is [1, 1.0], not a pair of whole numbers"),
        ("chickenpox", ["edges", 3], [0, 0], "edges[3] is [0, 0], the same edge as edges[2]"),
        ("chickenpox", ["edges", 3], 5, "edges[3] is 5, not a pair of whole numbers"),
        ("england_covid", ["y", 4, 2], -1, "y[4][2] is -1, not a finite number of at least 0"),
        ("england_covid", ["time_periods"], 61, "'time_periods' is 61, but 'y' has 30 days"),
        ("england_covid", ["edge_mapping", "edge_weight"], DELETE, "no edge_mapping['edge_weight']; it needs an obj"),
        ("england_covid", ["edge_mapping", "edge_index", "9"], DELETE, "no edge_mapping['edge_index']['9']; it needs"),
        ("england_covid", ["edge_mapping", "edge_weight", "9", 1], "x", "edge_mapping['edge_weight']['9'][1] is \"x\""),
        ("england_covid", ["edge_mapping", "edge_weight", "9", 1], -4, "['9'][1] is -4, not a finite number of at lea"),
        ("england_covid", ["edge_mapping", "edge_weight", "9"], [1.0], "['edge_weight']['9'] has 1 values, not 3"),
        ("england_covid", ["edge_mapping", "edge_index", "8", 1], [0, 3], "['8'][1] is [0, 3], an edge to an unknown"),
        ("montevideo_bus", ["nodes"], [], "'nodes' is empty"),
        ("montevideo_bus", ["nodes", 1], 3, "nodes[1] is a number, not an object with named entries"),
        ("montevideo_bus", ["nodes", 1, "y"], DELETE, "no nodes[1]['y']; it needs a list there"),
        ("montevideo_bus", ["nodes", 1, "y"], [1, 2], "nodes[1]['y'] has 2 values, not 60"),
        ("montevideo_bus", ["nodes", 1, "y", 5], -2, "nodes[1]['y'][5] is -2, not a finite number of at least 0"),
        ("montevideo_bus", ["nodes", 1, "lat"], "south", "nodes[1]['lat'] is \"south\", not a finite number"),
        ("montevideo_bus", ["nodes", 1, "bus_stop"], 50, "nodes[1] is bus stop 50, as nodes[0] is"),
        ("montevideo_bus", ["links", 2, "target"], 999, "links[2] names an unknown bus stop 999"),
        ("montevideo_bus", ["links", 2, "weight"], -1.5, "links[2]['weight'] is -1.5; a road distance is not negative"),
        ("montevideo_bus", ["links", 2, "weight"], DELETE, "no links[2]['weight']; it needs a finite number there"),
        ("montevideo_bus", ["links", 2, "source"], 7, "self loop(s)"),
    ],
)
def test_a_wrong_entry_is_named(tmp_path: Path, name: str, place: list[Any], value: Any, words: str) -> None:
    document = copy.deepcopy(DOCUMENTS[name]())
    owner = document
    for step in place[:-1]:
        owner = owner[step]
    if value is DELETE:
        del owner[place[-1]]
    else:
        owner[place[-1]] = value
    path = write(tmp_path, name, document)
    if "self loop" in words:  # allowed, and said
        assert words in load(name, root=tmp_path).notes[0]
        return
    said = error(name, tmp_path)
    assert said.startswith(f"{path}: ")
    assert words in said


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"FX": [1,\n 2,,]}', " line 2 column 4: not JSON (Expecting value)"),
        (b"[1, 2]", ": holds a list, not an object with named entries"),
        (b"", " line 1 column 1: not JSON"),
        (b"[" * 200_000, ": not JSON that can be read"),
        (b"\xff\xfe", ": not a text file in UTF-8 (byte 0)"),
        (gzip.compress(b'{"FX": []}' * 500, mtime=0)[:-12], ": a damaged gzip file, truncated or altered after"),
        (b"\x1f\x8b\x08nothing", ": a damaged gzip file"),
    ],
    ids=["comma", "list", "nothing", "deep", "no text", "cut short", "no gzip"],
)
def test_what_is_no_json(tmp_path: Path, content: bytes, words: str) -> None:
    path = write(tmp_path, "chickenpox", {})
    path.write_bytes(content)
    said = error("chickenpox", tmp_path)
    assert said.startswith(str(path))
    assert words in said
