"""Where the rows of very many clients lie: on the device, in the computer's memory, or in a file mapped into it.

`device` is fastest and `cpu` leaves an accelerator's memory to the models; both need memory for all clients that were
ever seen. `disk` needs none: the file is read and written through the page cache, which the operating system empties
when it needs to. The file has no name (it is removed as soon as it is open), so nothing is left of it after a kill and
nothing stale can ever be read: checkpoints stay the only truth.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import IO, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from panacea.errors import RunFailure

__all__ = ["MappedRows", "Place", "Policy", "chosen_place", "memory"]

Place: TypeAlias = Literal["device", "cpu", "disk"]
Policy: TypeAlias = Literal["auto", "device", "cpu", "disk"]

_SHARE = 4  # of the memory there is, one part in so many may be clients' states


def memory(device: torch.device) -> int:
    """Bytes of memory a device has."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[1])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def chosen_place(policy: Policy, needed: int, device: torch.device) -> Place:
    """Where states that would take `needed` bytes for all clients are kept.

    >>> chosen_place("auto", 1000, torch.device("cpu")), chosen_place("auto", 1 << 60, torch.device("cpu"))
    ('device', 'disk')
    """
    if policy != "auto":
        return policy
    if needed <= memory(device) // _SHARE:
        return "device"
    return "cpu" if device.type != "cpu" and needed <= memory(torch.device("cpu")) // _SHARE else "disk"


class MappedRows:
    """A tensor ``[rows, ...]`` in a nameless file, which can grow without being copied."""

    def __init__(self, row: Tensor, folder: Path | None = None) -> None:
        """An empty one.

        Args:
            row: ``[...]`` gives shape and type of a row.
            folder: on which disk; by default that of temporary files.
        """
        self.shape, self.type = tuple(row.shape), torch.zeros(0, dtype=row.dtype).numpy().dtype
        self.folder = folder if folder is not None and folder.is_dir() else Path(tempfile.gettempdir())
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=self.folder)  # noqa: SIM115  (open as long as its rows)

    def grown(self, rows: int) -> Tensor:
        """The same content in a tensor of at least as many rows; the new ones are zero.

        Raises:
            RunFailure: the disk is full. It is asked for before anything is written, as a write through a mapping that
                fails would end the process.
        """
        size = max(1, rows * int(np.prod(self.shape, dtype=np.int64)) * self.type.itemsize)
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._file.fileno(), 0, size)
            else:
                os.ftruncate(self._file.fileno(), size)
        except OSError as error:
            raise RunFailure(
                f"store=disk: {self.folder} has no room for {size / 2**30:.1f} GiB of clients' states "
                f"({error.strerror or error}); set TMPDIR or out= to a larger disk"
            ) from error
        return torch.from_numpy(np.memmap(self._file, self.type, "r+", shape=(rows, *self.shape)))
