"""Small networks, one for every way a layer can be used; widths and batches are odd on purpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

Shape = tuple[int, ...]


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(2, 5, 3, padding=1)
        self.norm = nn.BatchNorm2d(5)
        self.conv2 = nn.Conv2d(5, 5, 3, padding=1)
        self.short = nn.Conv2d(2, 5, 1)
        self.fc = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.norm(self.conv1(x)))
        out = F.relu(self.conv2(out) + self.short(x))
        out = F.adaptive_avg_pool2d(out, 1)
        return self.fc(torch.flatten(out, 1))


class ResidualVectors(nn.Module):
    """Columns, rows and folded values meet: a sum of a Linear's output, its input and a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.fc = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 3)
        self.norm = nn.LayerNorm(5)

    def forward(self, x: Tensor) -> Tensor:
        h = x + torch.tanh(self.a(x)) * 0.5
        h = self.norm(h) - self.b(h)
        h = torch.cat([h, x], dim=1)[:, 2:7]
        return F.softplus(self.fc(h)) / 2 + 1


class FlattenedBefore(nn.Module):
    """`torch.flatten` of the input itself."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(12, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.relu(self.a(torch.flatten(x, 1))))


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(2, 3, 3), nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv(x)), 2)
        return self.fc(torch.flatten(x, 1))


class Viewed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv1d(2, 3, 2), nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x).relu()
        return self.fc(x.view(x.size(0), -1))


class ViewedImages(nn.Module):
    """`view` where a layer may have left the channels last, behind kernels that see few numbers and many."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv, self.pool, self.fc = nn.Conv2d(channels, 3, 3), nn.MaxPool2d(2), nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(F.relu(self.conv(x)))
        return self.fc(x.view(-1, 3 * 2 * 2))


class Reshaped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 4), nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x.reshape(x.shape[0], 3, 6)
        x = torch.sigmoid(self.a(x)).transpose(1, 2)
        return self.b(x.reshape(-1, 12))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.fc = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 3)
        self.b.weight = self.a.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.tanh(self.b(torch.tanh(self.a(x)))))


class TiedConvolutions(nn.Module):
    """The same layer twice under two names, and once more under the first."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(2, 2, 3, padding=1)
        self.again, self.fc = self.conv, nn.Linear(10, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.conv(self.again(self.conv(x).tanh())).flatten(1))


class Frozen(nn.Module):
    """Constants in every kind of layer: not in the vector, the same for all clients."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.fc = nn.Conv1d(2, 3, 2), nn.GroupNorm(1, 3), nn.Linear(12, 4)
        self.batch, self.out = nn.BatchNorm1d(4), nn.Linear(4, 3)
        for tensor in (self.conv.weight, self.norm.bias, self.fc.bias, self.batch.weight, self.out.weight):
            tensor.requires_grad_(False)
        nn.init.normal_(self.norm.bias)
        nn.init.normal_(self.batch.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.batch(self.fc(self.norm(self.conv(x)).flatten(1))).tanh())


class ConstantBuffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.rand(4, 1) + 0.5)
        self.register_buffer("shift", torch.rand(5))
        self.fc = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc((x * self.scale).sum(dim=1) + torch.relu(self.shift - 0.5))


class GruNet(nn.Module):
    def __init__(self, layers: int = 1, batch_first: bool = True, bias: bool = True, use: str = "output") -> None:
        super().__init__()
        self.gru = nn.GRU(3, 5, layers, batch_first=batch_first, bias=bias)
        self.fc, self.batch_first, self.use = nn.Linear(5, 2), batch_first, use

    def forward(self, x: Tensor) -> Tensor:
        sequence = x if self.batch_first else x.transpose(0, 1)
        outputs, last = self.gru(sequence)
        if self.use == "state":
            return self.fc(last[-1])
        return self.fc(outputs[:, -1] if self.batch_first else outputs[-1])


class GruPair(nn.Module):
    """The state of one GRU starts another."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.first, self.second = (nn.GRU(3, 5, layers, batch_first=True) for _ in range(2))
        self.fc = nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        _, state = self.first(x)
        outputs, _ = self.second(x.flip(1), state)
        return self.fc(outputs[:, -1])


class GruCellNet(nn.Module):
    def __init__(self, bias: bool = True) -> None:
        super().__init__()
        self.cell, self.fc = nn.GRUCell(3, 5, bias=bias), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        state = self.cell(x[:, 0])
        for step in range(1, 4):
            state = self.cell(x[:, step], state)
        return self.fc(state)


class GruWithState(nn.Module):
    """The usual way to write a GRU: zeros of the batch's size as the first state."""

    def __init__(self) -> None:
        super().__init__()
        self.gru, self.drop, self.fc = nn.GRU(3, 5, 2, batch_first=True), nn.Dropout(0.4), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros(self.gru.num_layers, x.size(0), self.gru.hidden_size, dtype=x.dtype)
        outputs, _ = self.gru(x, state)
        return self.fc(self.drop(outputs[:, -1, :]))


class EmbeddingNet(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.table, self.fc = nn.Embedding(7, 3, **options), nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.table((7 * x).long()).flatten(1))


class NormTwice(nn.Module):
    """One BatchNorm layer in two places."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.fc, self.norm = nn.Linear(5, 4), nn.Linear(4, 4), nn.Linear(4, 3), nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.norm(self.b(self.norm(self.a(x)).tanh())))


def sharing_dropout() -> nn.Module:
    """The same Dropout object in two places of a Sequential."""
    drop = nn.Dropout(0.3)
    return nn.Sequential(nn.Linear(5, 6), nn.ReLU(), drop, nn.Linear(6, 6), nn.ReLU(), drop, nn.Linear(6, 3))


def mlp(*between: nn.Module, width: int = 9) -> nn.Sequential:
    return nn.Sequential(nn.Linear(5, width), *between, nn.Linear(width, 3))


def convolutional(*first: nn.Module, features: int) -> nn.Sequential:
    return nn.Sequential(*first, nn.Flatten(), nn.Linear(features, 3))


Build = Callable[[], nn.Module]

NETWORKS: dict[str, tuple[Build, Shape]] = {
    # --- Linear
    "linear": (lambda: nn.Sequential(nn.Linear(5, 3)), (5,)),
    "linear without bias": (lambda: nn.Sequential(nn.Linear(5, 3, bias=False)), (5,)),
    "linear on matrices": (lambda: nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)), (6, 4)),
    "linear on cubes": (lambda: nn.Sequential(nn.Linear(4, 3, bias=False), nn.ReLU(), nn.Linear(3, 2)), (2, 6, 4)),
    "mlp": (lambda: mlp(nn.ReLU(), nn.Linear(9, 9), nn.Tanh()), (5,)),
    "mlp with a softmax": (lambda: nn.Sequential(mlp(nn.GELU()), nn.LogSoftmax(dim=1)), (5,)),
    "flatten first": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), (3, 4)),
    "flatten a part": (lambda: nn.Sequential(nn.Flatten(1, 2), nn.Linear(4, 3)), (2, 3, 4)),
    "in place": (lambda: mlp(nn.ReLU(inplace=True)), (5,)),
    # --- convolutions
    "conv1d": (lambda: convolutional(nn.Conv1d(2, 3, 3), features=12), (2, 6)),
    "conv1d dilated": (lambda: convolutional(nn.Conv1d(2, 3, 2, dilation=2, bias=False), features=12), (2, 6)),
    "conv2d": (lambda: convolutional(nn.Conv2d(2, 3, (3, 2), stride=(2, 1), padding=(1, 0)), features=36), (2, 5, 5)),
    "conv2d groups": (lambda: convolutional(nn.Conv2d(4, 6, 3, groups=2), features=54), (4, 5, 5)),
    "conv2d depthwise": (lambda: convolutional(nn.Conv2d(4, 4, 3, groups=4, stride=2), features=16), (4, 5, 5)),
    "conv2d same": (
        lambda: convolutional(nn.Conv2d(2, 3, (3, 5), padding="same", dilation=(2, 1)), features=75),
        (2, 5, 5),
    ),
    "conv2d circular": (
        lambda: convolutional(nn.Conv2d(2, 3, 3, padding=(1, 2), padding_mode="circular"), features=105),
        (2, 5, 5),
    ),
    "conv2d reflect same": (
        lambda: convolutional(nn.Conv2d(2, 3, 3, padding="same", padding_mode="reflect"), features=75),
        (2, 5, 5),
    ),
    "conv2d of many channels": (
        lambda: convolutional(nn.Conv2d(12, 3, 3, stride=2, padding=1), nn.BatchNorm2d(3), features=27),
        (12, 5, 5),
    ),
    "conv2d valid": (lambda: convolutional(nn.Conv2d(2, 3, 2, padding="valid", bias=False), features=48), (2, 5, 5)),
    "conv3d": (lambda: convolutional(nn.Conv3d(2, 3, 2, padding=1, stride=2), features=24), (2, 3, 3, 3)),
    "cnn": (
        lambda: convolutional(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 3, 2), features=12),
        (1, 8, 8),
    ),
    "pooling": (
        lambda: convolutional(nn.Conv2d(1, 4, 3), nn.AvgPool2d(2), nn.AdaptiveMaxPool2d(2), features=16),
        (1, 8, 8),
    ),
    # --- recurrent
    "gru": (GruNet, (4, 3)),
    "gru of two layers": (lambda: GruNet(2), (4, 3)),
    "gru time first": (lambda: GruNet(1, batch_first=False), (4, 3)),
    "gru time first, two layers, no bias": (lambda: GruNet(2, batch_first=False, bias=False), (4, 3)),
    "gru's state": (lambda: GruNet(2, use="state"), (4, 3)),
    "gru to gru": (lambda: GruPair(1), (4, 3)),
    "gru to gru of two layers": (lambda: GruPair(2), (4, 3)),
    "gru with a first state and dropout": (GruWithState, (4, 3)),
    "gru cell": (GruCellNet, (4, 3)),
    "gru cell without bias": (lambda: GruCellNet(bias=False), (4, 3)),
    # --- norms, embedding
    "layer norm": (lambda: mlp(nn.LayerNorm(9), nn.ReLU()), (5,)),
    "layer norm over two dims": (
        lambda: nn.Sequential(nn.LayerNorm((3, 4)), nn.Linear(4, 2), nn.LayerNorm(2, elementwise_affine=False)),
        (3, 4),
    ),
    "layer norm without bias": (lambda: mlp(nn.LayerNorm(9, bias=False)), (5,)),
    "group norm": (
        lambda: convolutional(nn.Conv2d(2, 6, 2), nn.GroupNorm(3, 6), nn.GroupNorm(2, 6, affine=False), features=24),
        (2, 3, 3),
    ),
    "group norm on vectors": (lambda: mlp(nn.GroupNorm(3, 9)), (5,)),
    "embedding": (EmbeddingNet, (4,)),
    "embedding with padding 0": (lambda: EmbeddingNet(padding_idx=0), (4,)),
    "embedding with padding 5": (lambda: EmbeddingNet(padding_idx=5), (4,)),
    "batch norm": (lambda: mlp(nn.BatchNorm1d(9), nn.ReLU(), nn.Linear(9, 9), nn.BatchNorm1d(9)), (5,)),
    "batch norm on sequences": (lambda: convolutional(nn.Conv1d(2, 3, 2), nn.BatchNorm1d(3), features=15), (2, 6)),
    "batch norm on images": (
        lambda: convolutional(
            nn.Conv2d(2, 4, 2), nn.BatchNorm2d(4, eps=1e-3, momentum=0.3), nn.ReLU(), nn.MaxPool2d(2), features=4
        ),
        (2, 3, 3),
    ),
    "batch norm without weights": (lambda: mlp(nn.BatchNorm1d(9, affine=False)), (5,)),
    "batch norm first": (lambda: nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 3)), (5,)),
    "batch norm last": (lambda: nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3)), (5,)),
    "batch norm twice": (NormTwice, (5,)),
    # --- dropout
    "dropout": (lambda: mlp(nn.ReLU(), nn.Dropout(0.4), nn.Linear(9, 9), nn.Dropout(0.2)), (5,)),
    "dropout of features": (
        lambda: convolutional(nn.Conv2d(2, 5, 2), nn.Dropout2d(0.5), nn.ReLU(), features=20),
        (2, 3, 3),
    ),
    "dropout of sequences": (lambda: convolutional(nn.Conv1d(2, 5, 2), nn.Dropout1d(0.5), features=20), (2, 5)),
    "dropout first": (lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(5, 3)), (5,)),
    "dropout of everything": (lambda: nn.Sequential(nn.Linear(5, 4), nn.Dropout(1.0), nn.Linear(4, 3)), (5,)),
    "one dropout in two places": (sharing_dropout, (5,)),
    "dropout and batch norm": (
        lambda: convolutional(
            nn.Conv2d(1, 3, 2), nn.BatchNorm2d(3), nn.ReLU(), nn.Dropout(0.3), nn.Flatten(), nn.Linear(12, 6),
            nn.BatchNorm1d(6), nn.Dropout(0.5), features=6,
        ),
        (1, 3, 3),
    ),
    # --- ways to write a forward pass
    "residual": (Residual, (2, 4, 4)),
    "residual vectors": (ResidualVectors, (5,)),
    "flatten before": (FlattenedBefore, (3, 4)),
    "functional": (Functional, (2, 6, 6)),
    "view": (Viewed, (2, 5)),
    "view of images": (lambda: ViewedImages(2), (2, 6, 6)),
    "view of images of many channels": (lambda: ViewedImages(10), (10, 6, 6)),
    "reshape": (Reshaped, (18,)),
    "tied weights": (Tied, (5,)),
    "tied layers": (TiedConvolutions, (2, 5)),
    "frozen weights": (Frozen, (2, 5)),
    "constant buffer": (ConstantBuffer, (4, 5)),
}  # fmt: skip
