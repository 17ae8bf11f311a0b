"""The loop over rounds, and what happens between them: evaluation, logs, checkpoints, interruption."""

from __future__ import annotations

import io
import math
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch

from panacea.core.files import append_line, write_atomically, write_csv, write_json
from panacea.core.round import Report, run_round
from panacea.errors import RequestError, RunFailure
from panacea.evaluation.collaboration import collaboration_numbers, collaboration_weights
from panacea.evaluation.evaluate import Evaluation, evaluate_alternatives, evaluate_clients
from panacea.evaluation.metrics import mean, spread, worst_decile
from panacea.experiment.checkpoint import Checkpoint
from panacea.experiment.experiment import Experiment
from panacea.experiment.interrupt import Interrupted, Interrupter
from panacea.experiment.modules import observed
from panacea.experiment.relations import graph_summary
from panacea.experiment.rundir import RunDirectory

__all__ = ["Callback", "client_columns", "client_table", "run_experiment"]

CLIENT_COLUMNS = (
    "client", "name", "novel", "malicious", "n_train", "n_val", "n_test", "metric", "loss", "val_metric",
    "final_metric", "degree", "group", "visits",
)  # fmt: skip


class Callback:
    """Called around a run; override what is needed."""

    def on_start(self, experiment: Experiment, directory: RunDirectory | None) -> None:
        """Before the first round (or the first after a resume)."""

    def on_round(self, experiment: Experiment, report: Report) -> None:
        """After every round."""

    def on_evaluation(self, experiment: Experiment, line: dict[str, Any]) -> None:
        """After every evaluation, with its line of `metrics.jsonl`."""

    def on_end(self, experiment: Experiment, summary: dict[str, Any]) -> None:
        """After the last round, when everything is written."""

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
            callback.on_start(experiment, directory)
            for note in experiment.federation.notes:
                callback.on_note(note)
        with Interrupter() as interrupter:
            while experiment.state.round < (config.rounds or 0):
                _one_round(experiment, directory, callbacks)
                if interrupter.requested and experiment.state.round < (config.rounds or 0):
                    if directory is not None and experiment.state.round % config.checkpoint_every:
                        _save(experiment, directory)  # otherwise it was saved just now
                    where = "" if directory is None else f"; go on with: panacea resume {directory.path}"
                    raise Interrupted(f"interrupted after round {experiment.state.round}{where}")
        experiment.alternatives = evaluate_alternatives(
            experiment.method, experiment.state, experiment.engine, experiment.federation
        )
        summary = _summary(experiment)
        if directory is not None:
            _write_results(experiment, directory, summary)
        for callback in callbacks:
            callback.on_end(experiment, summary)
        return summary


def _one_round(experiment: Experiment, directory: RunDirectory | None, callbacks: Sequence[Callback]) -> None:
    config, numbers = experiment.config, experiment.history.numbers
    round = experiment.state.round + 1
    started = time.perf_counter()
    cohort = experiment.cohort(round)
    experiment.state, report = run_round(experiment.method, experiment.state, cohort, experiment.engine)
    trained = time.perf_counter()
    if not math.isfinite(report.loss):
        raise RunFailure(
            f"training diverged in round {round}: the training loss is {report.loss}; "
            f"a smaller lr (now {config.lr}) or clip=10 may help"
        )
    experiment.visits[cohort.ids] += 1
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


def _evaluate(
    experiment: Experiment, report: Report, directory: RunDirectory | None, callbacks: Sequence[Callback]
) -> None:
    state, method, history = experiment.state, experiment.method, experiment.history
    evaluation = evaluate_clients(method, state, experiment.engine, experiment.federation)
    _refuse_divergence(experiment, evaluation)
    line = history.add(state.round, evaluation)
    line |= {
        "train_loss": report.loss,
        "bytes_down": history.numbers["bytes_down"],
        "bytes_up": history.numbers["bytes_up"],
    }
    line |= _method_numbers(experiment) | observed(experiment)
    if directory is not None:
        append_line(directory.metrics, line)
    for callback in callbacks:
        callback.on_evaluation(experiment, line)


def _method_numbers(experiment: Experiment) -> dict[str, float]:
    """The method's own numbers for the log, and who mixes with whom."""
    state, federation = experiment.state, experiment.federation
    numbers = experiment.method.diagnostics(state.server, state.clients, federation.train_ids)
    weights = collaboration_weights(experiment.method, state, experiment.target, federation)
    return numbers | collaboration_numbers(weights, federation)


def _refuse_divergence(experiment: Experiment, evaluation: Evaluation) -> None:
    """A client with samples must have a finite loss: a model gone to NaN is no result, and no missing value either."""
    federation = experiment.federation
    counts = federation.counts("test")
    for ids, scores in ((federation.train_ids, evaluation.test), (federation.novel_ids, evaluation.novel)):
        bad = ids[(counts[ids] > 0) & ~np.isfinite(scores.loss)]
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
        return
    experiment.restore(checkpoint)
    directory.checkpoints.forget_after(checkpoint.round)
    directory.rewind_metrics(checkpoint.info["metrics"])
    directory.rewind_timings(checkpoint.round)


def _summary(experiment: Experiment) -> dict[str, Any]:
    config, history, task = experiment.config, experiment.history, experiment.federation.task
    numbers, selected, last = history.numbers, history.selected, history.last
    assert selected is not None
    assert last is not None
    seconds = numbers["train_seconds"]
    values = {
        "method": experiment.method.name,
        "data": config.data.name,
        "partial": experiment.federation.partial,
        "seed": config.seed,
        "rounds": config.rounds,
        "metric": task.metric,
        "mean": mean(selected.test.metric),
        "std": spread(selected.test.metric),
        "best_mean": numbers["best_mean"],
        "best_round": numbers["best_round"],
        "final_mean": mean(last.test.metric),
        "final_std": spread(last.test.metric),
        "novel_mean": mean(selected.novel.metric),
        "novel_std": spread(selected.novel.metric),
        "final_novel_mean": mean(last.novel.metric),
        "novel_uses": experiment.method.newcomer_uses,
        "worst_decile": worst_decile(selected.test.metric, task.higher_is_better),
        "selected_round": numbers["selected_round"],
        "clients": len(experiment.federation.train_ids),
        "novel_clients": len(experiment.federation.novel_ids),
        "parameters": experiment.target.layout.size,
        "bytes_down": numbers["bytes_down"],
        "bytes_up": numbers["bytes_up"],
        "train_seconds": seconds,
        "rounds_per_second": (config.rounds or 0) / seconds if seconds else None,
        "engine": config.engine,
        "device": config.device,
    }
    undone = _method_numbers(experiment).get("undone")
    if undone is not None:
        values["undone"] = undone
    for name, metric in experiment.alternatives.items():
        for who, ids in (("", experiment.federation.train_ids), ("novel_", experiment.federation.novel_ids)):
            values |= {f"final_{name}_{who}mean": mean(metric[ids]), f"final_{name}_{who}std": spread(metric[ids])}
    return {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in values.items()}


def client_columns(experiment: Experiment) -> tuple[str, ...]:
    """The columns of `client_table`: the common ones, and one for each of the method's alternatives."""
    return CLIENT_COLUMNS + tuple(f"final_{name}" for name in experiment.alternatives)


def client_table(experiment: Experiment) -> list[tuple[Any, ...]]:
    """A row per client, in the order of `client_columns`; metric and loss at the selected round."""
    federation, history = experiment.federation, experiment.history
    clients = len(federation)

    def column(evaluation: Evaluation | None, split: str, kind: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        out = np.full(clients, np.nan)
        if evaluation is not None:
            if split != "novel":
                out[federation.train_ids] = getattr(getattr(evaluation, split), kind)
            if split != "val":
                out[federation.novel_ids] = getattr(evaluation.novel, kind)
        return out

    metric, loss = (column(history.selected, "test", kind) for kind in ("metric", "loss"))
    val = column(history.selected, "val", "metric")
    final = column(history.last, "test", "metric")
    degree = np.zeros(clients, np.int64) if federation.graph is None else federation.graph.degree
    counts = [federation.counts(split) for split in ("train", "val", "test")]
    return [
        (
            i, federation.names[i], int(federation.novel[i]), 0, *(int(c[i]) for c in counts), float(metric[i]),
            float(loss[i]), float(val[i]), float(final[i]), int(degree[i]),
            None if federation.groups is None else int(federation.groups[i]), int(experiment.visits[i]),
            *(float(metric[i]) for metric in experiment.alternatives.values()),
        )
        for i in range(clients)
    ]  # fmt: skip


def _write_results(experiment: Experiment, directory: RunDirectory, summary: dict[str, Any]) -> None:
    write_csv(directory.clients, client_columns(experiment), client_table(experiment))
    weights = collaboration_weights(experiment.method, experiment.state, experiment.target, experiment.federation)
    if weights is not None:
        content = io.BytesIO()
        np.savez_compressed(content, clients=experiment.federation.train_ids, weights=weights)
        write_atomically(directory.collaboration, content.getvalue())
    numbers = graph_summary(experiment.federation)
    if experiment.federation.graph is not None and numbers is not None:
        content = io.BytesIO()
        experiment.federation.graph.save(content)
        write_atomically(directory.graph, content.getvalue())
        write_json(directory.graph_summary, numbers.to_dict())
    write_json(directory.summary, summary)  # last: its presence says that the run is complete
