"""`panacea federate init`, `add` and `renew`: what a deployment is written from."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

from panacea.cli.arguments import flat_keys
from panacea.cli.progress import say
from panacea.core.validation import validated
from panacea.deploy import deployment_files
from panacea.deploy.deployment import Deployment, ServerSettings, is_loopback
from panacea.deploy.joining import joined_names
from panacea.deploy.plan import Plan, plan_from_data, plan_from_names
from panacea.deploy.roster import Newcomer, read_roster, write_roster
from panacea.deploy.site_data import write_client_data
from panacea.errors import RequestError
from panacea.experiment.config import ExperimentConfig, build_config

__all__ = ["deploy_plan", "federated_config", "join", "opened", "renew_certificate", "require_flower", "write"]


def require_flower() -> None:
    """Say how to install Flower where it is missing."""
    if importlib.util.find_spec("flwr") is None:
        raise RequestError("panacea federate needs Flower; install it with: pip install 'panacea-fl[federation]'")


def opened(folder: Path) -> Deployment:
    """The deployment of a folder; its settings are checked."""
    require_flower()
    deployment = Deployment(folder.resolve())
    _ = deployment.settings
    return deployment


def federated_config(arguments: list[str], clients: int | None) -> ExperimentConfig:
    """The request of a command, with the number of clients."""
    keys = flat_keys(arguments)
    if clients is not None:
        keys["data.clients"] = clients
    return build_config(keys)


def deploy_plan(folder: Path, plan: Plan, settings: ServerSettings) -> Deployment:
    """Write a deployment and, where they are at hand, every client's samples into its own folder."""
    deployment = deployment_files.write_deployment(folder, plan.keys, plan.roster, settings, plan.parameters)
    if plan.federation is not None:
        for number, name in enumerate(plan.roster.names):
            write_client_data(plan.federation, number, deployment.client(deployment_files.folder_name(name)) / "data")
    return deployment


def write(
    folder: Path, arguments: list[str], clients: str | None, names: Path | None, task: Path | None,
    given: dict[str, Any], *, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """`panacea federate init`."""
    require_flower()
    settings = validated(ServerSettings, {**given, "public": _public(given)}, "")
    listed = _names(clients, names)
    if listed is not None and task is None:
        raise RequestError("names of clients were given, so their data are not here: say what is learnt with --task")
    if listed is None and task is not None:
        raise RequestError("--task is for clients whose data are not here: name them with --clients a,b or --names")
    if listed is not None and task is not None:
        plan = plan_from_names(federated_config(arguments, None), task, listed)
    else:
        plan = plan_from_data(federated_config(arguments, int(clients) if clients else None))
    deployment = deploy_plan(folder, plan, settings)
    if as_json:
        print(json.dumps({"directory": str(deployment.folder), "clients": list(plan.roster.names)}))  # noqa: T201
    elif not quiet:
        print(f"a federation of {len(plan.roster.names)} clients: {deployment.folder}")  # noqa: T201
        print(f"next: {deployment.readme} says how to start it")  # noqa: T201


def _public(given: dict[str, Any]) -> str:
    """Where clients connect to: the proxy, which an insecure server has not."""
    own = f"localhost:{given['port']}"
    said: str = given["public"] or (own if given["insecure"] else "localhost:9443")
    if given["insecure"] and is_loopback(said.rpartition(":")[0]) and said.rpartition(":")[2] != str(given["port"]):
        raise RequestError(f"--public {said}: with --insecure there is no proxy, and clients connect to {own} itself")
    return said


def _names(clients: str | None, names: Path | None) -> list[str] | None:
    """Names that were given; None if a number, or nothing, was."""
    if clients is not None and names is not None:
        raise RequestError("--clients and --names say the same thing in two ways; give one of them")
    if names is not None:
        try:
            found = [line.strip() for line in names.read_text(encoding="utf-8").splitlines() if line.strip()]
        except (OSError, UnicodeDecodeError) as error:
            raise RequestError(f"--names {names}: cannot be read") from error
        if not found:
            raise RequestError(f"--names {names}: there is no name in it")
        return found
    if clients is None or clients.isdigit():
        if clients is not None and int(clients) < 1:
            raise RequestError(f"--clients {clients}: at least 1")
        return None
    return _list(clients)


def _list(words: str) -> list[str]:
    return [word.strip() for word in words.split(",") if word.strip()]


def join(folder: Path, name: str, given: dict[str, Any], *, replace: bool, quiet: bool) -> None:
    """`panacea federate add`."""
    deployment = opened(folder)
    deployment_files.check_name(name)
    roster = read_roster(deployment.roster)
    place = deployment.client(deployment_files.folder_name(name))
    if replace:
        if name not in roster.names:
            raise RequestError(f"--replace: there is no client '{name}'; allowed: {', '.join(roster.names)}")
        data = place / "data"
        if data.exists() and any(data.iterdir()):
            raise RequestError(f"{place} holds this client's data; move it away first")
        shutil.rmtree(place, ignore_errors=True)
    else:
        listed = {key: _list(given[key]) for key in ("links", "features") if given[key] is not None}
        newcomer = validated(Newcomer, {"name": name, "group": given["group"], **listed}, "")
        if place.exists():
            raise RequestError(f"client '{name}': another client's name gives the same folder '{place.name}'")
        run = deployment.read_run()
        under_way = run["state"] in ("wanted", "running", "failed")
        members = joined_names(Path(run["directory"])) if under_way and run.get("directory") else ()
        strangers = set(newcomer.links) - set(roster.names)
        if not strangers or not strangers <= set(members):  # who joined the run is in no roster
            grown = roster.joined(newcomer)
        if not under_way:
            write_roster(grown, deployment.roster)
            deployment.write_run(state="none", directory=None)  # with other clients it is another run
    joins = {"joins": newcomer.model_dump(mode="json")} if not replace and under_way else {}
    made = deployment_files.add_client(deployment, name, roster.task, **joins)
    if not quiet:
        when = "; it joins the run when it connects" if joins else ""
        when = "; the old key is refused as soon as the server runs" if replace else when
        print(f"client '{name}': {made} is for its operator{when}")  # noqa: T201


def renew_certificate(folder: Path, *, quiet: bool) -> None:
    """`panacea federate renew`."""
    deployment = opened(folder)
    if not deployment.authority_key.exists():
        raise RequestError(f"{deployment.authority_key}: the authority's key is not here; put it back to sign with it")
    deployment_files.renew_certificate(deployment)
    if not quiet:
        say(f"{deployment.certificate} is new; restart the server and the proxy")
