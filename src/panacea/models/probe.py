"""A trial forward pass: does a network take the task's inputs and give the task's outputs?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from panacea.errors import RequestError
from panacea.models.own import one_line

if TYPE_CHECKING:
    from panacea.data.task import Task

__all__ = ["check_model"]

BATCH = 2


def check_model(model: nn.Module, label: str, task: Task) -> None:
    """Run a batch of two zeros through a network in evaluation mode; its modes are left as they were.

    Raises:
        RequestError: the forward pass fails or its output has not the shape the task expects.
    """
    given = [BATCH, *task.inputs]
    expected = [BATCH, task.classes] if task.kind == "classification" else [BATCH, *task.outputs]
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            output = model(_zeros(given, model))
    except Exception as error:
        raise RequestError(
            f"model '{label}': inputs {given} fail (expected outputs {expected}): {one_line(error)}"
        ) from error
    finally:
        for module, training in modes.items():
            module.training = training
    if not isinstance(output, Tensor):
        raise RequestError(
            f"model '{label}': inputs {given} give an object of type {type(output).__name__}, "
            f"the task expects a tensor {expected}"
        )
    if list(output.shape) != expected:
        raise RequestError(
            f"model '{label}': inputs {given} give outputs {list(output.shape)}, the task expects {expected}"
        )


def _zeros(shape: list[int], model: nn.Module) -> Tensor:
    """Zeros of a shape, in the type and on the device of a network's first parameter."""
    first = next(model.parameters(), None)
    return torch.zeros(shape) if first is None else torch.zeros(shape, dtype=first.dtype, device=first.device)
