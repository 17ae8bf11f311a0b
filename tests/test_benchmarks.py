"""The benchmarks whose tables are in docs/results still make them, here from two rounds of training."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    ("script", "options", "table"),
    [
        (
            "robustness.py",
            "--data fl60 --attacks label_flip --methods fedavg,separate --ratios 0,0.5 --seeds 0 --rounds 2",
            "robustness_fl60_label_flip.md",
        ),
        ("backdoor.py", "--data digits --triggers backdoor_patch --seeds 0 --rounds 1", "backdoor_digits.md"),
    ],
)
def test_benchmark(script: str, options: str, table: str, tmp_path: Path) -> None:
    """A table and nothing trained twice."""
    store = tmp_path / "store.jsonl"
    command = [sys.executable, str(ROOT / "benchmarks" / script), *options.split()]
    command += ["--workers", "1", "--store", str(store), "--out", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    kept = []
    for _ in range(2):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        kept.append(store.read_text())
    assert kept[0] == kept[1]
    text = (tmp_path / table).read_text()
    assert "| fedavg |" in text or "| backdoor_patch | fedavg |" in text
    assert f"python benchmarks/{script}" in text


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
def test_products_by_both_libraries() -> None:
    """A row for every shape, and one line for a number of rows that is none."""
    command = [sys.executable, str(ROOT / "benchmarks" / "products.py"), "--rows"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*command, "1"], env=environment, capture_output=True, text=True, check=True)
    header, _, *rows = done.stdout.splitlines()
    assert header.endswith("| taken |")
    assert len(rows) == 11
    assert all(float(time) > 0 for row in rows for time in row.split("|")[5:7])
    wrong = subprocess.run([*command, "0"], env=environment, capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert "--rows must be 1 or more" in wrong.stderr
