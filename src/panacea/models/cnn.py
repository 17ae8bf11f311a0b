"""Convolutional networks for small images, and FedCG's domain classifier."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from panacea.errors import RequestError
from panacea.models.heads import Outputs, output_width, shape_output

__all__ = ["DomainClassifier", "FedAvgCnn", "LeafCelebaCnn", "LeafFemnistCnn", "McMahanCnn", "SmallCnn"]

Size = int | tuple[int, int]


class _TwoConvolutions(nn.Module):
    """Two 5x5 convolutions (32 and 64 filters), each with ReLU and 2x2 max-pooling, then two linear layers.

    Shapes:
        ``[batch, channels, height, width]`` to ``[batch, classes]``.
    """

    def __init__(self, channels: int, size: Size, classes: Outputs, *, padding: int, width: int) -> None:
        super().__init__()
        sides = _sides(size)
        least = 4 if padding else 16
        if min(sides) < least:
            raise RequestError(f"{type(self).__name__} needs images of at least {least} x {least}, given {_by(sides)}")
        lost = 4 - 2 * padding
        left = [((side - lost) // 2 - lost) // 2 for side in sides]
        self.classes = classes
        self.conv1 = nn.Conv2d(channels, 32, 5, padding=padding)
        self.conv2 = nn.Conv2d(32, 64, 5, padding=padding)
        self.relu = nn.ReLU()
        self.pool = nn.MaxPool2d(2)
        self.fc1 = nn.Linear(64 * math.prod(left), width)
        self.fc = nn.Linear(width, output_width(classes))

    def forward(self, x: Tensor) -> Tensor:
        """Scores ``[batch, classes]`` of images ``[batch, channels, height, width]``."""
        x = self.pool(self.relu(self.conv1(x)))
        x = self.pool(self.relu(self.conv2(x)))
        x = self.relu(self.fc1(torch.flatten(x, 1)))
        return shape_output(self.fc(x), self.classes)


class McMahanCnn(_TwoConvolutions):
    """The MNIST network of the FedAvg paper: 5x5 'same' convolutions, 512 hidden units.

    Source: McMahan et al., 2017, https://arxiv.org/abs/1602.05629. 1 x 28 x 28: 1,663,370 parameters with 10 classes,
    1,690,046 with 62.

    Args:
        channels: image channels.
        size: image side, or (height, width).
        classes: number of classes (or the shape of one sample's output).
        width: hidden units.

    Shapes:
        ``[batch, channels, height, width]`` to ``[batch, classes]``.
    """

    def __init__(self, channels: int, size: Size, classes: Outputs, width: int = 512) -> None:
        super().__init__(channels, size, classes, padding=2, width=width)


class LeafFemnistCnn(_TwoConvolutions):
    """LEAF's FEMNIST network: as McMahan's with 2,048 hidden units; 6,603,710 parameters with 62 classes.

    Source: Caldas et al., "LEAF: A Benchmark for Federated Settings", https://arxiv.org/abs/1812.01097, and its code
    (TalwalkarLab/leaf, models/femnist/cnn.py).

    Shapes:
        ``[batch, channels, height, width]`` to ``[batch, classes]``.
    """

    def __init__(self, channels: int = 1, size: Size = 28, classes: Outputs = 62) -> None:
        super().__init__(channels, size, classes, padding=2, width=2048)


class FedAvgCnn(_TwoConvolutions):
    """The shape of PFLlib's FedAvgCNN: unpadded 5x5 convolutions; 582,026 parameters for 1 x 28 x 28, 10 classes.

    Source: TsingZ0/PFLlib, system/flcore/trainmodel/models.py. Images of at least 16 x 16.

    Shapes:
        ``[batch, channels, height, width]`` to ``[batch, classes]``.
    """

    def __init__(self, channels: int, size: Size, classes: Outputs) -> None:
        super().__init__(channels, size, classes, padding=0, width=512)


class LeafCelebaCnn(nn.Module):
    """LEAF's CelebA network: 4 x (conv3x3-32, batch norm, 2x2 max-pool, ReLU) and one linear layer.

    Source: TalwalkarLab/leaf, models/celeba/cnn.py. TensorFlow's 'same' pooling rounds up: 84-42-21-11-6.
    31,202 parameters on 3 x 84 x 84 with 2 classes. The original uses batch statistics at test time too; here running
    statistics are kept as buffers, as everywhere else in this package.

    Shapes:
        ``[batch, channels, height, width]`` to ``[batch, classes]``.
    """

    def __init__(self, channels: int = 3, size: Size = 84, classes: Outputs = 2) -> None:
        super().__init__()
        self.classes = classes
        sides = _sides(size)
        blocks: list[nn.Module] = []
        for block in range(4):
            blocks += [
                nn.Conv2d(32 if block else channels, 32, 3, padding=1),
                nn.BatchNorm2d(32),
                nn.MaxPool2d(2, ceil_mode=True),
                nn.ReLU(),
            ]
            sides = ((sides[0] + 1) // 2, (sides[1] + 1) // 2)
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(32 * math.prod(sides), output_width(classes))

    def forward(self, x: Tensor) -> Tensor:
        """Scores ``[batch, classes]`` of images ``[batch, channels, height, width]``."""
        return shape_output(self.fc(torch.flatten(self.blocks(x), 1)), self.classes)


class SmallCnn(nn.Module):
    """A network for tiny images: conv3x3-16, conv3x3-32, one 2x2 max-pool, 64 hidden units.

    Source: ours, for images such as the 8 x 8 digits; any side of at least 4.

    Args:
        channels: image channels.
        size: image side, or (height, width).
        classes: number of classes (or the shape of one sample's output).
        width: hidden units.
        norm: ``batch`` for batch normalisation after each convolution.

    Shapes:
        ``[batch, channels, height, width]`` to ``[batch, classes]``.
    """

    def __init__(self, channels: int, size: Size, classes: Outputs, width: int = 64, norm: str = "none") -> None:
        super().__init__()
        sides = _sides(size)
        if min(sides) < 4:
            raise RequestError(f"SmallCnn needs images of at least 4 x 4, given {_by(sides)}")
        self.classes = classes
        self.conv1 = nn.Conv2d(channels, 16, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(16) if norm == "batch" else nn.Identity()
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(32) if norm == "batch" else nn.Identity()
        self.relu = nn.ReLU()
        self.pool = nn.MaxPool2d(2)
        self.fc1 = nn.Linear(32 * (sides[0] // 2) * (sides[1] // 2), width)
        self.fc = nn.Linear(width, output_width(classes))

    def forward(self, x: Tensor) -> Tensor:
        """Scores ``[batch, classes]`` of images ``[batch, channels, height, width]``."""
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.pool(self.relu(self.bn2(self.conv2(x))))
        x = self.relu(self.fc1(torch.flatten(x, 1)))
        return shape_output(self.fc(x), self.classes)


class DomainClassifier(nn.Module):
    """FedCG's domain classifier (student and teacher): two 3x3 convolutions, global average pool, one linear layer.

    Source: Caldarola et al., "Cluster-driven Graph Federated Learning over Multiple Domains", CVPR workshops 2021,
    https://arxiv.org/abs/2104.14628. 18,816 + 65 D parameters with one channel, 19,392 + 65 D with three; images of
    any size. ReLU follows both convolutions (without the first they would be one linear map) and both are padded.

    Args:
        channels: image channels.
        domains: number of domains D.

    Shapes:
        ``[batch, channels, height, width]`` to ``[batch, domains]``.
    """

    def __init__(self, channels: int, domains: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.relu = nn.ReLU()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(64, domains)

    def forward(self, x: Tensor) -> Tensor:
        """Scores ``[batch, domains]`` of images ``[batch, channels, height, width]``."""
        x = self.relu(self.conv2(self.relu(self.conv1(x))))
        scores: Tensor = self.fc(torch.flatten(self.pool(x), 1))
        return scores


def _sides(size: Size) -> tuple[int, int]:
    """(height, width) of a side or a pair."""
    return (size, size) if isinstance(size, int) else size


def _by(sides: tuple[int, int]) -> str:
    """An image size as a reader writes it."""
    return f"{sides[0]} x {sides[1]}"
