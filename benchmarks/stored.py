"""Runs kept as lines of a file and not trained again: what the benchmarks share."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path
from typing import Any


def train(keys: dict[str, Any]) -> dict[str, Any]:
    """One run: its keys, what it chose on validation data, and every client's test metric; or why it failed."""
    import numpy as np
    import torch

    from panacea.errors import PanaceaError
    from panacea.experiment.config import build_config
    from panacea.experiment.experiment import Experiment
    from panacea.experiment.runner import run_experiment

    torch.set_num_threads(1)
    try:
        experiment = Experiment(build_config(keys))
        summary = run_experiment(experiment)
    except PanaceaError as error:
        return {"keys": keys, "error": str(error)}
    chosen, last = experiment.history.selected, experiment.history.last
    assert chosen is not None
    assert last is not None
    return {
        "keys": keys,
        "summary": summary,
        "val": float(np.mean(chosen.val.metric)),
        "chosen": [float(v) for v in chosen.test.metric],
        "last": [float(v) for v in last.test.metric],
        "novel": [float(v) for v in last.novel.metric],
    }


def run_all(wanted: list[dict[str, Any]], store: Path, workers: int) -> list[dict[str, Any]]:
    """Results of all wanted runs; only those not in the store are trained.

    A line that a kill left unfinished is dropped, and its run trained again.
    """
    store.parent.mkdir(parents=True, exist_ok=True)
    lines = store.read_text().splitlines(keepends=True) if store.exists() else []
    whole = [line for line in lines if line.endswith("\n")]
    if len(whole) < len(lines):
        store.write_text("".join(whole))
    known = [json.loads(line) for line in whole]
    missing = [keys for keys in wanted if not any(result["keys"] == keys for result in known)]
    with multiprocessing.get_context("spawn").Pool(workers) as pool, store.open("a") as file:
        for result in pool.imap_unordered(train, missing):
            known.append(result)
            print(json.dumps(result), file=file, flush=True)
            print(f"{len(known)} runs kept, {len(missing)} were missing", end="\r", flush=True)
    return [next(result for result in known if result["keys"] == keys) for keys in wanted]


def numbers(text: str) -> list[int]:
    """``0,1,2`` or ``0..2``."""
    first, dots, last = text.partition("..")
    return list(range(int(first), int(last) + 1)) if dots else [int(number) for number in text.split(",")]
