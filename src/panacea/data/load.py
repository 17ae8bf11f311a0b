"""Load a data set by its name."""

from __future__ import annotations

from collections.abc import Mapping

from panacea.core.validation import validated
from panacea.data.federation import Federation
from panacea.data.registry import DataKeys, find_dataset
from panacea.errors import RequestError

__all__ = ["load", "load_keys", "load_share", "resolve_keys"]


def load(name: str, *, seed: int = 0, novel: float | None = None, **keys: object) -> Federation:
    """A federation by the name of its data set.

    Args:
        name: a registered name; `panacea datasets` lists them.
        seed: the data seed: generation, splits and held-out clients.
        novel: share of clients held out of training; by default what the data set brings.
        keys: the data set's own keys, e.g. ``clients=6`` or ``split="dirichlet"``.

    >>> load("fl60", seed=0, clients=6)
    Federation(fl60: 6 clients (1 novel), 600 samples, classification, 4 edges)
    """
    return load_keys(name, resolve_keys(name, keys, seed), novel)


def resolve_keys(name: str, values: Mapping[str, object], seed: int = 0) -> DataKeys:
    """The checked `data.*` keys of a data set; `data.seed` is the seed unless it is given.

    Raises:
        RequestError: the data set or a key is unknown, or a value is not allowed.
    """
    return validated(find_dataset(name).keys, {"seed": seed, **values}, "data")


def load_keys(name: str, keys: DataKeys, novel: float | None = None) -> Federation:
    """A federation from checked keys, its novel clients marked; see `load_share`."""
    return load_share(name, keys, novel)[0]


def load_share(name: str, keys: DataKeys, novel: float | None = None) -> tuple[Federation, float]:
    """A federation from checked keys, its novel clients marked, and their share as a configuration states it.

    A data set may say itself who is novel (`data.users`); then another share than its own is refused, 0 too.

    Args:
        name: the data set.
        keys: its keys.
        novel: the share asked for; None: what the data set brings.
    """
    entry = find_dataset(name)
    try:
        federation = entry.load(keys)
    except OSError as error:  # a folder that may not be looked into, for instance
        raise RequestError(f"{error.filename or name}: cannot be read ({error.strerror or error})") from None
    except MemoryError as error:
        raise RequestError(f"data set '{name}': not enough memory for what its files hold ({error})") from None
    if not federation.novel.any():
        share = entry.defaults.novel if novel is None else novel
        return federation.hold_out(share, keys.seed), share
    share = float(federation.novel.mean())
    if novel not in (None, share):
        raise RequestError(f"novel={novel}: the keys of data={name} say who is novel ({share:.2g}); leave novel out")
    return federation, share
