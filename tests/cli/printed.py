"""What a command prints with `--json`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from panacea.cli.app import run_command_line


def said(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert run_command_line([*arguments, "--json"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    found: dict[str, Any] = json.loads(out)
    return found
