"""What a finished run says: its summary, its table of clients, and the files they go to."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np

from panacea.core.files import write_atomically, write_csv, write_json
from panacea.evaluation.collaboration import collaboration_numbers, collaboration_weights
from panacea.evaluation.evaluate import Evaluation
from panacea.evaluation.metrics import fairness, mean, spread, worst_decile
from panacea.experiment.damage import client_hops, hop_cell
from panacea.experiment.experiment import Experiment
from panacea.experiment.memory import peak_memory
from panacea.experiment.relations import graph_summary
from panacea.experiment.rundir import RunDirectory
from panacea.experiment.views import write_views
from panacea.robustness.measures import detection, trust_auc

__all__ = ["client_columns", "client_table", "method_numbers", "summarised", "write_results"]

CLIENT_COLUMNS = (
    "client", "name", "novel", "malicious", "n_train", "n_val", "n_test", "metric", "loss", "val_metric",
    "final_metric", "degree", "group", "visits", "refused", "trust", "hops",
)  # fmt: skip


def method_numbers(experiment: Experiment) -> dict[str, float]:
    """The method's own numbers for the log, and who mixes with whom."""
    state, federation = experiment.state, experiment.federation
    numbers = experiment.method.diagnostics(state.server, state.clients, federation.train_ids)
    weights = collaboration_weights(experiment.method, state, federation)
    return numbers | collaboration_numbers(weights, federation)


def summarised(experiment: Experiment) -> dict[str, Any]:
    """The content of `summary.json`."""
    config, history, task = experiment.config, experiment.history, experiment.federation.task
    numbers, selected, last = history.numbers, history.selected, history.last
    assert selected is not None
    assert last is not None
    seconds, honest = numbers["train_seconds"], history.honest
    chosen, final = selected.test.metric[honest], last.test.metric[honest]
    values = {
        "method": experiment.method.name,
        "data": config.data.name,
        "partial": experiment.federation.partial,
        "seed": config.seed,
        "rounds": config.rounds,
        "metric": task.metric,
        "mean": mean(chosen),
        "std": spread(chosen),
        "best_mean": numbers["best_mean"],
        "best_round": numbers["best_round"],
        "final_mean": mean(final),
        "final_std": spread(final),
        "novel_mean": mean(selected.novel.metric),
        "novel_std": spread(selected.novel.metric),
        "final_novel_mean": mean(last.novel.metric),
        "novel_uses": experiment.method.newcomer_uses,
        "worst_decile": worst_decile(chosen, task.higher_is_better),
        **fairness(chosen),
        "selected_round": numbers["selected_round"],
        "clients": len(experiment.federation.train_ids),
        "novel_clients": len(experiment.federation.novel_ids),
        "parameters": experiment.target.layout.size,
        "bytes_down": numbers["bytes_down"],
        "bytes_up": numbers["bytes_up"],
        "train_seconds": seconds,
        "rounds_per_second": (config.rounds or 0) / seconds if seconds else None,
        "peak_memory": peak_memory(config.device),
        "engine": config.engine.name,
        "device": config.device,
    }
    undone = method_numbers(experiment).get("undone")
    if undone is not None:
        values["undone"] = undone
    values |= _under_attack(experiment) | _success(selected, last, honest)
    for name, metric in experiment.alternatives.items():
        for who, ids in (("", experiment.federation.train_ids[honest]), ("novel_", experiment.federation.novel_ids)):
            values |= {f"final_{name}_{who}mean": mean(metric[ids]), f"final_{name}_{who}std": spread(metric[ids])}
            if 0 < (tried := int(np.isfinite(metric[ids]).sum())) < len(ids):
                values[f"final_{name}_{who}clients"] = tried
    return {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in values.items()}


def _under_attack(experiment: Experiment) -> dict[str, Any]:
    """What there is to say where clients lie or uploads were refused; `mean` and its like are over honest clients."""
    config, history = experiment.config, experiment.history
    values: dict[str, Any] = {"attack": config.attack.name, "defence": config.defence.name}
    values |= {"refused": int(experiment.refused.sum()), "doubted": int(experiment.doubted.sum())}
    if experiment.attackers is None:
        return values
    assert history.selected is not None
    assert history.last is not None
    metric, final, lying = history.selected.test.metric, history.last.test.metric, ~history.honest
    return values | {
        "attackers": int(experiment.malicious.sum()),
        "all_mean": mean(metric),
        "attackers_mean": mean(metric[lying]),
        "final_all_mean": mean(final),
        "final_attackers_mean": mean(final[lying]),
        **detection(*(int(count.sum()) for count in (experiment.doubted, experiment.lies, experiment.caught))),
        "trust_auc": trust_auc(experiment.trust, experiment.visits, experiment.malicious),
    }


def _success(selected: Evaluation, last: Evaluation, honest: np.ndarray[Any, np.dtype[np.bool_]]) -> dict[str, Any]:
    """A backdoor's success with honest and with novel clients, where the attack is one."""
    values = {}
    for when, evaluation in (("", selected), ("final_", last)):
        if evaluation.asr is not None and evaluation.novel_asr is not None:
            values[f"{when}asr_mean"] = mean(evaluation.asr[honest])
            values[f"{when}asr_novel_mean"] = mean(evaluation.novel_asr)
    return values


def client_columns(experiment: Experiment) -> tuple[str, ...]:
    """The columns of `client_table`: the common ones, and those that only some runs have."""
    return CLIENT_COLUMNS + tuple(_further_columns(experiment))


def _further_columns(experiment: Experiment) -> dict[str, np.ndarray[Any, np.dtype[np.float64]]]:
    """``[clients]`` each: a backdoor's success, and the metric of every alternative."""
    federation, history, columns = experiment.federation, experiment.history, {}
    for name, evaluation in (("asr", history.selected), ("final_asr", history.last)):
        if evaluation is not None and evaluation.asr is not None:
            columns[name] = np.full(len(federation), np.nan)
            columns[name][federation.train_ids] = evaluation.asr
            columns[name][federation.novel_ids] = evaluation.novel_asr
    return columns | {f"final_{name}": metric for name, metric in experiment.alternatives.items()}


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
    counts, hops = [federation.counts(split) for split in ("train", "val", "test")], client_hops(experiment)
    further = _further_columns(experiment).values()
    return [
        (
            i, federation.names[i], int(federation.novel[i]), int(experiment.malicious[i]),
            *(int(c[i]) for c in counts), float(metric[i]), float(loss[i]), float(val[i]), float(final[i]),
            int(degree[i]), None if federation.groups is None else int(federation.groups[i]), int(experiment.visits[i]),
            int(experiment.refused[i]), float(experiment.trust[i]), hop_cell(hops, i),
            *(float(values[i]) for values in further),
        )
        for i in range(clients)
    ]  # fmt: skip


def write_results(experiment: Experiment, directory: RunDirectory, summary: dict[str, Any]) -> None:
    """Write all result files into the run's directory."""
    write_csv(directory.clients, client_columns(experiment), client_table(experiment))
    weights = collaboration_weights(experiment.method, experiment.state, experiment.federation)
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
    write_views(experiment, directory)
    write_json(directory.summary, summary)  # last: its presence says that the run is complete
