"""The gate before the server, at its limits."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from panacea.core.screening import LIMIT, NOT_FINITE, TOO_LARGE, screen
from panacea.core.types import Cohort

COHORT = Cohort.of(np.array([2, 5]), np.full(6, 4), 1, torch.zeros(1))


@pytest.mark.parametrize(
    ("value", "reason"),
    [(2 * LIMIT, TOO_LARGE), (-2 * LIMIT, TOO_LARGE), (float("nan"), NOT_FINITE), (float("-inf"), NOT_FINITE)],
)
@pytest.mark.parametrize("leaf", [0, 1])
def test_one_value_beyond_the_limit_refuses_its_row(value: float, reason: str, leaf: int) -> None:
    unchanged = torch.ones(2, 3), torch.ones(2, 1)
    uploads = tuple(part + 1 for part in unchanged)
    uploads[leaf][1, -1] = value
    judged = screen(unchanged, uploads, torch.zeros(2, 0), torch.zeros(2, 0), COHORT)
    assert judged.reasons == {5: reason}
    assert judged.trust.flatten().tolist() == [1.0, 0.0]
    assert torch.equal(judged.uploads[0], torch.tensor([[2.0] * 3, [1.0] * 3]))


def test_variances_may_be_as_large_as_the_square() -> None:
    nothing = torch.zeros(2, 0)
    for value, refused in ((2 * LIMIT, {}), (2 * LIMIT**2, {2: TOO_LARGE})):
        statistics = torch.ones(2, 2)
        statistics[0, 0] = value
        assert screen(nothing, nothing, torch.ones(2, 2), statistics, COHORT).reasons == refused
