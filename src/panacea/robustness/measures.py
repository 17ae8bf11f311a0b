"""How well a defence tells liars from honest clients."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["detection"]


def detection(
    refused: npt.NDArray[np.int64], visits: npt.NDArray[np.int64], malicious: npt.NDArray[np.bool_]
) -> dict[str, float]:
    """Precision: of all refused uploads the share that attackers sent; recall: of all that they sent, the refused.

    Args:
        refused: ``[clients]`` uploads refused.
        visits: ``[clients]`` uploads in all.
        malicious: ``[clients]`` who attacks.

    >>> detection(np.array([3, 1]), np.array([4, 5]), np.array([True, False]))
    {'detection_precision': 0.75, 'detection_recall': 0.75}
    """
    caught, sent, all_refused = int(refused[malicious].sum()), int(visits[malicious].sum()), int(refused.sum())
    return {
        "detection_precision": caught / all_refused if all_refused else float("nan"),
        "detection_recall": caught / sent if sent else float("nan"),
    }
