"""`panacea export` and `panacea join`: trained models as files."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path

from panacea.cli.progress import say
from panacea.errors import RequestError
from panacea.experiment.exporting import SUFFIXES, Exported, choose_format, write_model
from panacea.experiment.model_card import client_subject, newcomer_subject
from panacea.experiment.modules import client_module, find_client, join
from panacea.experiment.opening import OpenedRun, open_experiment

__all__ = ["export_client", "join_newcomer"]


def export_client(path: Path, client: str, format: str | None, out: Path | None, *, as_json: bool, quiet: bool) -> None:
    """Write the model of one client of a run."""
    chosen = choose_format(format, out)
    started = time.perf_counter()
    opened = open_experiment(path)
    experiment = opened.experiment
    number = find_client(experiment.federation, client)
    if out is None:
        out = Path(f"{opened.directory.path.resolve().name}-client-{number}{SUFFIXES[chosen][0]}")
    written = write_model(
        experiment, client_module(experiment, number), client_subject(experiment, number), out, chosen
    )
    name = experiment.federation.names[number]
    about = {"client": number, "name": name, "novel": bool(experiment.federation.novel[number])}
    what = f"client {number}" + ("" if name == str(number) else f" ({name})")
    _tell(opened, written, what, about, started, (), as_json=as_json, quiet=quiet)


def join_newcomer(
    path: Path,
    neighbours: str | None,
    weights: str | None,
    features: str | None,
    format: str | None,
    out: Path,
    *,
    untrained: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Write a model for a client that is not in the run."""
    chosen = choose_format(format, out)
    wanted = [] if neighbours is None else [part.strip() for part in neighbours.split(",")]
    strengths, side = _numbers(weights, "--weights"), _numbers(features, "--features")
    started = time.perf_counter()
    opened = open_experiment(path)
    experiment = opened.experiment
    joined = join(experiment, wanted, strengths, side, untrained=untrained)
    written = write_model(experiment, joined.module, newcomer_subject(experiment, joined), out, chosen)
    names = [experiment.federation.names[i] for i in joined.neighbours]
    about = {"neighbours": list(joined.neighbours), "neighbour_names": names, "untrained": joined.untrained}
    what = "a newcomer" + (f" with neighbours {', '.join(names)}" if names else "")
    _tell(opened, written, what, about, started, joined.notes, as_json=as_json, quiet=quiet)


def _numbers(text: str | None, option: str) -> list[float] | None:
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise RequestError(f"{option} {text}: needs numbers with commas between them") from None


def _tell(
    opened: OpenedRun,
    written: Exported,
    what: str,
    about: Mapping[str, object],
    started: float,
    notes: tuple[str, ...],
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    seconds = time.perf_counter() - started
    round, size = opened.experiment.state.round, opened.experiment.target.layout.size
    for note in () if quiet else (*opened.notes, *notes):
        say(f"note: {note}")
    if as_json:
        content = {"file": str(written.path), "card": str(written.card), "format": written.format, **about}
        checked = {} if written.difference is None else {"onnx_difference": written.difference}
        print(json.dumps({**content, "round": round, "parameters": size, **checked, "seconds": seconds}))  # noqa: T201
    elif not quiet:
        checked_by = "" if written.difference is None else f", ONNX Runtime differs by {written.difference:.1e}"
        print(  # noqa: T201
            f"written: {written.path} ({written.format}, {what}, round {round}, {size} parameters{checked_by}; "
            f"{seconds:.2f} s)"
        )
