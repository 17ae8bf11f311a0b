"""The process of one peer: `python -m panacea.experiment.speed.peers.worker`, spoken to by `RemotePeer`."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import sys

import torch

from panacea.experiment.speed.peers.task import Task
from panacea.experiment.speed.workloads import experiment_of, find_workload

__all__ = ["serve"]


def serve() -> None:
    """Read what to do, do round after round, answer on what was standard output; peers print to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    torch.set_num_threads(1)
    asked = json.loads(sys.stdin.readline())
    try:
        adapter = importlib.import_module(f"panacea.experiment.speed.peers.{asked['peer']}_adapter")
        steps, more = int(asked["steps"]), int(asked["cuda_steps"])
        work = dataclasses.replace(find_workload(asked["workload"]), steps=steps, cuda_steps=more)
        experiment = experiment_of(work, {"engine": "sequential"}, asked["device"])
        task = Task(work, experiment, answers, asked["pfllib"])
        task.finish(adapter.train(task))
    except Exception as error:  # whatever a peer raises, the other side is told in one line
        reason = " ".join(str(error).split())
        missing = "not installed: " if isinstance(error, ImportError) else f"{type(error).__name__}: "
        print(json.dumps({"error": missing + reason}), file=answers, flush=True)
        raise


if __name__ == "__main__":
    serve()
