"""Clients that lie, and servers that do not believe everything."""

from panacea.robustness.adversary import Attackers, choose_attackers
from panacea.robustness.attacks import ATTACKS, make_attack
from panacea.robustness.backdoors import triggered_tests
from panacea.robustness.base import Attack, AttackKeys
from panacea.robustness.defences import DEFENCES, DefenceKeys, Guard, make_defence
from panacea.robustness.malformed import Malformed
from panacea.robustness.neighbourhood import Neighbourhood

__all__ = [
    "ATTACKS",
    "DEFENCES",
    "Attack",
    "AttackKeys",
    "Attackers",
    "DefenceKeys",
    "Guard",
    "Malformed",
    "Neighbourhood",
    "choose_attackers",
    "make_attack",
    "make_defence",
    "triggered_tests",
]
