"""Every layer with a set of weights per row equals torch's own layer, row by row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from panacea.engines import layers

ROWS, SIZE = 3, 5


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + len(shape)), dtype=torch.float64)


def copies(build: Callable[[], nn.Module]) -> list[nn.Module]:
    """One layer per row, each with weights of its own."""
    made = [build().double() for _ in range(ROWS)]
    with torch.no_grad():
        for row, module in enumerate(made):
            for place, parameter in enumerate(module.parameters()):
                parameter.copy_(draw(*parameter.shape, seed=100 * row + place))
    return made


def weights(modules: list[nn.Module], *names: str) -> list[Tensor | None]:
    first = [getattr(modules[0], name, None) for name in names]
    return [
        None if tensor is None else torch.stack([getattr(module, name).detach() for module in modules])
        for name, tensor in zip(names, first, strict=True)
    ]


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def by_row(modules: list[nn.Module], x: Tensor) -> Tensor:
    return torch.stack([module(part).detach() for module, part in zip(modules, x, strict=True)])


def test_folding():
    x = draw(ROWS, SIZE, 2, 4)
    assert layers.fold(x).shape == (ROWS * SIZE, 2, 4)
    assert torch.equal(layers.fold(x)[SIZE], x[1, 0])
    assert torch.equal(layers.split_rows(layers.fold(x), ROWS), x)
    states = draw(2, ROWS, SIZE, 4)
    assert torch.equal(layers.split_rows(layers.fold(states, 1), ROWS, at=1), states)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("between", [(), (4,), (2, 6)])
def test_linear(between: tuple[int, ...], bias: bool):
    modules, x = copies(lambda: nn.Linear(7, 3, bias=bias)), draw(ROWS, SIZE, *between, 7)
    close(layers.linear(x, *weights(modules, "weight", "bias")), by_row(modules, x))
    if not between:
        found = layers.linear_columns(x.transpose(1, 2), *weights(modules, "weight", "bias"))
        close(found.transpose(1, 2), by_row(modules, x))


CONVOLUTIONS: list[tuple[type[nn.Module], tuple[int, int], dict[str, Any]]] = [
    (nn.Conv1d, (4, 6), {"kernel_size": 3}),
    (nn.Conv1d, (4, 6), {"kernel_size": 2, "stride": 2, "padding": 1, "bias": False}),
    (nn.Conv2d, (4, 6), {"kernel_size": (3, 2), "padding": (0, 1), "dilation": (1, 2)}),
    (nn.Conv2d, (4, 6), {"kernel_size": (3, 2), "padding": (2, 1), "stride": (1, 2)}),  # few numbers under a kernel
    (nn.Conv2d, (4, 6), {"kernel_size": (3, 5), "padding": "same"}),
    (nn.Conv2d, (4, 6), {"kernel_size": 2, "padding": "valid", "bias": False}),
    (nn.Conv2d, (12, 6), {"kernel_size": (3, 2), "padding": (2, 1), "stride": (1, 2)}),  # and many
    (nn.Conv2d, (4, 6), {"kernel_size": 3, "groups": 2, "stride": 2, "padding": 2}),
    (nn.Conv2d, (4, 4), {"kernel_size": 3, "groups": 4, "padding": "same"}),
    (nn.Conv2d, (4, 6), {"kernel_size": 3, "padding": 1, "padding_mode": "circular", "groups": 2}),
    (nn.Conv2d, (4, 6), {"kernel_size": 3, "padding": (2, 1), "padding_mode": "replicate", "bias": False}),
    (nn.Conv3d, (4, 6), {"kernel_size": 2, "padding": 1, "stride": (1, 2, 1)}),
]


@pytest.mark.parametrize(("kind", "channels", "options"), CONVOLUTIONS)
def test_convolutions(kind: type[nn.Module], channels: tuple[int, int], options: dict[str, Any]):
    modules = copies(lambda: kind(*channels, **options))
    x = draw(ROWS, SIZE, channels[0], *(5, 6, 4)[: int(kind.__name__[4])])
    found = layers.conv(layers.fold(x), *weights(modules, "weight", "bias"), modules[0])
    close(layers.split_rows(found, ROWS), by_row(modules, x))
    one = layers.conv(x[1], *(None if w is None else w[1:2] for w in weights(modules, "weight", "bias")), modules[0])
    close(one, by_row(modules, x)[1])


@pytest.mark.parametrize(("kind", "channels", "options"), CONVOLUTIONS)
def test_convolutions_by_groups(kind: type[nn.Module], channels: tuple[int, int], options: dict[str, Any]):
    """The form GPUs use; any device can run it."""
    modules = copies(lambda: kind(*channels, **{**options, "padding_mode": "zeros"}))
    dims = int(kind.__name__[4])
    x = draw(ROWS, SIZE, channels[0], *(5, 6, 4)[:dims])
    function = (nn.functional.conv1d, nn.functional.conv2d, nn.functional.conv3d)[dims - 1]
    found = layers._conv_by_groups(
        function, layers.fold(x), *weights(modules, "weight", "bias"), modules[0], modules[0].padding
    )
    close(layers.split_rows(found, ROWS), by_row(modules, x))


@pytest.mark.parametrize("shape", [(6,), (3, 6)])
@pytest.mark.parametrize("options", [{}, {"bias": False}, {"elementwise_affine": False}, {"eps": 0.1}])
def test_layer_norm(shape: tuple[int, ...], options: dict[str, Any]):
    modules, x = copies(lambda: nn.LayerNorm(shape, **options)), draw(ROWS, SIZE, 2, 3, 6)
    found = layers.layer_norm(layers.fold(x), *weights(modules, "weight", "bias"), ROWS, modules[0])
    close(layers.split_rows(found, ROWS), by_row(modules, x))


@pytest.mark.parametrize("tail", [(), (4,), (3, 2)])
@pytest.mark.parametrize("affine", [True, False])
def test_group_norm(tail: tuple[int, ...], affine: bool):
    modules, x = copies(lambda: nn.GroupNorm(2, 6, affine=affine, eps=0.01)), draw(ROWS, SIZE, 6, *tail)
    found = layers.group_norm(layers.fold(x), *weights(modules, "weight", "bias"), ROWS, modules[0])
    close(layers.split_rows(found, ROWS), by_row(modules, x))


@pytest.mark.parametrize("padding", [None, 0, 4])
@pytest.mark.parametrize("tail", [(), (4,), (2, 3)])
def test_embedding_and_its_gradient(tail: tuple[int, ...], padding: int | None):
    modules = copies(lambda: nn.Embedding(6, 3, padding_idx=padding))
    x = torch.randint(6, (ROWS, SIZE, *tail), generator=torch.Generator().manual_seed(1))
    x.view(ROWS, -1)[:, :2] = torch.tensor([0, 4])  # whatever else, the padding entries occur
    (weight,) = weights(modules, "weight")
    assert weight is not None
    weight.requires_grad_(True)
    found = layers.split_rows(layers.embedding(layers.fold(x), weight, ROWS, modules[0]), ROWS)
    close(found, by_row(modules, x))
    slope = draw(*found.shape)
    (gradient,) = torch.autograd.grad((found * slope).sum(), weight)
    for row, module in enumerate(modules):
        (module(x[row]) * slope[row]).sum().backward()
        close(gradient[row], module.weight.grad)
