"""TPT-48: NOAA's file, the npz, and the numbers that fix the scale. The parser is tested on a generated file."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from panacea.data import Federation, find_dataset, load
from panacea.data.scaling import min_max_per_client
from panacea.data.sources._states import BORDERS, STATES, places
from panacea.data.sources._tpt48_files import read_record
from panacea.data.task import Task
from panacea.errors import RequestError
from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment
from panacea.experiment.keys import parse_overrides
from tests.data.temperatures import NOAA, noaa_folder, real_folder, same, temperatures


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return noaa_folder(tmp_path)


def test_the_raw_file(root: Path) -> None:
    record = read_record(root)
    assert np.array_equal(record.fahrenheit, temperatures().astype(np.float32))
    fed = load("tpt48", root=root)
    assert repr(fed) == "Federation(tpt48: 48 clients (10 novel), 6000 samples, regression, 105 edges)"
    assert fed.names == STATES
    assert fed.names[:3] == ("AL", "AR", "AZ")
    assert fed.task == Task("regression", inputs=(6,), outputs=(6,), scale="per-client min-max")
    assert (fed.counts("train") == 90).all()
    assert (fed.counts("val") == 10).all()
    assert (fed.counts("test") == 25).all()
    assert fed.features is not None
    assert fed.features.shape == (48, 2)


def test_samples_are_years_scaled_by_the_train_split(root: Path) -> None:
    """Undoing the scale gives each year once, its first half as input and its second as target."""
    fed, months = load("tpt48", root=root, seed=3), temperatures()
    for client in (0, 17, 47):
        train = torch.cat([part.flatten() for part in fed.client(client)])
        assert float(train.min()) == 0
        assert float(train.max()) == 1
        parts = [torch.cat(fed.client(client, split), dim=1).numpy() for split in ("train", "val", "test")]
        rows = np.concatenate(parts).astype(np.float64)
        slope, offset = np.polyfit(np.sort(rows.ravel()), np.sort(months[client].ravel()), 1)
        assert sorted(np.round(rows * slope + offset, 2).tolist()) == sorted(months[client].tolist())


def test_sliding_windows(root: Path) -> None:
    """133 windows of 2008..2019, each a month later than the one before, first train, then val, then test."""
    fed = load("tpt48", root=root, window="sliding", seed=5)
    assert repr(fed) == "Federation(tpt48: 48 clients (10 novel), 6384 samples, regression, 105 edges)"
    assert [int(fed.counts(split)[0]) for split in ("train", "val", "test")] == [95, 11, 27]
    assert fed.task == Task("regression", inputs=(6,), outputs=(6,), scale="per-client min-max")
    assert fed.notes == ()
    months = temperatures()[:, -12:].reshape(48, 144)
    for client in (0, 47):
        own = months[client]
        low, high = own[: 95 + 11].min(), own[: 95 + 11].max()  # the months that train windows see
        scaled = (own - low) / (high - low)
        windows = torch.cat([torch.cat(fed.client(client, split), dim=1) for split in ("train", "val", "test")])
        expected = np.stack([scaled[i : i + 12] for i in range(133)])
        assert windows.numpy() == pytest.approx(expected, abs=1e-6)


def test_train_and_test_windows_share_no_month(root: Path) -> None:
    fed = load("tpt48", root=root, window="sliding")
    train, test = int(fed.counts("train")[0]), 133 - int(fed.counts("test")[0])
    assert train - 1 + 11 < test  # the last month of the last train window comes before the first test window
    few = load("tpt48", root=root, window="sliding", val=0.05)
    assert int(few.counts("val")[0]) == 5
    assert few.notes == (
        "6 months are in both train and test windows; more validation windows (data.val) would part them",
    )
    none = load("tpt48", root=root, window="sliding", val=0)
    assert none.notes[0].startswith("11 months")
    assert load("tpt48", root=root, val=0).notes == ()  # years share none


@pytest.mark.parametrize("given", ["2008..2019", [2008, 2019], (2008, 2019), list(range(2008, 2020))])
def test_years(root: Path, given: object) -> None:
    fed = load("tpt48", root=root, years=given)
    assert (fed.counts("train") + fed.counts("val") + fed.counts("test") == 12).all()
    months = temperatures()[3, -12:]
    rows = np.concatenate([torch.cat(fed.client(3, split), dim=1).numpy() for split in ("train", "val", "test")])
    assert np.sort(rows[:, 0]).tolist() == pytest.approx(  # a January per year, scaled by an increasing function
        np.interp(np.sort(months[:, 0]), [months.min(), months.max()], [rows.min(), rows.max()]).tolist(), abs=1e-4
    )
    assert same(load("tpt48", root=root, window="sliding", years=given), load("tpt48", root=root, window="sliding"))


def test_years_of_the_command_line(root: Path) -> None:
    keys = parse_overrides(["data=tpt48", "data.window=sliding", "data.years=1990..2019", "method=fedavg", "rounds=1"])
    experiment = Experiment(build_config(keys | {"data.root": str(root)}))
    assert experiment.federation.counts("train").tolist() == [251] * 48  # 349 windows
    assert experiment.target.layout.size == 486  # the same network


@pytest.mark.parametrize(
    "given",
    ["2008", "2019..2008", "1894..2000", "2000..2020", [2008], [2008, 2010, 2012], ["a", "b"], 2008, [True, 2000]],
)
def test_wrong_years(root: Path, given: object) -> None:
    with pytest.raises(
        RequestError, match=r"^data\.years=.*: must be FIRST\.\.LAST, two or more years within 1895\.\.2019$"
    ):
        load("tpt48", root=root, years=given)


def test_the_scale_never_sees_val_or_test() -> None:
    x = [np.arange(10.0)[:, None], 5 * np.arange(10.0)[:, None]]
    fed = Federation.from_clients(
        [(part, part + 1) for part in x], task=Task("regression", (1,), (1,)), chronological=True
    )
    scaled = min_max_per_client(fed)
    assert scaled.counts("train").tolist() == [7, 7]
    assert scaled.client(0)[0].flatten().tolist() == pytest.approx([v / 7 for v in range(7)])
    assert scaled.client(0)[1].flatten().tolist() == pytest.approx([(v + 1) / 7 for v in range(7)])
    assert float(scaled.client(0, "test")[1].max()) == pytest.approx(10 / 7)
    assert float(scaled.client(1)[1].max()) == 1
    flat = Federation.from_clients([(np.ones((5, 1)), np.ones((5, 1)))], task=Task("regression", (1,), (1,)))
    with pytest.raises(RequestError, match="client '0' has the same value everywhere"):
        min_max_per_client(flat)


def test_gzip_and_an_edge_list_of_its_own(root: Path) -> None:
    plain = load("tpt48", root=root)
    path = root / "tpt48" / NOAA
    path.with_name(f"{NOAA}.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    assert same(load("tpt48", root=root), plain)
    (root / "tpt48" / "usa_map.txt").write_text("".join(f"{b} {a}\n" for a, b in BORDERS) + "DC MD\nDC VA\n")
    assert same(load("tpt48", root=root), plain)
    (root / "tpt48" / "usa_map.txt").write_text("AL FL\n\nTX OK\n")
    graph = load("tpt48", root=root).graph
    assert graph is not None
    assert [[STATES[end] for end in edge] for edge in graph.edges] == [["AL", "FL"], ["OK", "TX"]]


def test_fewer_clients(root: Path) -> None:
    fed = load("tpt48", root=root, clients=5, novel=0.0)
    whole = load("tpt48", root=root, novel=0.0)
    assert fed.names == STATES[:5]
    assert fed.graph is not None
    assert [tuple(STATES[end] for end in edge) for edge in fed.graph.edges] == [("AZ", "CA")]
    assert torch.equal(fed.client(4)[0], whole.client(4)[0])
    with pytest.raises(RequestError, match=r"data\.clients=49: tpt48 has 48 clients"):
        load("tpt48", root=root, clients=49)
    with pytest.raises(RequestError, match=r"data\.window=weekly: must be 'yearly' or 'sliding'"):
        load("tpt48", root=root, window="weekly")


def test_defaults_and_the_network(root: Path) -> None:
    defaults = find_dataset("tpt48").defaults
    assert (defaults.lr, defaults.rounds, defaults.cohort, defaults.novel) == (0.03, 800, 5, 0.2)
    experiment = Experiment(build_config({"data": "tpt48", "data.root": str(root), "method": "fedavg", "rounds": 1}))
    assert experiment.config.model.name == "mlp"
    assert experiment.target.layout.size == 486  # 6-16-16-6


def test_facts() -> None:
    assert len(STATES) == len(set(STATES)) == 48
    assert len(BORDERS) == len(set(BORDERS)) == 105
    assert all(a < b for a, b in BORDERS)
    spread = places()
    assert spread.min(axis=0).tolist() == [0, 0]
    assert spread.max(axis=0).tolist() == [1, 1]
    assert STATES[int(spread[:, 0].argmin())] == "FL"
    assert STATES[int(spread[:, 1].argmax())] == "ME"


@pytest.mark.parametrize("seed", range(5))
def test_constant_predictors_on_the_real_data(real_data: Path, seed: int) -> None:
    """What fixes the scale: the published errors are those of predicting means, in this scale and no other."""
    fed = load("tpt48", root=real_folder(real_data), seed=seed)
    own = [fed.client(i)[1].mean(dim=0) for i in range(48)]
    mean = torch.stack(own).mean(dim=0)
    tests = [fed.client(i, "test")[1] for i in range(48)]
    everyone = np.mean([float((y - mean).square().mean()) for y in tests])
    each = np.mean([float((y - guess).square().mean()) for y, guess in zip(tests, own, strict=True)])
    assert 2.5e-3 < everyone < 2.9e-3
    assert 2.0e-3 < each < 2.3e-3
