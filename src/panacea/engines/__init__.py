"""How clients run: engines behind one interface, with the same numbers."""

from __future__ import annotations

import torch

from panacea.core.random import Streams
from panacea.data.federation import Federation
from panacea.engines.base import Engine, LocalSettings, Samples, Scores
from panacea.engines.compiling import compile_kernel
from panacea.engines.forward import prepare_for_loop
from panacea.engines.precision import Precision
from panacea.engines.ray_engine import RayEngine
from panacea.engines.ray_pool import Cluster
from panacea.engines.ray_session import require_ray
from panacea.engines.ray_worker import Programme
from panacea.engines.sequential import SequentialEngine
from panacea.engines.sizing import default_block, server_device
from panacea.engines.vectorised import VectorisedEngine
from panacea.errors import RequestError, unknown
from panacea.models.target import TargetModel

__all__ = ["ENGINES", "Cluster", "Engine", "LocalSettings", "Scores", "default_block", "make_engine", "server_device"]

ENGINES = ("vectorised", "sequential", "ray")


def make_engine(
    name: str,
    target: TargetModel,
    federation: Federation,
    streams: Streams,
    local: LocalSettings,
    *,
    block: int,
    device: torch.device | None = None,
    forward: str = "auto",
    traced: bool = False,
    captured: bool = True,
    precision: str = "float32",
    server: torch.device | None = None,
    deterministic: bool = False,
    compiled: bool = False,
    cluster: Cluster | None = None,
) -> Engine:
    """An engine by name, with the federation's samples on its device.

    Args:
        name: `vectorised`, `sequential` or `ray`.
        target: the network; it is moved to the device.
        federation: the clients' samples.
        streams: the experiment's random streams.
        local: local training.
        block: most rows in one call (vectorised).
        device: where to run, CPU by default.
        forward: `auto`, or force `batched`, `vmap` or `loop` (vectorised).
        traced: record the gradient once and replay it (vectorised); pays off after some hundred steps.
        captured: on a GPU, local steps as captured graphs (vectorised).
        precision: of matrix products, see `panacea.engines.precision` (vectorised).
        server: where the server works, the device by default (vectorised).
        deterministic: see `panacea.engines.precision` (vectorised).
        compiled: the gradient as compiled code, see `panacea.engines.compiling` (vectorised, on a CPU).
        cluster: where its workers are (ray).
    """
    device = device or torch.device("cpu")
    target.to(device)
    samples = Samples(federation, streams, device, target.initial.dtype)
    if precision == "bf16" and target.initial.dtype != torch.float32:
        raise RequestError("engine.precision=bf16 computes in float32; use dtype=float32")
    if name == "vectorised":
        exactly = Precision(precision, device, deterministic)
        engine = VectorisedEngine(target, samples, local, block, forward, traced, captured, exactly, server)
        if compiled:
            compile_kernel(engine)
        return engine
    if name == "ray":
        require_ray("engine=ray")
        programme = Programme(
            target, local, block, forward, traced, precision, deterministic, compiled,
            threads=1 if cluster is None else cluster.threads,
        )  # fmt: skip
        return RayEngine(programme, samples, cluster or Cluster())
    if name == "sequential":
        if compiled:
            raise RequestError("engine.compile=true needs engine=vectorised; the sequential engine is the reference")
        if precision != "float32":
            raise RequestError(f"engine.precision={precision}: the sequential engine is the exact reference")
        prepare_for_loop(target)
        return SequentialEngine(target, samples, local)
    raise unknown("engine", name, ENGINES)
