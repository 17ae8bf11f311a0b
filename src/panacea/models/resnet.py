"""ResNet-18 with torchvision's parameter names, so that its published weights load."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from panacea.errors import RequestError
from panacea.models.heads import Outputs, output_width, shape_output

__all__ = ["ResNet18", "load_torchvision_weights", "resnet18"]

Stem = Literal["imagenet", "cifar"]
Norm = Literal["batch", "group"]
STAGES = (64, 128, 256, 512)
GROUPS = 32


class _Block(nn.Module):
    """Two 3x3 convolutions and a shortcut: ``relu(x' + bn(conv(relu(bn(conv(x))))))``.

    Shapes:
        ``[batch, before, height, width]`` to ``[batch, after, height / stride, width / stride]``.
    """

    def __init__(self, before: int, after: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
        self.bn1 = _normaliser(norm, after)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.bn2 = _normaliser(norm, after)
        self.downsample: nn.Module | None = None
        if stride != 1 or before != after:
            self.downsample = nn.Sequential(
                nn.Conv2d(before, after, 1, stride=stride, bias=False), _normaliser(norm, after)
            )

    def forward(self, x: Tensor) -> Tensor:
        """The block's output; shapes in the class."""
        shortcut = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        result: Tensor = self.relu(self.bn2(self.conv2(out)) + shortcut)
        return result


class ResNet18(nn.Module):
    """ResNet-18 with torchvision's names for parameters and buffers.

    Source: He et al., 2016, https://arxiv.org/abs/1512.03385; names and initialisation as in pytorch/vision,
    torchvision/models/resnet.py. 11,178,564 parameters with 4 classes and 9,600 floats of batch statistics.

    Args:
        classes: number of classes (or the shape of one sample's output).
        stem: ``imagenet`` (7x7 stride 2 and max-pool) or ``cifar`` (3x3 stride 1, no max-pool, for small images).
        norm: ``batch``, or ``group``: GroupNorm of 32 groups (Wu and He, https://arxiv.org/abs/1803.08494), which
            keeps no statistics.
        channels: image channels.

    Shapes:
        ``[batch, channels, height, width]`` to ``[batch, classes]``; any height and width.
    """

    def __init__(
        self, classes: Outputs = 1000, stem: Stem = "imagenet", norm: Norm = "batch", channels: int = 3
    ) -> None:
        super().__init__()
        self.classes = classes
        self.conv1 = (
            nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
            if stem == "imagenet"
            else nn.Conv2d(channels, 64, 3, padding=1, bias=False)
        )
        self.bn1 = _normaliser(norm, 64)
        self.relu = nn.ReLU()
        self.maxpool: nn.Module = nn.MaxPool2d(3, stride=2, padding=1) if stem == "imagenet" else nn.Identity()
        self.layer1 = _stage(64, STAGES[0], 1, norm)
        self.layer2 = _stage(STAGES[0], STAGES[1], 2, norm)
        self.layer3 = _stage(STAGES[1], STAGES[2], 2, norm)
        self.layer4 = _stage(STAGES[2], STAGES[3], 2, norm)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(STAGES[3], output_width(classes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Scores ``[batch, classes]`` of images ``[batch, channels, height, width]``."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return shape_output(self.fc(torch.flatten(self.avgpool(x), 1)), self.classes)


def resnet18(
    classes: Outputs,
    stem: Stem = "imagenet",
    norm: Norm = "batch",
    pretrained: str | os.PathLike[str] | None = None,
    channels: int = 3,
) -> ResNet18:
    """ResNet-18, with published weights from a file if one is given (see `load_torchvision_weights`)."""
    model = ResNet18(classes, stem, norm, channels)
    if pretrained is not None:
        load_torchvision_weights(model, pretrained)
    return model


def load_torchvision_weights(model: nn.Module, path: str | os.PathLike[str]) -> None:
    """Load torchvision's ResNet-18 weights into a model, in place.

    The last layer (``fc``) is left at its initial values when its shape differs. Every other name and shape must
    agree; ``num_batches_tracked`` may be absent, as it is from torchvision's older files.

    Args:
        model: a `ResNet18`.
        path: a ``.safetensors`` file, or torchvision's ``.pth`` (read without unpickling anything but tensors).

    Raises:
        RequestError: the file is missing or unreadable, or a name or shape does not fit.
    """
    file = Path(path)
    weights = _read(file)
    own = model.state_dict()
    wrong_head = any(name in weights and weights[name].shape != own[name].shape for name in own if _is_head(name))
    if wrong_head:
        weights = {name: value for name, value in weights.items() if not _is_head(name)}
    missing = [
        name
        for name in own
        if name not in weights and not name.endswith("num_batches_tracked") and not (wrong_head and _is_head(name))
    ]
    unexpected = sorted(name for name in weights if name not in own)
    for what, names in (("lacks", missing), ("has, and the model has not,", unexpected)):
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            raise RequestError(f"pretrained weights {file}: the file {what} {', '.join(names[:3])}{more}")
    for name, value in weights.items():
        if value.shape != own[name].shape:
            raise RequestError(
                f"pretrained weights {file}: {name} has shape {list(value.shape)}, the model's is "
                f"{list(own[name].shape)}"
            )
    model.load_state_dict(weights, strict=False)


def _read(file: Path) -> dict[str, Tensor]:
    """Named tensors of a safetensors or .pth file."""
    if not file.is_file():
        raise RequestError(f"pretrained weights {file}: there is no such file")
    try:
        content = (
            load_file(file)
            if file.suffix == ".safetensors"
            else torch.load(file, map_location="cpu", weights_only=True)
        )
    except (SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError, OSError, ValueError) as error:
        raise RequestError(
            f"pretrained weights {file}: not a readable file of named tensors ({type(error).__name__})"
        ) from error
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
        raise RequestError(f"pretrained weights {file}: expected a mapping of names to tensors (a state dict)")
    return dict(content)


def _is_head(name: str) -> bool:
    return name.startswith("fc.")


def _stage(before: int, after: int, stride: int, norm: Norm) -> nn.Sequential:
    return nn.Sequential(_Block(before, after, stride, norm), _Block(after, after, 1, norm))


def _normaliser(norm: Norm, channels: int) -> nn.Module:
    return nn.BatchNorm2d(channels) if norm == "batch" else nn.GroupNorm(GROUPS, channels)
