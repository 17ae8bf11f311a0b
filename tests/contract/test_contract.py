"""The contract every method keeps, parametrised over the registry: a new method gets all of it for free.

Each test would have caught at least one defect that is live in a well-known library.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import pickle
import types
import typing
from typing import Any, Literal

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from panacea.core.local import Local
from panacea.core.method import Method
from panacea.core.records import leaves, named_leaves, rebuild, tree_map
from panacea.core.types import Cohort
from panacea.experiment.checkpoint import CheckpointStore
from panacea.methods import find_method, method_names
from tests.toy import largest_difference, outcome, play, toy_experiment, trajectory

METHODS = method_names()

# a knob of one choice shows with that choice only
CONTEXT: dict[str, dict[str, Any]] = {
    "rank": {"heads": "low_rank"},
    "chunk": {"heads": "chunked"},
    "rest": {"scope": "last"},
    "momentum": {"optimiser": "momentum"},
    "fit_steps": {"novel": "fit_embedding"},
    "fit_lr": {"novel": "fit_embedding"},
    "random_nodes": {"pairs": "sampled"},
    "pairs": {"random_nodes": 0},
    "novel_steps": {"novel": "fit"},
    "bottleneck": {"w_mode": "bottleneck"},
    "adjacency": {"layers": "all"},
}
OTHER: dict[str, Any] = {
    "clip": 0.01,
    "novel_h0": "random",
    "random_nodes": 0,
    "pairs": "sampled",
    "alpha": 0.3,
    "sigma": 0.7,
    "personal": "hidden.0.bias",
    "lam": 0.7,
    "head_share": 0.5,
    "outer_lr": 0.05,
    "source": "kmeans",
    "teacher_every": 1,
    "beta": 0.8,
    "bottleneck": 2,
    "fanout": 1,
    "newcomer_practice": 1.0,
}
KEYS: dict[str, dict[str, Any]] = {"pairs": {"cohort": 1}, "random_nodes": {"cohort": 1}}
SAME_NUMBERS = {"execution"}  # how something is computed; tests/hypernets checks that it is the same


def _other_value(annotation: Any, default: Any) -> Any:
    """Some other legal value of a parameter."""
    options = typing.get_args(annotation)
    if typing.get_origin(annotation) is Literal:
        return next(option for option in options if option != default)
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return _other_value(next(option for option in options if option is not type(None)), default)
    if annotation is bool:
        return not default
    if annotation is int:
        return (default or 2) + 3
    if annotation is str:
        return "all" if default == "last" else "last"
    if annotation is float:
        return 0.6 * (default or 0.0) + 0.2
    raise AssertionError(f"say how to vary a parameter of type {annotation}")


KNOBS = [
    (name, knob)
    for name in METHODS
    for knob in find_method(name).parameter_model.model_fields
    if knob not in SAME_NUMBERS
]


@pytest.mark.parametrize(("name", "knob"), KNOBS)
def test_no_dead_knob(name: str, knob: str) -> None:
    field = find_method(name).parameter_model.model_fields[knob]
    other = OTHER[knob] if knob in OTHER else _other_value(field.annotation, field.get_default())
    results = []
    for parameters in ({}, {knob: other}):
        experiment = toy_experiment(name, CONTEXT.get(knob, {}) | parameters, **KEYS.get(knob, {}))
        play(experiment, 2)
        results.append(outcome(experiment))
    same_shapes = all(a.shape == b.shape for a, b in zip(*(r.values() for r in results), strict=False))
    changed = results[0].keys() != results[1].keys() or not same_shapes
    assert changed or largest_difference(*results) > 1e-9, f"{name}: method.{knob} changes nothing"


def _one_visit(experiment: Any, cohort: Cohort, downloads: Any, kept: Any) -> list[torch.Tensor]:
    statistics = experiment.state.statistics.send(cohort)
    trained = experiment.engine.train(experiment.method, downloads, kept, statistics, cohort)
    return leaves(trained.uploads) + leaves(trained.kept)


@pytest.mark.parametrize("name", METHODS)
def test_every_received_field_matters(name: str) -> None:
    experiment = toy_experiment(name)
    cohort = experiment.cohort(1)
    downloads = experiment.method.download(experiment.state.server, cohort)
    reference = _one_visit(experiment, cohort, downloads, experiment.method.init_client(downloads))
    for field, value in named_leaves(downloads):
        shifted = rebuild(downloads, {**dict(named_leaves(downloads)), field: value + 0.01})
        changed = _one_visit(experiment, cohort, shifted, experiment.method.init_client(shifted))
        assert any(not torch.equal(a, b) for a, b in zip(reference, changed, strict=True)), (
            f"{name}: {field} is ignored"
        )


@pytest.mark.parametrize("name", METHODS)
def test_every_kept_field_moves(name: str) -> None:
    experiment = toy_experiment(name, cohort=6)
    cohort = experiment.cohort(1)
    start = experiment.method.init_client(experiment.method.download(experiment.state.server, cohort))
    play(experiment, 2)
    for field, before in named_leaves(start):
        after = dict(named_leaves(experiment.state.clients.packed()[1]))[field]
        moved = (after != before).reshape(len(after), -1).any(dim=1)
        assert bool(moved.all()), f"{name}: kept field {field} stayed as it was"


@pytest.mark.parametrize("name", METHODS)
def test_what_is_evaluated_was_trained(name: str) -> None:
    experiment = toy_experiment(name, cohort=6)
    values = []
    for _ in range(3):
        values.append(trajectory(experiment)["evaluated.False"].clone())
        play(experiment, 1)
    for before, after in itertools.pairwise(values):
        assert bool((before != after).any(dim=1).all())


@pytest.mark.parametrize("name", METHODS)
def test_all_uploads_count(name: str) -> None:
    experiment = toy_experiment(name)
    cohort = experiment.cohort(1)
    method, server = experiment.method, experiment.state.server
    downloads = method.download(server, cohort)
    statistics = experiment.state.statistics.send(cohort)
    uploads = experiment.engine.train(method, downloads, method.init_client(downloads), statistics, cohort).uploads
    if not leaves(uploads):
        assert experiment.method.facts is not None
        assert experiment.method.facts.up == "0"
        return
    reference = leaves(method.aggregate(server, uploads, cohort))
    for row in range(len(cohort)):
        nudge = torch.zeros(len(cohort), dtype=torch.float64)
        nudge[row] = 0.1
        changed = tree_map(lambda t, nudge=nudge: t + nudge.reshape((-1,) + (1,) * (t.dim() - 1)), uploads)
        found = leaves(method.aggregate(server, changed, cohort))
        assert any(not torch.equal(a, b) for a, b in zip(reference, found, strict=True)), (
            f"{name}: row {row} is ignored"
        )


def test_the_order_of_sampling_changes_nothing() -> None:
    like = torch.zeros(1)
    counts = np.arange(1, 8)
    a, b = (Cohort.of(np.array(ids), counts, 1, like) for ids in ([4, 0, 2], [0, 2, 4]))
    assert a.ids.tolist() == b.ids.tolist() == [0, 2, 4]
    assert torch.equal(a.counts, b.counts)


@pytest.mark.parametrize("name", METHODS)
def test_nothing_received_is_written_to(name: str) -> None:
    experiment = toy_experiment(name)
    play(experiment, 1)
    cohort = experiment.cohort(2)
    downloads = experiment.method.download(experiment.state.server, cohort)
    kept = experiment.state.clients.take(cohort.ids, experiment.method.init_client(downloads))
    given = [*leaves(experiment.state.server), *leaves(downloads), *leaves(kept)]
    copies = [tensor.clone() for tensor in given]
    statistics = experiment.state.statistics.send(cohort)
    trained = experiment.engine.train(experiment.method, downloads, kept, statistics, cohort)
    experiment.method.aggregate(experiment.state.server, trained.uploads, cohort)
    assert all(torch.equal(a, b) for a, b in zip(given, copies, strict=True))


@pytest.mark.engine
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(
    "keys", [{}, {"block": 2}, {"momentum": 0.9, "weight_decay": 0.01, "clip": 1.0}, {"local_epochs": 2}]
)
def test_engines_agree(name: str, keys: dict[str, Any]) -> None:
    """float64, 20 rounds, ragged clients, one of a single sample, batch larger than most clients: within 1e-9."""
    results = []
    for engine in ("sequential", "vectorised"):
        experiment = toy_experiment(name, engine=engine, rounds=20, **keys)
        play(experiment, 20)
        results.append(outcome(experiment))
    assert largest_difference(*results) < 1e-9


@pytest.mark.engine
@pytest.mark.parametrize("name", METHODS)
def test_engines_agree_in_float32_after_a_round(name: str) -> None:
    results = []
    for engine in ("sequential", "vectorised"):
        experiment = toy_experiment(name, engine=engine, dtype="float32")
        play(experiment, 1)
        results.append(outcome(experiment))
    assert largest_difference(*results) < 1e-5


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("buffers", ["shared", "local"])
def test_resume_is_bit_identical(name: str, buffers: str, tmp_path: Any) -> None:
    straight = toy_experiment(name, buffers=buffers)
    play(straight, 4)
    stopped = toy_experiment(name, buffers=buffers)
    play(stopped, 2)
    CheckpointStore(tmp_path).save(stopped.to_checkpoint())
    checkpoint, notes = CheckpointStore(tmp_path).load()
    assert checkpoint is not None
    assert notes == []
    resumed = toy_experiment(name, buffers=buffers)
    resumed.restore(checkpoint)
    play(resumed, 2)
    a, b = trajectory(straight), trajectory(resumed)
    assert all(torch.equal(a[key], b[key]) for key in a)
    assert a.keys() == b.keys()


@pytest.mark.parametrize("name", METHODS)
def test_defaults_train(name: str) -> None:
    experiment = toy_experiment(name, cohort=6, rounds=10)
    losses = [report.loss for report in play(experiment, 10)]
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize("name", METHODS)
def test_the_work_is_the_documented_one(name: str) -> None:
    for engine in ("sequential", "vectorised"):
        experiment = toy_experiment(name, engine=engine)
        play(experiment, 2)
        clients, steps = 3, 4
        assert experiment.engine.gradient_evaluations == 2 * clients * steps * experiment.method.gradients


@pytest.mark.parametrize("name", METHODS)
def test_its_line_in_the_table_is_its_own(name: str) -> None:
    cls = find_method(name)
    assert "facts" in vars(cls)
    assert cls.facts is not None
    assert 2016 < cls.facts.year < 2027
    assert all(getattr(cls.facts, field.name) for field in dataclasses.fields(cls.facts))


@pytest.mark.parametrize("name", METHODS)
def test_messages_survive_the_wire_and_pickle_does_not(name: str) -> None:
    experiment = toy_experiment(name)
    cohort = experiment.cohort(1)
    downloads = experiment.method.download(experiment.state.server, cohort)
    tensors = {key: value.contiguous() for key, value in named_leaves(downloads)}
    back = rebuild(downloads, load(save(tensors)))
    assert all(torch.equal(a, b) for a, b in zip(leaves(downloads), leaves(back), strict=True))
    with pytest.raises(SafetensorError):
        load(pickle.dumps(tensors))


@pytest.mark.parametrize("name", METHODS)
def test_the_docstring_says_what_a_reader_needs(name: str) -> None:
    cls = find_method(name)
    text = inspect.getdoc(cls) or ""
    for heading in ("Paper:", "Reduces to:", "Differences from the paper:"):
        assert heading in text, f"{name}: no '{heading}'"
    for knob, field in cls.parameter_model.model_fields.items():
        assert knob in text, f"{name}: {knob} is not explained in the docstring"
        assert field.description, f"{name}: {knob} has no description"


class Broken(Method):
    """Fails in its third step."""

    def step(self, carry: Any, download: Any, client: Any, batches: Any, local: Local) -> Any:
        new = super().step(carry, download, client, batches, local)
        self.seen = getattr(self, "seen", 0) + 1
        if self.seen == 3:
            raise ValueError("boom")
        return new


def test_the_reference_engine_says_where_it_failed() -> None:
    from panacea.errors import RunFailure

    experiment = toy_experiment("tests.contract.test_contract:Broken", engine="sequential")
    first = experiment.cohort(1).ids[0]
    with pytest.raises(RunFailure, match=rf"Broken failed for client {first} \('{first}'\) in round 1, step 3: .*boom"):
        play(experiment, 1)
