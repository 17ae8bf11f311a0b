"""A client's worker: imports everything once and forks a process for every message.

Flower's own SuperExec starts a new interpreter for every message, which imports flwr and torch anew (about four CPU
seconds), and runs the app that the server sent. This one forks, which costs milliseconds, and answers with the app
that is *installed here*: nothing that the server sends is ever executed.

Run as ``python -m panacea.deploy.flower_worker ADDRESS PARENT_PID``, beside a SuperNode with ``--isolation process``.
It uses names that are private to flwr, which is pinned to one version for that reason.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from flwr.common.constant import RUNTIME_DEPENDENCY_INSTALL
from flwr.supercore.constant import TaskType
from flwr.supercore.exit import exit_handler
from flwr.supercore.superexec import run_superexec as superexec
from flwr.supercore.superexec.executor.types import ExecutionSpec, LaunchResult
from flwr.supernode.runtime import run_clientapp as clientapp

from panacea.deploy.flower_client import app

__all__ = ["ForkingExecutor", "main"]


class ForkingExecutor:
    """What starts a process for a message."""

    def get_eligible_capacity(self, supported: set[TaskType], **_: Any) -> tuple[set[TaskType], set[str]]:
        """Nothing but messages to the client: no agents, no models, no connectors."""
        return supported & {TaskType.CLIENT_APP}, set()

    def wait_for_capacity(self, task_type: TaskType | None = None, **_: Any) -> None:
        """There is always room; orders of one client wait for each other in its state folder."""

    def launch(self, spec: ExecutionSpec) -> LaunchResult:
        """Fork; the child answers one message and ends."""
        if spec.task_type != TaskType.CLIENT_APP:
            return LaunchResult.failed(f"a task of the kind {spec.task_type} is not for this client")
        sys.stdout.flush()
        sys.stderr.flush()
        if os.fork() == 0:
            _answer_and_end(spec)
        return LaunchResult.accepted()

    def reconcile(self) -> None:
        """Take note of children that ended; called between looks for messages."""
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    def close(self) -> None:
        """Children notice the end of their parent by themselves."""


def _answer_and_end(spec: ExecutionSpec) -> None:
    """The child: never returns."""
    code = 1
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        exit_handler.registered_exit_handlers.clear()  # those are the parent's
        clientapp.run_clientapp(
            spec.runtime_api_address, spec.token, insecure=True, certificates=None, parent_pid=spec.parent_pid,
            runtime_dependency_install=False,
        )  # fmt: skip
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _use_installed_app() -> None:
    """Answer with our own app, whatever the server sent: its archive is neither unpacked nor imported."""
    assert not RUNTIME_DEPENDENCY_INSTALL
    vars(clientapp).update(
        install_from_fab=lambda *_, **__: Path(),
        get_project_dir=lambda *_, **__: Path(),
        get_load_client_app_fn=lambda *_, **__: lambda *_: app,
    )
    vars(superexec).update(get_executor=lambda *_, **__: ForkingExecutor())


def _import_all() -> None:
    """What an answer needs, before the first fork."""
    import panacea.methods  # noqa: PLC0415
    import panacea.models  # noqa: F401, PLC0415


def main(address: str, parent: int) -> None:
    """Serve the SuperNode at an address until it, or the parent process, ends."""
    _import_all()
    _use_installed_app()
    gc.freeze()  # what is imported stays shared between parent and children
    superexec.run_superexec(address, insecure=True, parent_pid=parent)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
