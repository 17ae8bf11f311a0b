"""What a deployment is made of, from a request: who takes part, the run's keys, and the network's size."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from panacea.data.federation import Federation
from panacea.deploy.roster import Roster, read_roster
from panacea.errors import RequestError
from panacea.experiment.config import ExperimentConfig
from panacea.experiment.experiment import Experiment
from panacea.experiment.relations import relate, resolve_graph
from panacea.experiment.rundir import nested

__all__ = ["Plan", "plan_from_data", "plan_from_names"]

_DECIDED_ELSEWHERE = ("data_digest", "engine", "block", "device", "novel", "store", "checkpoint_every", "track")
"""Keys that are about a simulation, or that the roster answers."""


@dataclass(frozen=True)
class Plan:
    """What `panacea.deploy.deployment_files.write_deployment` needs.

    Attributes:
        keys: the run's, nested.
        roster: who takes part.
        parameters: of one client's network.
        federation: the samples, where they are at hand; each client is given its own.
    """

    keys: dict[str, Any]
    roster: Roster
    parameters: int
    federation: Federation | None = None


def _keys(config: ExperimentConfig, data: str) -> dict[str, Any]:
    """The resolved request without what is decided elsewhere: the roster holds the graph and the novel clients."""
    keys = {key: value for key, value in nested(config).items() if key not in _DECIDED_ELSEWHERE and value is not None}
    return {**keys, "data": {"name": data}, "graph": {"name": "given"}, "out": str(config.out.expanduser().resolve())}


def plan_from_data(config: ExperimentConfig) -> Plan:
    """The data are at hand: a try on one machine, or an operator who hands out what belongs to each client."""
    experiment = Experiment(config)
    federation = experiment.federation
    keys = _keys(experiment.config, federation.name)
    return Plan(keys, Roster.of(federation), experiment.target.layout.size, federation)


def plan_from_names(config: ExperimentConfig, task: Path, names: Sequence[str]) -> Plan:
    """The data are with the clients, and only there: names, a task, and a graph from a file or none.

    Args:
        config: the run's; `data` is only a title.
        task: a YAML file with kind, inputs, outputs or classes, scale.
        names: of the clients.
    """
    try:
        said = yaml.safe_load(task.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise RequestError(f"--task {task}: cannot be read as YAML") from error
    if not isinstance(said, Mapping):
        raise RequestError(f"--task {task}: keys and values are expected, for example kind, inputs, classes")
    with tempfile.TemporaryDirectory() as folder:
        content = {"data": config.data.name, "task": dict(said), "clients": list(names)}
        (Path(folder) / "roster.yaml").write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
        try:
            roster = read_roster(Path(folder))
        except RequestError as error:
            raise RequestError(f"--task {task}: {error}".replace(f"{folder}/", "")) from None
    federation = roster.federation()
    if config.novel:
        federation = federation.hold_out(config.novel, config.seed)
    federation, _ = relate(federation, config.graph.name, resolve_graph(config.graph, config.seed))
    title = config.model_copy(update={"data": config.data.model_copy(update={"keys": {}}), "novel": None})
    experiment = Experiment(title.model_copy(update={"graph": type(config.graph)(name="given")}), federation)
    return Plan(_keys(experiment.config, roster.data), Roster.of(federation), experiment.target.layout.size)
