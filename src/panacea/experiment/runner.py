"""The loop over rounds, and what happens between them: evaluation, logs, checkpoints, interruption."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import torch

from panacea.core.files import append_line
from panacea.core.round import Report, run_round
from panacea.core.screening import NOT_FINITE, TOO_LARGE
from panacea.engines.ray_engine import RayEngine
from panacea.errors import RequestError, RunFailure
from panacea.evaluation.evaluate import Evaluation, evaluate_alternatives, evaluate_clients
from panacea.experiment.checkpoint import Checkpoint
from panacea.experiment.experiment import Experiment
from panacea.experiment.interrupt import Interrupted, Interrupter
from panacea.experiment.modules import observed
from panacea.experiment.results import method_numbers, summarised, write_results
from panacea.experiment.rundir import RunDirectory
from panacea.robustness.measures import DOUBTED

__all__ = ["Callback", "run_experiment"]


class Callback:
    """Called around a run; override what is needed.

    Attributes:
        stopping: set it to end the run after the round at hand as Ctrl-C does: saved, `Interrupted` raised.
    """

    stopping: bool = False

    def on_start(self, experiment: Experiment, directory: RunDirectory | None) -> None:
        """Before the first round (or the first after a resume)."""

    def on_round(self, experiment: Experiment, report: Report) -> None:
        """After every round."""

    def on_evaluation(self, experiment: Experiment, line: dict[str, Any]) -> None:
        """After every evaluation, with its line of `metrics.jsonl`."""

    def on_end(self, experiment: Experiment, summary: dict[str, Any]) -> None:
        """After the last round, when everything is written."""

    def on_close(self) -> None:
        """Last of all, also where the run failed or was interrupted after `on_start`."""

    def on_note(self, note: str) -> None:
        """Something a user should know."""


def run_experiment(
    experiment: Experiment, directory: RunDirectory | None = None, callbacks: Sequence[Callback] = ()
) -> dict[str, Any]:
    """Run (or go on) to the last round; returns the summary.

    With a directory, its whole directory is written (see `RunDirectory`), and a run that was stopped goes on from its
    newest undamaged checkpoint. Without one, nothing touches the disk.

    Raises:
        Interrupted: a signal asked to stop; the state was saved first.
        RunFailure: training diverged, or a checkpoint could not be written.
    """
    config = experiment.config
    threads = torch.get_num_threads()
    torch.set_num_threads(config.threads)
    with ExitStack() as stack:
        stack.callback(torch.set_num_threads, threads)
        if directory is not None:
            directory.claim(config)
            stack.enter_context(directory.locked())
            _go_back(experiment, directory, callbacks)
        for callback in callbacks:
            stack.callback(callback.on_close)
            callback.on_start(experiment, directory)
            for note in experiment.federation.notes:
                callback.on_note(note)
        if isinstance(experiment.engine, RayEngine):
            experiment.engine.note = partial(_tell, callbacks)
            stack.callback(experiment.engine.close)
        with Interrupter() as interrupter:
            while experiment.state.round < (config.rounds or 0):
                _one_round(experiment, directory, callbacks)
                stopping = interrupter.requested or any(callback.stopping for callback in callbacks)
                if stopping and experiment.state.round < (config.rounds or 0):
                    if directory is not None and experiment.state.round % config.checkpoint_every:
                        _save(experiment, directory)  # otherwise it was saved just now
                    where = "" if directory is None else f"; go on with: panacea resume {directory.path}"
                    raise Interrupted(f"interrupted after round {experiment.state.round}{where}")
        _poison(experiment, experiment.state.round)  # a run that was complete has not done so yet
        experiment.alternatives = evaluate_alternatives(
            experiment.method, experiment.state, experiment.engine, experiment.federation,
            experiment.defence.alternatives, experiment.triggered,
        )  # fmt: skip
        summary = summarised(experiment)
        if directory is not None:
            write_results(experiment, directory, summary)
        for callback in callbacks:
            callback.on_end(experiment, summary)
        return summary


def _tell(callbacks: Sequence[Callback], note: str) -> None:
    for callback in callbacks:
        callback.on_note(note)


def _one_round(experiment: Experiment, directory: RunDirectory | None, callbacks: Sequence[Callback]) -> None:
    config, numbers = experiment.config, experiment.history.numbers
    round = experiment.state.round + 1
    started = time.perf_counter()
    cohort = experiment.cohort(round)
    _poison(experiment, round)
    experiment.state, report = run_round(
        experiment.method, experiment.state, cohort, experiment.engine, experiment.attackers, experiment.defence
    )
    trained = time.perf_counter()
    if not math.isfinite(report.loss):
        raise RunFailure(
            f"training diverged in round {round}: the training loss is {report.loss}; "
            f"a smaller lr (now {config.lr}) or clip=10 may help"
        )
    honest = cohort.ids[~experiment.malicious[cohort.ids]]
    if len(honest) and all(report.refused.get(int(client)) in (NOT_FINITE, TOO_LARGE) for client in honest):
        raise RunFailure(
            f"training diverged in round {round}: no honest client sent a usable model; "
            f"a smaller lr (now {config.lr}) or clip=10 may help"
        )
    experiment.visits[np.setdiff1d(cohort.ids, report.absent)] += 1
    experiment.trust[cohort.ids] = report.trust
    doubted = np.array(report.trust) < DOUBTED
    experiment.doubted[cohort.ids] += doubted
    if experiment.attackers is not None:
        lying = experiment.attackers.lies(cohort)
        experiment.lies[cohort.ids] += lying
        experiment.caught[cohort.ids] += lying & doubted
    _note_refused(experiment, report, directory)
    numbers["bytes_down"] += report.bytes_down
    numbers["bytes_up"] += report.bytes_up
    numbers["train_seconds"] += trained - started
    for callback in callbacks:
        callback.on_round(experiment, report)
    timing = {"round": round, "train": trained - started}
    last = round == config.rounds
    if round % config.eval_every == 0 or last:
        _evaluate(experiment, report, directory, callbacks)
        timing["evaluate"] = time.perf_counter() - trained
    if directory is not None:
        if round % config.checkpoint_every == 0 or last:
            before = time.perf_counter()
            _save(experiment, directory)
            timing["checkpoint"] = time.perf_counter() - before
        append_line(directory.timings, timing)


def _poison(experiment: Experiment, round: int) -> None:
    if experiment.attackers is not None:
        experiment.attackers.poison(experiment.engine.samples, round)


def _note_refused(experiment: Experiment, report: Report, directory: RunDirectory | None) -> None:
    """Who sent what could not be used, and why: counted for the metrics, and a line each in `refused.jsonl`."""
    for client, reason in report.refused.items():
        experiment.refused[client] += 1
        if directory is not None:
            name = experiment.federation.names[client]
            line = {"round": experiment.state.round, "client": client, "name": name, "reason": reason}
            append_line(directory.refused, line)


def _evaluate(
    experiment: Experiment, report: Report, directory: RunDirectory | None, callbacks: Sequence[Callback]
) -> None:
    state, method, history = experiment.state, experiment.method, experiment.history
    evaluation = evaluate_clients(method, state, experiment.engine, experiment.federation, experiment.triggered)
    _refuse_divergence(experiment, evaluation)
    line = history.add(state.round, evaluation)
    experiment.snapshots.take(experiment)
    line |= {
        "train_loss": report.loss,
        "bytes_down": history.numbers["bytes_down"],
        "bytes_up": history.numbers["bytes_up"],
    }
    line |= method_numbers(experiment) | observed(experiment) | {"refused": int(experiment.refused.sum())}
    line |= {"trust": float(np.mean(report.trust)), "doubted": int(experiment.doubted.sum())}
    if directory is not None:
        append_line(directory.metrics, line)
    for callback in callbacks:
        callback.on_evaluation(experiment, line)


def _refuse_divergence(experiment: Experiment, evaluation: Evaluation) -> None:
    """A client with samples must have a finite loss: a model gone to NaN is no result, and no missing value either."""
    federation = experiment.federation
    if federation.remote:  # a client says what it likes, or nothing: that ends no run
        return
    counts = federation.counts("test")
    for ids, scores in ((federation.train_ids, evaluation.test), (federation.novel_ids, evaluation.novel)):
        bad = ids[(counts[ids] > 0) & ~np.isfinite(scores.loss) & ~experiment.malicious[ids]]
        if len(bad):
            name = federation.names[bad[0]]
            raise RunFailure(
                f"training diverged by round {experiment.state.round}: client '{name}' has no finite test loss; "
                f"a smaller lr (now {experiment.config.lr}) or clip=10 may help"
            )


def _save(experiment: Experiment, directory: RunDirectory | None) -> None:
    if directory is None:
        return
    checkpoint = experiment.to_checkpoint()
    info = {**checkpoint.info, "metrics": directory.metrics_mark()}
    directory.checkpoints.save(Checkpoint(checkpoint.round, checkpoint.tensors, info))


def _go_back(experiment: Experiment, directory: RunDirectory, callbacks: Sequence[Callback]) -> None:
    """Continue from the newest undamaged checkpoint, or from the start if the run never made one."""
    checkpoint, damaged = directory.checkpoints.load()
    if damaged and checkpoint is None:
        raise RequestError(f"{damaged[0]} and there is no earlier one; delete {directory.path} to start anew")
    notes = damaged
    if damaged and checkpoint is not None:
        notes = [*damaged, f"going on from the checkpoint of round {checkpoint.round} instead"]
    if checkpoint is None and directory.finished:
        raise RequestError(
            f"{directory.path} holds results but no checkpoint; delete it (or use --fresh) to train it anew"
        )
    if checkpoint is None and directory.metrics.exists():
        notes = ["this run was stopped before its first checkpoint; it begins anew"]
    for callback in callbacks:
        for note in notes:
            callback.on_note(note)
    if checkpoint is None:
        directory.metrics.unlink(missing_ok=True)
        directory.timings.unlink(missing_ok=True)
        directory.refused.unlink(missing_ok=True)
        return
    experiment.restore(checkpoint)
    directory.checkpoints.forget_after(checkpoint.round)
    directory.rewind_metrics(checkpoint.info["metrics"])
    directory.rewind_logs(checkpoint.round)
