"""One private Ray for all tests of this folder: its start is most of their time."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

from panacea.engines.ray_session import RaySession, connect


@pytest.fixture(scope="package")
def ray_here() -> Iterator[RaySession]:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    session = connect(None, "engine.address", 2)
    yield session
    session.close()
