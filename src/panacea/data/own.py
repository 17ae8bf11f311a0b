"""The user's own data: arrays, tensors or DataFrames in memory, or a folder with one file per client."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from panacea.core.values import is_frame
from panacea.data._assemble import assemble
from panacea.data._folder import folder_contents
from panacea.data._samples import (
    Array,
    Clients,
    Samples,
    as_array,
    numbers,
    samples_of_tables,
    table_of_frame,
)
from panacea.data.federation import Federation
from panacea.data.task import Kind, Task
from panacea.errors import RequestError
from panacea.graphs.convert import GraphLike, as_graph

__all__ = ["from_arrays", "from_folder"]


def from_arrays(
    x: Clients,
    y: Clients | str | Sequence[str] | None = None,
    *,
    x_test: Clients | None = None,
    y_test: Clients | None = None,
    edges: GraphLike | None = None,
    task: Kind | Task | None = None,
    classes: int | Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    groups: Sequence[object] | npt.NDArray[np.generic] | None = None,
    features: npt.ArrayLike | None = None,
    seed: int = 0,
    val: float = 0.1,
    test: float = 0.2,
    novel: float = 0.0,
    chronological: bool | None = None,
    scale: str = "as given",
    name: str = "own",
) -> Federation:
    """A federation from data in memory.

    Args:
        x: one array, tensor, nested list or DataFrame per client, samples along the first axis; a list, or a dict by
            client name.
        y: one array of targets per client; for DataFrames the name(s) of the target column(s), by default the column
            ``target``, else the last one.
        x_test: test inputs per client, when the test samples are already chosen; then `test` is not used.
        y_test: test targets per client.
        edges: who is related to whom: pairs of positions or names, with a weight or without; or a graph in any form
            that `panacea.graphs.as_graph` knows (a file, networkx, PyG, an adjacency matrix, a `ClientGraph`).
        task: ``classification``, ``regression`` or ``forecasting``, or a `Task`; by default integers, booleans and
            words are classes, floats are amounts.
        classes: number of classes, or their names in label order; by default what occurs.
        names: one name per client; by default the dict's keys, else positions.
        groups: a group per client, numbers or words.
        features: side information per client ``[clients, d]``, e.g. coordinates.
        seed: the data seed: splits and held-out clients.
        val: share of each client's train part used to choose rounds.
        test: share of each client's samples for the test split.
        novel: share of clients held out of training.
        chronological: split in the given order instead of at random; by default for forecasting only.
        scale: the scale errors are stated in, for the report.
        name: name of the data set.

    Returns:
        The federation; regression targets given as ``[samples]`` become ``[samples, 1]``.

    Raises:
        RequestError: something is wrong; the message names the client, the row and the column.

    >>> from_arrays([[[0.0, 1.0], [1.0, 0.0]], [[2.0, 1.0], [1.0, 2.0]]], [[0, 1], [1, 0]], edges=[(0, 1)])
    Federation(own: 2 clients (0 novel), 4 samples, classification, 1 edges)
    """
    keys, inputs = _by_client(x, "x")
    titles = [str(title) for title in (names if names is not None else keys)]
    if len(titles) != len(inputs):
        raise RequestError(f"names: {len(titles)} names for {len(inputs)} clients")
    twice = [title for title in titles if titles.count(title) > 1] if len(set(titles)) < len(titles) else []
    if twice:
        raise RequestError(f"names: two clients are called '{twice[0]}'")
    clients, held = _samples(inputs, y, titles, keys, ("x", "y"))
    if x_test is not None:
        test_keys, test_inputs = _by_client(x_test, "x_test")
        if held is not None or test_keys != keys:
            raise RequestError("x_test: needs the same clients as x, and no column 'split'")
        held, _ = _samples(test_inputs, y_test if y_test is not None else y, titles, keys, ("x_test", "y_test"))
    graph, notes = as_graph(edges, titles) if edges is not None else (None, ())
    return assemble(
        clients,
        held,
        task=task,
        classes=classes,
        scale=scale,
        graph=graph,
        groups=_groups(groups, len(clients)),
        features=_features(features, len(clients)),
        seed=seed,
        val=val,
        test=test,
        novel=novel,
        chronological=chronological,
        name=name,
        notes=notes,
    )


def from_folder(
    root: str | os.PathLike[str],
    *,
    target: str | Sequence[str] | None = None,
    task: Kind | None = None,
    classes: int | Sequence[str] | None = None,
    clients: int | None = None,
    seed: int = 0,
    val: float | None = None,
    test: float | None = None,
    novel: float = 0.0,
    chronological: bool | None = None,
) -> Federation:
    """A federation from a folder.

    ::

        root/clients/berlin.csv     one file per client: CSV with a header, Parquet, or npz with x and y
        root/clients/paris.csv      (and x_test, y_test); the file's name is the client's
        root/edges.csv              source,target[,weight]: names or positions; without it there is no graph
        root/task.yaml              optional: kind, target, classes, scale, chronological, test, val

    A column ``split`` with the words ``train`` and ``test`` says which rows are for testing.

    Args:
        root: the folder.
        target: target column(s); by default what task.yaml says, the column ``target``, else the last one.
        task: ``classification``, ``regression`` or ``forecasting``; by default what task.yaml says or the data show.
        classes: number of classes or their names.
        clients: take the first n clients in the order of their names (2 before 10).
        seed: the data seed: splits and held-out clients.
        val: share of each client's train part used to choose rounds; by default as in task.yaml, else 0.1.
        test: share of each client's samples for the test split; by default as in task.yaml, else 0.2.
        novel: share of clients held out of training.
        chronological: split in the order of the rows; by default as in task.yaml, else for forecasting only.

    Raises:
        RequestError: something is wrong; the message names the file, the line and the column.
    """
    found = folder_contents(root, target, clients)
    said = found.settings
    return assemble(
        found.clients,
        found.held,
        task=task or said.kind,
        classes=classes if classes is not None else said.classes,
        scale=said.scale,
        graph=found.graph,
        groups=None,
        features=None,
        seed=seed,
        val=said.val if val is None else val,
        test=said.test if test is None else test,
        novel=novel,
        chronological=said.chronological if chronological is None else chronological,
        name=found.name,
        notes=found.notes,
    )


def _by_client(values: Clients, what: str) -> tuple[list[str], list[Any]]:
    """Names (positions, unless a dict gives names) and the value of every client."""
    if isinstance(values, Mapping):
        return [str(key) for key in values], list(values.values())
    if is_frame(values) or isinstance(values, str) or not hasattr(values, "__len__"):
        raise RequestError(f"{what}: needs a list with one entry per client, not one {type(values).__name__}")
    if len(values) == 0:
        raise RequestError(f"{what}: a federation needs at least one client")
    return [str(i) for i in range(len(values))], list(values)


def _samples(
    inputs: list[Any],
    y: Clients | str | Sequence[str] | None,
    titles: list[str],
    keys: list[str],
    arrays: tuple[str, str],
) -> tuple[list[Samples], list[Samples] | None]:
    """Every client's samples from what was given, and its test samples where a column `split` says so."""
    named = y is None or isinstance(y, str) or (all(isinstance(v, str) for v in y) and not isinstance(y, Mapping))
    if named and all(is_frame(value) for value in inputs):
        target: Any = y
        return samples_of_tables([table_of_frame(v, t) for v, t in zip(inputs, titles, strict=True)], target)
    if named:
        raise RequestError(f"{arrays[1]}: needs one array of targets per client")
    many: Any = y
    marks, targets = _by_client(many, arrays[1])
    if isinstance(y, Mapping) and marks != keys:
        targets = [y[key] for key in keys if key in y]
    if len(targets) != len(inputs):
        raise RequestError(f"{arrays[1]}: targets of {len(targets)} clients, inputs of {len(inputs)}")
    clients: list[Samples] = []
    for title, value, goal in zip(titles, inputs, targets, strict=True):
        columns = tuple(str(key) for key in value.columns) if is_frame(value) else None
        source = f"client '{title}'"
        pair = as_array(value, f"{source}: {arrays[0]}"), as_array(goal, f"{source}: {arrays[1]}")
        clients.append(Samples(title, source, *pair, columns=columns, arrays=arrays))
    return clients, None


def _groups(groups: Sequence[object] | npt.NDArray[np.generic] | None, n: int) -> npt.NDArray[np.int64] | None:
    if groups is None:
        return None
    if len(groups) != n:
        raise RequestError(f"groups: {len(groups)} groups for {n} clients")
    values: Array = np.asarray(groups)
    if values.dtype.kind in "iu":
        return values.astype(np.int64)
    return np.unique(values.astype(np.str_), return_inverse=True)[1].astype(np.int64)


def _features(features: npt.ArrayLike | None, n: int) -> npt.NDArray[np.float32] | None:
    if features is None:
        return None
    values = as_array(features, "features")
    if values.ndim != 2 or len(values) != n:
        raise RequestError(f"features: shape {values.shape}, but ({n}, d) is needed, one row per client")
    return numbers(values, lambda index: f"features, row {index[0]} (from 0), column {index[1]}")
