"""From the users' samples, checked one client after the other, to a federation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from panacea.data._samples import Samples, numbers
from panacea.data._targets import settle
from panacea.data.federation import Federation
from panacea.data.task import Kind, Task
from panacea.errors import RequestError, unknown
from panacea.graphs import ClientGraph

__all__ = ["assemble"]

_KINDS = ("classification", "regression", "forecasting")


def assemble(
    clients: list[Samples],
    held: list[Samples] | None,
    *,
    task: Kind | Task | None,
    classes: int | Sequence[str] | None,
    scale: str,
    graph: ClientGraph | None,
    groups: npt.NDArray[np.int64] | None,
    features: npt.NDArray[np.float32] | None,
    seed: int,
    val: float,
    test: float,
    novel: float,
    chronological: bool | None,
    name: str,
    notes: tuple[str, ...],
) -> Federation:
    """Check every client's samples and lay them out."""
    kind = task.kind if isinstance(task, Task) else task
    if kind is not None and kind not in _KINDS:
        raise unknown("task", str(kind), _KINDS)
    if isinstance(task, Task) and task.kind == "classification":
        classes = task.class_names or task.classes
    parts = clients + (held or [])
    inputs = [_inputs(samples, allow_empty=i >= len(clients)) for i, samples in enumerate(parts)]
    width = inputs[0].shape[1:]
    for samples, values in zip(parts, inputs, strict=True):
        if values.shape[1:] != width:
            raise RequestError(
                f"{samples.source} has samples of shape {values.shape[1:]} in {samples.arrays[0]}, "
                f"{parts[0].source} of shape {width}"
            )
    settled = settle(parts, kind, classes)
    outputs = () if settled.kind == "classification" else settled.values[0].shape[1:]
    if not isinstance(task, Task):
        task = Task(settled.kind, width, outputs, settled.classes, scale, settled.class_names)
    targets = [values.reshape(-1) if task.outputs == () and outputs == (1,) else values for values in settled.values]
    pairs = list(zip(inputs, targets, strict=True))
    return Federation.from_clients(
        pairs[: len(clients)],
        task=task,
        seed=seed,
        val=val,
        test=test,
        test_sets=pairs[len(clients) :] if held is not None else None,
        chronological=settled.kind == "forecasting" if chronological is None else chronological,
        name=name,
        names=[samples.name for samples in clients],
        graph=graph,
        groups=groups,
        features=features,
        notes=notes + settled.notes,
    ).hold_out(novel, seed)


def _inputs(samples: Samples, allow_empty: bool) -> npt.NDArray[np.float32]:
    """Checked inputs ``[samples, ...]``; a flat array is one feature."""
    if samples.x.ndim == 0 or samples.y.ndim == 0:
        raise RequestError(f"{samples.source}: {samples.arrays[samples.x.ndim > 0]} is a single number, not an array")
    if len(samples.x) != len(samples.y):
        a, b = samples.arrays
        raise RequestError(f"{samples.source} has {len(samples.x)} rows in {a} but {len(samples.y)} in {b}")
    if len(samples.x) == 0 and not allow_empty:
        raise RequestError(f"{samples.source} has no training sample")
    exact = numbers(samples.x, samples.place)
    return exact[:, None] if exact.ndim == 1 else exact
