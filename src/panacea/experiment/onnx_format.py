"""A network as an ONNX file, compared with the network itself right away."""

from __future__ import annotations

import importlib.util
import logging
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from panacea.errors import RequestError, RunFailure

__all__ = ["INPUT", "onnx_bytes"]

INPUT, _OUTPUT = "input", "output"
_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
_TOLERANCE = 1e-4


def onnx_bytes(module: nn.Module, shape: tuple[int, ...], metadata: Mapping[str, str]) -> tuple[bytes, float]:
    """The file's content, and the largest difference between ONNX Runtime and torch on random inputs.

    The batch axis is free. The difference is relative to the largest output where that is above 1.

    Args:
        module: in evaluation mode, on the CPU.
        shape: of one sample's input.
        metadata: stored in the file.

    Raises:
        RequestError: the packages are missing, or the network cannot be expressed.
        RunFailure: the file computes something else than the network.
    """
    missing = [package for package in _PACKAGES if importlib.util.find_spec(package) is None]
    if missing:
        raise RequestError(f"format onnx needs {', '.join(missing)}: pip install 'panacea-fl[onnx]'")
    dtype = next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)
    try:
        content = _exported(module, torch.zeros((2, *shape), dtype=dtype), metadata)
    except Exception as error:  # whatever the exporter cannot do with a user's network
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise RequestError(
            f"the network {type(module).__name__} cannot be written as ONNX ({reason}); use safetensors or torch"
        ) from error
    difference = _difference(content, module, shape, dtype)
    if not difference <= _TOLERANCE:
        raise RunFailure(
            f"the ONNX file of {type(module).__name__} differs from the network by {difference:.1e} (allowed "
            f"{_TOLERANCE:.0e}); use safetensors or torch"
        )
    return content, difference


def _exported(module: nn.Module, example: Tensor, metadata: Mapping[str, str]) -> bytes:
    from onnx.helper import set_model_props  # noqa: PLC0415  (optional)

    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)  # it complains about packages nobody needs here
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program: Any = torch.onnx.export(
                module,
                (example,),
                dynamo=True,
                verbose=False,
                input_names=[INPUT],
                output_names=[_OUTPUT],
                dynamic_shapes=({0: torch.export.Dim("batch")},),
            )
    finally:
        logger.setLevel(level)
    proto = program.model_proto
    _forget_sources(proto)
    set_model_props(proto, dict(metadata))
    content: bytes = proto.SerializeToString()
    return content


def _forget_sources(proto: Any) -> None:
    """Remove the exporter's notes: they hold paths and source lines of the machine it ran on."""
    graphs = [proto.graph, *proto.functions]
    for graph in graphs:
        del graph.metadata_props[:]
        for parts in (graph.node, graph.value_info, getattr(graph, "initializer", ()), graph.input, graph.output):
            for part in parts:
                if hasattr(part, "metadata_props"):
                    del part.metadata_props[:]
                if hasattr(part, "doc_string"):
                    part.doc_string = ""


def _difference(content: bytes, module: nn.Module, shape: tuple[int, ...], dtype: torch.dtype) -> float:
    import onnxruntime  # noqa: PLC0415  (optional)

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    generator = torch.Generator().manual_seed(0)
    worst = 0.0
    for rows in (1, 5):  # neither is the number it was recorded with
        x = torch.randn((rows, *shape), generator=generator, dtype=dtype)
        with torch.no_grad():
            expected = module(x)
        found = torch.from_numpy(session.run(None, {INPUT: x.numpy()})[0])
        if found.shape != expected.shape:
            return float("inf")
        scale = max(1.0, float(expected.abs().max()))
        worst = max(worst, float((found - expected).abs().max()) / scale)
    return worst
