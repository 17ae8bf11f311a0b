"""Networks of which only a part is generated: what happens to the rest, and what travels."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from panacea.core.local import Local, Sgd, run_local
from panacea.core.method import Model
from panacea.core.records import nbytes, tree_index
from panacea.core.types import Cohort
from panacea.evaluation.evaluate import personal_models
from tests.hypernets.build import cohort_of, random_graph, rounds, server, tensor, uploads_of
from tests.toy import play, toy_experiment

SCOPED = ("panacea", "panacea_gn", "panacea_mlp", "pfedhn")
GRAPH = random_graph(5, 2)


def split(experiment: Any, params: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return experiment.method.scope.split(params)


@pytest.mark.parametrize("name", SCOPED)
@pytest.mark.parametrize("scope", ["last", "hidden.0.weight"])
def test_a_shared_rest_is_fedavgs(name: str, scope: str) -> None:
    """From heads that say nothing yet all clients start where FedAvg's do: after a round the rest is FedAvg's."""
    ours = toy_experiment(name, {"scope": scope, "head_scale": 1e-300})
    plain = toy_experiment("fedavg")
    sent = ours.method.download(ours.state.server, ours.cohort(1)).params
    assert torch.equal(sent, plain.state.server.params.expand_as(sent))
    play(ours, 1)
    play(plain, 1)
    rest = split(ours, plain.state.server.params)[1]
    assert torch.allclose(ours.state.server.rest, rest, rtol=0, atol=1e-14)
    assert not torch.allclose(rest, split(ours, ours.target.initial)[1])


@pytest.mark.parametrize("name", SCOPED)
def test_a_shared_rest_is_weighed_by_samples(name: str) -> None:
    """Clients 0 and 3 have 1 and 4 samples."""
    method, state = server(name, GRAPH, {"scope": "last"})
    cohort = cohort_of(method, [0, 3])
    uploads = uploads_of(method, state, cohort)
    new = method.aggregate(state, uploads, cohort)
    assert torch.allclose(new.rest, (uploads.params[0] + 4 * uploads.params[1])[:8] / 5)  # type: ignore[arg-type]
    personal = method.personal(new, None, cohort)  # type: ignore[arg-type]
    assert torch.equal(personal[:, :8], new.rest.expand(2, -1))  # type: ignore[union-attr]
    assert torch.equal(personal[:, 8:], method.generated(new, cohort.ids))
    assert torch.equal(method.download(new, cohort).params, personal)


@pytest.mark.parametrize("name", SCOPED)
def test_what_the_server_learns_is_the_generated_part(name: str) -> None:
    """Whatever the rest of the uploads, weights and embeddings are the same; whatever the part, the rest is."""
    method, state = server(name, GRAPH, {"scope": "last"})
    cohort = cohort_of(method, [0, 3])
    uploads = uploads_of(method, state, cohort)
    reference = method.aggregate(state, uploads, cohort)
    for part in (slice(0, 8), slice(8, 11)):
        other = uploads.params.clone()
        other[:, part] += 1
        new = method.aggregate(state, dataclasses.replace(uploads, params=other), cohort)
        assert torch.equal(new.weights, reference.weights) is (part.start == 0)
        assert torch.equal(new.rest, reference.rest) is (part.start == 8)  # type: ignore[arg-type]


@pytest.mark.parametrize("engine", ["sequential", "vectorised"])
@pytest.mark.parametrize("name", SCOPED)
def test_a_frozen_rest_never_moves(name: str, engine: str) -> None:
    experiment = toy_experiment(
        name, {"scope": "last", "rest": "frozen"}, engine=engine, momentum=0.9, weight_decay=0.1
    )
    rest = split(experiment, experiment.target.initial)[1]
    (report, _) = play(experiment, 2)
    assert torch.equal(experiment.state.server.rest, rest)
    ids = experiment.federation.train_ids
    for novel, chosen in ((False, ids), (True, experiment.federation.novel_ids)):
        params, _ = personal_models(
            experiment.method, experiment.state, experiment.engine, experiment.federation, chosen, novel=novel
        )
        assert torch.equal(split(experiment, params)[1], rest.expand(len(chosen), -1))
    generated = experiment.method.scope.chosen_size
    assert generated == 12
    assert report.bytes_down == report.bytes_up == 8 * generated * 3  # float64, three clients


def test_local_steps_under_a_frozen_rest_by_hand() -> None:
    """Momentum 0.5, decay 0.1, rate 0.1, clipped to 1, all of the generated part alone; the gradient is w + 1."""
    method, state = server("panacea", GRAPH, {"scope": "last", "rest": "frozen"})
    download = tree_index(method.download(state, cohort_of(method, [0, 3])), 1)
    assert nbytes(download) == 8 * 3
    seen: list[torch.Tensor] = []

    def gradient(params: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        seen.append(params)
        return params + 1

    local = Local(gradient, Sgd(0.1, momentum=0.5, weight_decay=0.1, clip=1.0), 3)  # type: ignore[arg-type]
    upload, kept = run_local(method, download, None, [(None,)] * 3, local)  # type: ignore[list-item]
    w, v = download.params, torch.zeros(3, dtype=torch.float64)
    for _ in range(3):
        v = 0.5 * v + (w + 1) / max(1, (w + 1).norm()) + 0.1 * w
        w = w - 0.1 * v
    assert kept is None
    assert torch.allclose(upload.params, w, atol=1e-14)
    assert upload.params.shape == (3,)
    assert all(torch.equal(params[:8], method.setting.initial[:8]) for params in seen)


@pytest.mark.parametrize("name", SCOPED)
def test_everything_in_scope_leaves_no_rest(name: str) -> None:
    """rest=frozen has nothing to freeze where everything is generated."""
    a, b = (server(name, GRAPH, keys) for keys in ({"rest": "frozen"}, {"scope": "fc+hidden"}))
    assert a[1].rest is None
    assert b[1].rest is None
    states = [rounds(method, state, [[0, 1], [2]]) for method, state in (a, b)]
    assert torch.equal(states[0].weights, states[1].weights)


@pytest.mark.parametrize("heads", ["full", "low_rank", "chunked"])
@pytest.mark.parametrize("name", [*SCOPED, "pfedhn_pc"])
def test_round_zero_is_the_initial_model(name: str, heads: str) -> None:
    """With heads that say nothing; and by default something near it."""
    for scale, atol in ((1e-300, 0.0), (0.1, 0.5)):
        method, state = server(name, GRAPH, {"heads": heads, "chunk": 4, "rank": 2, "head_scale": scale})
        models = method.personal(state, _Nobody(), cohort_of(method, [0, 2]))  # type: ignore[arg-type]
        assert torch.allclose(models, method.setting.initial.expand(2, -1), rtol=0, atol=atol)


class _Nobody:
    slots = np.full(3, -1)

    def take(self, ids: Any, fresh: Any) -> Any:
        return fresh


@pytest.mark.parametrize("heads", ["low_rank", "chunked"])
@pytest.mark.parametrize("name", ["panacea", "pfedhn"])
def test_every_head_learns(name: str, heads: str) -> None:
    method, state = server(name, GRAPH, {"heads": heads, "chunk": 4, "rank": 2}, server_steps=20, server_lr=0.02)
    cohort = cohort_of(method, [0, 2])
    targets = method.download(state, cohort).params + 0.3 * tensor(2, 11)
    before = (targets - method.generated(state, cohort.ids)).square().sum()
    for _ in range(3):
        state = method.aggregate(state, type(method.download(state, cohort))(targets), cohort)
    assert (targets - method.generated(state, np.array([0, 2]))).square().sum() < 0.9 * before


def test_gen_and_local_leaves_a_frozen_rest_alone() -> None:
    """A visit would not move it, so neither does the programme that is scored as gen+local."""
    experiment = toy_experiment("panacea", {"scope": "last", "rest": "frozen"}, weight_decay=0.1, momentum=0.9)
    method, state, federation = experiment.method, experiment.state, experiment.federation
    ids = federation.train_ids
    params, statistics = personal_models(method, state, experiment.engine, federation, ids, novel=False)
    cohort = Cohort.of(ids, federation.counts("train"), 1, experiment.target.initial)
    programme = method.alternatives(state.server, state.clients, cohort)["local"]
    tuned = experiment.engine.train(programme.method, Model(params), None, statistics, cohort).uploads.params
    (before, rest), (after, kept) = split(experiment, params), split(experiment, tuned)
    assert torch.equal(rest, kept)
    assert bool((before != after).any(dim=1).all())
