"""What a client does for an order: the simulator's own code on one client's samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from panacea.core.random import Streams
from panacea.core.records import Tree, named_leaves, rebuild, tree_map
from panacea.core.types import Cohort, Newcomers, Origin
from panacea.deploy.orders import Order, Packed, Reply
from panacea.deploy.site_data import load_samples
from panacea.deploy.site_state import Trail
from panacea.deploy.wire import Refused, as_tensors, head, opened, pack, pack_tree
from panacea.engines.base import LocalSettings, Samples, epoch_steps
from panacea.engines.forward import prepare_for_loop
from panacea.engines.sequential import SequentialEngine
from panacea.errors import RequestError, RunFailure
from panacea.evaluation.evaluate import adapted
from panacea.methods.registry import make_method
from panacea.models.registry import build_model
from panacea.models.target import TargetModel

if TYPE_CHECKING:
    from panacea.core.method import Adaptation
    from panacea.deploy.settings import RunSettings
    from panacea.deploy.site import Site

__all__ = ["Workplace"]


class Workplace:
    """Method, network and samples of one client, for one order.

    It is given the client's number, under which all its random streams are, as in a simulation of all clients.
    """

    def __init__(self, order: Order, site: Site, settings: RunSettings) -> None:
        torch.set_num_threads(site.threads)
        self.order, self.settings = order, settings
        task, streams = settings.task.task, Streams(settings.seed)
        self.federation = load_samples(site.data, site.name, task)
        if "hello" in order.asks:
            return
        self.trail = Trail(site.state, settings.run, settings.start)
        self.trail.refuse_late(order.round if "train" in order.asks else None)
        self.method = make_method(settings.method, settings.method_keys)
        built = build_model(
            settings.model, task, settings.model_keys, seed_key=streams.key("initialisation") >> 1
        )  # as `Experiment` does
        built = self.method.enlarge(built, task, streams)
        self.target = TargetModel(built, task, getattr(torch, settings.dtype))
        self.origin = Origin(self.target.initial, self.target.layout, self.target.statistics_layout)
        self.method.bind(self.origin)
        prepare_for_loop(self.target)
        self.engine = SequentialEngine(self.target, self._samples(streams), self._local())

    def _samples(self, streams: Streams) -> Samples:
        """The client's samples under its number; nobody looks at the numbers before it."""
        samples = Samples(self.federation, streams, torch.device("cpu"), self.target.initial.dtype)
        samples.bounds = np.repeat(self.federation.bounds, self.order.client + 1, axis=0)
        samples.names = self.federation.names * (self.order.client + 1)
        return samples

    def _local(self) -> LocalSettings:
        s = self.settings
        if s.local_epochs is None:
            steps: Any = s.local_steps or 1
        else:
            count = self.federation.counts("train")
            steps = np.repeat(epoch_steps(s.local_epochs, count, s.batch_size), self.order.client + 1)
        return LocalSettings(
            lr=s.lr, steps=steps, batch_size=s.batch_size, momentum=s.momentum, weight_decay=s.weight_decay,
            clip=s.clip, frozen_statistics=s.buffers == "frozen",
        )  # fmt: skip

    def reply(self) -> Reply:
        """The answer to the order; evaluation comes before training."""
        arrays: dict[str, Packed] = {}
        numbers: dict[str, float] = {}
        if "hello" in self.order.asks:
            counts = {split: int(self.federation.counts(split)[0]) for split in ("train", "val", "test")}
            return Reply({}, {f"{split}.count": count for split, count in counts.items()})
        if "evaluate" in self.order.asks or "alternatives" in self.order.asks:
            numbers |= self._evaluate()
        if "train" in self.order.asks:
            arrays, loss = self._train()
            numbers["loss"] = loss
        return Reply(arrays, numbers, "; ".join(self.trail.notes))

    # --- what came, and what is kept ----------------------------------------------------------------------------

    def _cohort(self, round: int) -> Cohort:
        counts = np.repeat(self.federation.counts("train"), self.order.client + 1)
        return Cohort.of(np.array([self.order.client]), counts, round, self.target.initial)

    def _received(self, prefix: str, template: Tree) -> Tree:
        """A tree with what came in the places of what travels."""
        expected = dict(named_leaves(template, prefix, travelling=True))
        try:
            came = as_tensors(opened(head(self.order.arrays, prefix), expected))
        except Refused as refused:
            raise RequestError(f"the order's {prefix}: {refused}") from None
        return rebuild(template, {**dict(named_leaves(template, prefix)), **came}, prefix)

    def _statistics(self, state: Mapping[str, Tensor] | None) -> Tensor:
        """``[S]`` BatchNorm's: those that came, the client's own, or the initial ones."""
        if "statistics" in self.order.arrays:
            received: Tensor = self._received("statistics", self.target.statistics)
            return received
        if self.settings.buffers == "local" and state is not None and "statistics" in state:
            return state["statistics"]
        return self.target.statistics

    def _kept(self, state: Mapping[str, Tensor] | None, download: Tree) -> Tree:
        """What the method kept for this client; None if it was never visited."""
        if state is None:
            return None
        template = self.method.init_client(download)
        named = dict(named_leaves(template, "kept"))
        if any(name not in state or state[name].shape != leaf.shape for name, leaf in named.items()):
            raise RequestError("what this client kept is of another method or network")
        return rebuild(template, dict(state), "kept")

    # --- work ---------------------------------------------------------------------------------------------------

    def _train(self) -> tuple[dict[str, Packed], float]:
        round, method = self.order.round, self.method
        state = self.trail.before(round)
        download = self._received("download", method.template(self.origin, round))
        kept, statistics = self._kept(state, download), self._statistics(state)
        kept = method.init_client(download) if kept is None else kept
        trained = self.engine.train(method, _row(download), _row(kept), statistics.unsqueeze(0), self._cohort(round))
        loss, own = float(trained.loss[0]), tree_map(lambda leaf: leaf[0], trained.kept)
        upload = tree_map(lambda leaf: leaf[0], trained.uploads)
        if not np.isfinite(loss):
            raise RunFailure(f"training diverged: the loss is {loss}")
        saved = dict(named_leaves(own, "kept"))
        if self.settings.buffers == "local" and statistics.numel():
            saved["statistics"] = trained.statistics[0]
        self.trail.save(round, saved)
        arrays = pack_tree(upload, "upload")
        if self.settings.buffers == "shared" and statistics.numel():
            arrays["statistics"] = pack(trained.statistics[0])
        return arrays, loss

    def _evaluate(self) -> dict[str, float]:
        round = self.order.round - ("train" in self.order.asks)
        cohort, state = self._cohort(round), self.trail.after(round)
        statistics, download, kept = self._statistics(state).unsqueeze(0), None, None
        programme: Adaptation | None = None
        if "admitted" in self.order.arrays:
            params = self._received("admitted", self.target.initial).unsqueeze(0)
            if self.method.newcomer_alone:
                programme = self.method.adapt_newcomer(None, Newcomers(cohort.ids, None))
        else:
            params, download, kept = self._own_model(round, state)
            programme = self.method.adapt()
        own = adapted(programme, params, statistics, self.engine, cohort)
        self.trail.keep_model(self.target.layout.unflatten(own[0][0]) | self._named_statistics(own[1][0]))
        numbers: dict[str, float] = {}
        for split in ("test", "val") if "evaluate" in self.order.asks else ():
            numbers |= self._score(own, split, split)
        if "alternatives" in self.order.asks:
            for name, further in self.method.own_alternatives(download, kept).items():
                numbers |= self._score(adapted(further, *own, self.engine, cohort), "test", name, loss=False)
        return numbers

    def _named_statistics(self, statistics: Tensor) -> dict[str, Tensor]:
        return dict(self.target.statistics_layout.unflatten(statistics))

    def _own_model(self, round: int, state: Mapping[str, Tensor] | None) -> tuple[Tensor, Tree, Tree]:
        """``[1, P]``, and ``[1, ...]`` what came and what is kept."""
        template = self.method.template(self.origin, round)
        prefix = "own" if head(self.order.arrays, "own") else "download"
        travels = next(named_leaves(template, travelling=True), None) is not None
        download = self._received(prefix, template) if head(self.order.arrays, prefix) or not travels else None
        kept = None if download is None else self._kept(state, download)
        rows = _row(download), _row(kept)
        if self.method.keeps_model:
            if download is None:
                raise RequestError("the order has nothing to evaluate")
            return self.method.own_model(*rows), *rows
        if download is not None and rows[1] is None:
            rows = rows[0], self.method.init_client(rows[0])
        if "model" in self.order.arrays:
            return self._received("model", self.target.initial).unsqueeze(0), *rows
        if download is None:
            raise RequestError("the order has nothing to evaluate")
        return rows[0].params, *rows

    def _score(self, own: tuple[Tensor, Tensor], split: str, name: str, *, loss: bool = True) -> dict[str, float]:
        """Finite numbers only: a split may have no samples."""
        scores = self.engine.evaluate(*own, np.array([self.order.client]), split)
        found = {f"{name}.metric": float(scores.metric[0])} | ({f"{name}.loss": float(scores.loss[0])} if loss else {})
        return {key: value for key, value in found.items() if np.isfinite(value)}


def _row(tree: Tree) -> Tree:
    """One client as a cohort of one: ``[...] -> [1, ...]``."""
    return tree_map(lambda leaf: leaf.unsqueeze(0), tree)
