"""`panacea federate server`, `client`, `submit` and `status`."""

from __future__ import annotations

import json
import time
from collections import deque
from pathlib import Path
from typing import Any

from panacea.cli.federating_setup import opened, require_flower
from panacea.cli.progress import say
from panacea.core.files import read_lines
from panacea.deploy.deployment import Deployment
from panacea.deploy.joining import refusal
from panacea.errors import RequestError, RunFailure
from panacea.experiment.rundir import RunDirectory

__all__ = ["connected_names", "keep_client", "keep_server", "run_progress", "show_status", "want_run"]

_TICK = 0.5


def keep_server(folder: Path, *, quiet: bool) -> None:
    """`panacea federate server`: until Ctrl-C or SIGTERM, which end it in order."""
    deployment = opened(folder)
    from panacea.deploy.flower_link import LinkKeeper  # noqa: PLC0415

    seen = deployment.log.stat().st_size if deployment.log.exists() else 0
    with LinkKeeper(deployment) as link:
        while True:
            link.tick()
            if not quiet:
                seen = _say_new(deployment.log, seen)
            time.sleep(_TICK)


def _say_new(log: Path, seen: int) -> int:
    """Show what was added to a log; returns its new length."""
    with log.open("rb") as file:
        file.seek(seen)
        text = file.read()
    for line in text.decode(errors="replace").splitlines():
        say(line)
    return seen + len(text)


def keep_client(folder: Path, *, quiet: bool) -> None:
    """`panacea federate client`: until Ctrl-C or SIGTERM, which end it in order."""
    require_flower()
    if not folder.is_dir():
        raise RequestError(f"{folder}: no such folder; `panacea federate init` writes one for every client")
    from panacea.deploy.flower_node import NodeKeeper  # noqa: PLC0415
    from panacea.deploy.site_data import check_samples  # noqa: PLC0415

    said, node = "", NodeKeeper(folder)
    check_samples(node.site, node.folder)
    with node:
        while True:
            node.tick()
            if node.state != said and not quiet:
                said = node.state
                say(f"{node.name}: {said}")
            time.sleep(_TICK)


def want_run(folder: Path, *, quiet: bool) -> None:
    """`panacea federate submit`."""
    deployment = opened(folder)
    run = deployment.read_run()
    if run["state"] in ("wanted", "running"):
        raise RequestError(f"{folder}: its run is {run['state']} already")
    if run["state"] == "finished":
        raise RequestError(f"{folder}: its run is finished ({run['directory']}); `panacea federate init` makes another")
    deployment.write_run(state="wanted", detail="")
    if not quiet:
        say("the run starts as soon as the server runs; `panacea federate status` shows it")


def connected_names(deployment: Deployment) -> set[str] | None:
    """Who is connected; None if the server does not answer."""
    from panacea.deploy.flower_control import connect  # noqa: PLC0415

    try:
        with connect(deployment.settings.address, deployment.root) as control:
            online = {node["node_id"] for node in control.nodes() if node["status"] == "online"}
    except RunFailure:
        return None
    return {name for name, entry in deployment.read_nodes().items() if entry.get("node_id") in online}


def run_progress(deployment: Deployment) -> dict[str, Any]:
    """What is known of the run: its state, its round and its newest numbers."""
    run = deployment.read_run()
    found: dict[str, Any] = {key: run[key] for key in ("state", "detail", "directory")} | {"round": 0, "rounds": None}
    if run["directory"]:
        directory = RunDirectory(Path(run["directory"]))
        done = read_lines(directory.timings)
        lines = read_lines(directory.metrics)
        found["round"] = done[-1]["round"] if done else 0
        if directory.config_file.exists():
            found["rounds"] = directory.read_config().rounds
        found["mean"] = lines[-1]["mean"] if lines else None
    return found


def show_status(folder: Path, *, as_json: bool) -> None:
    """`panacea federate status`. Without keys nobody but the run knows whose connection is whose."""
    deployment = opened(folder)
    online = connected_names(deployment)
    progress = run_progress(deployment)
    nodes, known = deployment.read_nodes(), online is not None and not deployment.settings.insecure
    directory = Path(progress["directory"] or "nowhere")
    last = _last_events(directory)
    last |= {name: f"not taken in: {why}" for name in nodes if (why := refusal(directory, name))}
    rows = [
        {"client": name, "key": entry["fingerprint"], "node": entry.get("node_id"),
         "connected": name in (online or ()) if known else None, "last": last.get(name, "")}
        for name, entry in nodes.items()
    ]  # fmt: skip
    if as_json:
        print(json.dumps({"server": online is not None, "run": progress, "clients": rows}))  # noqa: T201
        return
    from rich.markup import escape  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    from panacea.cli.show import console  # noqa: PLC0415

    rounds = f", round {progress['round']} of {progress['rounds']}" if progress["rounds"] else ""
    where = "is running" if online is not None else "does not answer"
    print(f"server {deployment.settings.address} {where}; run: {progress['state']}{rounds}")  # noqa: T201
    for label in ("detail", "directory"):
        if progress[label]:
            print(f"{label}: {progress[label]}")  # noqa: T201
    table = Table(box=None, padding=(0, 1))
    for column in ("client", "connected", "key", "last event"):
        table.add_column(column, overflow="fold")
    for row in rows:
        connected = {None: "?", True: "yes", False: "no"}[row["connected"]]
        words = (str(row["client"]), connected, str(row["key"]), str(row["last"]))
        table.add_row(*map(escape, words))  # some of them are a stranger's
    console().print(table)


def _last_events(directory: Path) -> dict[str, str]:
    """The newest line of `federation.jsonl` of each client."""
    log = directory / "federation.jsonl"
    if not log.exists():
        return {}
    last = {}
    for line in deque(read_lines(log), 2000):
        if line.get("client"):
            detail = f": {line['detail']}" if line.get("detail") else ""
            last[line["client"]] = f"round {line['round']}, {line['event']}{detail}"
    return last
