"""A run's directory: who may write into it, and the files it holds."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import yaml

from panacea.core.files import json_line, read_lines, write_atomically
from panacea.errors import RequestError
from panacea.experiment.checkpoint import CheckpointStore
from panacea.experiment.config import ExperimentConfig, Section, build_config, identity
from panacea.experiment.keys import flatten

__all__ = ["RunBusy", "RunDirectory", "commit", "environment", "nested"]

_PACKAGES = ("panacea-fl", "torch", "numpy", "safetensors", "pydantic")


class RunBusy(RequestError):  # noqa: N818
    """Another process is training the run right now."""


def nested(config: ExperimentConfig) -> dict[str, Any]:
    """A configuration in the form `panacea run FILE.yaml` reads."""
    content = config.model_dump(mode="json")
    for name, value in content.items():
        if isinstance(getattr(config, name), Section):
            content[name] = {"name": value["name"], **value["keys"]}
    return content


class RunDirectory:
    """``<out>/<data>-<method>-s<seed>-<identity>`` and what lies in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.yaml"
        self.metrics = path / "metrics.jsonl"
        self.timings = path / "timings.jsonl"
        self.refused = path / "refused.jsonl"
        self.federation = path / "federation.json"
        self.clients = path / "clients.csv"
        self.summary = path / "summary.json"
        self.graph = path / "graph.npz"
        self.graph_summary = path / "graph.json"
        self.collaboration = path / "collaboration.npz"
        self.views = path / "views.npz"
        self.report = path / "report.html"
        self.figures = path / "figures"
        self.checkpoints = CheckpointStore(path / "checkpoint")

    @classmethod
    def of(cls, config: ExperimentConfig, method_name: str) -> RunDirectory:
        """The directory that belongs to a configuration."""
        name = f"{config.data.name}-{method_name}-s{config.seed}-{identity(config)}"
        return cls(config.out / name)

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return self.summary.exists()

    def claim(self, config: ExperimentConfig) -> None:
        """Make the directory, or check that what is there is this very configuration.

        Raises:
            RequestError: it belongs to another configuration, to something else, or cannot be made.
        """
        if self.path.exists():
            if not self.path.is_dir():
                raise RequestError(f"out: {self.path} exists and is not a directory")
            if self.config_file.exists():
                found = identity(self.read_config())
                if found != identity(config):
                    raise RequestError(
                        f"out: {self.path} belongs to another configuration ({found}, this is {identity(config)}); "
                        "choose another out, or delete it"
                    )
                return
            for part in self.path.glob(".*.part"):  # a kill while the directory was being made
                part.unlink()
            if any(self.path.iterdir()):
                raise RequestError(f"out: {self.path} exists, is not empty and is not a run; choose another out")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            content = {**nested(config), "environment": environment(config.device)}
            write_atomically(self.config_file, yaml.safe_dump(content, sort_keys=False, allow_unicode=True))
        except OSError as error:
            raise RequestError(f"out={config.out}: cannot write there ({error.strerror})") from error

    def read_config(self) -> ExperimentConfig:
        """The configuration stored here."""
        try:
            content = yaml.safe_load(self.config_file.read_text(encoding="utf-8"))
            content.pop("environment", None)
        except FileNotFoundError as error:
            raise RequestError(f"{self.path} is not a run directory (no config.yaml)") from error
        except (OSError, UnicodeDecodeError, yaml.YAMLError, AttributeError) as error:
            raise RequestError(f"{self.config_file} cannot be read as a configuration") from error
        return build_config(flatten(content))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else may train here meanwhile; the kernel releases the lock even after a kill."""
        handle = os.open(self.path, os.O_RDONLY)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise RunBusy(f"{self.path}: another process is training this run right now") from error
            yield
        finally:
            os.close(handle)

    # --- metrics.jsonl and its place in checkpoints ------------------------------------------------------------

    def metrics_mark(self) -> dict[str, Any]:
        """Length and checksum of the metrics so far, after making them durable."""
        if not self.metrics.exists():
            return {"bytes": 0, "sha256": hashlib.sha256(b"").hexdigest()}
        with self.metrics.open("rb") as file:
            os.fsync(file.fileno())
            data = file.read()
        return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    def rewind_metrics(self, mark: dict[str, Any]) -> None:
        """Cut the metrics back to where a checkpoint left them."""
        data = self.metrics.read_bytes() if self.metrics.exists() else b""
        kept = data[: mark["bytes"]]
        if hashlib.sha256(kept).hexdigest() != mark["sha256"]:
            raise RequestError(
                f"{self.metrics} was changed since the checkpoint was made; the run cannot go on from it"
            )
        if kept != data or not self.metrics.exists():
            write_atomically(self.metrics, kept)

    def rewind_logs(self, round: int) -> None:
        """Drop what the logs say of rounds that will be run again."""
        for log in (self.timings, self.refused):
            if log.exists():
                write_atomically(log, "".join(json_line(line) for line in read_lines(log, round)))

    def read_summary(self) -> dict[str, Any]:
        """The summary of a finished run."""
        try:
            summary: dict[str, Any] = json.loads(self.summary.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, ValueError) as error:
            raise RequestError(
                f"{self.summary} cannot be read; delete it and `panacea resume` writes it anew"
            ) from error
        return summary


def environment(device: str = "cpu") -> dict[str, Any]:
    """What the result may depend on besides the configuration; recorded, never read back."""
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "packages": versions,
        "commit": commit(),
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "accelerator": _accelerator() if device == "cuda" else None,
    }


def commit() -> str | None:
    """The commit of this package's checkout, if it is one."""
    here = Path(__file__).resolve().parent
    command = ["git", "-C", str(here), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or sys.platform


def _accelerator() -> str:
    import torch  # noqa: PLC0415

    return torch.cuda.get_device_name()
