"""How well a defence tells liars from honest clients."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["DOUBTED", "detection", "trust_auc"]

DOUBTED = 0.5
"""Trust below which an upload counts as doubted; refused ones have none."""


def detection(doubted: int, sent: int, caught: int) -> dict[str, float]:
    """Precision: of all doubted uploads the share that were lies; recall: of all lies, the share that was doubted.

    Args:
        doubted: uploads with a trust below a half.
        sent: lies: attackers' uploads from the attack's first round on.
        caught: lies that were doubted.

    >>> detection(doubted=4, sent=6, caught=3)
    {'detection_precision': 0.75, 'detection_recall': 0.5}
    """
    return {
        "detection_precision": caught / doubted if doubted else float("nan"),
        "detection_recall": caught / sent if sent else float("nan"),
    }


def trust_auc(trust: npt.NDArray[np.float64], visits: npt.NDArray[np.int64], malicious: npt.NDArray[np.bool_]) -> float:
    """Probability that an honest client ends with more trust than an attacker, of those visited; ties count half.

    >>> trust_auc(np.array([1.0, 0.2, 0.2]), np.array([1, 1, 1]), np.array([False, False, True]))
    0.75
    """
    honest, lying = trust[(visits > 0) & ~malicious], trust[(visits > 0) & malicious]
    if not len(honest) or not len(lying):
        return float("nan")
    more, same = honest[:, None] > lying, honest[:, None] == lying
    return float((more + 0.5 * same).mean())
