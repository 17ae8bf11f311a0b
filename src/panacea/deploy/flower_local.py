"""A whole federation on one machine, for a try: SuperLink, SuperNodes and the run, and nothing left behind."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from panacea.deploy.deployment import Deployment
from panacea.deploy.deployment_files import folder_name
from panacea.deploy.flower_link import LinkKeeper
from panacea.deploy.flower_node import NodeKeeper
from panacea.errors import RunFailure

__all__ = ["run_here"]

_TICK = 0.3


def run_here(deployment: Deployment, tick: Callable[[LinkKeeper, list[NodeKeeper]], None]) -> dict[str, Any]:
    """Start everything, wait for the end of the run, stop everything; what `run.json` says at the end.

    Args:
        deployment: its clients' folders hold their samples already.
        tick: called a few times a second, with the supervisors; may raise an error to stop.

    Raises:
        RunFailure: the run failed; the message says why.
    """
    nodes: list[NodeKeeper] = []

    def stop_nodes() -> None:
        for node in nodes:
            node.ask()
        for node in nodes:
            node.finish()

    deployment.write_run(state="wanted", detail="")
    with ExitStack() as stack:
        link = stack.enter_context(LinkKeeper(deployment))
        stack.callback(stop_nodes)  # before the SuperLink: they say good-bye to it
        for name in deployment.read_nodes():
            node = NodeKeeper(deployment.client(folder_name(name)))
            node.__enter__()
            nodes.append(node)
        while True:
            link.tick()
            for node in nodes:
                node.tick()
            tick(link, nodes)
            run = deployment.read_run()
            if run["state"] == "finished":
                return run
            if run["state"] == "failed":
                raise RunFailure(f"the run failed: {run['detail']}")
            time.sleep(_TICK)
