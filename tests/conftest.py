from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import pytest
import torch


@pytest.fixture(autouse=True)
def _same_draws_every_time() -> None:
    """What a test draws from the global generators does not depend on the tests that ran before it."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture
def real_data() -> Path:
    """The folder with published data sets: $PANACEA_DATA, else shared/data beside the repository."""
    given = os.environ.get("PANACEA_DATA")
    return Path(given) if given else Path(__file__).resolve().parents[2] / "shared" / "data"
