"""What there is to say about an exported model: whose it is, how good it was, how to load it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from panacea import __version__
from panacea.core.method import Method
from panacea.evaluation.metrics import mean, spread
from panacea.experiment.experiment import Experiment
from panacea.experiment.modules import Joined
from panacea.experiment.onnx_format import INPUT
from panacea.experiment.rundir import RunDirectory

__all__ = ["Subject", "card", "client_subject", "metadata", "newcomer_subject"]


@dataclass(frozen=True)
class Subject:
    """Whose model it is, and sentences about it."""

    name: str
    sentences: tuple[str, ...]


def client_subject(experiment: Experiment, client: int) -> Subject:
    """A client of the run, with its scores at the last evaluated round."""
    federation, last = experiment.federation, experiment.history.last
    name = f"client {federation.names[client]} (number {client})"
    novel = bool(federation.novel[client])
    sentences = []
    if novel:
        sentences.append(f"The client was held out of training; {_USES[experiment.method.newcomer_uses]}.")
    if last is not None:
        ids, scores = (federation.novel_ids, last.novel) if novel else (federation.train_ids, last.test)
        place = int(np.searchsorted(ids, client))
        samples = int(federation.counts("test")[client])
        if samples:
            sentences.append(
                f"On the client's own {samples} test samples: {_metric(experiment, scores.metric[place])}, "
                f"loss {scores.loss[place]:.4g} ({_when(experiment)})."
            )
        else:
            sentences.append("The client has no test samples, so it was not scored.")
    return Subject(name, tuple(sentences))


def newcomer_subject(experiment: Experiment, joined: Joined) -> Subject:
    """A newcomer, with what the run's held-out clients let expect."""
    names = experiment.federation.names
    uses, last = experiment.method.newcomer_uses, experiment.history.last
    sentences = ["Made without training and without any data of the newcomer."]
    if joined.neighbours:
        links = ", ".join(f"{names[i]} (number {i})" for i in joined.neighbours)
        ignored = "" if uses == "links" else "; this method does not use them"
        sentences.append(f"Its neighbours: {links}{ignored}.")
    if joined.untrained:
        sentences.append(
            "This method's newcomers train on their own data, which this model has not done: it is a start."
        )
    elif last is None or not len(last.novel.metric):
        sentences.append("No client was held out in this run (novel=0), so it does not show how good such models are.")
    else:
        sentences.append(
            f"To be expected, without training: {_metric(experiment, mean(last.novel.metric))} ± "
            f"{spread(last.novel.metric):.4g} over the run's {len(last.novel.metric)} held-out clients "
            f"({_when(experiment)})."
        )
    return Subject("a newcomer", tuple(sentences))


_USES = {
    "nothing": "the model was made without any training",
    "links": "the model was made from its links, without any training",
    "train split": "the model was trained on its own train split",
}


def _metric(experiment: Experiment, value: float) -> str:
    if math.isnan(value):
        return f"{experiment.federation.task.metric} unknown"
    return f"{experiment.federation.task.metric} {value:.4g}" + (" %" if experiment.federation.task.classes else "")


def _when(experiment: Experiment) -> str:
    """The last evaluated round: the model's own, unless the run was stopped between two evaluations."""
    config, round = experiment.config, experiment.state.round
    evaluated = round if round == config.rounds else round // config.eval_every * config.eval_every
    return f"round {evaluated}"


def metadata(experiment: Experiment, subject: Subject) -> dict[str, str]:
    """What is stored in the file itself, where the format allows."""
    config, task = experiment.config, experiment.federation.task
    return {
        "made_by": f"panacea-fl {__version__}",
        "data": config.data.name,
        "partial": experiment.federation.partial,
        "method": experiment.method.name,
        "seed": str(config.seed),
        "run": RunDirectory.of(config, experiment.method.name).path.name,
        "round": str(experiment.state.round),
        "subject": subject.name,
        "network": config.model.name,
        "inputs": _shape(task.inputs),
        "outputs": _shape((task.classes,) if task.classes else task.outputs),
        "scale": task.scale,
    }


def card(experiment: Experiment, subject: Subject, file: Path, format: str, difference: float | None) -> str:
    """The text beside a model file."""
    config, task = experiment.config, experiment.federation.task
    what = "class scores (before softmax)" if task.classes else f"targets in the scale '{task.scale}'"
    named = f" in this order: {', '.join(task.class_names)}" if task.class_names else ""
    outputs = (task.classes,) if task.classes else task.outputs
    size = experiment.target.layout.size
    lines = [
        f"# {file.name}",
        "",
        f"Model of {subject.name}. " + " ".join(subject.sentences),
        "",
        f"- data set `{config.data.name}`{_part(experiment)} ({task.kind}), {len(experiment.federation)} clients",
        f"- method `{experiment.method.name}`, seed {config.seed}, round {experiment.state.round} of {config.rounds}",
        f"- run `{RunDirectory.of(config, experiment.method.name).path.name}`; its `config.yaml` has every key",
        f"- network `{config.model.name}`, {size} parameters",
        f"- input: float `{_shape(task.inputs)}`; samples scaled as in training ('{task.scale}')",
        f"- output: float `{_shape(outputs)}`, {what}{named}",
        f"- written by panacea-fl {__version__} as {format}"
        + ("" if difference is None else f"; largest difference between ONNX Runtime and torch {difference:.1e}"),
        "",
        "```python",
        *_loading(experiment, file.name, format),
        "```",
        "",
    ]
    return "\n".join(lines)


def _part(experiment: Experiment) -> str:
    """What part of the data set the model has seen, where it is not all of it."""
    return f" **{experiment.federation.partial}**" if experiment.federation.partial else ""


def _shape(shape: Sequence[int]) -> str:
    return "[" + ", ".join(["batch", *(str(size) for size in shape)]) + "]"


def _loading(experiment: Experiment, name: str, format: str) -> list[str]:
    """Code that loads the file."""
    if format == "onnx":
        return [
            "import onnxruntime",
            "",
            f"session = onnxruntime.InferenceSession({name!r})",
            f"outputs = session.run(None, {{{INPUT!r}: x}})[0]  # x: a float32 array",
        ]
    task, model = experiment.federation.task, experiment.config.model
    shapes = f"inputs={task.inputs}" + (f", classes={task.classes}" if task.classes else f", outputs={task.outputs}")
    method, own = experiment.method, "digest" in model.keys
    enlarged = type(method).enlarge is not Method.enlarge
    imports, build = [] if own and not enlarged else ["from panacea import Task"], []
    built = f"Task({task.kind!r}, {shapes})"
    if enlarged:  # the method's network is made around the user's
        imports += ["from panacea.core.random import Streams", "from panacea.methods import make_method"]
        build, built = [f"task = {built}"], "task"
    if own:
        build.append(f"model = {model.name}()  # your own network")
    else:
        imports.append("from panacea.models import build_model")
        options = f", {model.keys!r}" if model.keys else ""
        build.append(f"model = build_model({model.name!r}, {built}{options})")
    if enlarged:
        keys = experiment.config.method.keys
        build.append(
            f"model = make_method({experiment.config.method.name!r}, {keys!r}).enlarge(model, task, Streams(0))"
        )
    if format == "torch":
        first = ["import torch"]
        read = f"torch.load({name!r}, weights_only=True)"
    else:
        first = ["from safetensors.torch import load_file"]
        read = f"load_file({name!r})"
    return [*first, *imports, "", *build, f"model.load_state_dict({read})", "model.eval()"]
