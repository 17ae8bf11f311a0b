"""What an experiment is made of in a few characters, so that runs on different data never share a directory."""

from __future__ import annotations

import hashlib

import numpy as np

from panacea.data.federation import Federation
from panacea.data.storage import contents
from panacea.models.target import TargetModel

__all__ = ["federation_digest", "model_digest"]


def federation_digest(federation: Federation) -> str:
    """A federation's content in a few characters, so that runs on different data never share a directory."""
    if federation.remote:  # who takes part; how many samples they have is told by themselves
        return federation.fingerprint
    content = hashlib.sha256(federation.bounds.tobytes())
    if federation.fingerprint:  # the loader knows which images these are; which of them comes when is in `rows`
        content.update(federation.fingerprint.encode())
    else:
        content.update(contents(federation.x).numpy().data)
    if federation.rows is not None:
        content.update(federation.rows.numpy().tobytes())
    content.update(contents(federation.y).numpy().data)
    content.update(federation.novel.tobytes())
    graph = federation.graph
    if graph is not None:
        content.update(graph.edges.tobytes() + graph.weights.tobytes() + bytes([graph.directed]))
    if federation.features is not None:  # a method may be given them (h0=features)
        content.update(b"features" + np.ascontiguousarray(federation.features).tobytes())
    if federation.groups is not None:  # likewise (source=oracle)
        content.update(b"groups" + np.ascontiguousarray(federation.groups).tobytes())
    return f"sha256-{content.hexdigest()[:12]}"


def model_digest(target: TargetModel) -> str:
    """A network's layout and initial weights in a few characters."""
    content = hashlib.sha256(repr((target.layout, target.statistics_layout)).encode())
    for vector in (target.initial, target.statistics):
        content.update(vector.cpu().numpy().tobytes())
    return f"sha256-{content.hexdigest()[:12]}"
