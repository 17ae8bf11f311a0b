"""FedAvg in Flower's simulation: `run_simulation` with Ray, its `FedAvg` to aggregate, and a client that trains.

One CPU for Ray, hence one client at a time: the same core that our engines have.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from importlib import import_module
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor, nn

from panacea.experiment.experiment import Experiment
from panacea.experiment.speed.peers.task import Task, vector_of
from panacea.experiment.speed.workloads import client_batches, experiment_of, find_workload, network_of

__all__ = ["train"]


@cache
def _client_side(key: str, steps: int, device: str) -> tuple[Experiment, nn.Module]:
    """What a process that plays clients keeps: the samples and a network."""
    torch.set_num_threads(1)
    work = dataclasses.replace(find_workload(key), steps=steps, cuda_steps=steps)
    experiment = experiment_of(work, {"engine": "sequential"}, device)
    return experiment, network_of(experiment)


def _train_client(message: Any, context: Any) -> Any:
    """Local training as Flower's examples write it: load the weights, `torch.optim.SGD`, send them back."""
    flwr = import_module("flwr.app")
    config = message.content["config"]
    work = find_workload(str(config["workload"]))
    experiment, network = _client_side(work.key, int(config["steps"]), str(config["device"]))
    network.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimiser, loss = torch.optim.SGD(network.parameters(), lr=work.lr), work.loss()
    for x, y in client_batches(experiment, int(config["client"]), int(config["round"])):
        optimiser.zero_grad()
        loss(network(x), y).backward()
        optimiser.step()
    content = {"arrays": flwr.ArrayRecord(network.state_dict()), "metrics": flwr.MetricRecord({"num-examples": 1})}
    return flwr.Message(flwr.RecordDict(content), reply_to=message)


def train(task: Task) -> Tensor:
    """Rounds as long as there are any; the final weights."""
    flwr, simulation = import_module("flwr.app"), import_module("flwr.simulation")
    strategy = import_module("flwr.serverapp.strategy").FedAvg(fraction_evaluate=0.0)
    server, client = import_module("flwr.serverapp").ServerApp(), import_module("flwr.clientapp").ClientApp()
    task.version = version("flwr")
    network = task.network()

    def serve(grid: Any, context: Any) -> None:
        nodes: list[int] = []
        while len(nodes) < task.work.cohort:
            nodes = list(grid.get_node_ids())
        arrays = flwr.ArrayRecord(network.state_dict())
        while (asked := task.wait(gather=False)) is not None:
            messages = []
            for node, number in zip(nodes, asked.ids, strict=False):  # any virtual node may play any client
                names = {"workload": task.work.key, "device": task.device}
                numbers = {"client": number, "round": asked.number, "steps": task.steps}
                content = {"arrays": arrays, "config": flwr.ConfigRecord({**names, **numbers})}
                messages.append(flwr.Message(flwr.RecordDict(content), node, flwr.MessageType.TRAIN))
            replies = grid.send_and_receive(messages, timeout=120)
            arrays, _ = strategy.aggregate_train(asked.number, replies)
            if arrays is None:
                raise RuntimeError("no client answered")
        network.load_state_dict(arrays.to_torch_state_dict())

    server.main()(serve)
    client.train()(_train_client)
    resources = {"num_cpus": 1, "num_gpus": 1.0 if task.device == "cuda" else 0.0}
    ray = {"num_cpus": 1, "include_dashboard": False}
    simulation.run_simulation(
        server, client, task.work.cohort, backend_config={"init_args": ray, "client_resources": resources}
    )
    return vector_of(network)
