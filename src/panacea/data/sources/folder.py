"""The user's own data: `data=folder data.root=PATH`; see `panacea.data.own.from_folder` for the layout."""

from __future__ import annotations

from panacea.data.federation import Federation
from panacea.data.own import from_folder
from panacea.data.paths import MissingFilesError
from panacea.data.registry import Card, NaturalKeys, TrainingDefaults, dataset

__all__ = ["load_folder"]


@dataset(
    "folder",
    summary="your own data: data.root=PATH with clients/*.csv|parquet|npz, edges.csv and task.yaml",
    source="the user",
    keys=NaturalKeys,
    defaults=TrainingDefaults(lr=0.01, rounds=200, novel=0.0),
    card=Card(
        licence="yours",
        citation="yours",
        used_in="no table of the papers",
        get="give data.root=PATH, a folder with clients/*.csv, *.parquet or *.npz; docs/own-data.md has the layout",
        splits="20 % of each client's samples are test, a tenth of the rest validation, at random by data.seed; "
        "task.yaml or a column `split` says otherwise",
    ),
    files=lambda root: "yours",
)
def load_folder(keys: NaturalKeys) -> Federation:
    """Read a folder with one file per client."""
    if keys.root is None:
        raise MissingFilesError("data.root is missing: data=folder needs data.root=PATH, a folder with clients/*.csv")
    val = keys.val if "val" in keys.model_fields_set else None  # else what task.yaml says
    return from_folder(keys.root, clients=keys.clients, seed=keys.seed, val=val)
