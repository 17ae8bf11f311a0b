"""Floors against numbers worked out by hand, and against plain numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from panacea.data import Federation, Task, load
from panacea.data.series import Series, SeriesKeys, forecasting
from panacea.evaluation import floors as module
from panacea.evaluation.floor_table import client_floors, floor_rows
from panacea.evaluation.floors import floors

Floats = npt.NDArray[np.float64]


def _federation(
    clients: list[tuple[list[object], list[object]]], task: Task, novel: list[bool] | None = None
) -> Federation:
    """Per client (train, test), each (x, y); no validation samples."""
    parts = [part for client in clients for part in client]
    labels = task.kind == "classification"
    x = torch.cat([torch.tensor(part[0], dtype=torch.float32) for part in parts])
    y = torch.cat([torch.tensor(part[1], dtype=torch.int64 if labels else torch.float32) for part in parts])
    bounds, place = [], 0
    for train, test in clients:
        middle = place + len(train[0])  # type: ignore[arg-type]
        bounds.append([place, middle, middle, middle + len(test[0])])  # type: ignore[arg-type]
        place = bounds[-1][-1]
    names = tuple(f"c{i}" for i in range(len(clients)))
    mask = np.array(novel if novel is not None else [False] * len(clients))
    return Federation("tiny", task, x, y, np.array(bounds, np.int64), names, novel=mask)


def _scores(federation: Federation) -> dict[str, list[float]]:
    return {floor.name: floor.metric.tolist() for floor in floors(federation)}


def test_constants_by_hand() -> None:
    task = Task("regression", inputs=(1,), outputs=(2,))
    federation = _federation(
        [
            ([[[0], [0]], [[1, 0], [3, 4]]], [[[0]], [[2, 5]]]),  # type: ignore[list-item]
            ([[[0]], [[6, 1]]], [[[0], [0]], [[6, 1], [8, 1]]]),  # type: ignore[list-item]
        ],
        task,
    )
    found = _scores(federation)
    # means of all three train samples: 10/3 and 5/3
    first = ((2 - 10 / 3) ** 2 + (5 - 5 / 3) ** 2) / 2
    second = np.mean([(6 - 10 / 3) ** 2, (1 - 5 / 3) ** 2, (8 - 10 / 3) ** 2, (1 - 5 / 3) ** 2])
    assert found["constant"] == pytest.approx([first, second])
    assert found["client_constant"] == pytest.approx([(0 + 9) / 2, 4 / 4])  # means (2, 2) and (6, 1)


def test_missing_values_and_ragged_clients_by_hand() -> None:
    gap = float("nan")
    task = Task("regression", inputs=(1,), outputs=(2,), missing=True)
    federation = _federation(
        [
            ([[[0], [0], [0]], [[1, gap], [3, 4], [gap, gap]]], [[[0], [0]], [[2, gap], [5, 8]]]),  # type: ignore[list-item]
            ([[[0]], [[6, gap]]], [[[0]], [[gap, gap]]]),  # type: ignore[list-item]
            ([[[0]], [[gap, 10]]], [[[0]], [[gap, 10]]]),  # type: ignore[list-item]
        ],
        task,
    )
    found = _scores(federation)
    # pooled means over observed values: (1 + 3 + 6)/3 and (4 + 10)/2; a client's error is over its observed values
    expected = ((2 - 10 / 3) ** 2 + (5 - 10 / 3) ** 2 + (8 - 7) ** 2) / 3
    assert found["constant"][0] == pytest.approx(expected)
    assert np.isnan(found["constant"][1])  # nothing of it was observed
    assert found["constant"][2] == pytest.approx(9)
    assert found["client_constant"][0] == pytest.approx((0 + 9 + 16) / 3)
    assert found["client_constant"][2] == pytest.approx(0)


def test_an_output_a_client_never_observed_is_its_other_outputs_mean() -> None:
    gap = float("nan")
    task = Task("regression", inputs=(1,), outputs=(2,), missing=True)
    federation = _federation([([[[1], [2]], [[4, gap], [6, gap]]], [[[1]], [[gap, 7]]])], task)  # type: ignore[list-item]
    found = _scores(federation)
    assert found["client_constant"] == pytest.approx([4])  # 5 is predicted
    assert found["client_linear"] == pytest.approx([4])


def _random(missing: bool, clients: int = 4) -> Federation:
    stream = np.random.default_rng(1)
    parts = []
    for client in range(clients):
        pair = []
        for samples in (12 + 5 * client, 4 + client):
            x = stream.normal(size=(samples, 3))
            y = x @ stream.normal(size=(3, 2)) + client + 0.3 * stream.normal(size=(samples, 2))
            if missing:
                y[stream.random(y.shape) < 0.3] = np.nan
            pair.append([x.tolist(), y.tolist()])
        parts.append(tuple(pair))
    task = Task("regression", inputs=(3,), outputs=(2,), missing=missing)
    return _federation(parts, task, [False, True, False, False])  # type: ignore[arg-type]


def _least_squares(x: Floats, y: Floats, x_test: Floats) -> Floats:
    """By numpy, each output on the rows where it was observed."""
    rows, test = (np.hstack([part, np.ones((len(part), 1))]) for part in (x, x_test))
    seen = ~np.isnan(y)
    columns = [np.linalg.lstsq(rows[seen[:, h]], y[seen[:, h], h], rcond=None)[0] for h in range(y.shape[1])]
    return np.asarray(test @ np.array(columns).T)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("batch", [None, 6])
def test_linear_models_are_numpys(missing: bool, batch: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if batch is not None:
        monkeypatch.setattr(module, "_BATCH", batch)  # two samples at a time
    federation = _random(missing)
    data = [
        [tensor.double().numpy() for split in ("train", "test") for tensor in federation.client(i, split)]
        for i in range(4)
    ]
    trained = [data[i] for i in federation.train_ids]  # novel clients take no part
    x, y = np.concatenate([d[0] for d in trained]), np.concatenate([d[1] for d in trained])
    found = _scores(federation)
    for i, (own_x, own_y, test_x, test_y) in enumerate(data):
        pooled = np.nanmean((_least_squares(x, y, test_x) - test_y) ** 2)
        own = np.nanmean((_least_squares(own_x, own_y, test_x) - test_y) ** 2)
        assert found["linear"][i] == pytest.approx(pooled, rel=1e-5)
        assert found["client_linear"][i] == pytest.approx(own, rel=1e-5)
        assert found["constant"][i] == pytest.approx(np.nanmean((np.nanmean(y, axis=0) - test_y) ** 2), rel=1e-5)


def test_classes_by_hand() -> None:
    task = Task("classification", inputs=(1,), classes=3)
    federation = _federation(
        [
            ([[[0], [2], [10]], [0, 0, 1]], [[[1], [9], [9], [5]], [0, 1, 2, 0]]),  # type: ignore[list-item]
            ([[[4], [4]], [1, 1]], [[[4], [4]], [1, 0]]),  # type: ignore[list-item]
        ],
        task,
    )
    found = _scores(federation)
    assert set(found) == {
        "majority", "client_majority", "nearest_mean", "client_nearest_mean", "linear", "client_linear"
    }  # fmt: skip
    assert found["majority"] == [25, 50]  # class 1, 3 of 5 samples
    assert found["client_majority"] == [50, 50]
    assert found["nearest_mean"] == [50, 50]  # means 1 and 6; class 2 has none and never wins: 0 1 1 1
    assert found["client_nearest_mean"] == [75, 50]  # means 1 and 10: 0 1 1 0
    assert found["client_linear"] == [75, 50]  # class 1 at x = 5: 1/3 + 6/56 < 1/2


def test_one_against_all_is_numpys() -> None:
    federation = load("digits", novel=0.25)
    found = _scores(federation)
    trained = [federation.client(i, "train") for i in federation.train_ids]
    x = np.concatenate([part[0].flatten(1).double().numpy() for part in trained])
    labels = np.concatenate([part[1].numpy() for part in trained])
    values = _least_squares(x, np.eye(10)[labels], np.concatenate([federation.client(2, "test")[0].flatten(1).numpy()]))
    expected = 100 * np.mean(values.argmax(axis=1) == federation.client(2, "test")[1].numpy())
    assert found["linear"][2] == pytest.approx(expected)


def _series(scale: str = "raw") -> Federation:
    values = np.array([[1, 2, 4, 8, np.nan, 32, 64, 128], [5, 5, 5, 6, 5, 5, 7, 5]], np.float32)
    keys = SeriesKeys(length=2, horizon=2, test=0.4, val=0.0)
    return forecasting("doubling", Series(values, ("a", "b"), "units", clock=np.zeros(8, np.float32)), keys, scale)  # type: ignore[arg-type]


def test_persistence_repeats_the_last_observed_value() -> None:
    found = _scores(_series())
    # five windows, test are the last two: inputs end at step 4 (missing: 8 from step 3 stands in) and 5
    errors = [(8 - 32) ** 2, (8 - 64) ** 2, (32 - 64) ** 2, (32 - 128) ** 2]
    assert found["persistence"][0] == pytest.approx(np.mean(errors))
    assert found["persistence"][1] == pytest.approx(np.mean([0, 4, 4, 0]))
    assert "persistence" not in _scores(_random(missing=False))


def test_wide_inputs() -> None:
    stream = np.random.default_rng(0)
    images = torch.from_numpy(stream.random((8, 3, 30, 31), np.float32))
    labels = torch.tensor([0, 1] * 4)
    bounds = np.array([[0, 6, 6, 8]])
    seen = Federation("wide", Task("classification", inputs=(3, 30, 31), classes=2), images, labels, bounds, ("a",))
    prepare, width = module._preparation(seen.task)
    assert width == 3 * 15 * 16 + 1
    assert prepare(images)[0, 0] == pytest.approx(float(images[0, 0, :2, :2].mean()))
    assert "linear" in _scores(seen)
    flat = Federation(
        "wide", Task("classification", inputs=(2790,), classes=2), images.flatten(1), labels, bounds, ("a",)
    )
    assert set(_scores(flat)) == {"majority", "client_majority"}


def test_bytes_and_rows_with_an_order_of_their_own() -> None:
    stream = np.random.default_rng(0)
    pixels = torch.from_numpy(stream.integers(0, 256, (40, 1, 4, 4), np.uint8))
    labels = torch.from_numpy(stream.integers(0, 3, 40))
    rows = torch.from_numpy(stream.permutation(40))
    bounds = np.array([[0, 15, 15, 20], [20, 32, 32, 40]])
    task = Task("classification", inputs=(1, 4, 4), classes=3)
    stored = Federation("stored", task, pixels, labels, bounds, ("a", "b"), rows=rows)
    plain = Federation("plain", task, pixels[rows].float() / 255, labels, bounds, ("a", "b"))
    assert _scores(stored) == _scores(plain)


def test_rows_over_seeds_and_groups() -> None:
    runs = [(federation := load("fl60", seed=seed, clients=10), floors(federation)) for seed in (0, 1)]
    rows = {row["name"]: row for row in floor_rows(runs)}
    values = [next(floor.metric for floor in found if floor.name == "linear") for _, found in runs]
    numbers = rows["linear"]["all"]
    assert numbers["mean"] == pytest.approx(np.mean(values))
    assert numbers["std"] == pytest.approx(np.mean([one.std() for one in values]))
    assert numbers["std_seeds"] == pytest.approx(np.std([one.mean() for one in values], ddof=1))
    held = [one[federation.novel] for one, (federation, _) in zip(values, runs, strict=True)]
    assert rows["linear"]["novel"]["mean"] == pytest.approx(np.mean(held))
    assert (rows["linear"]["training"]["clients"], rows["linear"]["novel"]["clients"]) == (8, 2)
    header, lines = client_floors(runs, [0, 1])
    assert len(lines) == 20
    assert lines[13][header.index("linear")] == values[1][3]
    alone = floor_rows([(fed := load("digits", clients=10, split="iid"), floors(fed))])
    assert alone[0]["novel"] is None
    assert alone[0]["all"]["std_seeds"] is None


def test_windows_stay_shared() -> None:
    """All windows of these series would take 24 times their memory, far more than the batches may."""
    values = np.random.default_rng(0).normal(size=(3, 60_000)).astype(np.float32)
    federation = forecasting("long", Series(values, ("a", "b", "c"), "units"), SeriesKeys(), "raw")
    steps = []
    found = floors(federation, lambda: steps.append(1))
    assert len(steps) == 6
    constant, persistence = (next(f.metric for f in found if f.name == name) for name in ("constant", "persistence"))
    assert constant == pytest.approx(1, rel=0.05)  # white noise: its variance, and twice that
    assert persistence == pytest.approx(2, rel=0.05)


def test_published_floors_of_tpt48(real_data: Path) -> None:
    """Spec: 2.7 ± 0.9, 2.4 ± 0.6 and 2.1 ± 0.4 x 1e-3, mean of five splits within 0.15."""
    if not (real_data / "tpt48").is_dir():
        pytest.skip("no tpt48 files here")
    runs = [(fed := load("tpt48", seed=seed, root=real_data), floors(fed)) for seed in range(5)]
    rows = {row["name"]: row["all"] for row in floor_rows(runs)}
    for name, mean, std in (("constant", 2.7, 0.9), ("linear", 2.4, 0.6), ("client_constant", 2.1, 0.4)):
        assert 1e3 * rows[name]["mean"] == pytest.approx(mean, abs=0.15)
        assert 1e3 * rows[name]["std"] == pytest.approx(std, abs=0.15)
