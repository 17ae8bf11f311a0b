"""Memory that is freed stays with the process.

A local step of a larger network frees what it kept for its backward pass, tens of megabytes, and the next step wants
them again. The GNU C library gives such memory back to the system each time, and the system must fill every page with
zeros before it may be used again: tens of thousands of pages a round on W2 (docs/profile.md).
"""

from __future__ import annotations

import ctypes
import os
from functools import cache

__all__ = ["keep_freed_memory"]

_TRIM, _MAP = -1, -3  # names of the options in malloc.h
_KEPT = 512 * 2**20  # bytes of free memory from which on it is given back
_LARGEST = 32 * 2**20  # bytes of one piece from which on it is mapped, and given back, by itself: the most there is
_SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


@cache
def keep_freed_memory() -> bool:
    """Once for the process; whether it was done. Not where the user has set this, or where there is another library."""
    if any(name in os.environ for name in _SETTINGS):
        return False
    try:
        library = ctypes.CDLL("libc.so.6")
        return bool(library.mallopt(_MAP, _LARGEST)) and bool(library.mallopt(_TRIM, _KEPT))
    except (OSError, AttributeError):
        return False
