"""The ServerApp: the simulator's loop over Flower's grid. See `panacea.deploy.serve`."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from panacea.deploy.deployment import Deployment
from panacea.deploy.flower_transport import GridTransport
from panacea.deploy.log import FederationLog
from panacea.deploy.orders import Log
from panacea.deploy.processes import end_with_parent
from panacea.deploy.roster import read_roster
from panacea.deploy.serve import serve
from panacea.errors import RequestError, RunFailure
from panacea.experiment.config import build_config
from panacea.experiment.keys import read_yaml
from panacea.experiment.rundir import RunBusy, RunDirectory
from panacea.report.run_page import ReportWriter

__all__ = ["DEPLOYMENT", "app", "run_deployment"]

DEPLOYMENT = "PANACEA_DEPLOYMENT"
"""The environment variable that names the deployment's folder."""

_BUSY = 120.0  # seconds to wait for the end of a run's previous process

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the deployment's experiment, or go on with it."""
    end_with_parent()  # without a SuperLink every request would be tried for ever; the last round is on disk
    deployment = Deployment(Path(os.environ[DEPLOYMENT]))
    deployment.write_run(state="running", pid=os.getpid(), detail="", flower_run=context.run_id)
    run_deployment(grid, deployment)


def run_deployment(grid: Grid, deployment: Deployment) -> None:
    """To the end of the run, and note in `run.json` what became of it.

    Only what a new attempt cannot mend is a failure. After anything else (a signal, a connection that broke) the run
    is still under way, and the supervisor starts it again from its checkpoint.
    """
    deployment.note("run", "begins")
    try:
        _serve(grid, deployment)
    except (RequestError, RunFailure) as error:
        deployment.write_run(state="failed", detail=str(error))
        deployment.note("run", f"failed: {error}")
        raise
    except BaseException as error:
        detail = f"{type(error).__name__}: {error}"
        deployment.write_run(detail=detail)
        deployment.note("run", f"broke off: {detail}")
        raise
    deployment.write_run(state="finished", detail="")
    deployment.note("run", "finished")


class _Transport(GridTransport):
    """Notes the run's directory as soon as there is one: `panacea federate status` looks there while clients greet."""

    def begin(self, names: Sequence[str], log: Log) -> None:
        """Called when the directory is made, before anybody is asked."""
        super().begin(names, log)
        if isinstance(log, FederationLog) and log.path is not None:
            self.deployment.write_run(directory=str(log.path.parent))


def _begun(deployment: Deployment) -> Path | None:
    """The directory of the run under way; None if there is no round to go on from.

    Given to `serve`, it makes an `experiment.yaml` that was changed meanwhile an error instead of another run.
    """
    named = deployment.read_run()["directory"]
    return Path(named) if named and RunDirectory(Path(named)).checkpoints.rounds() else None


def _serve(grid: Grid, deployment: Deployment) -> None:
    config, roster = build_config(read_yaml(deployment.experiment)), read_roster(deployment.roster)
    end = time.monotonic() + _BUSY
    while True:
        try:
            transport = _Transport(grid, deployment)
            serve(config, roster, transport, _begun(deployment), [ReportWriter()], deployment.settings.patience)
            return
        except RunBusy:  # the process before this one is still ending
            if time.monotonic() > end:
                raise
            time.sleep(1)
