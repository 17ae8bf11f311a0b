"""What a run remembers of its evaluations: enough to say which round was chosen, and by what."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from panacea.engines.base import Scores
from panacea.evaluation.evaluate import Evaluation
from panacea.evaluation.metrics import mean, spread, worst_decile

__all__ = ["History"]

_SUCCESS = ("asr", "novel_asr")  # of an `Evaluation`, where there is a backdoor


@dataclass
class History:
    """Evaluations so far.

    The reported round is chosen on validation data: best mean validation metric, then lowest validation loss, then
    the earliest. Without any validation sample it is the last round. Where clients score themselves, some may not
    answer: two rounds are compared on the clients that answered in both, and a round in which fewer than half as many
    answered as in the chosen one is not chosen. `best_*` is the best round on *test* data
    (FedAMP's BMTA); it is kept apart and labelled, never used for anything else.

    Attributes:
        higher_is_better: direction of the metric.
        honest: ``[training clients]`` bool: those whose metrics count; all, unless some attack.
        selected: the evaluation of the chosen round.
        last: the evaluation of the last evaluated round.
    """

    higher_is_better: bool
    honest: npt.NDArray[np.bool_]
    selected: Evaluation | None = None
    last: Evaluation | None = None
    numbers: dict[str, Any] = field(
        default_factory=lambda: {
            "selected_round": 0,
            "selected_val": None,
            "selected_val_loss": None,
            "best_mean": None,
            "best_round": 0,
            "bytes_down": 0,
            "bytes_up": 0,
            "train_seconds": 0.0,
        }
    )

    def add(self, round: int, evaluation: Evaluation) -> dict[str, Any]:
        """Take an evaluation in; returns its line for `metrics.jsonl` (without what only the round knows)."""
        n = self.numbers
        test, checked = evaluation.test.of(self.honest), evaluation.val.of(self.honest)
        value, val, val_loss = mean(test.metric), mean(checked.metric), mean(checked.loss)
        if self._chosen(evaluation):
            n["selected_round"], n["selected_val"], n["selected_val_loss"] = round, _plain(val), _plain(val_loss)
            self.selected = evaluation
        if n["best_mean"] is None or self._better(value, n["best_mean"]):
            n["best_mean"], n["best_round"] = _plain(value), round
        self.last = evaluation
        success: dict[str, Any] = {}
        if evaluation.asr is not None and evaluation.novel_asr is not None:
            success = {
                "asr_mean": _plain(mean(evaluation.asr[self.honest])),
                "asr_novel_mean": _plain(mean(evaluation.novel_asr)),
            }
        if evaluation.answered is not None:
            success["answered"] = evaluation.answered
            for way, count in zip(("down", "up"), evaluation.traffic, strict=True):
                name = f"evaluation_bytes_{way}"
                success[name] = n[name] = n.get(name, 0) + count
        return success | {
            "round": round,
            "mean": _plain(value),
            "std": _plain(spread(test.metric)),
            "loss": _plain(mean(test.loss)),
            "worst_decile": _plain(worst_decile(test.metric, self.higher_is_better)),
            "val_mean": _plain(val),
            "val_loss": _plain(val_loss),
            "novel_mean": _plain(mean(evaluation.novel.metric)),
            "novel_std": _plain(spread(evaluation.novel.metric)),
        }

    def _better(self, a: float, b: float) -> bool:
        return a > b if self.higher_is_better else a < b

    def _chosen(self, evaluation: Evaluation) -> bool:
        if self.selected is None:
            return True
        if 2 * _answers(evaluation) < _answers(self.selected):
            return False
        new, old = evaluation.val.of(self.honest), self.selected.val.of(self.honest)
        val, best = _means_of_both(new.metric, old.metric)
        if math.isnan(val):  # nobody has both: without validation samples, the last round
            return bool(np.isnan(old.metric).all())
        if not math.isfinite(best) or self._better(val, best):
            return True
        val_loss, loss = _means_of_both(new.loss, old.loss)
        return bool(val == best and not math.isnan(val_loss) and (not math.isfinite(loss) or val_loss < loss))

    def to_tensors(self) -> dict[str, Tensor]:
        """The per-client arrays, for a checkpoint."""
        out = {}
        for when, evaluation in (("selected", self.selected), ("last", self.last)):
            for split in ("test", "val", "novel") if evaluation is not None else ():
                scores: Scores = getattr(evaluation, split)
                out[f"{when}.{split}.metric"] = torch.from_numpy(scores.metric)
                out[f"{when}.{split}.loss"] = torch.from_numpy(scores.loss)
            for name in _SUCCESS:
                values = getattr(evaluation, name, None)
                out |= {} if values is None else {f"{when}.{name}": torch.from_numpy(values)}
        return out

    def restore(self, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
        """The inverse of `to_tensors` and `numbers`."""
        self.numbers = dict(numbers)
        for when in ("selected", "last"):
            if f"{when}.test.metric" in tensors:
                test, val, novel = (
                    Scores(*(np.asarray(tensors[f"{when}.{split}.{kind}"].numpy()) for kind in ("metric", "loss")))
                    for split in ("test", "val", "novel")
                )
                success = (tensors.get(f"{when}.{name}") for name in _SUCCESS)
                asr, novel_asr = (None if values is None else np.asarray(values.numpy()) for values in success)
                setattr(self, when, Evaluation(test, val, novel, asr, novel_asr))


def _answers(evaluation: Evaluation) -> int:
    """How many training clients have a number."""
    return int((~np.isnan(evaluation.test.loss) | ~np.isnan(evaluation.val.loss)).sum())


def _means_of_both(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Means over the clients that have a value in both."""
    known = ~np.isnan(a) & ~np.isnan(b)
    return mean(np.where(known, a, np.nan)), mean(np.where(known, b, np.nan))


def _plain(value: float) -> float | None:
    """JSON has no NaN."""
    return value if math.isfinite(value) else None
