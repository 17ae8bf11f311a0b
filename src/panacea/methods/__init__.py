"""Federated methods, one file each. Importing this package registers them."""

from panacea.core.local import Iterate, Local, Sgd
from panacea.core.method import Adaptation, Facts, Method, MethodParameters, Model
from panacea.methods.apfl import Apfl
from panacea.methods.ditto import Ditto
from panacea.methods.fedamp import FedAmp, HeurFedAmp
from panacea.methods.fedavg import FedAvg, FedAvgFt
from panacea.methods.fedbn import FedBn
from panacea.methods.fedcg import FedCg
from panacea.methods.fedper import FedPer
from panacea.methods.fedprox import FedProx, FedProxFt
from panacea.methods.fedrep import FedRep
from panacea.methods.panacea import Panacea, PanaceaGn
from panacea.methods.panacea_mlp import PanaceaMlp
from panacea.methods.perfedavg import PerFedAvg
from panacea.methods.pfedhn import PFedHn
from panacea.methods.pfedhn_pc import PFedHnPc
from panacea.methods.pfedme import PFedMe
from panacea.methods.registry import find_method, make_method, method, method_names
from panacea.methods.scaffold import Scaffold
from panacea.methods.separate import Separate
from panacea.methods.sfl import Sfl

__all__ = [
    "Adaptation",
    "Apfl",
    "Ditto",
    "Facts",
    "FedAmp",
    "FedAvg",
    "FedAvgFt",
    "FedBn",
    "FedCg",
    "FedPer",
    "FedProx",
    "FedProxFt",
    "FedRep",
    "HeurFedAmp",
    "Iterate",
    "Local",
    "Method",
    "MethodParameters",
    "Model",
    "PFedHn",
    "PFedHnPc",
    "PFedMe",
    "Panacea",
    "PanaceaGn",
    "PanaceaMlp",
    "PerFedAvg",
    "Scaffold",
    "Separate",
    "Sfl",
    "Sgd",
    "find_method",
    "make_method",
    "method",
    "method_names",
]
