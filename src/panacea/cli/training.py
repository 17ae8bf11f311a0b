"""`panacea run` and `panacea resume`."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

from panacea.cli.progress import ProgressBar, say
from panacea.experiment.config import ExperimentConfig
from panacea.experiment.experiment import Experiment
from panacea.experiment.notes import warnings_as_notes
from panacea.experiment.opening import stored_request
from panacea.experiment.rundir import RunDirectory
from panacea.experiment.runner import run_experiment
from panacea.experiment.table import attack_title, data_title
from panacea.experiment.tracking import require_packages, trackers_of
from panacea.report.run_page import ReportWriter

__all__ = ["build_experiment", "print_summary", "resume_one", "run_one", "train_or_read"]

_NOVEL_USES = {
    "nothing": ", without any training",
    "links": ", without any training, from their links",
    "train split": ", after training on their own train split",
}


def build_experiment(config: ExperimentConfig, quiet: bool) -> Experiment:
    """An experiment, with what there is to say about its network said in our own form."""
    require_packages(config.track)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        experiment = Experiment(config)
    if not quiet:
        for warning in caught:
            say(f"note: {warning.message}")
    return experiment


def run_one(config: ExperimentConfig, *, as_json: bool, quiet: bool, fresh: bool) -> None:
    """Train one experiment, or show it if it is there already."""
    experiment = build_experiment(config, quiet)
    directory = RunDirectory.of(experiment.config, experiment.method.name)
    if fresh and directory.config_file.exists():
        shutil.rmtree(directory.path)
    _finish(experiment, directory, as_json=as_json, quiet=quiet)


def resume_one(path: Path, *, as_json: bool, quiet: bool) -> None:
    """Go on with the run in a directory."""
    directory, config = stored_request(path)
    _finish(build_experiment(config, quiet=True), directory, as_json=as_json, quiet=quiet)


def _finish(experiment: Experiment, directory: RunDirectory, *, as_json: bool, quiet: bool) -> None:
    already = directory.finished
    with ProgressBar(quiet) as progress, warnings_as_notes(progress.on_note):
        summary = train_or_read(experiment, directory, progress)
    print_summary(summary, directory.path, already, as_json=as_json, quiet=quiet)


def print_summary(summary: dict[str, Any], path: Path, already: bool, *, as_json: bool, quiet: bool) -> None:
    """What a run ends with; `already` if it had done so before."""
    if as_json:
        print(json.dumps({**summary, "directory": str(path)}))  # noqa: T201
    elif not quiet:
        if already:
            say("this run was finished before; these are its results (--fresh trains it anew)")
        for line in summary_lines(summary):
            print(line)  # noqa: T201
        print(f"files: {path}")  # noqa: T201


def train_or_read(experiment: Experiment, directory: RunDirectory, progress: ProgressBar) -> dict[str, Any]:
    """Run to the end and write everything; or the summary of a run of this very configuration that is there already."""
    if directory.finished:
        directory.claim(experiment.config)
        return directory.read_summary()
    report = ReportWriter(None if progress.quiet else say)
    return run_experiment(experiment, directory, [progress, report, *trackers_of(experiment.config, progress.on_note)])


def summary_lines(summary: dict[str, Any]) -> list[str]:
    """What a person wants to read after a run."""
    unit = " %" if summary["metric"] == "accuracy" else ""

    def shown(value: float | None) -> str:
        return "-" if value is None else f"{value:.4g}{unit}"

    whose = "honest clients" if summary.get("attackers") else "clients"
    lines = [
        f"{data_title(summary)}, {summary['method']}, seed {summary['seed']}, {summary['rounds']} rounds, "
        f"{summary['clients']} clients, {summary['parameters']} parameters{attack_title(summary)}",
        f"{summary['metric']} {shown(summary['mean'])} ± {shown(summary['std'])} over {whose} "
        f"(round {summary['selected_round']}, chosen on validation data), "
        f"worst decile {shown(summary['worst_decile'])}",
        f"last round {shown(summary['final_mean'])}; best round on test data (optimistic) "
        f"{shown(summary['best_mean'])} at round {summary['best_round']}",
    ]
    if summary.get("attackers"):
        lines.append(f"all clients {shown(summary['all_mean'])}, attackers {shown(summary['attackers_mean'])}")
    if summary.get("refused"):
        lines.append(f"{summary['refused']} uploads were refused; refused.jsonl says whose and why")
    if summary["novel_clients"]:
        lines.append(
            f"{summary['novel_clients']} novel clients {shown(summary['novel_mean'])} ± {shown(summary['novel_std'])}"
            + _NOVEL_USES[summary["novel_uses"]]
        )
    if summary.get("final_local_mean") is not None:
        novel, tried = summary.get("final_local_novel_mean"), summary.get("final_local_clients")
        lines.append(
            f"after a visit's local steps on the client's own data (gen+local, last round"
            f"{f', {tried} clients' if tried else ''}) "
            f"{shown(summary['final_local_mean'])}" + (f", novel {shown(novel)}" if novel is not None else "")
        )
    if summary.get("undone"):
        lines.append(
            f"note: {summary['undone']} of {summary['rounds']} rounds of the server led astray and were undone; "
            "a smaller server_lr may help"
        )
    mib = 2**20
    speed, peak = summary["rounds_per_second"], summary.get("peak_memory")
    lines.append(
        f"sent {summary['bytes_down'] / mib:.2f} MiB down, {summary['bytes_up'] / mib:.2f} MiB up; "
        f"{summary['train_seconds']:.1f} s of training"
        + (f", {speed:.1f} rounds/s" if speed else "")
        + (f"; at most {peak / 1e9:.1f} GB of {'the GPU' if summary['device'] != 'cpu' else 'memory'}" if peak else "")
    )
    return lines
