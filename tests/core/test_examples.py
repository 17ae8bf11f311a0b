"""The examples in the docstrings are true."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize("name", ["parameters", "random", "records", "validation"])
def test_docstring_examples(name: str):
    result = doctest.testmod(importlib.import_module(f"panacea.core.{name}"))
    assert result.attempted > 0
    assert result.failed == 0
