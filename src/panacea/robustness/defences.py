r"""What a server does against clients that lie; uploads that hold NaN or infinity are refused by every server.

    screen            refuse an update more than `factor` times as long as is usual (`panacea.robustness.lengths`)
    clip              shorten every update to at most `factor` times the median length of the round's
    median, trimmed_mean, krum, multi_krum, geometric_median
                      every client's update is replaced by the robust mean of all (`panacea.robustness.aggregators`), so
                      that whatever mean the method takes is that one; for methods that average
    simple_tuning     clients make their last layer anew after training (`panacea.robustness.tuning`), scored apart
    neighbourhood     less weight for clients whose updates contradict their neighbours' in the relation graph
                      (`panacea.robustness.neighbourhood`)

A refused upload counts as if its client had trained nothing and is given no weight.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import replace
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from panacea.core.method import Adaptation, Method
from panacea.core.records import Tree, leaves
from panacea.core.screening import Judged, refuse
from panacea.core.types import Cohort, Setting
from panacea.core.validation import validated
from panacea.engines.base import Engine
from panacea.errors import RequestError, unknown
from panacea.models.target import TargetModel
from panacea.robustness import aggregators
from panacea.robustness.lengths import Lengths
from panacea.robustness.tuning import last_layer, tuning
from panacea.robustness.updates import applied, updates_of

__all__ = ["DEFENCES", "DefenceKeys", "Guard", "make_defence"]


class DefenceKeys(BaseModel):
    """Keys of a defence (`defence.*`); most have none."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Guard:
    """One defence; `panacea.core.round.Defence`. This one lets everything pass that is finite."""

    name: ClassVar[str] = "none"
    summary: ClassVar[str] = "only what is not finite is refused"
    key_model: ClassVar[type[DefenceKeys]] = DefenceKeys
    averages_only: ClassVar[bool] = False

    def __init__(self, keys: DefenceKeys) -> None:
        self.keys = keys

    def begin(self, setting: Setting, method: Method) -> None:
        """Called once, before the first round."""

    def judge(
        self, memory: Tree, judged: Judged, sent: Tensor, cohort: Cohort, server: Tree = None
    ) -> tuple[Tree, Judged]:
        """The new memory, and what may be used; nothing to do where nothing is uploaded or trusted."""
        if self.name == "none":
            return memory, judged
        trusted = judged.trust[:, 0] > 0
        if not leaves(judged.uploads) or not bool(trusted.any()):
            return memory, judged
        return self.weigh(memory, judged, updates_of(judged.unchanged, judged.uploads), trusted, sent, cohort)

    def check(self, target: TargetModel) -> None:
        """Refuse a network this defence cannot work on, with a `RequestError`."""

    def alternatives(self, engine: Engine, cohort: Cohort) -> dict[str, Adaptation]:
        """Like `Method.alternatives`: what clients do for themselves after training, each scored apart."""
        return {}

    def restored(self, tensors: dict[str, Tensor]) -> Tree:
        """The memory from a checkpoint's tensors, named ``memory...``; None where there are none."""
        return None

    def weigh(
        self, memory: Tree, judged: Judged, updates: Tensor, trusted: Tensor, sent: Tensor, cohort: Cohort
    ) -> tuple[Tree, Judged]:
        """Like `judge`, with the updates ``[rows, D]`` and which rows are trusted so far ``[rows]``."""
        return memory, judged


class ScreenKeys(DefenceKeys):
    """Keys of `screen`."""

    factor: float = Field(
        5.0, gt=1, description="an update may be so many times as long as the median accepted one, now or earlier"
    )


class Screen(Guard):
    """See the module."""

    name, key_model = "screen", ScreenKeys
    summary = "refuses updates much longer than the median accepted one, now or earlier"
    keys: ScreenKeys

    def restored(self, tensors: dict[str, Tensor]) -> Lengths | None:
        """The lengths."""
        return Lengths(tensors["memory.latest"], tensors["memory.largest"]) if tensors else None

    def weigh(
        self, memory: Lengths | None, judged: Judged, updates: Tensor, trusted: Tensor, sent: Tensor, cohort: Cohort
    ) -> tuple[Tree, Judged]:
        """Compare with what is usual; a round's own updates join it afterwards."""
        length = updates.norm(dim=1)
        memory = Lengths.none(length) if memory is None else memory
        sound = length <= self.keys.factor * memory.usual()
        if not bool(sound.all()):
            judged = refuse(judged, (sound | ~trusted)[:, None], sent, "too long an update", cohort)
        return memory.then(length[trusted & sound]), judged


class ClipKeys(DefenceKeys):
    """Keys of `clip`."""

    factor: float = Field(1.0, gt=0, description="longest update, in median lengths of the round's")


class Clip(Guard):
    """See the module."""

    name, summary, key_model = "clip", "shortens long updates to the median length of the round", ClipKeys
    keys: ClipKeys

    def weigh(
        self, memory: Tree, judged: Judged, updates: Tensor, trusted: Tensor, sent: Tensor, cohort: Cohort
    ) -> tuple[Tree, Judged]:
        """Shorten."""
        length = updates.norm(dim=1, keepdim=True)
        most = self.keys.factor * aggregators.median(length[trusted])
        shorter = updates * (most / length.clamp_min(1e-30)).clamp_max(1)
        return memory, replace(judged, uploads=applied(judged.unchanged, shorter))


class RobustMean(Guard):
    """A guard that replaces every update by one of all trusted."""

    averages_only = True

    @abstractmethod
    def mean(self, updates: Tensor) -> Tensor:
        """``[trusted, D] -> [D]``."""

    def weigh(
        self, memory: Tree, judged: Judged, updates: Tensor, trusted: Tensor, sent: Tensor, cohort: Cohort
    ) -> tuple[Tree, Judged]:
        """Everybody's update is the robust mean; statistics of BatchNorm likewise."""
        common = self.mean(updates[trusted]).expand_as(updates)
        statistics = judged.statistics
        if statistics.numel():
            statistics = sent + self.mean((statistics - sent)[trusted])
        return memory, replace(judged, uploads=applied(judged.unchanged, common), statistics=statistics)


class Median(RobustMean):
    """See the module."""

    name, summary = "median", "the median of every coordinate"

    def mean(self, updates: Tensor) -> Tensor:
        """Of every coordinate."""
        return aggregators.median(updates)


class TrimmedMeanKeys(DefenceKeys):
    """Keys of `trimmed_mean`."""

    share: float = Field(0.2, ge=0, lt=0.5, description="of the rows cut off at each end of every coordinate")


class TrimmedMean(RobustMean):
    """See the module."""

    name, summary, key_model = "trimmed_mean", "the mean of every coordinate without its extremes", TrimmedMeanKeys
    keys: TrimmedMeanKeys

    def mean(self, updates: Tensor) -> Tensor:
        """Without ``ceil(share * rows)`` at each end, as long as one is left."""
        cut = math.ceil(self.keys.share * len(updates) - 1e-9)  # 0.2 of 15 rows are 3, whatever floats say
        return aggregators.trimmed_mean(updates, min(cut, (len(updates) - 1) // 2))


class KrumKeys(DefenceKeys):
    """Keys of `krum`."""

    liars: int = Field(1, ge=0, description="f: how many of a round's clients may lie")


class Krum(RobustMean):
    """See the module."""

    name, summary, key_model = "krum", "the update nearest to its neighbours", KrumKeys
    keys: KrumKeys

    def mean(self, updates: Tensor) -> Tensor:
        """The most central one."""
        return updates[aggregators.krum_order(updates, self.keys.liars)[0]]


class MultiKrum(Krum):
    """See the module."""

    name, summary = "multi_krum", "the mean of all but the f updates farthest from their neighbours"

    def mean(self, updates: Tensor) -> Tensor:
        """Of the n - f most central ones."""
        order = aggregators.krum_order(updates, self.keys.liars)
        return updates[order[: max(len(updates) - self.keys.liars, 1)]].mean(dim=0)


class GeometricMedian(RobustMean):
    """See the module."""

    name, summary = "geometric_median", "the point with the least sum of distances to all updates"

    def mean(self, updates: Tensor) -> Tensor:
        """By Weiszfeld's iteration."""
        return aggregators.geometric_median(updates)


class SimpleTuningKeys(DefenceKeys):
    """Keys of `simple_tuning`."""

    epochs: float = Field(10, gt=0, description="passes over a client's train samples")
    lr: float = Field(0.01, gt=0, description="learning rate of the last layer")


class SimpleTuning(Guard):
    """See the module."""

    name, summary = "simple_tuning", "after training clients make their last layer anew; scored apart as `tuned`"
    key_model = SimpleTuningKeys
    keys: SimpleTuningKeys

    def judge(
        self, memory: Tree, judged: Judged, sent: Tensor, cohort: Cohort, server: Tree = None
    ) -> tuple[Tree, Judged]:
        """The server does nothing."""
        return memory, judged

    def check(self, target: TargetModel) -> None:
        """The last layer must be linear."""
        last_layer(target)

    def alternatives(self, engine: Engine, cohort: Cohort) -> dict[str, Adaptation]:
        """The tuned models."""
        return {"tuned": tuning(engine, cohort, self.keys.epochs, self.keys.lr)}


DEFENCES: dict[str, type[Guard]] = {
    cls.name: cls for cls in (Guard, Screen, Clip, Median, TrimmedMean, Krum, MultiKrum, GeometricMedian, SimpleTuning)
}
"""By name; `none` only refuses what is not finite."""


def make_defence(name: str, keys: dict[str, object], method: Method) -> Guard:
    """A defence with checked keys (without the prefix ``defence.``) that suits the method."""
    if name not in DEFENCES:
        raise unknown("defence", name, DEFENCES)
    cls = DEFENCES[name]
    if cls.averages_only and not method.averages:
        able = ", ".join(other for other, guard in DEFENCES.items() if not guard.averages_only)
        raise RequestError(f"defence={name} replaces the mean of uploads, and {method.name} takes none; use {able}")
    return cls(validated(cls.key_model, keys, "defence"))
