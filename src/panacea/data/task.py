"""The task of a federation: what a model gets, what it gives, how it is scored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Kind", "Task"]

Kind = Literal["classification", "regression", "forecasting"]


@dataclass(frozen=True)
class Task:
    """What is to be learnt.

    Attributes:
        kind: ``classification`` (labels 0 .. classes-1, cross-entropy, accuracy in percent), ``regression`` or
            ``forecasting`` (a target array per sample, mean squared error in the data's stated scale).
        inputs: shape of one sample's input, without the batch axis.
        outputs: shape of one sample's target; ``()`` for classification.
        classes: number of classes, 0 unless classification.
        scale: for MSE, the scale it is stated in (``as given``, ``per-client min-max``, ...).
        class_names: names of the classes in label order, where they have names.
        missing: targets may hold NaN, a value that was not observed: it counts in no loss and no metric. A mean is
            then over observed values, so a sample with more of them counts more.
    """

    kind: Kind
    inputs: tuple[int, ...]
    outputs: tuple[int, ...] = ()
    classes: int = 0
    scale: str = "as given"
    class_names: tuple[str, ...] = ()
    missing: bool = False

    @property
    def metric(self) -> str:
        """``accuracy`` or ``mse``."""
        return "accuracy" if self.kind == "classification" else "mse"

    @property
    def higher_is_better(self) -> bool:
        """Whether a larger metric is a better one."""
        return self.kind == "classification"
