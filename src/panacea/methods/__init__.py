"""Federated methods, one file each. Importing this package registers them."""

from panacea.core.local import Iterate, Local, Sgd
from panacea.core.method import Adaptation, Method, MethodParameters, Model
from panacea.methods.fedavg import FedAvg, FedAvgFt
from panacea.methods.fedcg import FedCg
from panacea.methods.fedprox import FedProx, FedProxFt
from panacea.methods.panacea import Panacea, PanaceaGn
from panacea.methods.panacea_mlp import PanaceaMlp
from panacea.methods.pfedhn import PFedHn
from panacea.methods.pfedhn_pc import PFedHnPc
from panacea.methods.registry import find_method, make_method, method, method_names
from panacea.methods.separate import Separate

__all__ = [
    "Adaptation",
    "FedAvg",
    "FedAvgFt",
    "FedCg",
    "FedProx",
    "FedProxFt",
    "Iterate",
    "Local",
    "Method",
    "MethodParameters",
    "Model",
    "PFedHn",
    "PFedHnPc",
    "Panacea",
    "PanaceaGn",
    "PanaceaMlp",
    "Separate",
    "Sgd",
    "find_method",
    "make_method",
    "method",
    "method_names",
]
