"""`client.yaml`: a client's configuration."""

from __future__ import annotations

from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field

from panacea.core.files import write_atomically
from panacea.deploy.yaml_file import read_keys

__all__ = ["SiteFile", "read_site", "save_site"]


class SiteFile(BaseModel):
    """The keys of `client.yaml`; see `panacea.deploy.site.Site`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1, description="the client's name in the roster")
    data: Path = Field(Path("data"), description="folder with its samples")
    state: Path = Field(Path("state"), description="folder for what it keeps")
    models: tuple[str, ...] = Field((), description="networks package.module:factory that a run may name")
    methods: tuple[str, ...] = Field((), description="methods package.module:Class that a run may name")
    files: tuple[str, ...] = Field((), description="files that a run may name in its keys")
    threads: int = Field(1, ge=1, le=1024, description="CPU threads of an answer")


def read_site(path: Path) -> SiteFile:
    """The checked keys.

    Raises:
        RequestError: there is no file, or a key is wrong.
    """
    return read_keys(path, SiteFile)


def save_site(said: SiteFile, path: Path) -> None:
    """Write it, atomically."""
    write_atomically(path, yaml.safe_dump(said.model_dump(mode="json"), sort_keys=False, allow_unicode=True))
