from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def real_data() -> Path:
    """The folder with published data sets: $PANACEA_DATA, else shared/data beside the repository."""
    given = os.environ.get("PANACEA_DATA")
    return Path(given) if given else Path(__file__).resolve().parents[2] / "shared" / "data"
