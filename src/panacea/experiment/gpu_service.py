"""NVIDIA's multi-process service (MPS), for as long as several processes of ours use a GPU.

Without it processes take turns on a GPU, each with a slice of time: four are no faster than one. With it their kernels
run side by side. It comes with the driver as the command `nvidia-cuda-mps-control`, which starts a daemon; programs
find that by the folder that `CUDA_MPS_PIPE_DIRECTORY` names. Ours is private, and ends with this process however that
ends: a shell keeps the daemon, waits for the end of its input, and that input is closed even by ``kill -9``.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["gpu_shared_by_processes"]

_COMMAND = "nvidia-cuda-mps-control"
_PIPES, _LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
_USUAL = Path("/tmp/nvidia-mps/control")  # noqa: S108  (where a daemon is that was started without a folder)
_PATIENCE = 20.0  # seconds for anything the service is asked to do

_KEEPER = f"""
{_COMMAND} -d </dev/null >"${_LOGS}/daemon" 2>&1 && echo ready || exit
read -r _
echo quit | {_COMMAND} >/dev/null 2>&1
rm -rf "${_PIPES}"
"""

_TRIAL = """
import ctypes
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
"""


@contextmanager
def gpu_shared_by_processes() -> Iterator[None]:
    """Processes that are started inside use a GPU side by side.

    Nothing is started where the user has a service, or where there is none to start. One that cannot be used is ended,
    and a warning says so: without it all is as before, only slower.
    """
    if os.environ.get(_PIPES) or _USUAL.exists() or shutil.which(_COMMAND) is None:
        yield
        return
    folder = Path(tempfile.mkdtemp(prefix="panacea-mps-"))
    places = {_PIPES: str(folder), _LOGS: str(folder)}
    everything = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"} | places
    keeper = subprocess.Popen(  # noqa: S603  (it serves all GPUs; which of them is used is up to those that are served)
        ["/bin/sh", "-c", _KEEPER], env=everything, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C at the terminal is for us
    )  # fmt: skip
    try:
        if _ready(keeper) and _usable({**os.environ, **places}):
            os.environ.update(places)
        else:
            _end(keeper)
            warnings.warn(f"{_COMMAND} does not work here; processes take turns on the GPU", stacklevel=3)
        yield
    finally:
        for name, place in places.items():
            if os.environ.get(name) == place:
                del os.environ[name]
        _end(keeper)
        shutil.rmtree(folder, ignore_errors=True)


def _ready(keeper: subprocess.Popen[bytes]) -> bool:
    """Whether the daemon was started."""
    assert keeper.stdout is not None
    heard, _, _ = select.select([keeper.stdout], [], [], _PATIENCE)
    return bool(heard) and keeper.stdout.readline() == b"ready\n"


def _usable(environment: dict[str, str]) -> bool:
    """Whether a process can use the GPU by the service: in a container, say, it may start and then serve nobody."""
    try:
        trial = subprocess.run(  # noqa: S603
            [sys.executable, "-I", "-S", "-c", _TRIAL], env=environment, timeout=_PATIENCE, check=False,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return False
    return trial.returncode == 0


def _end(keeper: subprocess.Popen[bytes]) -> None:
    """Let the service end, and the one that keeps it; nothing is left to do the second time."""
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    with suppress(OSError):
        keeper.stdin.close()
    try:
        keeper.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(keeper.pid, signal.SIGKILL)  # and what it waits for
        keeper.wait()
    keeper.stdout.close()
