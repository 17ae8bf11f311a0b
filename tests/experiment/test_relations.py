"""`graph=` and its keys: what an experiment gets, what its directory records, and resuming."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import yaml

import panacea as pn
from panacea.cli import run_command_line
from panacea.data.profile import client_profiles
from panacea.errors import RequestError
from panacea.experiment.config import build_config, identity
from panacea.experiment.experiment import Experiment
from panacea.graphs import ClientGraph, ablate, build

SMALL = {"data": "fl60", "data.clients": 12, "method": "fedavg", "rounds": 2, "local_steps": 1}


def experiment(**keys: object) -> Experiment:
    return Experiment(build_config({**SMALL, **{key.replace("__", "."): value for key, value in keys.items()}}))


def edges(found: Experiment) -> list[list[int]]:
    assert found.federation.graph is not None
    return found.federation.graph.edges.tolist()


def test_every_choice_is_the_builder_of_its_name():
    fed = pn.load("fl60", clients=12)
    assert fed.graph is not None
    assert edges(experiment()) == fed.graph.edges.tolist()
    assert edges(experiment(graph="knn", graph__k=2)) == build.knn(fed.features, 2).edges.tolist()
    assert edges(experiment(graph="knn", graph__by="labels")) == build.knn(client_profiles(fed)).edges.tolist()
    assert edges(experiment(graph="complete")) == build.complete(12).edges.tolist()
    assert edges(experiment(graph="empty")) == []
    assert edges(experiment(graph="random")) == build.random(12, like=fed.graph, seed=0).edges.tolist()
    assert edges(experiment(graph="random", graph__density=0.1, graph__seed=5)) == (
        build.random(12, 0.1, seed=5).edges.tolist()
    )
    wave = experiment(graph="gaussian", graph__sigma=2.0, graph__threshold=0.2)
    assert edges(wave) == build.gaussian(fed.features, 2.0, 0.2).edges.tolist()
    assert wave.federation.graph is not None
    assert wave.federation.graph.weighted
    assert not experiment(graph="gaussian", graph__weights="binary").federation.graph.weighted  # type: ignore[union-attr]


def test_ablations_are_applied_in_their_order():
    graph = pn.load("fl60", clients=12).graph
    assert graph is not None
    for change in (ablate.shuffle, lambda g, s: ablate.rewire(g, 0.2, s), lambda g, s: ablate.replace(g, 0.2, s),
                   lambda g, s: ablate.drop(g, 0.3, s), lambda g, s: ablate.add(g, 0.4, s)):  # fmt: skip
        graph = change(graph, 3)
    keys = {"shuffle": True, "rewire": 0.2, "replace": 0.2, "drop": 0.3, "add": 0.4}
    found = experiment(seed=3, data__seed=0, **{f"graph__{key}": value for key, value in keys.items()})
    assert edges(found) == graph.edges.tolist()


def test_resolved_keys_are_recorded_and_mean_the_same():
    found = experiment(graph="knn")
    assert found.config.graph.keys | {"k": 5, "by": "features", "seed": 0} == found.config.graph.keys
    again = experiment(graph="knn", **{f"graph__{key}": value for key, value in found.config.graph.keys.items()})
    assert identity(again.config) == identity(found.config)
    three = Experiment(build_config({**SMALL, "data.clients": 3, "graph": "knn"}))
    assert three.config.graph.keys["k"] == 2  # all others, where there are fewer than five


def test_weights_and_direction_are_part_of_the_data():
    fed = pn.load("fl60", clients=6)
    assert fed.graph is not None
    graphs = [
        fed.graph,
        ClientGraph(6, fed.graph.edges, 2 * fed.graph.weights),
        ClientGraph(6, fed.graph.edges, fed.graph.weights, directed=True),
    ]
    config = build_config({"data": "fl60", "method": "fedavg", "rounds": 1})
    digests = {Experiment(config, fed.with_graph(graph)).config.data_digest for graph in graphs}
    assert len(digests) == 3


def test_features_are_part_of_the_data(tmp_path: Path):
    """A method may be given them: with others it is another run, never the results of the first one."""
    fed = pn.load("fl60", clients=6)
    assert fed.features is not None
    feds = [fed, dataclasses.replace(fed, features=fed.features[::-1].copy()), dataclasses.replace(fed, features=None)]
    config = build_config({"data": "fl60", "method": "fedavg", "rounds": 1})
    assert len({Experiment(config, one).config.data_digest for one in feds}) == 3
    runs = [
        pn.train(one, "panacea", parameters={"h0": "features"}, rounds=1, local_steps=1, cohort=2, out=tmp_path)
        for one in feds[:2]
    ]
    assert runs[0].directory != runs[1].directory


def test_from_python():
    run = pn.train("fl60", rounds=1, local_steps=1, graph="knn", **{"graph.k": 2, "data.clients": 8})
    assert run.clients["degree"].min() >= 2
    fed = pn.load("fl60", clients=8)
    assert (pn.train(fed, rounds=1, local_steps=1, graph="empty").clients["degree"] == 0).all()


def test_directed_files_and_ignored_directions(tmp_path: Path):
    (tmp_path / "e.csv").write_text("source,target,weight\n0,1,2\n1,0,3\n2,1,1\n")
    path = str(tmp_path / "e.csv")
    both = experiment(graph=path, graph__directed=True).federation.graph
    assert both is not None
    assert both.directed
    one = experiment(graph=path, graph__directed=True, graph__direction="ignore").federation.graph
    assert one is not None
    assert (one.directed, one.edges.tolist(), one.weights.tolist()) == (False, [[0, 1], [1, 2]], [3.0, 1.0])


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"graph": "random", "graph.k": 3}, "unknown key 'graph.k'"),
        ({"graph": "knn", "graph.by": "label"}, "did you mean 'labels'?"),
        ({"graph": "FILE"}, "give the name of a file"),
        ({"graph": "gaussian", "graph.threshold": 0}, "graph.threshold=0"),
    ],
)
def test_wrong_keys(keys: dict[str, object], words: str):
    with pytest.raises(RequestError) as caught:
        Experiment(build_config({**SMALL, **keys}))
    assert words in str(caught.value)


def test_what_needs_a_graph_says_so():
    none = {**SMALL, "data": "digits", "data.split": "iid"}
    for keys, words in (
        ({"graph.drop": 0.5}, "graph.drop: digits has no relation graph"),
        ({"graph": "random"}, "graph.density is missing: digits has no graph"),
        ({"graph": "knn", "graph.by": "features"}, "graph.by=features: digits has no features"),
    ):
        with pytest.raises(RequestError) as caught:
            Experiment(build_config({**none, **keys}))
        assert words in str(caught.value)
    assert Experiment(build_config({**none, "graph": "knn"})).config.graph.keys["by"] == "labels"


def _flat(keys: dict[str, object]) -> list[str]:
    return [f"{key}={value}" for key, value in keys.items()]


def test_a_run_on_a_file_is_known_by_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    build.knn(pn.load("fl60", clients=12).features, 2).save(tmp_path / "a.npz")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "b.npz").write_bytes((tmp_path / "a.npz").read_bytes())
    command = ["run", *_flat(SMALL), "--quiet"]
    assert run_command_line([*command, "graph=a.npz"]) == 0
    assert run_command_line([*command, "graph=other/b.npz"]) == 0
    (run,) = (tmp_path / "runs").iterdir()  # one directory: the path is not part of a run's identity
    stored = ClientGraph.load(run / "graph.npz")
    assert stored.edges.tolist() == ClientGraph.load(tmp_path / "a.npz").edges.tolist()
    numbers = json.loads((run / "graph.json").read_text())
    assert (numbers["nodes"], numbers["edges"]) == (12, len(stored.edges))
    assert {path.name for path in (run / "figures").glob("graph.*")} == {"graph.png", "graph.svg"}
    assert "Relation graph" in (run / "report.html").read_text()
    build.empty(12).save(tmp_path / "a.npz")
    assert run_command_line([*command, "graph=a.npz"]) == 0
    assert len(list((tmp_path / "runs").iterdir())) == 2  # other content, other run


def test_resume_from_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "e.csv").write_text("source,target\n0,1\n1,2\n")
    assert run_command_line(["run", *_flat(SMALL), "graph=e.csv", "--quiet"]) == 0
    (run,) = (tmp_path / "runs").iterdir()
    assert Path(yaml.safe_load((run / "config.yaml").read_text())["graph"]["name"]).is_absolute()
    first = (run / "metrics.jsonl").read_bytes()
    for left in ("summary.json", "graph.npz", "graph.json"):
        (run / left).unlink()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert run_command_line(["resume", str(run), "--quiet"]) == 0
    assert (run / "metrics.jsonl").read_bytes() == first
    assert ClientGraph.load(run / "graph.npz").edges.tolist() == [[0, 1], [1, 2]]
    (run / "summary.json").unlink()
    (tmp_path / "e.csv").write_text("source,target\n0,1\n1,3\n")
    capsys.readouterr()
    assert run_command_line(["resume", str(run), "--quiet"]) == 2
    assert "has changed since this run began" in capsys.readouterr().err


def test_no_picture_of_a_very_large_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("panacea.data.picture.DRAWN_UP_TO", 5)
    said: list[str] = []
    from panacea.experiment.rundir import RunDirectory
    from panacea.experiment.runner import run_experiment
    from panacea.report.run_page import ReportWriter

    found = experiment(out=str(tmp_path))
    directory = RunDirectory.of(found.config, found.method.name)
    run_experiment(found, directory, [ReportWriter(said.append)])
    assert said == ["note: no picture of the graph: 12 clients are too many to draw"]
    assert not list(directory.figures.glob("graph.*"))
    assert json.loads(directory.graph_summary.read_text())["nodes"] == 12


def test_a_file_does_not_hide_a_choice_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "knn").write_text("")
    (tmp_path / "mine").write_text("")
    assert experiment(graph="knn").config.graph.name == "knn"
    with pytest.raises(RequestError, match=r"mine: a graph file ends in .csv, .npz, .graphml"):
        experiment(graph="mine")
