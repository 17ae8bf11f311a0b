"""Freed memory is not given back to the system between two steps."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from panacea.engines.allocation import keep_freed_memory

STEPS = """
import resource, sys, torch
from panacea.engines.allocation import keep_freed_memory

def step():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    held = [torch.ones(2**20) for _ in range(20)]  # 80 MB, 20,480 pages
    del held
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

kept = sys.argv[1] == "kept" and keep_freed_memory()
step()
print(int(kept), step())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the GNU C library only")
def test_what_was_freed_is_there_when_it_is_wanted_again() -> None:
    """In new processes: the library learns by itself from what a process did before, but not enough."""
    found = []
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    for how in ("kept", "given back"):
        done = subprocess.run(
            [sys.executable, "-c", STEPS, how], env=clean, capture_output=True, text=True, check=True, timeout=120
        )
        found.append([int(word) for word in done.stdout.split()])
    (kept, few), (_, many) = found
    if not kept:
        pytest.skip("another C library")
    assert few < 2000 < many


@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"])
def test_what_the_user_has_set_is_left_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_freed_memory.cache_clear()
    monkeypatch.setenv(name, "1")
    assert not keep_freed_memory()
    keep_freed_memory.cache_clear()
