"""Graphs with a name: the one of Check A, and those of data sets."""

from __future__ import annotations

import numpy as np

from panacea.data.load import load
from panacea.data.paths import find_data_dir
from panacea.errors import RequestError
from panacea.theory.operators import adjacency
from panacea.theory.statement import Floats

__all__ = ["check_a_graph", "fl60_graph", "tpt48_graph"]

_CHECK_A = (
    (0, 2), (0, 9), (1, 4), (1, 6), (2, 4), (2, 7), (4, 6), (4, 7), (5, 6), (5, 10), (6, 9), (6, 11), (7, 9), (8, 11),
)  # fmt: skip


def check_a_graph() -> Floats:
    """Twelve clients whose pairs were linked with probability 1/4 each, drawn once; client 3 has no link."""
    return adjacency(12, _CHECK_A)


def fl60_graph(seed: int = 0) -> Floats:
    """The relation graph of FL-60."""
    graph = load("fl60", seed=seed).graph
    assert graph is not None
    return graph.dense().astype(np.float64)


def tpt48_graph() -> Floats | None:
    """The land borders of 48 states, from `tpt48/tpt48.npz` among the data files; None where there is none."""
    folder = find_data_dir("tpt48")
    if folder is None or not (folder / "tpt48.npz").is_file():
        return None
    try:
        with np.load(folder / "tpt48.npz", allow_pickle=False) as file:
            return np.asarray(file["adjacency"], dtype=np.float64)
    except (OSError, ValueError, KeyError) as error:
        raise RequestError(f"{folder / 'tpt48.npz'}: no array 'adjacency' can be read ({error})") from None
