"""Writing a deployment: the server's folder, and in it a folder for every client. See `panacea.deploy.deployment`."""

from __future__ import annotations

import getpass
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import yaml

from panacea.core.files import write_atomically
from panacea.data.task import Task
from panacea.deploy.deployment import Connection, Deployment, ServerSettings
from panacea.deploy.roster import Roster, write_roster
from panacea.deploy.security import CERTIFICATE_DAYS, fingerprint, make_authority, make_certificate, make_key
from panacea.deploy.settings import TaskSettings
from panacea.deploy.site import Site, write_site
from panacea.deploy.site_data import EXPECTED
from panacea.errors import RequestError

__all__ = [
    "add_client",
    "body_limit",
    "check_name",
    "folder_name",
    "move_deployment",
    "renew_certificate",
    "reply_limit",
    "write_deployment",
]

_CHUNK = 5 * 2**20  # Flower cuts arrays into pieces of this size
_OVERHEAD = 64 * 2**10
_UNFIT = '"\\$%;{}\n\r'  # characters that mean something in a unit or in nginx.conf

_INSECURE = "\n**No TLS and no keys: a try on this machine.** Leave `nginx.conf` and the units alone.\n"

_APP_FILE = """[project]
name = "panacea-federation"
version = "1.0.0"
description = "Nothing but names: server and clients run the Panacea that is installed on their own machine"
dependencies = []

[tool.flwr.app]
publisher = "panacea"

[tool.flwr.app.components]
serverapp = "panacea_app.server:app"
clientapp = "panacea_app.client:app"

[tool.flwr.app.config]
"""


def folder_name(name: str) -> str:
    """A client's name as that of a folder.

    >>> folder_name("Zürich / 3"), folder_name("node_17")
    ('Z_rich_3', 'node_17')
    """
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).lstrip(".") or "_"


def body_limit(parameters: int, bytes_each: int = 4) -> int:
    """The most bytes that a request of an honest client has: its largest array or a piece of it, and words.

    >>> body_limit(1000), body_limit(10**8) // 2**20
    (81536, 5)
    """
    return min(_CHUNK, 4 * parameters * bytes_each) + _OVERHEAD


def reply_limit(parameters: int) -> int:
    """The most bytes of an honest client's whole reply, with much to spare: sixteen networks in double precision.

    >>> reply_limit(1000) // 1000, reply_limit(10**7) // 2**20
    (1176, 1221)
    """
    return 16 * 8 * parameters + 2**20


def _filled(template: str, **values: object) -> str:
    text = (files("panacea.deploy") / "templates" / template).read_text(encoding="utf-8")
    return Template(text).substitute({key: str(value) for key, value in values.items()})


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text)


def _yaml(path: Path, content: Mapping[str, Any]) -> None:
    _write(path, yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True))


def check_name(name: str) -> None:
    """A line break in a name would be a line of its own in a unit."""
    if not name.isprintable():
        raise RequestError(f"client {name!a}: a name must be printable, on one line")


def write_deployment(
    folder: Path, experiment: Mapping[str, Any], roster: Roster, settings: ServerSettings, parameters: int
) -> Deployment:
    """Write everything but the clients' samples.

    Args:
        folder: must not exist, or be empty.
        experiment: the keys of the run, nested.
        roster: who takes part.
        settings: `server.yaml`.
        parameters: of one client's network, for the proxy's limit.

    Raises:
        RequestError: the folder is not empty or cannot be written, or two clients' names are the same as folders.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RequestError(f"{folder} exists and is not an empty folder; give a new one")
    if bad := sorted(set(str(folder.resolve())) & set(_UNFIT)):
        raise RequestError(f"{folder}: units and nginx cannot hold a path with {bad[0]!r}; give another folder")
    for name in roster.names:
        check_name(name)
    places = [folder_name(name) for name in roster.names]
    twice = next((name for name, place in zip(roster.names, places, strict=True) if places.count(place) > 1), None)
    if twice is not None:
        raise RequestError(f"client '{twice}': another client's name gives the same folder '{folder_name(twice)}'")
    if "largest_reply" not in settings.model_fields_set:
        settings = settings.model_copy(update={"largest_reply": reply_limit(parameters)})
    deployment = Deployment(folder.resolve())
    try:
        _write_all(deployment, experiment, roster, settings, parameters)
    except OSError as error:
        raise RequestError(f"{folder}: cannot write there ({error.strerror})") from error
    return deployment


def _write_all(
    deployment: Deployment, experiment: Mapping[str, Any], roster: Roster, settings: ServerSettings, parameters: int
) -> None:
    deployment.folder.mkdir(parents=True, exist_ok=True)
    deployment.folder.chmod(0o700)
    for inner in (deployment.authority.parent, deployment.keys, deployment.clients, deployment.home, deployment.roster):
        inner.mkdir(exist_ok=True)
    _yaml(deployment.server_file, settings.model_dump())
    _yaml(deployment.experiment, experiment)
    write_roster(roster, deployment.roster)
    _write(deployment.app / "pyproject.toml", _APP_FILE)
    _write(deployment.app / "panacea_app" / "__init__.py", "")
    for side in ("server", "client"):
        _write(deployment.app / "panacea_app" / f"{side}.py", f"from panacea.deploy.flower_{side} import app as app\n")
    make_authority(deployment.authority, deployment.authority_key)
    renew_certificate(deployment)
    for name in roster.names:
        add_client(deployment, name, roster.task)
    _write_proxy(deployment, parameters)
    user = getpass.getuser()
    words = {"panacea": _panacea(), "folder": deployment.folder, "user": user, "proxy": deployment.proxy}
    for unit in ("server", "proxy"):
        _write(deployment.units / f"panacea-{unit}.service", _filled(f"{unit}.service", **words))
    _write(deployment.readme, _filled(
        "README.md", count=len(roster.names), folder=shlex.quote(str(deployment.folder)),
        proxy=shlex.quote(str(deployment.proxy)), public=settings.public, user=user,
        address=settings.address, deadline=f"{settings.deadline:g}", days=CERTIFICATE_DAYS,
        out=experiment.get("out", "runs"), data_note="`data.npz` and `task.yaml`, see docs/federation.md",
        warning=_INSECURE if settings.insecure else "",
    ))  # fmt: skip


def _write_proxy(deployment: Deployment, parameters: int) -> None:
    settings = deployment.settings
    host, _, port = settings.public.rpartition(":")
    _write(deployment.proxy, _filled(
        "nginx.conf", run=deployment.home, listen=port, server_name=host, certificate=deployment.certificate,
        certificate_key=deployment.certificate_key, authority=deployment.authority, upstream=settings.address,
        limit=body_limit(parameters), user=getpass.getuser(),
        why_limit=f"the network has {parameters} parameters",
    ))  # fmt: skip


def renew_certificate(deployment: Deployment) -> None:
    """Sign a new certificate for the server. Certificate and key change at once: a link is set to another folder."""
    public = deployment.settings.public.rpartition(":")[0].strip("[]")
    hosts = dict.fromkeys([public, "localhost", "127.0.0.1"])
    place = Path(tempfile.mkdtemp(prefix="tls-", dir=deployment.folder))
    certificate, key = place / deployment.certificate.name, place / deployment.certificate_key.name
    make_certificate(deployment.authority, deployment.authority_key, certificate, key, [*hosts])
    link = place / "link"
    link.symlink_to(place.name)
    link.replace(deployment.tls)
    for old in deployment.folder.glob("tls-*"):
        if old != place:
            shutil.rmtree(old, ignore_errors=True)


def add_client(deployment: Deployment, name: str, task: Task, **entry: Any) -> Path:
    """Make a client's folder and key, and enter it in the table, with `entry`; returns the folder.

    Args:
        deployment: the server's folder.
        name: the client's.
        task: what is learnt; the client's samples are checked against it when it starts.
        entry: what the table is to say of it, beside its key.
    """
    check_name(name)
    settings, folder = deployment.settings, deployment.client(folder_name(name))
    folder.mkdir(parents=True)
    (folder / "data").mkdir()
    public = deployment.public_key(folder_name(name))
    make_key(folder / "key", public)
    write_atomically(folder / "ca.crt", deployment.authority.read_bytes())
    _yaml(folder / "connection.yaml", Connection(server=settings.public, insecure=settings.insecure).model_dump())
    write_site(folder, Site(name, folder / "data", folder / "state"))
    _yaml(folder / EXPECTED, TaskSettings.of(task).model_dump(mode="json"))
    unit = _filled("client.service", panacea=_panacea(), name=name.replace("%", "%%"))
    _write(folder / "panacea-client.service", unit)
    with deployment.changing_nodes() as nodes:
        nodes[name] = {"fingerprint": fingerprint(public), **entry}
    return folder


def _panacea() -> Path:
    return Path(sys.executable).parent / "panacea"


def move_deployment(deployment: Deployment, settings: ServerSettings) -> None:
    """Another address, for server and clients on one machine; what clients keep stays."""
    settings = settings.model_copy(update={"largest_reply": deployment.settings.largest_reply})
    _yaml(deployment.server_file, settings.model_dump())
    connection = Connection(server=settings.public, insecure=settings.insecure).model_dump()
    for name in deployment.read_nodes():
        _yaml(deployment.client(folder_name(name)) / "connection.yaml", connection)
