"""The built-in networks: their options, how each is fitted to a task, and what ``auto`` picks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field
from torch import nn

from panacea.errors import RequestError
from panacea.models.cnn import FedAvgCnn, LeafCelebaCnn, LeafFemnistCnn, McMahanCnn, SmallCnn
from panacea.models.entries import ModelOptions, register_model
from panacea.models.gru import GruSeq2Seq
from panacea.models.heads import Outputs
from panacea.models.mlp import Mlp
from panacea.models.resnet import resnet18

if TYPE_CHECKING:
    from panacea.data.task import Task

__all__ = ["CnnOptions", "GruOptions", "MlpOptions", "ResNetOptions", "SmallCnnOptions", "pick"]

Width = Annotated[int, Field(ge=1)]


class MlpOptions(ModelOptions):
    """Options of ``mlp``."""

    hidden: tuple[Width, ...] = Field((16, 16), description="widths of the hidden layers")
    norm: Literal["none", "batch"] = Field("none", description="batch normalisation before each ReLU")


class GruOptions(ModelOptions):
    """Options of ``gru``."""

    hidden: Width = Field(100, description="width of the GRU state")
    layers: Width = Field(1, description="GRU layers of the encoder and of the decoder")
    time_of_day: bool | None = Field(
        None, description="feature 1 is the time of day in [0, 1) and is advanced; default: with two features only"
    )


class CnnOptions(ModelOptions):
    """Options of ``cnn``."""

    width: Width = Field(512, description="hidden units before the last layer")


class SmallCnnOptions(ModelOptions):
    """Options of ``small_cnn``."""

    width: Width = Field(64, description="hidden units before the last layer")
    norm: Literal["none", "batch"] = Field("none", description="batch normalisation after each convolution")


class ResNetOptions(ModelOptions):
    """Options of ``resnet18``."""

    stem: Literal["imagenet", "cifar"] | None = Field(
        None, description="7x7 stride 2 with max-pool, or 3x3 without; default: cifar for images below 64 pixels"
    )
    norm: Literal["batch", "group"] = Field("batch", description="batch normalisation, or 32 groups")
    pretrained: Path | None = Field(None, description="torchvision weights: a .safetensors or .pth file")


def pick(task: Task) -> str:
    """The network ``auto`` stands for: by the shapes of one sample's input and target."""
    shape = task.inputs
    if len(shape) == 3 and min(shape[1:]) >= 4:
        side = min(shape[1:])
        return "small_cnn" if side < 16 else "cnn" if side < 64 else "resnet18"
    if task.kind == "forecasting" and len(shape) == 2 and shape[0] >= 2 and len(task.outputs) == 1:
        return "gru"
    return "mlp"


@register_model("mlp", summary="linear layers with ReLU between them; flattens its input", options=MlpOptions)
def _mlp(task: Task, options: MlpOptions) -> nn.Module:
    return Mlp(task.inputs, _outputs(task), options.hidden, options.norm)


@register_model("linear", summary="one linear layer on the flattened input", options=ModelOptions)
def _linear(task: Task, options: ModelOptions) -> nn.Module:
    return Mlp(task.inputs, _outputs(task), ())


@register_model("gru", summary="GRU encoder-decoder that forecasts feature 0 of a window", options=GruOptions)
def _gru(task: Task, options: GruOptions) -> nn.Module:
    if task.kind == "classification" or len(task.inputs) != 2 or len(task.outputs) != 1 or task.inputs[0] < 2:
        raise RequestError(
            f"model 'gru' needs windows [steps >= 2, features] and targets [horizon]; the {task.kind} task has inputs "
            f"{list(task.inputs)} and targets {list(task.outputs)}"
        )
    return GruSeq2Seq(task.inputs[1], options.hidden, options.layers, task.outputs[0], options.time_of_day)


@register_model("cnn", summary="McMahan's CNN: two padded 5x5 convolutions, 512 units", options=CnnOptions)
def _cnn(task: Task, options: CnnOptions) -> nn.Module:
    channels, size = _image(task, "cnn")
    return McMahanCnn(channels, size, _outputs(task), options.width)


@register_model("fedavg_cnn", summary="PFLlib's FedAvgCNN: two unpadded 5x5 convolutions", options=ModelOptions)
def _fedavg_cnn(task: Task, options: ModelOptions) -> nn.Module:
    channels, size = _image(task, "fedavg_cnn")
    return FedAvgCnn(channels, size, _outputs(task))


@register_model("small_cnn", summary="two 3x3 convolutions and one pooling, for tiny images", options=SmallCnnOptions)
def _small_cnn(task: Task, options: SmallCnnOptions) -> nn.Module:
    channels, size = _image(task, "small_cnn")
    return SmallCnn(channels, size, _outputs(task), options.width, options.norm)


@register_model("leaf_femnist", summary="LEAF's FEMNIST network: as cnn with 2,048 units", options=ModelOptions)
def _leaf_femnist(task: Task, options: ModelOptions) -> nn.Module:
    channels, size = _image(task, "leaf_femnist")
    return LeafFemnistCnn(channels, size, _outputs(task))


@register_model("leaf_celeba", summary="LEAF's CelebA network: four 3x3 blocks, batch norm", options=ModelOptions)
def _leaf_celeba(task: Task, options: ModelOptions) -> nn.Module:
    channels, size = _image(task, "leaf_celeba")
    return LeafCelebaCnn(channels, size, _outputs(task))


@register_model("resnet18", summary="ResNet-18, loads torchvision's weights", options=ResNetOptions)
def _resnet18(task: Task, options: ResNetOptions) -> nn.Module:
    channels, size = _image(task, "resnet18")
    stem = options.stem or ("cifar" if min(size) < 64 else "imagenet")
    return resnet18(_outputs(task), stem, options.norm, options.pretrained, channels)


def _outputs(task: Task) -> Outputs:
    """Classes, or the target's shape."""
    return task.classes if task.kind == "classification" else task.outputs


def _image(task: Task, name: str) -> tuple[int, tuple[int, int]]:
    """Channels and (height, width) of an image task."""
    if len(task.inputs) != 3:
        raise RequestError(f"model '{name}' needs images [channels, height, width]; the inputs are {list(task.inputs)}")
    channels, height, width = task.inputs
    return channels, (height, width)
