"""Checkpoints: tensors as safetensors, the rest as JSON, checksummed, renamed into place, the last two kept.

A checkpoint is a folder ``round-00000050`` with `state.safetensors`, `state.json` and `manifest.json` (sizes and
SHA-256 of the other two). It is written under another name and renamed when all of it is on disk, so a kill or a full
disk leaves the previous ones as they were. No pickle is involved anywhere.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from panacea.core.files import fsync_folder
from panacea.errors import RunFailure

__all__ = ["Checkpoint", "CheckpointStore"]

_FORMAT = 1
_KEEP = 2


@dataclass(frozen=True)
class Checkpoint:
    """A round's complete state: named tensors, and everything else as JSON values."""

    round: int
    tensors: dict[str, Tensor]
    info: dict[str, Any]


class CheckpointStore:
    """The `checkpoint` folder of a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def rounds(self) -> list[int]:
        """Rounds with a complete (not necessarily undamaged) checkpoint, ascending."""
        return sorted(int(path.name[6:]) for path in self.folder.glob("round-*") if path.name[6:].isdigit())

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint, then forget all but the last two.

        Raises:
            RunFailure: it could not be written (a full disk, say); earlier ones are intact.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        final = self.folder / f"round-{checkpoint.round:08d}"
        draft = self.folder / f".writing-{checkpoint.round:08d}-{os.getpid()}"
        contiguous = {
            name: t.detach().cpu().contiguous().clone() for name, t in checkpoint.tensors.items()
        }  # own memory
        files = {
            "state.safetensors": save_tensors(contiguous),
            "state.json": json.dumps(checkpoint.info, allow_nan=False, indent=1).encode(),
        }
        manifest = {"format": _FORMAT, "round": checkpoint.round, "files": {n: _seal(d) for n, d in files.items()}}
        files["manifest.json"] = json.dumps(manifest, indent=1).encode()
        try:
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir()
            for name, data in files.items():
                with (draft / name).open("wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
            fsync_folder(draft)
            aside = self.folder / f".old-{checkpoint.round:08d}"
            if final.exists():  # the same round again
                final.rename(aside)
            draft.rename(final)
            fsync_folder(self.folder)
        except OSError as error:
            shutil.rmtree(draft, ignore_errors=True)
            kept = self.rounds()
            intact = f"the checkpoint of round {kept[-1]} is intact" if kept else "there is no earlier checkpoint"
            raise RunFailure(
                f"cannot save the checkpoint of round {checkpoint.round} in {self.folder}: {error.strerror or error}; "
                f"{intact}"
            ) from error
        self._prune()

    def _prune(self) -> None:
        for old in self.rounds()[:-_KEEP]:
            shutil.rmtree(self.folder / f"round-{old:08d}", ignore_errors=True)
        for pattern in (".writing-*", ".old-*"):
            for left in self.folder.glob(pattern):
                shutil.rmtree(left, ignore_errors=True)

    def forget_after(self, round: int) -> None:
        """Remove (damaged) checkpoints of later rounds, so that they do not count among the last two."""
        for later in self.rounds():
            if later > round:
                shutil.rmtree(self.folder / f"round-{later:08d}", ignore_errors=True)

    def load(self) -> tuple[Checkpoint | None, list[str]]:
        """The newest undamaged checkpoint (None if there is none) and what was found wrong with newer ones."""
        notes: list[str] = []
        for round in reversed(self.rounds()):
            folder = self.folder / f"round-{round:08d}"
            try:
                return self._read(folder, round), notes
            except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
                notes.append(f"checkpoint {folder} is damaged ({error})")
        return None, notes

    def _read(self, folder: Path, round: int) -> Checkpoint:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        if manifest["format"] != _FORMAT or manifest["round"] != round:
            raise ValueError(f"its manifest is of format {manifest['format']}, round {manifest['round']}")
        contents = {}
        for name in ("state.safetensors", "state.json"):
            data = (folder / name).read_bytes()
            if _seal(data) != manifest["files"][name]:
                raise ValueError(f"{name} does not match its checksum")
            contents[name] = data
        return Checkpoint(round, load_tensors(contents["state.safetensors"]), json.loads(contents["state.json"]))


def _seal(data: bytes) -> Mapping[str, Any]:
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
