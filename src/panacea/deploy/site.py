"""A client of a federation: one function that answers an order. See `answer`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from panacea.deploy.orders import Failure, Order, Reply

__all__ = ["Site", "answer", "open_site", "write_site"]


@dataclass(frozen=True)
class Site:
    """What a client is given by its operator.

    Attributes:
        name: its name in the roster (and in the relation graph).
        data: folder with its own samples: `data.npz` and `task.yaml` (`panacea.deploy.site_data`).
        state: folder for what it keeps between rounds; made when needed. Nobody else may write there.
        models: networks from elsewhere (``package.module:factory``) that a run may name; none by default.
        threads: CPU threads of an answer.
    """

    name: str
    data: Path
    state: Path
    models: tuple[str, ...] = ()
    threads: int = 1


def open_site(folder: Path) -> Site:
    """The site of a folder with a `client.yaml` (``name``, ``data``, ``state``, ``models``, ``threads``).

    Paths in it are relative to the folder; `data` and `state` are the default names of two folders in it.

    Raises:
        RequestError: there is none, or a key is wrong.
    """
    raise NotImplementedError


def write_site(folder: Path, site: Site) -> None:
    """Write `client.yaml`; what lies inside the folder is written relative to it."""
    raise NotImplementedError


def answer(order: Order, site: Site) -> Reply | Failure:
    """Do what an order asks and keep the client's state on disk; never raises an error for anything in an order.

    Safe to call in a new process for every order, and to be killed at any moment: the order may come again. Two
    processes of one site at a time: the second waits until the first is done (a lock on the state folder).

    A `Failure` says in one line why not: an order for another client or an older round, settings that do not fit the
    client's data, a network its operator did not allow, training that failed.
    """
    raise NotImplementedError
