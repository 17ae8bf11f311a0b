"""A client of a federation: one function that answers an order. See `answer`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from panacea.deploy.orders import Failure, Order, Reply
from panacea.errors import PanaceaError, RequestError

if TYPE_CHECKING:
    from panacea.deploy.settings import RunSettings

__all__ = ["Site", "answer", "open_site", "write_site"]

_LONGEST = 300  # characters of a reason


@dataclass(frozen=True)
class Site:
    """What a client is given by its operator.

    Attributes:
        name: its name in the roster (and in the relation graph).
        data: folder with its own samples: `data.npz` and `task.yaml` (`panacea.deploy.site_data`).
        state: folder for what it keeps between rounds; made when needed. Nobody else may write there.
        models: networks from elsewhere (``package.module:factory``) that a run may name; none by default.
        threads: CPU threads of an answer.
        methods: methods from elsewhere (``package.module:Class``, or the name that another installed package gives
            one) that a run may name; none by default.
        files: files that a run may name in its keys (``model.pretrained``); none by default.
    """

    name: str
    data: Path
    state: Path
    models: tuple[str, ...] = ()
    threads: int = 1
    methods: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


def open_site(folder: Path) -> Site:
    """The site of a folder with a `client.yaml`, whose keys are the attributes of `Site`.

    Paths in it are relative to the folder; `data` and `state` are the default names of two folders in it.

    Raises:
        RequestError: there is none, or a key is wrong.
    """
    from panacea.deploy.site_file import read_site  # noqa: PLC0415

    said = read_site(folder / "client.yaml")
    data, state = ((folder / path.expanduser()).resolve() for path in (said.data, said.state))
    return Site(said.name, data, state, said.models, said.threads, said.methods, said.files)


def write_site(folder: Path, site: Site) -> None:
    """Write `client.yaml`; what lies inside the folder is written relative to it."""
    from panacea.deploy.site_file import SiteFile, save_site  # noqa: PLC0415

    root = folder.resolve()
    data, state = (
        path.resolve().relative_to(root) if path.resolve().is_relative_to(root) else path.resolve()
        for path in (site.data, site.state)
    )
    said = SiteFile(
        name=site.name,
        data=data,
        state=state,
        models=site.models,
        methods=site.methods,
        threads=site.threads,
        files=site.files,
    )
    folder.mkdir(parents=True, exist_ok=True)
    save_site(said, folder / "client.yaml")


def answer(order: Order, site: Site) -> Reply | Failure:
    """Do what an order asks and keep the client's state on disk; never raises an error for anything in an order.

    Safe to call in a new process for every order, and to be killed at any moment: the order may come again. Two
    processes of one site at a time: the second waits until the first is done (a lock on the state folder).

    A `Failure` says in one line why not: an order for another client or an older round, settings that do not fit the
    client's data, a network its operator did not allow, training that failed.
    """
    try:
        return _answer(order, site)
    except PanaceaError as error:
        return Failure(" ".join(str(error).split())[:_LONGEST])
    except MemoryError:
        return Failure("not enough memory at the client")
    except Exception as error:  # a client lives on, whatever a server sends
        return Failure(" ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST])


def _answer(order: Order, site: Site) -> Reply:
    from panacea.deploy.settings import read_settings  # noqa: PLC0415  (torch comes with it)
    from panacea.deploy.site_state import locked  # noqa: PLC0415
    from panacea.deploy.site_work import Workplace  # noqa: PLC0415

    if order.name != site.name:
        raise RequestError(f"an order for client '{order.name[:80]}' came to '{site.name}'")
    strange = [what for what in order.asks if what not in ("hello", "train", "evaluate", "alternatives")]
    if strange or not order.asks or ("hello" in order.asks and len(order.asks) > 1):
        raise RequestError(f"the order asks for {list(order.asks)[:4]}, which is nothing this client does")
    settings = read_settings(order.settings)
    if not 0 <= order.client < settings.clients or not 0 <= order.round <= settings.rounds:
        raise RequestError(f"the order is for client {order.client}, round {order.round}: there is no such")
    _refuse_foreign(settings, site)
    with locked(site.state):
        return Workplace(order, site, settings).reply()


def _refuse_foreign(settings: RunSettings, site: Site) -> None:
    """Code and files named by a server are imported and opened only if the client's operator named them as well."""
    from panacea.methods.registry import foreign, make_method  # noqa: PLC0415
    from panacea.models.registry import model_paths  # noqa: PLC0415

    strange = ":" in settings.model, foreign(settings.method)
    named = ("model", settings.model, site.models), ("method", settings.method, site.methods)
    for elsewhere, (key, name, allowed) in zip(strange, named, strict=True):
        if elsewhere and name not in allowed:
            raise RequestError(f"{key}={name[:80]} is not among the {key}s that client.yaml allows")
    parameters = make_method(settings.method, settings.method_keys).parameters
    own = {f"method.{key}": value for key, value in parameters if isinstance(value, Path)}
    for key, path in {**own, **model_paths(settings.model, settings.task.task, settings.model_keys)}.items():
        if str(path) not in site.files:
            raise RequestError(f"{key}={str(path)[:80]} is not among the files that client.yaml allows")
