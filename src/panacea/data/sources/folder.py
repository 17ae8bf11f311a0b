"""The user's own data: `data=folder data.root=PATH`; see `panacea.data.own.from_folder` for the layout."""

from __future__ import annotations

from panacea.data.federation import Federation
from panacea.data.own import from_folder
from panacea.data.registry import NaturalKeys, TrainingDefaults, dataset
from panacea.errors import RequestError

__all__ = ["load_folder"]


@dataset(
    "folder",
    summary="your own data: data.root=PATH with clients/*.csv|parquet|npz, edges.csv and task.yaml",
    source="the user",
    keys=NaturalKeys,
    defaults=TrainingDefaults(lr=0.01, rounds=200, novel=0.0),
)
def load_folder(keys: NaturalKeys) -> Federation:
    """Read a folder with one file per client."""
    if keys.root is None:
        raise RequestError("data.root is missing: data=folder needs data.root=PATH, a folder with clients/*.csv")
    val = keys.val if "val" in keys.model_fields_set else None  # else what task.yaml says
    return from_folder(keys.root, clients=keys.clients, seed=keys.seed, val=val)
