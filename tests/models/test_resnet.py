"""ResNet18: torchvision's names and shapes, and loading its weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from panacea.errors import RequestError
from panacea.models import ResNet18, load_torchvision_weights, resnet18


def torchvision_parameters(classes: int) -> dict[str, tuple[int, ...]]:
    """Names and shapes of torchvision's resnet18 parameters, in its order."""
    shapes: dict[str, tuple[int, ...]] = {"conv1.weight": (64, 3, 7, 7), "bn1.weight": (64,), "bn1.bias": (64,)}
    before = 64
    for stage, width in enumerate((64, 128, 256, 512), start=1):
        for block in (0, 1):
            prefix = f"layer{stage}.{block}"
            shapes[f"{prefix}.conv1.weight"] = (width, before, 3, 3)
            shapes |= {f"{prefix}.bn1.{part}": (width,) for part in ("weight", "bias")}
            shapes[f"{prefix}.conv2.weight"] = (width, width, 3, 3)
            shapes |= {f"{prefix}.bn2.{part}": (width,) for part in ("weight", "bias")}
            if stage > 1 and block == 0:
                shapes[f"{prefix}.downsample.0.weight"] = (width, before, 1, 1)
                shapes |= {f"{prefix}.downsample.1.{part}": (width,) for part in ("weight", "bias")}
            before = width
    return shapes | {"fc.weight": (classes, 512), "fc.bias": (classes,)}


@pytest.fixture(scope="module")
def imagenet() -> dict[str, Tensor]:
    """A state dict as torchvision's file has it: 1,000 classes, and numbers that can be told apart."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        model = ResNet18(1000)
    state = model.state_dict()
    state["bn1.running_mean"] = torch.full((64,), 3.0)
    return state


@pytest.fixture
def file(imagenet: dict[str, Tensor], tmp_path: Path) -> Path:
    save_file(imagenet, tmp_path / "resnet18.safetensors")
    return tmp_path / "resnet18.safetensors"


def test_parameter_names_and_shapes_are_torchvisions():
    given = {name: tuple(p.shape) for name, p in ResNet18(1000).named_parameters()}
    assert len(given) == 62
    assert list(given.items()) == list(torchvision_parameters(1000).items())
    assert {
        "layer1.0.conv1.weight": (64, 64, 3, 3),
        "layer2.0.downsample.0.weight": (128, 64, 1, 1),
        "layer4.1.bn2.bias": (512,),
        "fc.weight": (1000, 512),
    }.items() <= given.items()


def test_buffer_names_are_torchvisions():
    names = [name.rpartition(".")[0] for name in torchvision_parameters(4)]
    norms = list(dict.fromkeys(name for name in names if "bn" in name or name.endswith("downsample.1")))
    assert len(norms) == 20
    parts = ("running_mean", "running_var", "num_batches_tracked")
    assert [name for name, _ in ResNet18(4).named_buffers()] == [f"{norm}.{part}" for norm in norms for part in parts]


def test_sizes():
    model = resnet18(4)
    assert sum(p.numel() for p in model.parameters()) == 11_178_564
    assert sum(b.numel() for b in model.buffers() if b.is_floating_point()) == 9_600
    assert sum(p.numel() for p in resnet18(1000).parameters()) == 11_689_512


@pytest.mark.parametrize(("stem", "side", "last"), [("imagenet", 64, 2), ("cifar", 32, 4)])
@pytest.mark.parametrize("norm", ["batch", "group"])
def test_output_shape(stem: str, side: int, last: int, norm: str):
    model = resnet18(5, stem, norm)
    seen: list[torch.Size] = []
    model.layer4.register_forward_hook(lambda m, given, out: seen.append(out.shape))
    assert model(torch.rand(2, 3, side, side)).shape == (2, 5)
    assert seen == [(2, 512, last, last)]


def test_cifar_stem_and_group_norm():
    model = resnet18(100, "cifar", "group")
    assert tuple(model.conv1.weight.shape) == (64, 3, 3, 3)
    assert isinstance(model.maxpool, nn.Identity)
    assert not list(model.buffers())
    assert {m.num_groups for m in model.modules() if isinstance(m, nn.GroupNorm)} == {32}
    assert [name for name, _ in model.named_parameters()] == list(torchvision_parameters(100))


def test_initial_weights_follow_torchvision():
    model = ResNet18(4)
    weight = model.layer4[0].conv2.weight
    assert weight.std().item() == pytest.approx((2 / (512 * 9)) ** 0.5, rel=0.01)
    assert bool((model.bn1.weight == 1).all())
    assert bool((model.bn1.bias == 0).all())


def test_loads_all_but_a_head_of_another_size(file: Path, imagenet: dict[str, Tensor]):
    model = resnet18(4)
    head = model.fc.weight.detach().clone()
    load_torchvision_weights(model, file)
    state = model.state_dict()
    assert all(torch.equal(state[name], value) for name, value in imagenet.items() if not name.startswith("fc."))
    assert torch.equal(model.fc.weight, head)


def test_loads_the_head_when_it_fits_and_pth_files(imagenet: dict[str, Tensor], tmp_path: Path):
    old = {name: value for name, value in imagenet.items() if not name.endswith("num_batches_tracked")}
    torch.save(old, tmp_path / "resnet18.pth")
    model = resnet18(1000, pretrained=tmp_path / "resnet18.pth")
    assert torch.equal(model.fc.weight, imagenet["fc.weight"])
    assert torch.equal(model.bn1.running_mean, imagenet["bn1.running_mean"])


def test_missing_file(tmp_path: Path):
    with pytest.raises(RequestError, match="there is no such file"):
        resnet18(4, pretrained=tmp_path / "none.pth")


@pytest.mark.parametrize("name", ["broken.pth", "broken.safetensors"])
def test_unreadable_file(tmp_path: Path, name: str):
    (tmp_path / name).write_bytes(b"not weights at all")
    with pytest.raises(RequestError, match="not a readable file of named tensors"):
        resnet18(4, pretrained=tmp_path / name)


def test_a_pickled_object_is_refused(tmp_path: Path):
    torch.save(nn.Linear(2, 2), tmp_path / "module.pth")
    with pytest.raises(RequestError, match="not a readable file of named tensors"):
        resnet18(4, pretrained=tmp_path / "module.pth")


def test_not_a_state_dict(tmp_path: Path):
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(RequestError, match="expected a mapping of names to tensors"):
        resnet18(4, pretrained=tmp_path / "list.pth")


def test_names_are_checked(imagenet: dict[str, Tensor], tmp_path: Path):
    path = tmp_path / "w.safetensors"
    save_file({name: value for name, value in imagenet.items() if name != "layer1.0.conv1.weight"}, path)
    with pytest.raises(RequestError, match=r"the file lacks layer1\.0\.conv1\.weight$"):
        resnet18(4, pretrained=path)
    save_file(imagenet | {"extra": torch.zeros(1)}, path)
    with pytest.raises(RequestError, match=r"has, and the model has not, extra$"):
        resnet18(4, pretrained=path)
    save_file({name: value for name, value in imagenet.items() if not name.startswith("fc.")}, path)
    with pytest.raises(RequestError, match=r"the file lacks fc\.weight, fc\.bias$"):
        resnet18(4, pretrained=path)


def test_shapes_are_checked(file: Path):
    with pytest.raises(RequestError, match=r"conv1\.weight has shape \[64, 3, 7, 7\], the model's is \[64, 3, 3, 3\]"):
        resnet18(4, "cifar", pretrained=file)
    with pytest.raises(RequestError, match=r"has not, bn1\.num_batches_tracked, bn1\.running_mean, .* and 57 more"):
        resnet18(4, norm="group", pretrained=file)
