"""One experiment in memory: data, network, method, engine and state, built from a configuration."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from panacea.core.method import Method
from panacea.core.random import Streams
from panacea.core.records import Tree, leaves, named_leaves, rebuild
from panacea.core.round import State
from panacea.core.statistics import Statistics
from panacea.core.store import ClientStore
from panacea.core.types import Cohort, Setting
from panacea.data.federation import Federation
from panacea.data.load import load_share, resolve_keys
from panacea.data.registry import TrainingDefaults, find_dataset
from panacea.engines import Cluster, Engine, LocalSettings, default_block, make_engine, server_device
from panacea.engines.base import epoch_steps
from panacea.errors import RequestError
from panacea.experiment.checkpoint import Checkpoint
from panacea.experiment.config import ExperimentConfig, Section, identity
from panacea.experiment.digests import federation_digest, model_digest
from panacea.experiment.history import History
from panacea.experiment.relations import relate, resolve_graph
from panacea.experiment.resolving import changed, resolved_section, with_defaults, with_novel
from panacea.experiment.views import Snapshots
from panacea.methods import make_method
from panacea.models import build_model
from panacea.models.registry import resolve_model
from panacea.models.target import TargetModel
from panacea.robustness import choose_attackers, make_attack, make_defence, triggered_tests

__all__ = ["EngineMaker", "Experiment"]

_TRACE_FROM = 20_000  # local steps from which recording the gradient pays off

_COUNTS = ("visits", "refused", "doubted", "lies", "caught")
"""What is counted of every client, and kept in checkpoints."""


class EngineMaker(Protocol):
    """How clients run where they are not simulated: in place of `engine=`."""

    def __call__(self, config: ExperimentConfig, target: TargetModel, local: LocalSettings) -> Engine:
        """The engine of a run."""
        ...


class Experiment:
    """Everything a run needs between its configuration and its files.

    Attributes:
        config: fully resolved: every key has its value.
        federation: the clients.
        method: what is trained.
        target: the network.
        engine: how clients run.
        streams: all randomness.
        state: server, clients, statistics, round.
        history: evaluations so far.
        snapshots: embeddings at some of the evaluated rounds, for methods that have them.
        attackers: the clients that attack, if any.
        triggered: test samples with a backdoor's trigger, if the attack has one (even if nobody attacks).
        defence: what the server does about it.
        visits: ``[clients]`` how often each client took part.
        refused: ``[clients]`` how often its upload was not used.
        trust: ``[clients]`` the defence's trust in its last upload.
        doubted: ``[clients]`` how often that trust was below a half.
        lies: ``[clients]`` how often it sent an upload as an attacker, from the attack's first round on.
        caught: ``[clients]`` how many of those were doubted.
        alternatives: ``[clients]`` test metrics of other ways to use the trained state, by name; known at the end.
    """

    def __init__(
        self,
        config: ExperimentConfig,
        federation: Federation | None = None,
        module: nn.Module | None = None,
        engine: EngineMaker | None = None,
    ) -> None:
        if config.local_epochs is not None and config.local_steps is not None:
            raise RequestError("local_steps and local_epochs say the same thing in two ways; give one of them")
        defaults = TrainingDefaults(rounds=100) if federation is not None else find_dataset(config.data.name).defaults
        federation = with_novel(config, federation)
        config = with_defaults(config, defaults, federation)
        self.method: Method = make_method(config.method.name, config.method.keys)
        links = resolve_graph(config.graph, config.seed)
        if federation is None:
            keys = resolve_keys(config.data.name, config.data.keys, config.seed)
            federation, novel = load_share(config.data.name, keys, config.novel)
            config = changed(
                config, data=Section(name=config.data.name, keys=keys.model_dump(mode="json")), novel=novel
            )
        self.federation, graph = relate(federation, config.graph.name, links)
        digest = federation_digest(self.federation)
        if config.data_digest not in (None, digest):
            what = f"data={config.data.name} or graph={config.graph.name}"
            raise RequestError(f"{what}: the data has changed since this run began; start a new one")
        config = changed(config, graph=graph, data_digest=digest)
        self.streams = Streams(config.seed)
        attack = make_attack(config.attack.name, config.attack.keys)
        self.attackers = choose_attackers(attack, self.federation, self.streams)
        self.defence = make_defence(config.defence.name, config.defence.keys, self.method)
        config = changed(config, attack=resolved_section(attack), defence=resolved_section(self.defence))
        task = self.federation.task
        spec = config.model.name if module is None else module
        built = build_model(spec, task, config.model.keys, seed_key=self.streams.key("initialisation") >> 1)
        built = self.method.enlarge(built, task, self.streams)
        self.target = TargetModel(built, task, getattr(torch, config.dtype))
        self.config = self._resolved(config, defaults, module)
        self.defence.check(self.target)
        self.engine = self._engine(engine)
        self.triggered = triggered_tests(attack, self.engine.samples)
        self.state = self._initial_state()
        self.history = History(task.higher_is_better, ~self.malicious[self.federation.train_ids])
        self.snapshots = Snapshots()
        self.visits, self.refused, self.doubted, self.lies, self.caught = (
            np.zeros(len(self.federation), np.int64) for _ in _COUNTS
        )
        self.trust = np.ones(len(self.federation))
        self.alternatives: dict[str, npt.NDArray[np.float64]] = {}
        self._ahead: Cohort | None = None

    def _resolved(
        self, config: ExperimentConfig, defaults: TrainingDefaults, module: nn.Module | None
    ) -> ExperimentConfig:
        """Fill in what depends on the clients, the network and the machine."""
        able = len(self.federation.train_ids)
        if config.cohort is not None and config.cohort > able:
            raise RequestError(
                f"cohort={config.cohort}: there are only {able} training clients "
                f"({len(self.federation)} clients, {len(self.federation.novel_ids)} of them novel)"
            )
        device = config.device
        if device == "cuda" and not torch.cuda.is_available():
            raise RequestError("device=cuda: torch sees no CUDA device here; use device=cpu or device=auto")
        name, options = config.model.name, config.model.keys
        if module is not None:
            name, options = type(module).__name__, {"digest": model_digest(self.target)}
        elif ":" not in name:
            name = resolve_model(name, self.federation.task)
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() and config.engine.name != "ray" else "cpu"
        return changed(
            config,
            cohort=config.cohort if config.cohort is not None else min(defaults.cohort, able),
            buffers="local" if config.buffers == "shared" and not self.method.shares_statistics else config.buffers,
            block=config.block or default_block(self.target, config.batch_size or 1, device),
            device=device,
            model=Section(name=name, keys=options),
            method=Section(name=config.method.name, keys=self.method.parameters.model_dump(mode="json")),
        )

    def _engine(self, maker: EngineMaker | None) -> Engine:
        config, steps = self.config, self._local_steps()
        local = LocalSettings(
            lr=config.lr or 0.0,
            steps=steps,
            batch_size=config.batch_size or 1,
            momentum=config.momentum,
            weight_decay=config.weight_decay,
            clip=config.clip,
            frozen_statistics=config.buffers == "frozen",
        )
        if maker is not None:
            return maker(config, self.target, local)
        return make_engine(
            config.engine.name,
            self.target,
            self.federation,
            self.streams,
            local,
            block=config.block or 1,
            device=torch.device(config.device),
            traced=(config.rounds or 0) * int(np.max(steps)) >= _TRACE_FROM,
            captured=config.engine_keys.capture,
            precision=config.engine_keys.precision,
            server=server_device(config.engine_keys.server, self.target, self.method.averages, config.device),
            deterministic=config.engine_keys.deterministic,
            compiled=config.engine_keys.compile,
            cluster=Cluster(config.engine_keys.workers, config.engine_keys.address, config.cohort or 1, config.threads),
        )

    def _local_steps(self) -> int | npt.NDArray[np.int64]:
        """K_c, or with `local_epochs` a number per client."""
        config = self.config
        if config.local_epochs is None:
            return config.local_steps or 1
        return epoch_steps(config.local_epochs, self.federation.counts("train"), config.batch_size or 1)

    def _initial_state(self) -> State:
        config, clients = self.config, len(self.federation)
        setting = Setting(
            initial=self.engine.home,
            layout=self.target.layout,
            statistics_layout=self.target.statistics_layout,
            counts=self.federation.counts("train"),
            train_ids=self.federation.train_ids,
            graph=self.federation.graph,
            features=self.federation.features,
            groups=self.federation.groups,
            streams=self.streams,
            rounds=config.rounds or 1,
            lr=config.lr or 0.0,
            local_steps=int(np.max(self._local_steps())),
            server_lr=config.server_lr,
            server_steps=config.server_steps,
        )
        self.defence.begin(setting, self.method)
        statistics = Statistics(config.buffers, self.target.statistics.to(self.engine.home.device), clients)
        store = ClientStore(clients, config.store, self.engine.home.device, config.out)
        return State(self.method.init_server(setting), store, statistics)

    def cohort(self, round: int) -> Cohort:
        """The clients of a round: uniform without replacement, from the round's own stream."""
        ahead, self._ahead = self._ahead, None
        return ahead if ahead is not None and ahead.round == round else self._drawn(round)

    def look_ahead(self) -> None:
        """Draw the cohort after the one that trains now, while a GPU is at work; in vain if this is an evaluation."""
        if self._ahead is None:
            self._ahead = self._drawn(self.state.round + 2)

    def _drawn(self, round: int) -> Cohort:
        ids = self.streams.subset("cohort", round, self.federation.train_ids, self.config.cohort or 1)
        return Cohort.of(ids, self.federation.counts("train"), round, self.engine.home)

    @property
    def malicious(self) -> npt.NDArray[np.bool_]:
        """``[clients]``: who attacks."""
        return np.zeros(len(self.federation), np.bool_) if self.attackers is None else self.attackers.who

    # --- checkpoints --------------------------------------------------------------------------------------------

    def to_checkpoint(self) -> Checkpoint:
        """The whole state, by name."""
        state = self.state
        tensors = dict(named_leaves(state.server, "server"))
        for prefix, store in (("clients", state.clients), ("statistics.own", state.statistics.own)):
            seen, rows = store.packed()
            tensors[f"{prefix}.seen"] = torch.from_numpy(seen)
            tensors |= dict(named_leaves(rows, f"{prefix}.rows"))
        tensors["statistics.common"] = state.statistics.common
        tensors |= {name: torch.from_numpy(getattr(self, name)) for name in (*_COUNTS, "trust")}
        tensors |= dict(named_leaves(state.memory, "memory"))
        tensors |= {f"history.{name}": value for name, value in self.history.to_tensors().items()}
        tensors |= self.snapshots.to_tensors()
        info = {"identity": identity(self.config), "seed": self.config.seed, "history": self.history.numbers}
        return Checkpoint(state.round, tensors, info)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go back to a checkpoint of this very experiment."""
        if checkpoint.info.get("identity") != identity(self.config):
            raise RequestError(
                f"the checkpoint of round {checkpoint.round} belongs to another configuration "
                f"({checkpoint.info.get('identity')}, this is {identity(self.config)})"
            )
        device = self.engine.home.device
        kept = ("clients.rows", "statistics.own.rows")  # of every client: the store knows where they go
        tensors = {n: t if n.startswith(kept) else t.to(device) for n, t in checkpoint.tensors.items()}
        clients = len(self.federation)
        try:
            server = rebuild(self.state.server, tensors, "server")
            for old, new in zip(leaves(self.state.server), leaves(server), strict=True):
                if old.shape != new.shape or old.dtype != new.dtype:
                    raise RequestError(f"the checkpoint of round {checkpoint.round} is of another model")
            first = Cohort.of(self.federation.train_ids[:1], self.federation.counts("train"), 0, self.engine.home)
            template = self.method.init_client(self.method.download(server, first))
            stores = [
                self._restored_store(tensors, prefix, like)
                for prefix, like in (("clients", template), ("statistics.own", self.target.statistics))
            ]
            statistics = Statistics(self.config.buffers, tensors["statistics.common"], clients)
            statistics.own = stores[1]
            memory = self.defence.restored({k: v for k, v in tensors.items() if k.startswith("memory")})
            self.state = State(server, stores[0], statistics, checkpoint.round, memory)
            for name in (*_COUNTS, "trust"):
                setattr(self, name, tensors[name].cpu().numpy().copy())
        except KeyError as error:
            raise RequestError(f"the checkpoint of round {checkpoint.round} has no tensor {error}") from error
        past = {name[8:]: value.cpu() for name, value in tensors.items() if name.startswith("history.")}
        self.history.restore(past, checkpoint.info["history"])
        self.snapshots = Snapshots.restored(tensors)

    def _restored_store(self, tensors: dict[str, Tensor], prefix: str, like: Tree) -> ClientStore:
        seen = tensors[f"{prefix}.seen"].cpu().numpy()
        rows = rebuild(like, tensors, f"{prefix}.rows") if len(seen) else None
        where = self.config.store, self.engine.home.device, self.config.out
        return ClientStore.unpacked(len(self.federation), seen, rows, *where)
