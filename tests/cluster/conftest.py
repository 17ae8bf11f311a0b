"""One private Ray for all tests of a module: its start is most of their time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from panacea.engines.ray_session import RaySession, connect


@pytest.fixture(scope="module")
def ray_here() -> Iterator[RaySession]:
    pytest.importorskip("ray")
    session = connect(None, "engine.address", 2)
    yield session
    while session.users > 1:  # experiments that are still waiting to be collected
        session.release()
    session.release()
