"""The configuration of one experiment: every key, typed, documented and checked. Needs no torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from panacea.core.validation import validated
from panacea.errors import RequestError, unknown
from panacea.experiment.keys import SECTIONS

__all__ = [
    "TRACKER_NAMES",
    "WITHOUT_EFFECT",
    "EngineKeys",
    "ExperimentConfig",
    "Section",
    "build_config",
    "identity",
    "key_help",
]

TRACKER_NAMES = ("tensorboard", "mlflow", "wandb")


class Section(BaseModel):
    """A named choice with keys of its own: `data=fl60 data.clients=6`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    keys: dict[str, Any] = Field(default_factory=dict)


class EngineKeys(BaseModel):
    """Keys of `engine=`: how the same numbers are computed; `precision` trades their last digits for speed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    compile: bool = Field(default=False, description="compile the local step (CPU): half a minute once, then faster")
    capture: bool = Field(default=True, description="capture local steps as CUDA graphs (GPU)")
    precision: Literal["float32", "tf32", "bf16"] = Field(
        default="float32",
        description="of matrix products: as dtype says, tf32 (GPU), or bf16; the last two change results",
    )
    together: bool = Field(
        default=True, description="runs of one command that differ in seeds or rates train in the same calls"
    )
    deterministic: bool = Field(
        default=False, description="only routines that add up in one order (GPU): two runs give the same bits"
    )
    server: Literal["auto", "cpu", "device"] = Field(
        default="auto",
        description="where the server works: on the clients' device, or on a cpu; auto: by size",
    )
    workers: int | None = Field(
        default=None, ge=1, description="Ray workers (engine=ray); by default the cluster's CPUs, at most the cohort"
    )
    address: str | None = Field(
        default=None,
        description="of the Ray cluster: auto, or host:port; by default a private one on this machine (engine=ray)",
    )


ENGINE_NAMES = ("vectorised", "sequential", "ray")


class ExperimentConfig(BaseModel):
    """All keys of `panacea run`. None means: the data set's default, or decided when the clients are known."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: Section = Field(description="data set; data.* are its own keys (panacea datasets NAME)")
    method: Section = Field(description="method; method.* are its hyper-parameters (panacea methods NAME)")
    model: Section = Field(
        Section(name="auto"), description="target network: auto, a name, or package.module:factory; model.* its options"
    )
    graph: Section = Field(
        Section(name="given"),
        description="relation graph: given (by the data), knn, gaussian, complete, empty, random or a FILE; "
        "graph.* are its keys (panacea graphs)",
    )
    attack: Section = Field(
        Section(name="none"),
        description="what malicious clients do: none, label_flip, model_poisoning, ...; attack.ratio, attack.clients, "
        "attack.start and the attack's own keys (panacea attacks)",
    )
    defence: Section = Field(
        Section(name="none"),
        description="what the server does about it: none, screen, clip, median, krum, ...; defence.* are its keys "
        "(panacea attacks)",
    )
    rounds: int | None = Field(None, ge=1, description="communication rounds")
    cohort: int | None = Field(None, ge=1, description="clients per round; default min(5, clients)")
    local_steps: int | None = Field(None, ge=1, description="K_c, local SGD steps per visit")
    local_epochs: float | None = Field(None, gt=0, description="steps in proportion to a client's samples instead")
    server_steps: int = Field(10, ge=1, description="K_s, server steps per round (hypernetwork methods)")
    batch_size: int | None = Field(None, ge=1, description="samples per local step, at most the client's own number")
    lr: float | None = Field(None, ge=0, allow_inf_nan=False, description="client learning rate eta")
    momentum: float = Field(0.0, ge=0, lt=1, description="momentum of local SGD")
    weight_decay: float = Field(0.0, ge=0, allow_inf_nan=False, description="weight decay of local SGD")
    clip: float = Field(0.0, ge=0, allow_inf_nan=False, description="largest gradient norm of a local step; 0 = off")
    server_lr: float = Field(0.01, ge=0, allow_inf_nan=False, description="alpha, server learning rate (hypernetworks)")
    novel: float | None = Field(None, ge=0, lt=1, description="share of clients held out of training entirely")
    seed: int = Field(0, ge=0, lt=2**63, description="everything random follows from it")
    buffers: Literal["shared", "local", "frozen"] = Field(
        "shared", description="BatchNorm statistics: averaged and sent, kept by each client, or never changed"
    )
    eval_every: int = Field(10, ge=1, description="rounds between evaluations; the last round is always evaluated")
    engine: Section = Field(
        Section(name="vectorised", keys=EngineKeys().model_dump()),
        description="how clients run, same numbers: vectorised, sequential or ray; engine.compile, engine.capture, "
        "engine.precision (docs/engines.md), engine.workers, engine.address (docs/cluster.md)",
    )
    block: int | None = Field(None, ge=1, description="most clients in one call (vectorised); default by model size")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="where to compute; auto = cuda if there is one")
    dtype: Literal["float32", "float64"] = Field("float32", description="floating-point type of models and samples")
    store: Literal["auto", "device", "cpu", "disk"] = Field(
        "auto", description="where clients' states are kept between visits; auto: device, else cpu, else disk, by size"
    )
    threads: int = Field(1, ge=1, description="CPU threads of this process")
    out: Path = Field(Path("runs"), description="folder in which the run's own directory is made")
    data_digest: str | None = Field(None, description="content of the data; filled in by a run, checked on resume")
    checkpoint_every: int = Field(
        50, ge=1, description="rounds between checkpoints (also made on Ctrl-C and at the end)"
    )
    track: tuple[str, ...] = Field(
        (), description="where else to keep the run's numbers: tensorboard, mlflow, wandb, or several; all on disk"
    )

    @property
    def engine_keys(self) -> EngineKeys:
        """The keys below `engine`."""
        return EngineKeys(**self.engine.keys)

    @field_validator("out", mode="before")
    @classmethod
    def _as_path(cls, value: object) -> Path:
        return Path(str(value)).expanduser()  # a folder may be called 2024

    @field_validator("track", mode="before")
    @classmethod
    def _as_names(cls, value: object) -> tuple[str, ...]:
        """One name, several, or none; each once."""
        given = [] if value is None else value if isinstance(value, list | tuple) else [value]
        names = tuple(dict.fromkeys(map(str, given)))
        for name in names:
            if name not in TRACKER_NAMES:
                raise unknown("tracker", name, TRACKER_NAMES)
        return names


WITHOUT_EFFECT = ("out", "checkpoint_every", "track", "store")
"""Keys that cannot change a result, so they are not part of a run's identity."""


def build_config(flat: Mapping[str, Any]) -> ExperimentConfig:
    """A configuration from flat keys, or the first thing that is wrong with them."""
    values: dict[str, Any] = {}
    sections: dict[str, dict[str, Any]] = {}
    for key, value in flat.items():
        head, dot, rest = key.partition(".")
        if dot and head in SECTIONS:
            sections.setdefault(head, {})[rest] = value
        elif head in SECTIONS:
            sections.setdefault(head, {})["name"] = value
        else:
            values[key] = value
    allowed = [*ExperimentConfig.model_fields]
    for key in values:
        if key not in allowed:
            raise unknown("key", key, allowed)
    for head, keys in sections.items():
        default = ExperimentConfig.model_fields[head].default
        name = keys.pop("name", default)
        if name is None and default == Section(name="none"):
            name = default  # attack=none reads as no value at all
        name = name.name if isinstance(name, Section) else name
        if not isinstance(name, str):
            given = "missing" if name is None or head not in flat else repr(name)
            raise RequestError(f"{head} is {given}; give one name, for example {head}={_EXAMPLES[head]}")
        values[head] = {"name": name, "keys": _engine_keys(name, keys) if head == "engine" else keys}
    for head in ("data", "method"):
        if head not in values:
            raise RequestError(f"{head} is missing; for example {head}={_EXAMPLES[head]}")
    return validated(ExperimentConfig, values, "")


def _engine_keys(name: str, keys: dict[str, Any]) -> dict[str, Any]:
    """All keys of the engine."""
    if name not in ENGINE_NAMES:
        raise unknown("engine", name, ENGINE_NAMES)
    given = validated(EngineKeys, keys, "engine")
    for key in ("workers", "address"):
        if name != "ray" and getattr(given, key) is not None:
            raise RequestError(f"engine.{key} is for engine=ray; this is engine={name}")
    return given.model_dump()


_EXAMPLES = {
    "data": "fl60", "method": "fedavg", "model": "auto", "graph": "given", "attack": "label_flip", "defence": "median",
    "engine": "vectorised",
}  # fmt: skip


def identity(config: ExperimentConfig) -> str:
    """Six hex digits of everything that can change a result."""
    from panacea.graphs.keys import FILE, is_graph_file  # noqa: PLC0415  (a request needs no NumPy to be read)

    content = config.model_dump(mode="json", exclude=set(WITHOUT_EFFECT))
    content["data"]["keys"].pop("root", None)  # what the data is, its digest says
    content["engine"]["keys"] = {
        k: v
        for k, v in content["engine"]["keys"].items()
        if k not in ("workers", "address") and v != EngineKeys.model_fields[k].default
    }
    if is_graph_file(config.graph.name):
        content["graph"]["name"] = FILE  # likewise
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:6]


def key_help() -> list[tuple[str, str, str]]:
    """(key, default, meaning) of every top-level key, for help pages."""
    rows = []
    for name, field in ExperimentConfig.model_fields.items():
        default = field.get_default()
        if isinstance(default, Section):
            default = default.name
        default = default if default != () else "none"
        shown = "required" if field.is_required() else "by data set" if default is None else str(default)
        rows.append((name, shown, field.description or ""))
    return rows
