"""The user's own networks: modules, classes, factories, imports, and every error in one line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from panacea.data import Task
from panacea.errors import RequestError
from panacea.models import Mlp, build_model

TASK = Task("classification", (3,), classes=2)
NETWORKS = """
from torch import nn

class Plain(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.fc = nn.Linear(3, 2)
    def forward(self, x):
        return self.fc(x)

class Sized(nn.Module):
    def __init__(self, task):
        super().__init__()
        self.fc = nn.Linear(task.inputs[0], task.classes)
    def forward(self, x):
        return self.fc(x)

def factory(task):
    return Sized(task)

def bare():
    return Plain()

ready = Plain()
number = 3

def lazy():
    import own_helper
    return own_helper.make()
"""


class Net(nn.Module):
    """A module class for the tests that pass objects."""

    def __init__(self, task: Task | None = None) -> None:
        super().__init__()
        self.task = task
        self.fc = nn.Linear(3, 2)
        self.drop = nn.Dropout(0.5).eval()

    def forward(self, x: Tensor) -> Tensor:
        """Scores."""
        out: Tensor = self.fc(self.drop(x))
        return out


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with a module of networks, forgotten afterwards."""
    (tmp_path / "own_networks.py").write_text(NETWORKS)
    (tmp_path / "own_helper.py").write_text("from torch import nn\n\ndef make():\n    return nn.Linear(3, 2)\n")
    (tmp_path / "own_package").mkdir()
    (tmp_path / "own_package" / "__init__.py").write_text("")
    (tmp_path / "own_package" / "nets.py").write_text("from torch import nn\n\ndef f():\n    return nn.Linear(3, 2)\n")
    (tmp_path / "own_broken.py").write_text("def f(:\n")
    (tmp_path / "own_needy.py").write_text("import a_package_that_is_not_there\n")
    monkeypatch.chdir(tmp_path)
    for name in [name for name in sys.modules if name.startswith("own_")]:
        monkeypatch.delitem(sys.modules, name)
    return tmp_path


def message(spec: object, task: Task = TASK) -> str:
    with pytest.raises(RequestError) as caught:
        build_model(spec, task)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("attribute", ["Plain", "Sized", "factory", "bare", "ready", "lazy"])
def test_imports_from_the_current_folder(folder: Path, attribute: str):
    path = list(sys.path)
    model = build_model(f"own_networks:{attribute}", TASK)
    assert model(torch.rand(5, 3)).shape == (5, 2)
    assert sys.path == path


def test_imports_from_a_package(folder: Path):
    assert isinstance(build_model("own_package.nets:f", TASK), nn.Linear)


def test_own_factories_follow_the_seed(folder: Path):
    weights = [build_model("own_networks:factory", TASK, seed_key=key).fc.weight for key in (1, 1, 2)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_a_module_is_used_as_it_stands():
    model = Net().train()
    model.drop.eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    built = build_model(model, TASK)
    assert built is model
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.training
    assert not model.drop.training


def test_a_module_of_doubles():
    assert build_model(Net().double(), TASK).fc.weight.dtype == torch.float64


@pytest.mark.parametrize(
    "factory",
    [
        lambda task: Mlp(task.inputs, task.classes),
        lambda anything: Mlp(anything.inputs, anything.classes),
        lambda *, task: Mlp(task.inputs, task.classes),
        lambda width=4, task=None: Mlp(task.inputs, task.classes, (width,)),
        lambda *args, **kwargs: Mlp((3,), 2),
        lambda: Mlp((3,), 2),
    ],
)
def test_factories_with_the_task_or_nothing(factory: Callable[..., nn.Module]):
    assert isinstance(build_model(factory, TASK), Mlp)


def test_a_class_is_given_the_task():
    assert build_model(Net, TASK).task is TASK


def test_missing_modules_and_attributes(folder: Path):
    assert "there is no module 'own_nothing'" in message("own_nothing:f")
    assert "there is no module 'own_package.nothing'" in message("own_package.nothing:f")
    assert "module 'own_networks' has no 'Nope'" in message("own_networks:Nope")


def test_modules_that_fail_to_import(folder: Path):
    assert "importing 'own_broken' failed: SyntaxError" in message("own_broken:f")
    text = message("own_needy:f")
    assert "importing 'own_needy' failed" in text
    assert "a_package_that_is_not_there" in text


@pytest.mark.parametrize("spec", [":f", "own_networks:", "own_networks.py:Plain", "nets/own_networks:Plain"])
def test_how_to_write_it(folder: Path, spec: str):
    assert "write package.module:factory" in message(spec)


def test_not_callable(folder: Path):
    assert "an object of type int is neither a torch.nn.Module nor callable" in message("own_networks:number")
    assert "neither a torch.nn.Module nor callable" in message(3)


def test_not_a_module():
    assert "returned an object of type int, expected a torch.nn.Module" in message(lambda: 3)


def test_factories_that_need_more():
    assert "it requires out_features" in message(lambda task, out_features: None)
    assert "it requires in_features, out_features" in message(nn.Linear)


def test_factories_that_fail():
    def fail() -> nn.Module:
        raise KeyError("no\nwidth")

    assert "building it failed: KeyError" in message(fail)


def test_own_networks_take_no_options():
    with pytest.raises(RequestError, match=r"model\.hidden: model 'Net' is your own and takes no options"):
        build_model(Net, TASK, {"hidden": [3]})


def test_wrong_output_shape():
    text = message(lambda: nn.Linear(3, 5))
    assert "inputs [2, 3] give outputs [2, 5], the task expects [2, 2]" in text
    regression = Task("regression", (3,), outputs=(4, 2))
    assert "give outputs [2, 8], the task expects [2, 4, 2]" in message(nn.Linear(3, 8), regression)


def test_forward_that_fails():
    text = message(nn.Linear(4, 2))
    assert text.startswith("model 'Linear': inputs [2, 3] fail (expected outputs [2, 2]): RuntimeError")
    assert len(text) < 500


def test_output_that_is_no_tensor():
    class Two(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x, x

    assert "give an object of type tuple, the task expects a tensor [2, 2]" in message(Two())
