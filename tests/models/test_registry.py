"""build_model: names, options, what auto picks, seeds, and the shape check."""

from __future__ import annotations

import pytest
import torch
from pydantic import BaseModel
from torch import nn

from panacea.data import Task
from panacea.errors import RequestError
from panacea.models import (
    FedAvgCnn,
    GruSeq2Seq,
    LeafCelebaCnn,
    LeafFemnistCnn,
    McMahanCnn,
    Mlp,
    ResNet18,
    SmallCnn,
    build_model,
    find_model,
    model_names,
    resolve_model,
)

VECTOR = Task("classification", (2,), classes=2)
DIGITS = Task("classification", (1, 8, 8), classes=10)
MNIST = Task("classification", (1, 28, 28), classes=10)
FACES = Task("classification", (3, 84, 84), classes=2)
TRAFFIC = Task("forecasting", (12, 2), outputs=(12,))
YEARS = Task("regression", (6,), outputs=(6,))


def count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_names_and_entries():
    assert model_names() == [
        "auto", "mlp", "linear", "gru", "cnn", "fedavg_cnn", "small_cnn", "leaf_femnist", "leaf_celeba", "resnet18",
    ]  # fmt: skip
    for name in model_names()[1:]:
        entry = find_model(name)
        assert entry.name == name
        assert entry.summary
        assert "\n" not in entry.summary
        assert issubclass(entry.options, BaseModel)
        assert entry.options.model_config["extra"] == "forbid"
        assert all(field.description for field in entry.options.model_fields.values())


@pytest.mark.parametrize(
    ("name", "task", "kind", "parameters"),
    [
        ("mlp", VECTOR, Mlp, 354),
        ("mlp", YEARS, Mlp, 486),
        ("linear", VECTOR, Mlp, 6),
        ("gru", TRAFFIC, GruSeq2Seq, 62_501),
        ("cnn", MNIST, McMahanCnn, 1_663_370),
        ("fedavg_cnn", MNIST, FedAvgCnn, 582_026),
        ("small_cnn", DIGITS, SmallCnn, 38_282),
        ("leaf_femnist", Task("classification", (1, 28, 28), classes=62), LeafFemnistCnn, 6_603_710),
        ("leaf_celeba", FACES, LeafCelebaCnn, 31_202),
        ("resnet18", Task("classification", (3, 64, 64), classes=4), ResNet18, 11_178_564),
    ],
)
def test_every_name_builds(name: str, task: Task, kind: type[nn.Module], parameters: int):
    model = build_model(name, task, {}, seed_key=1)
    assert type(model) is kind
    assert count(model) == parameters
    assert model.training


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        (VECTOR, "mlp"),
        (YEARS, "mlp"),
        (DIGITS, "small_cnn"),
        (Task("classification", (1, 28, 15), classes=3), "small_cnn"),
        (Task("classification", (1, 16, 16), classes=3), "cnn"),
        (MNIST, "cnn"),
        (Task("classification", (3, 32, 32), classes=3), "cnn"),
        (FACES, "resnet18"),
        (Task("classification", (1, 3, 3), classes=3), "mlp"),
        (TRAFFIC, "gru"),
        (Task("forecasting", (12, 1), outputs=(3,)), "gru"),
        (Task("forecasting", (12,), outputs=(3,)), "mlp"),
        (Task("forecasting", (12, 2), outputs=(3, 2)), "mlp"),
        (Task("forecasting", (1, 2), outputs=(3,)), "mlp"),
        (Task("regression", (12, 2), outputs=(3,)), "mlp"),
        (Task("classification", (12, 2), classes=3), "mlp"),
        (Task("classification", (2, 3, 4, 5), classes=3), "mlp"),
    ],
)
def test_auto(task: Task, expected: str):
    assert resolve_model("auto", task) == expected
    if expected != "resnet18":
        assert same(build_model("auto", task), build_model(expected, task))


def test_auto_takes_the_options_of_what_it_picks():
    assert count(build_model("auto", VECTOR, {"hidden": [3]})) == 2 * 3 + 3 + 3 * 2 + 2
    with pytest.raises(RequestError, match=r"model\.width"):
        build_model("auto", VECTOR, {"width": 3})


def test_options_reach_the_network():
    assert count(build_model("mlp", VECTOR, {"hidden": [32, 32]})) == 96 + 1056 + 66
    assert count(build_model("mlp", VECTOR, {"hidden": []})) == 6
    gru = build_model("gru", TRAFFIC, {"hidden": 7, "layers": 2, "time_of_day": False})
    assert isinstance(gru, GruSeq2Seq)
    assert (gru.fc.in_features, gru.layers, gru.time_of_day, gru.horizon) == (7, 2, False, 12)
    assert build_model("cnn", DIGITS, {"width": 9}).fc.in_features == 9
    assert build_model("small_cnn", DIGITS, {"width": 9}).fc.in_features == 9
    net = build_model("resnet18", DIGITS, {"norm": "group", "stem": "imagenet"})
    assert isinstance(net, ResNet18)
    assert tuple(net.conv1.weight.shape) == (64, 1, 7, 7)
    assert isinstance(net.bn1, nn.GroupNorm)


def test_resnet_stem_follows_the_image():
    assert build_model("resnet18", DIGITS).conv1.kernel_size == (3, 3)
    assert build_model("resnet18", FACES).conv1.kernel_size == (7, 7)


@pytest.mark.parametrize(
    ("name", "options", "key"),
    [
        ("mlp", {"hiden": [3]}, "model.hiden"),
        ("mlp", {"hidden": [0]}, "model.hidden"),
        ("mlp", {"hidden": "wide"}, "model.hidden"),
        ("linear", {"hidden": [3]}, "model.hidden"),
        ("resnet18", {"norm": "layer"}, "model.norm"),
    ],
)
def test_wrong_options(name: str, options: dict[str, object], key: str):
    with pytest.raises(RequestError) as caught:
        build_model(name, VECTOR, options)
    assert key in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unknown_name():
    with pytest.raises(RequestError, match="unknown model 'resnet'; did you mean 'resnet18'"):
        build_model("resnet", FACES)


@pytest.mark.parametrize("name", ["cnn", "fedavg_cnn", "small_cnn", "leaf_femnist", "leaf_celeba", "resnet18"])
def test_images_only(name: str):
    with pytest.raises(RequestError, match=rf"model '{name}' needs images .*; the inputs are \[2\]"):
        build_model(name, VECTOR)


@pytest.mark.parametrize("task", [VECTOR, MNIST, Task("forecasting", (12, 2), outputs=(3, 2))])
def test_gru_needs_windows(task: Task):
    with pytest.raises(RequestError, match="model 'gru' needs windows"):
        build_model("gru", task)


@pytest.mark.parametrize("outputs", [(), (4,), (2, 3)])
@pytest.mark.parametrize("name", ["mlp", "linear", "cnn", "small_cnn"])
def test_regression_of_any_shape(name: str, outputs: tuple[int, ...]):
    model = build_model(name, Task("regression", (1, 8, 8), outputs=outputs))
    assert model(torch.rand(5, 1, 8, 8)).shape == (5, *outputs)


def test_same_key_same_weights():
    first, again = build_model("mlp", VECTOR, seed_key=5), build_model("mlp", VECTOR, seed_key=5)
    assert same(first, again)
    assert not same(first, build_model("mlp", VECTOR, seed_key=6))
    torch.manual_seed(99)
    assert same(first, build_model("mlp", VECTOR, seed_key=5))


def test_large_keys():
    assert same(build_model("mlp", VECTOR, seed_key=2**63 - 1), build_model("mlp", VECTOR, seed_key=2**63 - 1))


def test_global_generator_is_left_as_it_was():
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    build_model("small_cnn", DIGITS, seed_key=5)
    build_model(lambda: nn.Linear(2, 2), VECTOR, seed_key=5)
    with pytest.raises(RequestError):
        build_model(lambda: nn.Linear(2, 3), VECTOR, seed_key=5)
    assert torch.equal(torch.random.get_rng_state(), before)
