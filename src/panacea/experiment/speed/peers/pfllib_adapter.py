"""FedAvg in PFLlib's own classes, from a checkout: select, send, train, receive, aggregate; nothing is evaluated.

PFLlib reads clients from files and shuffles them itself, so its batches are not ours. It is given the same clients in
memory, and as many local epochs as make the workload's number of local steps.
"""

from __future__ import annotations

import importlib
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from torch import Tensor

from panacea.experiment.speed.peers.task import Task, vector_of
from panacea.experiment.speed.workloads import BATCH

__all__ = ["train"]


class _Arguments(Namespace):
    """PFLlib's command-line arguments; those that FedAvg does not look at are 0."""

    def __getattr__(self, name: str) -> int:
        if name.startswith("__"):
            raise AttributeError(name)
        return 0


def train(task: Task) -> Tensor:
    """Rounds as long as there are any; the final weights."""
    federation = task.experiment.federation
    ids = [int(client) for client in federation.train_ids]

    def read_client_data(dataset: str, idx: int, is_train: bool = True, *_: Any, **__: Any) -> list[Any]:
        x, y = federation.client(ids[idx], "train" if is_train else "test")
        return list(zip(x, y, strict=True))

    passes = len(read_client_data("", 0)) // BATCH  # batches of an epoch; PFLlib drops the last, smaller one
    if passes == 0 or task.steps % passes:
        raise ValueError(f"{task.steps} steps are no whole number of epochs of {passes} batches")
    sys.path.insert(0, str(Path(task.pfllib) / "system"))
    for module in ("servers.serverbase", "clients.clientbase"):
        importlib.import_module(f"flcore.{module}").read_client_data = read_client_data  # type: ignore[attr-defined]
    server = importlib.import_module("flcore.servers.serveravg").FedAvg(_arguments(task, len(ids), passes), 0)
    server.num_join_clients = server.current_num_join_clients = task.work.cohort
    by_id = dict(zip(ids, server.clients, strict=True))
    task.version = "checkout"
    while (asked := task.wait(gather=False)) is not None:
        server.selected_clients = [by_id[client] for client in asked.ids]
        server.send_models()
        for client in server.selected_clients:
            client.train()
        server.receive_models()
        server.aggregate_parameters()
    return vector_of(server.global_model)


def _arguments(task: Task, clients: int, passes: int) -> _Arguments:
    return _Arguments(
        model=task.network(),
        device=task.device,
        dataset="bench",
        algorithm="FedAvg",
        goal="bench",
        save_folder_name="",
        num_classes=federation_classes(task),
        num_clients=clients,
        join_ratio=task.work.cohort / clients,
        random_join_ratio=False,
        batch_size=BATCH,
        local_epochs=task.steps // passes,
        local_learning_rate=task.work.lr,
        learning_rate_decay=False,
        learning_rate_decay_gamma=1.0,
        time_threthold=1e9,
        eval_gap=10**9,
    )


def federation_classes(task: Task) -> int:
    """Classes of the workload."""
    return int(task.experiment.federation.task.classes or 0)
