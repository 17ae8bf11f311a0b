"""Target networks: what each client trains, built in or the user's own."""

from panacea.models.cnn import DomainClassifier, FedAvgCnn, LeafCelebaCnn, LeafFemnistCnn, McMahanCnn, SmallCnn
from panacea.models.entries import ModelEntry, ModelOptions, register_model
from panacea.models.gru import GruSeq2Seq
from panacea.models.mlp import Mlp
from panacea.models.registry import build_model, find_model, model_names, resolve_model
from panacea.models.resnet import ResNet18, load_torchvision_weights, resnet18

__all__ = [
    "DomainClassifier",
    "FedAvgCnn",
    "GruSeq2Seq",
    "LeafCelebaCnn",
    "LeafFemnistCnn",
    "McMahanCnn",
    "Mlp",
    "ModelEntry",
    "ModelOptions",
    "ResNet18",
    "SmallCnn",
    "build_model",
    "find_model",
    "load_torchvision_weights",
    "model_names",
    "register_model",
    "resnet18",
    "resolve_model",
]
