"""Values as users give them: what they are, and how a message shows them."""

from __future__ import annotations

import numpy as np

__all__ = ["is_frame", "shown"]


def is_frame(value: object) -> bool:
    """Whether a value is a DataFrame (of pandas or of a library that looks like it)."""
    return hasattr(value, "columns") and hasattr(value, "to_numpy")


def shown(value: object) -> str:
    """A value in a message: words in quotes, numbers plain."""
    return repr(value.item() if isinstance(value, np.generic) else value)
