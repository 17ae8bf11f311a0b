"""Digits: 1,797 real handwritten digits of 8 x 8 pixels, divided among clients by label.

The test part of "Optical Recognition of Handwritten Digits" (Alpaydin and Kaynak 1998, UCI Machine Learning
Repository), as scikit-learn ships it. The file is read from the installed package without importing it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from pydantic import Field

from panacea.core.random import Streams
from panacea.data.federation import Federation
from panacea.data.paths import find_data_dir, missing_files, package_folder
from panacea.data.registry import Card, TrainingDefaults, dataset, found_by
from panacea.data.split import SplitKeys, divide, group_cliques
from panacea.data.task import Task
from panacea.errors import RequestError

__all__ = ["load_digits", "read_digits"]

CLIENTS = 20
_GET = "run `pip install scikit-learn`, which ships them, or place its digits.csv.gz in that folder"


class DigitsKeys(SplitKeys):
    """Keys of the digits."""

    domains: int = Field(
        1, ge=1, le=2, description="2: half of the clients have images inverted and turned by 90 degrees; their group"
    )


@dataset(
    "digits",
    summary="1,797 real handwritten digits (8 x 8), 20 clients in 5 groups with dominating digits",
    source="UCI Optical Recognition of Handwritten Digits (Alpaydin and Kaynak 1998), shipped with scikit-learn",
    keys=DigitsKeys,
    defaults=TrainingDefaults(lr=0.05, rounds=200, cohort=5, novel=0.0),
    card=Card(
        licence="CC BY 4.0 (UCI Machine Learning Repository); scikit-learn, which ships the file, is BSD-3-Clause",
        citation="E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning "
        "Repository, 1998",
        used_in="no table of the papers; the small real set of this package's demo, tests and pages",
        get=_GET,
        splits="20 % of each client's samples are test, a tenth of the rest validation, at random by data.seed",
    ),
    files=found_by(lambda root: _place(root)),  # noqa: PLW0108  (it is defined below)
)
def load_digits(keys: DigitsKeys) -> Federation:
    """Read the digits and divide them; clients of one group are linked (`practical`), else there is no graph.

    With two domains the group that a client is listed with is its domain, and only clients of one domain are linked.
    """
    x, y = read_digits(keys.root)
    division = divide(y, keys, keys.clients or CLIENTS)
    groups, links, notes = division.groups, division.groups, division.notes
    images = [x[part] for part in division.parts]
    if keys.domains > 1:
        groups = _domains(len(images), keys.seed)
        links = groups if links is None else links * keys.domains + groups
        images = [_other_domain(own) if domain else own for own, domain in zip(images, groups, strict=True)]
        notes = (*notes, f"{groups.sum()} of {len(groups)} clients have inverted images turned by 90 degrees (group 1)")
    return Federation.from_clients(
        [(own, y[part]) for own, part in zip(images, division.parts, strict=True)],
        task=Task("classification", inputs=(1, 8, 8), classes=10),
        seed=keys.seed,
        val=keys.val,
        test=0.2,
        name="digits",
        graph=None if links is None else group_cliques(links),
        groups=groups,
        notes=notes,
    )


def _domains(clients: int, seed: int) -> npt.NDArray[np.int64]:
    """``[clients]``: 1 for half of the clients, drawn by the seed."""
    domains = np.zeros(clients, np.int64)
    domains[Streams(seed).numpy("digits domains").permutation(clients)[: clients // 2]] = 1
    return domains


def _other_domain(images: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Dark and bright exchanged, turned by 90 degrees."""
    return np.ascontiguousarray(np.rot90(1 - images, axes=(2, 3)))


def read_digits(root: Path | None = None) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Images ``[1797, 1, 8, 8]`` in [0, 1] and their labels."""
    path = _find(root)
    try:
        table = np.loadtxt(path, delimiter=",", dtype=np.float64, ndmin=2)
    except (OSError, EOFError, ValueError) as error:
        raise RequestError(f"{path}: not a gzipped CSV of numbers ({error})") from error
    if table.shape[1] != 65 or not ((table >= 0) & (table <= 16)).all() or (table[:, 64] > 9).any():
        raise RequestError(f"{path}: needs 64 pixels of 0..16 and a label of 0..9 per line")
    images = (table[:, :64] / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    return images, table[:, 64].astype(np.int64)


def _find(root: Path | None) -> Path:
    path = _place(root)
    if path is None:
        raise missing_files("digits", root, _GET)
    return path


def _place(root: Path | None) -> Path | None:
    """The file, of the user's or of scikit-learn."""
    folders = (find_data_dir("digits", root), package_folder("sklearn", "datasets/data"))
    paths = [folder / "digits.csv.gz" for folder in folders if folder is not None]
    return next((path for path in paths if path.is_file()), None)
