"""The user's own arrays: every way to be told what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from panacea.data import Task, from_arrays
from panacea.errors import RequestError
from tests.data.own import AMOUNTS, LABELS, X, frames


def changed(arrays: list[np.ndarray], client: int, index: Any, value: Any) -> list[np.ndarray]:
    made = [array.copy() for array in arrays]
    made[client][index] = value
    return made


def frame_with(column: str, row: int, value: object) -> list[pd.DataFrame]:
    made = frames()
    made[1][column] = made[1][column].astype(object)
    made[1].loc[row, column] = value
    return made


BAD: list[tuple[Callable[[], object], str]] = [
    (lambda: from_arrays(changed(X, 1, (2, 1), np.nan), LABELS), "client '1', row 2 (from 0), column 1 of x: nan"),
    (lambda: from_arrays(changed(X, 2, (0, 2), -np.inf), LABELS), "client '2', row 0 (from 0), column 2 of x: -inf"),
    (lambda: from_arrays(changed(X, 2, (0, 2), 1e300), LABELS), "1e+300 is too large for 32-bit floats"),
    (lambda: from_arrays(X, changed(AMOUNTS, 1, 3, np.nan)), "client '1', row 3 (from 0) of y: nan"),
    (lambda: from_arrays([*X[:2], X[2][:, :2]], LABELS), "client '2' has samples of shape (2,) in x, client '0' of"),
    (lambda: from_arrays([*X[:2], X[2][:0]], [*LABELS[:2], []]), "client '2' has no training sample"),
    (lambda: from_arrays([*X[:2], X[2][:5]], LABELS), "client '2' has 5 rows in x but 12 in y"),
    (lambda: from_arrays(X, LABELS[:2]), "y: targets of 2 clients, inputs of 3"),
    (lambda: from_arrays(X), "y: needs one array of targets per client"),
    (lambda: from_arrays(X, "load"), "y: needs one array of targets per client"),
    (lambda: from_arrays([], []), "x: a federation needs at least one client"),
    (lambda: from_arrays(frames()[0], "load"), "x: needs a list with one entry per client, not one DataFrame"),
    (
        lambda: from_arrays(X, changed(LABELS, 1, 4, 9), classes=3),
        "client '1', row 4 (from 0) of y: label 9 is outside 0..2",
    ),
    (lambda: from_arrays(X, changed(LABELS, 1, 4, -1)), "label -1 is outside 0..2; if targets are amounts"),
    (lambda: from_arrays(X, AMOUNTS, task="classification"), "client '0', row 0 (from 0) of y: label"),
    (
        lambda: from_arrays(X, [["a"] * len(x) for x in X], task="regression"),
        "row 0 (from 0) of y: 'a' is not a number",
    ),
    (lambda: from_arrays(X, [[*"01234567", "x", "9"], *LABELS[1:]]), "row 8 (from 0) of y: 'x' is not a number; if"),
    (lambda: from_arrays(X[:1], [["cat"] * 9 + ["dgo"]], classes=["cat", "dog"]), "did you mean 'dog'?"),
    (lambda: from_arrays(X[:1], [["cat"] * 9 + [None]]), "row 9 (from 0) of y: the target is missing"),
    (lambda: from_arrays(X[:1], [["cat"] * 10], classes=["cat", "cat"]), "a name is given twice"),
    (lambda: from_arrays(X, LABELS, classes=1), "classes=1: there must be at least 2"),
    (lambda: from_arrays(X, AMOUNTS, task="regression", classes=3), "classes=3: only for classification"),
    (lambda: from_arrays(X, AMOUNTS, task="regresion"), "unknown task 'regresion'; did you mean 'regression'?"),  # type: ignore[arg-type]
    (lambda: from_arrays(X, [np.ones((len(x), 2)) for x in X], task="classification"), "needs one label per sample"),
    (
        lambda: from_arrays(X[:2], [np.ones((10, 2)), np.ones((7, 3))]),
        "client '1' has targets of shape (3,), client '0'",
    ),
    (lambda: from_arrays([[[1, 2], [3]]], [[0, 1]]), "client '0': x is not a regular array"),
    (lambda: from_arrays([[["1", "b"]]], [[0]]), "client '0', row 0 (from 0), column 1 of x: 'b' is not a number"),
    (
        lambda: from_arrays([np.zeros((2, 1, 2, 2)) / 0], [[0, 1]]),
        "client '0', row 0 (from 0), position (0, 0, 0) of x: nan",
    ),
    (lambda: from_arrays([np.array(["2020-01-01"], "M8[D]")], [[0]]), "values of type datetime64[D] are not numbers"),
    (lambda: from_arrays([np.array(5.0)], [[0]]), "x is a single number"),
    (lambda: from_arrays(X, LABELS, names=["a", "b"]), "names: 2 names for 3 clients"),
    (lambda: from_arrays(X, LABELS, names=["a", "b", "a"]), "names: two clients are called 'a'"),
    (lambda: from_arrays(X, LABELS, groups=[0, 1]), "groups: 2 groups for 3 clients"),
    (lambda: from_arrays(X, LABELS, features=[[0.0], [1.0]]), "features: shape (2, 1)"),
    (lambda: from_arrays(X, LABELS, features=[[0.0], [np.nan], [0]]), "features, row 1 (from 0), column 0: nan"),
    (lambda: from_arrays(X, LABELS, val=1.0), "val=1.0"),
    (lambda: from_arrays(X, LABELS, test=-0.1), "test=-0.1"),
    (lambda: from_arrays(X, LABELS, novel=1.0), "novel=1.0"),
    (
        lambda: from_arrays(frame_with("wind", 3, "gale")),
        "client '1', row 3 (from 0), column 'wind': 'gale' is not a number",
    ),
    (lambda: from_arrays(frame_with("wind", 3, None)), "client '1', row 3 (from 0), column 'wind': "),
    (lambda: from_arrays(frame_with("load", 3, np.inf)), "client '1', row 3 (from 0), column 'load': inf"),
    (
        lambda: from_arrays([frames()[0], frames()[1].drop(columns="wind")]),
        "client '1' has no column 'wind', which client",
    ),
    (
        lambda: from_arrays([frames()[0], frames()[1].assign(sun=1)]),
        "client '1' has a column 'sun', which client '0' lacks",
    ),
    (lambda: from_arrays(frames(), "laod"), "client '0' has no target column 'laod'"),
    (lambda: from_arrays([frames()[0][:0]]), "client '0' has no rows"),
    (lambda: from_arrays([frames()[0].set_axis(["a", "a", "b", "c"], axis=1)]), "client '0' has two columns 'a'"),
    (lambda: from_arrays([frames()[0][["load"]]]), "no column beside the target"),
    (lambda: from_arrays(X, LABELS, edges=[(0, 3)]), "edge 0 (from 0) names an unknown client 3; positions are 0..2"),
    (lambda: from_arrays(X, LABELS, edges=[(0, -1)]), "unknown client -1"),
    (lambda: from_arrays(X, LABELS, edges=[(0, 1.5)]), "unknown client 1.5"),
    (lambda: from_arrays(X, LABELS, names=["rome", "oslo", "bonn"], edges=[("rome", "olso")]), "did you mean 'oslo'?"),
    (
        lambda: from_arrays(X, LABELS, edges=[(0, 1), (1, 2), (1, 0)]),
        "edge 2 (from 0): the edge between '1' and '0' is given",
    ),
    (lambda: from_arrays(X, LABELS, edges=[(0, 1, 0.0)]), "edge 0 (from 0): weight 0.0 is not a positive number"),
    (lambda: from_arrays(X, LABELS, edges=[(0, 1, np.float64("nan"))]), "weight nan is not a positive number"),
    (lambda: from_arrays(X, LABELS, edges=[(0,)]), "edge 0 (from 0): needs two clients"),
    (lambda: from_arrays(X, LABELS, edges=["ab"]), "edge 0 (from 0): needs two clients"),
    (lambda: from_arrays(X, LABELS, task=Task("classification", (4,), (), 3)), "the task says (4,)"),
]


@pytest.mark.parametrize(("call", "words"), BAD, ids=[words[:50] for _, words in BAD])
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_bad_input_gets_one_line_that_says_where(call: Callable[[], object], words: str) -> None:
    with pytest.raises(RequestError) as caught:
        call()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
