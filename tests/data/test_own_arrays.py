"""The user's own arrays: what is accepted and what is inferred."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from panacea.data import Federation, Task, from_arrays
from panacea.errors import RequestError
from tests.data.own import AMOUNTS, LABELS, X, frames


def gathered(fed: Federation, client: int) -> tuple[np.ndarray, np.ndarray]:
    start, end = fed.bounds[client, 0], fed.bounds[client, 3]
    return fed.x[start:end].numpy(), fed.y[start:end].numpy()


def same_samples(fed: Federation, client: int, x: np.ndarray, y: np.ndarray) -> bool:
    """Whether a client has exactly these samples, in any order."""
    got = np.column_stack([part.reshape(len(part), -1) for part in gathered(fed, client)])
    want = np.column_stack([np.asarray(part, np.float32).reshape(len(part), -1) for part in (x, y)])
    return np.array_equal(got[np.lexsort(got.T)], want[np.lexsort(want.T)])


@pytest.mark.parametrize(
    "form",
    [
        lambda arrays: arrays,
        lambda arrays: [torch.as_tensor(array) for array in arrays],
        lambda arrays: [array.tolist() for array in arrays],
        tuple,
    ],
)
def test_every_form_of_array(form: Callable[[Any], Any]) -> None:
    fed = from_arrays(form(X), form(LABELS), edges=[(0, 1), (1, 2)])
    assert len(fed) == 3
    assert fed.task == Task("classification", (3,), classes=3)
    assert all(same_samples(fed, i, X[i], LABELS[i]) for i in range(3))
    assert fed.graph is not None
    assert fed.graph.edges.tolist() == [[0, 1], [1, 2]]
    assert (fed.counts("test") == [2, 1, 2]).all()


def test_one_array_for_all_clients_and_images() -> None:
    fed = from_arrays(np.zeros((4, 6, 1, 5, 5)), torch.zeros(4, 6, dtype=torch.long), classes=7)
    assert len(fed) == 4
    assert fed.task.inputs == (1, 5, 5)
    assert fed.task.classes == 7


def test_tensors_that_need_gradients_and_half_precision() -> None:
    x = [torch.ones(4, 2, dtype=torch.bfloat16, requires_grad=True)]
    assert from_arrays(x, [[0, 1, 0, 1]]).task.inputs == (2,)


@pytest.mark.parametrize(
    ("y", "kind", "outputs"),
    [
        ([[0, 1, 1, 0]], "classification", ()),
        ([[True, False, True, True]], "classification", ()),
        ([[[0], [1], [1], [0]]], "classification", ()),
        ([np.array([0, 1, 1, 2], np.uint8)], "classification", ()),
        ([["cat", "dog", "cat", "cat"]], "classification", ()),
        ([[0.5, 1, 1, 0]], "regression", (1,)),
        ([np.ones((4, 5)) * 0.5], "regression", (5,)),
        ([np.ones((4, 2, 3))], "regression", (2, 3)),
        ([np.ones((4, 5), int)], "regression", (5,)),
    ],
)
def test_the_task_is_inferred(y: Any, kind: str, outputs: tuple[int, ...]) -> None:
    fed = from_arrays([np.zeros((4, 2))], y)
    assert fed.task.kind == kind
    assert fed.task.outputs == outputs
    assert fed.y.dtype == (torch.int64 if kind == "classification" else torch.float32)
    assert fed.task.classes == (0 if kind != "classification" else 3 if y[0][-1] == 2 else 2)


def test_one_client_with_whole_amounts_does_not_make_labels() -> None:
    fed = from_arrays([np.zeros((2, 1))] * 2, [np.array([3, 4]), np.array([0.5, 2.0])])
    assert fed.task.kind == "regression"


def test_notes_on_doubtful_targets() -> None:
    whole = from_arrays([np.zeros((3, 1))], [np.array([0.0, 1.0, 2.0])])
    assert "task='classification'" in whole.notes[0]
    many = from_arrays([np.zeros((3, 1))], [np.array([0, 1, 250])])
    assert many.task.classes == 251
    assert "task='regression'" in many.notes[0]


def test_the_task_can_be_said() -> None:
    whole = [np.array([0.0, 1.0, 2.0])]
    assert from_arrays([np.zeros((3, 1))], whole, task="classification").task.classes == 3
    counts = from_arrays([np.zeros((3, 1))], [[7, 8, -9]], task="regression")
    assert counts.task.outputs == (1,)
    task = Task("regression", (1,), (), scale="degrees")
    assert from_arrays([np.zeros((3, 1))], [[7, 8, 9]], task=task).y.shape == (3,)
    named = from_arrays([np.zeros((3, 1))], [["b", "a", "b"]], task=Task("classification", (1,), (), 2, "", ("b", "a")))
    assert named.task.class_names == ("b", "a")
    assert sorted(named.y.tolist()) == [0, 0, 1]


def test_forecasting_is_split_by_time() -> None:
    x = np.arange(20.0).reshape(20, 1)
    fed = from_arrays([x], [np.repeat(x, 4, axis=1)], task="forecasting", scale="km/h")
    assert fed.x[:, 0].tolist() == list(range(20))
    assert fed.task.outputs == (4,)
    assert fed.task.scale == "km/h"
    mixed = from_arrays([x], [x], task="forecasting", chronological=False)
    assert mixed.x[:, 0].tolist() != list(range(20))
    assert from_arrays([x], [x], chronological=True).x[:, 0].tolist() == list(range(20))


def test_class_names_are_sorted_over_all_clients() -> None:
    fed = from_arrays([np.arange(2.0), np.arange(2.0)], [["owl", "cat"], ["bee", "cat"]], val=0, test=0)
    assert fed.task.class_names == ("bee", "cat", "owl")
    assert sorted(gathered(fed, 0)[1].tolist()) == [1, 2]
    assert sorted(gathered(fed, 1)[1].tolist()) == [0, 1]
    given = from_arrays([np.arange(2.0)], [["owl", "cat"]], classes=["owl", "cat", "bee"])
    assert given.task.classes == 3
    numbered = from_arrays([np.arange(3.0)], [["1", "2", "2b"]], task="classification")
    assert numbered.task.class_names == ("1", "2", "2b")


def test_frames_with_named_default_and_several_targets() -> None:
    fed = from_arrays(frames(), names=["a", "b", "c"])
    assert fed.task == Task("regression", (3,), (1,))
    assert all(same_samples(fed, i, X[i], AMOUNTS[i]) for i in range(3))
    wind = from_arrays(frames(), "wind")
    assert same_samples(wind, 0, np.column_stack([X[0][:, [0, 2]], AMOUNTS[0]]), X[0][:, 1])
    assert from_arrays(frames(), ["wind", "load"]).task.outputs == (2,)
    renamed = [frame.rename(columns={"temp": "target"}) for frame in frames()]
    assert same_samples(from_arrays(renamed), 0, np.column_stack([X[0][:, 1:], AMOUNTS[0]]), X[0][:, 0])
    shuffled = [frames()[0], frames()[1][["rain", "temp", "load", "wind"]]]
    assert same_samples(from_arrays(shuffled, "load"), 1, X[1], AMOUNTS[1])  # columns are found by name
    apart = from_arrays([frame[["temp", "wind"]] for frame in frames()], LABELS)
    assert apart.task.classes == 3
    words = [frame.assign(load=pd.Categorical(["lo", "hi"] * 20)[: len(frame)]) for frame in frames()]
    assert from_arrays(words).task.class_names == ("hi", "lo")
    nullable = [frame.assign(load=pd.array([0, 1] * 20, dtype="Int64")[: len(frame)]) for frame in frames()]
    assert from_arrays(nullable).task.kind == "classification"


def test_a_dict_gives_the_names() -> None:
    fed = from_arrays({"rome": X[0], "oslo": X[1]}, {"oslo": LABELS[1], "rome": LABELS[0]}, edges=[("oslo", "rome")])
    assert fed.names == ("rome", "oslo")
    assert same_samples(fed, 0, X[0], LABELS[0])
    assert from_arrays(dict(zip("abc", frames(), strict=True))).names == ("a", "b", "c")


def test_given_test_samples_stay_test_samples() -> None:
    fed = from_arrays(X, LABELS, x_test=[x[:4] + 100 for x in X], y_test=[y[:4] for y in LABELS])
    for i in range(3):
        assert (fed.client(i, "test")[0].numpy() > 50).all()
        assert (fed.client(i, "train")[0].numpy() < 50).all()
        assert fed.counts("test")[i] == 4
    with pytest.raises(RequestError, match="x_test"):
        from_arrays(X, LABELS, x_test=X[:1], y_test=LABELS[:1])
    bad = [x.copy() for x in X]
    bad[1][2, 1] = np.nan
    with pytest.raises(RequestError, match=r"client '1', row 2 \(from 0\), column 1 of x_test: nan"):
        from_arrays(X, LABELS, x_test=bad, y_test=LABELS)


def test_a_split_column_says_what_is_test() -> None:
    marked = [frame.assign(split=["train"] * (len(frame) - 3) + ["test"] * 3) for frame in frames()]
    fed = from_arrays(marked, "load")
    assert (fed.counts("test") == 3).all()
    assert fed.task.inputs == (3,)
    np.testing.assert_allclose(fed.client(1, "test")[1][:, 0], AMOUNTS[1][-3:], rtol=1e-6)
    first = [frame.assign(split=["test"] * 3 + ["train"] * (len(frame) - 3)) for frame in frames()]
    first[1].loc[4, "load"] = np.nan
    with pytest.raises(RequestError, match=r"client '1', row 4 \(from 0\), column 'load': nan"):  # its own number
        from_arrays(first, "load")
    marked[1].loc[2, "split"] = "tset"
    with pytest.raises(RequestError, match="client '1' row 2, column 'split': 'tset' is not train or test"):
        from_arrays(marked, "load")


def test_groups_features_and_novel_clients() -> None:
    fed = from_arrays(
        X, LABELS, groups=["north", "south", "north"], features=[[0, 1], [2, 3], [4, 5]], novel=0.3, seed=4
    )
    assert fed.groups is not None
    assert fed.groups.tolist() == [0, 1, 0]
    assert fed.features is not None
    assert fed.features.dtype == np.float32
    assert fed.novel.sum() == 1
    assert from_arrays(X, LABELS, groups=np.array([7, 7, 8])).groups.tolist() == [7, 7, 8]


def test_edges_by_name_weight_and_frame() -> None:
    names = ["a", "b", "c"]
    fed = from_arrays(X, LABELS, names=names, edges=[("c", "a", 0.5), ("a", "b", 2)])
    assert fed.graph is not None
    assert fed.graph.edges.tolist() == [[0, 1], [0, 2]]
    assert fed.graph.weights.tolist() == [2.0, 0.5]
    table = pd.DataFrame({"source": ["a", "b"], "target": ["b", "c"], "weight": [1.0, 3.0]})
    assert from_arrays(X, LABELS, names=names, edges=table).graph.weights.tolist() == [1.0, 3.0]
    array = np.array([[0, 2, 0.25]])
    assert from_arrays(X, LABELS, edges=array).graph.edges.tolist() == [[0, 2]]
    assert len(from_arrays(X, LABELS, edges=[]).graph.edges) == 0


def test_self_loops_are_dropped_with_a_note() -> None:
    fed = from_arrays(X, LABELS, edges=[(0, 0), (0, 1), (2, 2)])
    assert fed.graph is not None
    assert fed.graph.edges.tolist() == [[0, 1]]
    assert fed.notes == ("edges: 2 self loop(s) dropped",)


def test_the_classmethod_is_the_same() -> None:
    ours, theirs = Federation.from_arrays(X, LABELS, seed=3), from_arrays(X, LABELS, seed=3)
    assert bool((ours.x == theirs.x).all())


def test_given_arrays_are_not_changed_or_shared() -> None:
    kept = [x.astype(np.float32) for x in X]
    fed = from_arrays(kept, LABELS, chronological=True)
    fed.x.zero_()
    assert all((array != 0).all() for array in kept)
