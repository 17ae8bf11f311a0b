"""Clients that lie, and servers that do not believe everything."""

from panacea.robustness.adversary import Attackers, choose_attackers
from panacea.robustness.attacks import ATTACKS, Attack, AttackKeys, make_attack
from panacea.robustness.defences import DEFENCES, DefenceKeys, Guard, make_defence
from panacea.robustness.malformed import Malformed

__all__ = [
    "ATTACKS",
    "DEFENCES",
    "Attack",
    "AttackKeys",
    "Attackers",
    "DefenceKeys",
    "Guard",
    "Malformed",
    "choose_attackers",
    "make_attack",
    "make_defence",
]
