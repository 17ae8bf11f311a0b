"""One picture of a data set: who is shown, where, and that gaps break nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from panacea.data import Federation, Task, load, registry
from panacea.data.overview import evenly, federation_picture, some_clients
from panacea.data.picture import label_picture, places
from panacea.data.profile import client_profiles
from panacea.data.registry import Card
from panacea.data.series import Series, SeriesKeys, forecasting
from panacea.errors import RequestError
from panacea.graphs import build


def _series(clients: int = 30) -> Federation:
    stream = np.random.default_rng(0)
    values = stream.normal(size=(clients, 200)).astype(np.float32)
    values[:, 20:60] = np.nan
    where = stream.random((clients, 2)).astype(np.float32)
    names = tuple(f"s{i}" for i in range(clients))
    series = Series(values, names, "mph", graph=build.knn(where.astype(float), 2), features=where)
    return forecasting("gaps", series, SeriesKeys(), "raw").hold_out(0.2, 0)


def test_sixteen_clients_are_chosen_evenly() -> None:
    assert evenly(207, 16)[[0, -1]].tolist() == [0, 206]
    assert len(evenly(207, 16)) == 16
    assert evenly(16, 16).tolist() == list(range(16))
    assert evenly(1, 4).tolist() == [0]
    federation = load("digits")
    some = some_clients(federation, 4)
    assert some.names == ("0", "6", "13", "19")
    assert torch.equal(some.client(2)[0], federation.client(13)[0])
    assert some.groups is not None
    assert some.groups.tolist() == [0, 1, 3, 4]
    assert some_clients(federation, 20) is federation


@pytest.mark.parametrize(
    ("federation", "words"),
    [
        (
            lambda: load("fl60"),
            ["fl60: 6,000 samples of 60 clients", "labels of 16 clients (evenly", "class 1"],
        ),
        (lambda: load("digits"), ["group 4", "relation graph: 20 clients, 30 edges", "client 13", "39 samples"]),
        (lambda: load("digits", split="iid", clients=3), ["labels of 3 clients", "client 2"]),
        (
            _series,
            ["targets of 16 clients", "mph", "client s29", "map: 30 clients", "held out of training"],
        ),
        (lambda: load("fl60", clients=1), ["fl60: 100 samples of 1 client"]),
    ],
)
def test_the_picture_says_what_it_shows(federation, words: list[str], tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    svg = federation_picture(federation(), tmp_path / "new" / "p.svg").read_text()
    for word in words:
        assert word in svg


def test_a_client_without_any_observed_target_breaks_nothing(tmp_path: Path) -> None:
    y = torch.full((6, 2), torch.nan)
    y[:3] = 1.0
    task = Task("forecasting", inputs=(2, 1), outputs=(2,), missing=True)
    bounds = np.array([[0, 1, 2, 3], [3, 4, 5, 6]])
    graph = build.complete(2)
    federation = Federation("empty", task, torch.zeros(6, 2, 1), y, bounds, ("a", "b"), graph=graph)
    assert federation_picture(federation, tmp_path / "p.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert label_picture(federation, tmp_path / "l.png").stat().st_size > 5000
    assert np.isfinite(client_profiles(federation)).all()


def test_means_leave_missing_targets_out() -> None:
    y = torch.tensor([[1.0, torch.nan], [3.0, 8.0], [torch.nan, torch.nan], [5.0, 2.0]])
    task = Task("regression", inputs=(1,), outputs=(2,), missing=True)
    bounds = np.array([[0, 2, 2, 2], [2, 4, 4, 4]])
    federation = Federation("means", task, torch.zeros(4, 1), y, bounds, ("a", "b"))
    assert client_profiles(federation) == pytest.approx(np.array([[2 / 1.5, 8 / 3], [5 / 1.5, 2 / 3]]))


def test_too_many_clients_to_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("panacea.data.picture.DRAWN_UP_TO", 5)
    assert "too many to draw" in federation_picture(load("fl60"), tmp_path / "p.svg").read_text()


def test_other_suffixes(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"a\.pdf: the picture must be a \.png or \.svg file"):
        federation_picture(load("fl60", clients=3), tmp_path / "a.pdf")


def test_longitude_goes_east(monkeypatch: pytest.MonkeyPatch) -> None:
    registry.dataset_names()
    entry = replace(registry.find_dataset("fl60"), card=Card(features=("height", "northing", "longitude")))
    monkeypatch.setitem(registry._ENTRIES, "gaps", entry)
    plain = _series(3)
    where = np.array([[9, 34.0, -118.0], [8, 35.0, -118.5], [7, 34.5, -117.0]], np.float32)
    found = places(replace(plain, features=where))
    assert found is not None
    assert found.tolist() == [[-118.0, 34.0], [-118.5, 35.0], [-117.0, 34.5]]
    scaled = np.array([[9, 0.0, 1.0], [8, 1.0, 0.5], [7, 0.5, 0.0]], np.float32)
    found = places(replace(plain, features=scaled))
    assert found is not None
    assert found.tolist() == [[1.5, 0.0], [0.75, 1.0], [0.0, 0.5]]  # three to two: the true shape is not known
    assert places(replace(plain, features=where[:, :1])) is None
    assert places(replace(plain, features=None)) is None
    own = places(replace(plain, name="own", features=where[:, 1:]))  # nothing says which is which
    assert own is not None
    assert own[0].tolist() == [34.0, -118.0]
