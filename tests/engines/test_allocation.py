"""Freed memory is not given back to the system between two steps."""

from __future__ import annotations

import resource
import sys

import pytest
import torch

from panacea.engines.allocation import keep_freed_memory


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the GNU C library only")
def test_what_was_freed_is_there_when_it_is_wanted_again() -> None:
    keep_freed_memory.cache_clear()
    if not keep_freed_memory():
        pytest.skip("another C library, or set by the environment")

    def step() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        held = [torch.ones(2**20) for _ in range(20)]  # 80 MB, 20,480 pages
        del held
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    step()
    assert min(step() for _ in range(3)) < 2000


@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"])
def test_what_the_user_has_set_is_left_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_freed_memory.cache_clear()
    monkeypatch.setenv(name, "1")
    assert not keep_freed_memory()
    keep_freed_memory.cache_clear()
