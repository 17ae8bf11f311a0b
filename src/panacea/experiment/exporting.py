"""Write a trained network to a file, with a card beside it that says what it is."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import torch
from safetensors.torch import save as save_tensors
from torch import nn

from panacea.core.files import write_atomically
from panacea.errors import RequestError, unknown
from panacea.experiment.experiment import Experiment
from panacea.experiment.model_card import Subject, card, metadata
from panacea.experiment.onnx_format import onnx_bytes

__all__ = ["SUFFIXES", "Exported", "ModelFormat", "choose_format", "write_model"]

ModelFormat: TypeAlias = Literal["safetensors", "torch", "onnx"]

SUFFIXES: dict[ModelFormat, tuple[str, ...]] = {
    "safetensors": (".safetensors",),
    "torch": (".pt", ".pth"),
    "onnx": (".onnx",),
}


@dataclass(frozen=True)
class Exported:
    """What was written; `difference` is between ONNX Runtime and torch, None for other formats."""

    path: Path
    card: Path
    format: ModelFormat
    difference: float | None


def choose_format(format: str | None, path: Path | None) -> ModelFormat:
    """The format asked for, else that of the file's name, else safetensors.

    >>> choose_format(None, Path("model.onnx")), choose_format(None, None)
    ('onnx', 'safetensors')
    """
    if format is not None and format not in SUFFIXES:
        raise unknown("format", format, SUFFIXES)
    suffix = "" if path is None else path.suffix.lower()
    named = next((kind for kind, endings in SUFFIXES.items() if suffix in endings), None)
    if format is not None and named is not None and format != named:
        raise RequestError(f"'{path}' names a file of format {named}, but format is {format}; give one of them")
    if path is not None and format is None and named is None and suffix:
        endings = ", ".join(ending for kinds in SUFFIXES.values() for ending in kinds)
        raise RequestError(f"'{path}': the ending '{suffix}' names no format; use one of {endings}, or give --format")
    return format or named or "safetensors"


def write_model(
    experiment: Experiment, module: nn.Module, subject: Subject, path: Path, format: ModelFormat
) -> Exported:
    """Write the network and its card, each all at once or not at all.

    Raises:
        RequestError: the place cannot be written to, or the format cannot express the network.
    """
    beside = path.parent / f"{path.name}.md"
    for file in (path, beside):
        if file.is_dir() or not file.parent.is_dir():
            why = "is a directory" if file.is_dir() else f"cannot be written: {file.parent} is not a directory"
            raise RequestError(f"{file} {why}")
    tensors = {name: t.detach().cpu().contiguous().clone() for name, t in module.state_dict().items()}
    about, difference = metadata(experiment, subject), None
    if format == "onnx":
        content, difference = onnx_bytes(module, experiment.federation.task.inputs, about)
    elif format == "torch":
        buffer = io.BytesIO()
        torch.save(tensors, buffer)
        content = buffer.getvalue()
    else:
        content = save_tensors(tensors, {"format": "pt", **about})
    try:
        write_atomically(path, content)
        write_atomically(beside, card(experiment, subject, path, format, difference))
    except OSError as error:
        raise RequestError(f"{path} cannot be written: {error.strerror or error}") from error
    return Exported(path, beside, format, difference)
