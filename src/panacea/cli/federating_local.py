"""`panacea federate local`: a whole federation on this machine."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from panacea.cli.federating_runs import run_progress
from panacea.cli.federating_setup import deploy_plan, federated_config, require_flower
from panacea.cli.training import print_summary
from panacea.core.validation import validated
from panacea.deploy.deployment import Deployment, ServerSettings
from panacea.deploy.deployment_files import move_deployment
from panacea.deploy.plan import plan_from_data
from panacea.deploy.processes import free_port, hold
from panacea.errors import RequestError, RunFailure
from panacea.experiment.config import ExperimentConfig, identity
from panacea.experiment.rundir import RunDirectory

if TYPE_CHECKING:
    from panacea.deploy.flower_link import LinkKeeper
    from panacea.deploy.flower_node import NodeKeeper

__all__ = ["try_here"]


def try_here(
    arguments: list[str], clients: int | None, *, deadline: float, insecure: bool, keep: bool, fresh: bool,
    as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Write a deployment beside the runs, run it, show its summary, and take it away again."""
    require_flower()
    config = federated_config(arguments, clients)
    folder = _place(config)
    lock = folder.with_name(f"{folder.name}.lock")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        handle = hold(lock, f"{folder}: the same federation")
    except OSError as error:
        raise RequestError(f"out={config.out}: cannot write there ({error.strerror})") from error
    try:
        if fresh:
            _forget(folder)
        deployment = _prepared(folder, config, deadline, insecure)
        _shown(deployment, keep=keep, as_json=as_json, quiet=quiet)
    finally:
        lock.unlink(missing_ok=True)
        os.close(handle)


def _shown(deployment: Deployment, *, keep: bool, as_json: bool, quiet: bool) -> None:
    """Run it, if it is not done already, and show what came of it."""
    run = deployment.read_run()
    already = run["state"] == "finished"
    if not already:
        from panacea.deploy.flower_local import run_here  # noqa: PLC0415

        with _Bar(deployment, quiet) as bar:
            try:
                run = run_here(deployment, bar.tick)
            except RunFailure as error:
                raise RunFailure(f"{error}; logs are in {deployment.home}") from error
    directory = RunDirectory(Path(run["directory"]))
    print_summary(directory.read_summary(), directory.path, already, as_json=as_json, quiet=quiet)
    if not keep:
        _tidy(deployment)


def _place(config: ExperimentConfig) -> Path:
    """The deployment's folder: that of the same request again, so that a stopped run goes on."""
    name = f".federation-{config.data.name}-{config.method.name}-s{config.seed}-{identity(config)}"
    return config.out.expanduser().resolve() / name


def _tidy(deployment: Deployment) -> None:
    """Drop keys, samples and logs; what became of the run stays known, so that the same command shows it again."""
    run = deployment.read_run()
    shutil.rmtree(deployment.folder)
    deployment.write_run(**run)


def _forget(folder: Path) -> None:
    """Drop a deployment and the run that it made."""
    run = Deployment(folder).read_run()
    if run["directory"]:
        shutil.rmtree(run["directory"], ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


def _prepared(folder: Path, config: ExperimentConfig, deadline: float, insecure: bool) -> Deployment:
    """The deployment that is there, at a port that is free now; or a new one."""
    port = free_port()
    given = {"public": f"127.0.0.1:{port}", "port": port, "deadline": deadline, "insecure": insecure}
    settings = validated(ServerSettings, given, "")
    deployment = Deployment(folder)
    run = deployment.read_run()
    lost = run["state"] == "finished" and not RunDirectory(Path(run["directory"])).finished
    if lost or run["state"] == "none":  # or stopped before all was written
        shutil.rmtree(folder, ignore_errors=True)
        return deploy_plan(folder, plan_from_data(config), settings)
    if run["state"] != "finished":
        move_deployment(deployment, settings)
    return deployment


class _Bar:
    """How far it is: clients that are connected, then rounds; silent when not a terminal."""

    def __init__(self, deployment: Deployment, quiet: bool) -> None:
        self.deployment, self.looked = deployment, 0.0
        console = Console(stderr=True)
        self.bar = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[metric]}"),
            TimeElapsedColumn(), console=console, transient=True, disable=quiet or not console.is_terminal,
        )  # fmt: skip
        self.task = self.bar.add_task("starting", total=None, metric="")

    def __enter__(self) -> _Bar:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def tick(self, link: LinkKeeper, nodes: list[NodeKeeper]) -> None:
        """Look again, at most once a second."""
        if self.bar.disable or time.monotonic() < self.looked + 1:
            return
        self.looked = time.monotonic()
        progress = run_progress(self.deployment)
        connected = sum(node.state == "connected" for node in nodes)
        if progress["rounds"] is None:
            self.bar.update(self.task, description="clients connected", completed=connected, total=len(nodes))
            return
        mean = progress.get("mean")
        self.bar.update(
            self.task, description=f"rounds ({connected} of {len(nodes)} clients connected)", metric="" if mean is None
            else f"{mean:.4g}", completed=progress["round"], total=progress["rounds"],
        )  # fmt: skip
