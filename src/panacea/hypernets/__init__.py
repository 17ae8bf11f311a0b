"""Hypernetworks: networks on the server that make clients' models out of embeddings along a relation graph."""

from panacea.hypernets.encoders import Encoder
from panacea.hypernets.generating import GeneratingMethod, HypernetworkParameters
from panacea.hypernets.heads import Head
from panacea.hypernets.network import Hypernetwork
from panacea.hypernets.plan import Plan, Planner
from panacea.hypernets.propagation import Block, Propagation
from panacea.hypernets.state import HypernetworkState

__all__ = [
    "Block",
    "Encoder",
    "GeneratingMethod",
    "Head",
    "Hypernetwork",
    "HypernetworkParameters",
    "HypernetworkState",
    "Plan",
    "Planner",
    "Propagation",
]
