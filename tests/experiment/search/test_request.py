"""What a file and keys on top of it mean, the files that come with the package, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from panacea.errors import RequestError
from panacea.experiment.search.request import parse_request, read_request, shipped_sweeps
from panacea.experiment.search.space import Choice, Range
from panacea.experiment.search.stopping import Halving

FILE: dict[str, Any] = {
    "base": {"data": {"name": "fl60", "clients": 6}, "rounds": 20},
    "methods": ["fedavg", "ditto"],
    "space": {"lr": {"log_uniform": [0.01, 1]}, "ditto": {"method.lam": [0.1, 1]}},
    "search": "random",
    "trials": 3,
    "seeds": "0..2",
    "stop": "halving",
}


def _file(tmp_path: Path, **changes: Any) -> str:
    path = tmp_path / "mine.yaml"
    content = {key: value for key, value in {**FILE, **changes}.items() if value is not None}
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return str(path)


def test_a_file(tmp_path: Path) -> None:
    request = read_request(_file(tmp_path, out=str(tmp_path / "o")), {})
    assert request.name == "mine"
    assert request.base == {"data": "fl60", "data.clients": 6, "rounds": 20}
    assert request.seeds == (0, 1, 2)
    assert request.spaces["ditto"].dimensions == {"lr": Range(0.01, 1, log=True), "method.lam": Choice((0.1, 1))}
    assert list(request.spaces["fedavg"].dimensions) == ["lr"]
    assert request.stop == Halving()
    assert request.folder.parent == tmp_path / "o"
    assert request.folder.name.startswith("sweep-mine-")
    config = request.config("ditto", {"lr": 0.5, "method.lam": 1}, 2)
    assert (config.lr, config.seed, config.method.keys, config.out) == (0.5, 2, {"lam": 1}, tmp_path / "o")


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({"rounds": 7}, {"base": {"rounds": 7}}),
        ({"data.clients": 9}, {"base": {"data.clients": 9}}),
        ({"seeds": 4}, {"seeds": (4,)}),
        ({"space.lr": [1, 2]}, {"lr": Choice((1, 2))}),  # instead of the distribution
        ({"stop": None}, {"stop": None}),  # stop=none
        ({"stop.grace": 3, "stop.factor": 4}, {"stop": Halving(3, 4)}),
        ({"methods": "ditto"}, {"methods": ["ditto"], "keys": ["lr", "method.lam"]}),
        ({"method": "fedavg"}, {"methods": ["fedavg"]}),  # what is searched for ditto alone goes with it
        ({"lr": 0.5, "methods": "ditto", "space.method.lam": [1, 2]}, {"lr": None, "base": {"lr": 0.5}}),  # lr is fixed
        ({"method.lam": 0.5, "methods": "ditto"}, {"base": {"method.lam": 0.5}}),
    ],
)
def test_keys_win_over_the_file(overrides: dict[str, Any], expected: dict[str, Any], tmp_path: Path) -> None:
    request = read_request(_file(tmp_path), overrides)
    for key, value in expected.get("base", {}).items():
        assert request.base[key] == value
    if "seeds" in expected:
        assert request.seeds == expected["seeds"]
    if "stop" in expected:
        assert request.stop == expected["stop"]
    if "methods" in expected:
        assert list(request.spaces) == expected["methods"]
    if "keys" in expected:
        assert list(request.spaces["ditto"].dimensions) == expected["keys"]
    if "lr" in expected:
        assert next(iter(request.spaces.values())).dimensions.get("lr") == expected["lr"]


def test_the_folder_follows_from_what_was_asked(tmp_path: Path) -> None:
    source = _file(tmp_path)
    first = read_request(source, {}).folder
    assert first == read_request(source, {}).folder
    others = [{"rounds": 7}, {"seeds": 4}, {"space.lr": [1, 2]}, {"stop": None}, {"trials": 4}, {"search_seed": 1}]
    assert len({first, *(read_request(source, other).folder for other in others)}) == 7


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"trails": 3}, ["'trails'", "did you mean 'trials'"]),
        ({"trials": 0}, ["trials=0", "greater"]),
        ({"search": "gird"}, ["'gird'", "did you mean 'grid'"]),
        ({"stop": "halvng"}, ["'halvng'", "did you mean 'halving'"]),
        ({"stop": {"factor": 1}}, ["stop.factor=1", "greater than 1"]),
        ({"stop": {"graec": 1}}, ["stop.graec", "did you mean 'stop.grace'"]),
        ({"seeds": "a"}, ["seeds=a", "whole numbers"]),
        ({"seed": 0}, ["seed and seeds"]),
        ({"methods": None}, ["methods is missing"]),
        ({"methods": ["fedavg", "fedavg"]}, ["methods=fedavg,fedavg", "twice"]),
        ({"methods": ["fedavgg", "ditto"]}, ["fedavgg", "did you mean 'fedavg'"]),
        ({"space": None}, ["space is missing"]),
        ({"space": {"ditto": {"method.lam": [1, 2]}}}, ["no key for fedavg"]),
        ({"space": {"lr": [0.1, -1]}}, ["lr=-1"]),
        ({"space": {"lr": {"uniform": [-1, 1]}}}, ["lr=-1"]),
        ({"space": {"lrr": [1, 2]}}, ["unknown key 'lrr'", "did you mean 'lr'"]),
        ({"space": {"lr": [1, 2], "ditto": {"method.lamm": [1]}}}, ["method.lamm", "did you mean 'method.lam'"]),
        ({"space": {"lr": [1, 2], "eval_every": [5, 10]}}, ["space.eval_every", "stop=none"]),
        ({"space": {"rounds": [10, 20]}, "stop": "none"}, ["rounds", "under base and under space"]),
        ({"space": {"data": ["fl60", "digits"]}}, ["space.data", "cannot be compared"]),
        ({"base": {"data": "fl6"}}, ["fl6", "did you mean"]),
        ({"base": {"rounds": 3}}, ["data is missing"]),
        ({"name": "a/b"}, ["name=a/b"]),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_trained(
    changes: dict[str, Any], words: list[str], tmp_path: Path
) -> None:
    with pytest.raises(RequestError) as caught:
        read_request(_file(tmp_path, **changes), {})
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def test_names_and_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"unknown sweep 'panacea-jornal'; did you mean 'panacea-journal'"):
        read_request("panacea-jornal", {})
    with pytest.raises(RequestError, match="no such file"):
        read_request(str(tmp_path / "x.yaml"), {})


def test_the_journals_grid_is_the_printed_one() -> None:
    """Lin et al., TDSC 2025, section Hyperparameters."""
    (space,) = shipped_sweeps()["panacea-journal"].spaces.values()
    rates = (0.001, 0.003, 0.01, 0.03, 0.1)
    assert {key: dimension.corners for key, dimension in space.dimensions.items()} == {
        "lr": rates, "server_lr": rates, "method.lambda_d": (*rates, 0.3, 1),
    }  # fmt: skip
    assert space.size == 175


@pytest.mark.parametrize("name", list(shipped_sweeps()))
def test_shipped_files_say_where_they_come_from(name: str) -> None:
    request = shipped_sweeps()[name]
    request.check()  # every value is one that its method takes
    assert request.name == name
    assert request.about
    source = (Path(__file__).parents[3] / "src" / "panacea" / "sweeps" / f"{name}.yaml").read_text()
    assert source.startswith("#")
    assert "OURS" in source or "paper" in source


def test_no_key_is_needed_from_a_file_at_all() -> None:
    request = parse_request({"data": "fl60", "method": "fedavg", "space.lr": [0.1, 1]})
    assert request.search == "grid"
    assert request.seeds == (0,)
    assert request.stop is None  # nothing is stopped unless asked for
    assert parse_request({"data": "fl60", "method": "fedavg", "space.lr": [1, 2], "stop.grace": 5}).stop == Halving(5)
