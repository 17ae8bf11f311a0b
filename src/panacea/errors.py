"""The two ways something can go wrong, and the sentence a user reads.

`RequestError` means that what was asked for is wrong (a key, a value, a file): the command line prints one line and
exits with 2. `RunFailure` means that a correct request failed while running: exit 1. Nothing else is caught.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["PanaceaError", "RequestError", "RunFailure", "nearest", "unknown"]


class PanaceaError(Exception):
    """Base of every error that this package raises on purpose."""

    exit_code = 1


class RequestError(PanaceaError, ValueError):
    """The request is wrong; the message names the key or file, what was given and what is allowed."""

    exit_code = 2


class RunFailure(PanaceaError, RuntimeError):  # noqa: N818
    """A correct request failed while it was being carried out."""


def nearest(given: str, allowed: Iterable[str]) -> str | None:
    """The allowed name closest to what was given, if any is close."""
    matches = difflib.get_close_matches(given.lower(), list(allowed), n=1, cutoff=0.5)
    return matches[0] if matches else None


def unknown(what: str, given: str, allowed: Iterable[str]) -> RequestError:
    """The error for a name that is not in a list, with the nearest name.

    >>> str(unknown("method", "fedavgg", ["separate", "fedavg"]))
    "unknown method 'fedavgg'; did you mean 'fedavg'? allowed: fedavg, separate"
    """
    names = sorted(set(allowed))
    close = nearest(given, names)
    hint = f" did you mean '{close}'?" if close else ""
    return RequestError(f"unknown {what} '{given}';{hint} allowed: {', '.join(names)}")
