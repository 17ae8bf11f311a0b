"""Convolutional networks: published sizes, shapes at odd image sizes, ceil pooling."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from panacea.errors import RequestError
from panacea.models import DomainClassifier, FedAvgCnn, LeafCelebaCnn, LeafFemnistCnn, McMahanCnn, SmallCnn


def count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("build", "parameters"),
    [
        (lambda: McMahanCnn(1, 28, 10), 1_663_370),
        (lambda: McMahanCnn(1, 28, 62), 1_690_046),
        (lambda: LeafFemnistCnn(1, 28, 62), 6_603_710),
        (LeafCelebaCnn, 31_202),
        (lambda: FedAvgCnn(1, 28, 10), 582_026),
        (lambda: SmallCnn(1, 8, 10), 160 + 4_640 + 32 * 16 * 64 + 64 + 650),
        (lambda: DomainClassifier(1, 4), 18_816 + 65 * 4),
        (lambda: DomainClassifier(3, 7), 19_392 + 65 * 7),
    ],
)
def test_parameter_counts(build: Callable[[], nn.Module], parameters: int):
    assert count(build()) == parameters


@pytest.mark.parametrize("build", [McMahanCnn, LeafFemnistCnn, LeafCelebaCnn, FedAvgCnn, SmallCnn])
@pytest.mark.parametrize("size", [16, 21, (17, 30)])
def test_output_shape(build: Callable[..., nn.Module], size: int | tuple[int, int]):
    sides = (size, size) if isinstance(size, int) else size
    assert build(2, size, 5)(torch.rand(3, 2, *sides)).shape == (3, 5)


@pytest.mark.parametrize("size", [4, 5, 6, 7, 8, 11])
@pytest.mark.parametrize("build", [SmallCnn, McMahanCnn])
def test_tiny_images(build: Callable[..., nn.Module], size: int):
    assert build(1, size, 10)(torch.rand(3, 1, size, size)).shape == (3, 10)


def test_domain_classifier_takes_any_size():
    model = DomainClassifier(3, 6)
    assert model(torch.rand(2, 3, 84, 84)).shape == model(torch.rand(2, 3, 5, 9)).shape == (2, 6)


def test_regression_targets_have_their_own_shape():
    assert SmallCnn(1, 8, (2, 3))(torch.rand(4, 1, 8, 8)).shape == (4, 2, 3)
    assert McMahanCnn(1, 8, ())(torch.rand(4, 1, 8, 8)).shape == (4,)


def test_celeba_pools_with_ceil_84_42_21_11_6():
    model, sides = LeafCelebaCnn(), []
    for module in model.modules():
        if isinstance(module, nn.MaxPool2d):
            module.register_forward_hook(lambda m, given, out: sides.append((given[0].shape[-1], out.shape[-1])))
    model(torch.rand(2, 3, 84, 84))
    assert sides == [(84, 42), (42, 21), (21, 11), (11, 6)]


def test_celeba_buffers():
    floats = [b for b in LeafCelebaCnn().buffers() if b.is_floating_point()]
    assert sum(b.numel() for b in floats) == 4 * 2 * 32


def test_mcmahan_is_the_formula():
    model = McMahanCnn(1, 6, 3).double()
    x = torch.randn(2, 1, 6, 6, dtype=torch.float64)
    f = nn.functional
    out = f.max_pool2d(f.conv2d(x, model.conv1.weight, model.conv1.bias, padding=2).clamp(min=0), 2)
    out = f.max_pool2d(f.conv2d(out, model.conv2.weight, model.conv2.bias, padding=2).clamp(min=0), 2)
    out = f.linear(out.reshape(2, -1), model.fc1.weight, model.fc1.bias).clamp(min=0)
    torch.testing.assert_close(model(x), f.linear(out, model.fc.weight, model.fc.bias))


@pytest.mark.parametrize(
    ("build", "size", "least"), [(SmallCnn, 3, "4 x 4"), (McMahanCnn, (3, 9), "4 x 4"), (FedAvgCnn, 15, "16 x 16")]
)
def test_images_that_are_too_small(build: Callable[..., nn.Module], size: int, least: str):
    with pytest.raises(RequestError, match=f"at least {least}, given"):
        build(1, size, 10)
