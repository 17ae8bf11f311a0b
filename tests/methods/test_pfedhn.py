"""pFedHN and pFedHN-PC: one client at a time, worked out by hand; newcomers that fit an embedding or a last layer."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from panacea.core.local import Local, Sgd
from panacea.core.method import Model
from panacea.core.parameters import Layout
from panacea.core.records import named_leaves
from panacea.evaluation.evaluate import personal_models
from panacea.hypernets import GeneratingMethod, HypernetworkState
from tests.hypernets.build import PLAIN, cohort_of, random_graph, rounds, server, tensor, uploads_of, with_parts
from tests.toy import play, toy_experiment

GRAPH = random_graph(6, 4)


def by_hand(parameters: dict[str, Any] | None = None, lr: float = 0.1) -> tuple[GeneratingMethod, HypernetworkState]:
    """theta = 2 f + 1 with f = v, everything of width 1; v = 2 and -3, so the models are 5 and -5."""
    keys = {"embedding": 1, "hidden": 1, "hidden_layers": 0, **PLAIN, **(parameters or {})}
    method, state = server("pfedhn", None, keys, n=2, layout=Layout(("w",), ((1,),)), server_lr=lr)
    state = with_parts(method, state, trunk__0__weight=1.0, trunk__0__bias=0.0, head__weight=2.0, head__bias=1.0)
    return method, dataclasses.replace(state, table=torch.tensor([[2.0], [-3.0]], dtype=torch.float64))


def parts_of(method: GeneratingMethod, state: HypernetworkState) -> list[float]:
    parts = method.layout.unflatten(state.weights)
    return [parts[name].item() for name in ("trunk.0.weight", "trunk.0.bias", "head.weight", "head.bias")]


def test_two_clients_in_turn_by_hand() -> None:
    """Client 0 answers 6 (Delta 1), client 1 answers -6 (Delta -1); alpha 0.01, plain SGD. K_s is not used.

    Client 0, f = 2: head weight 2 + 0.01 * 2, bias 1 + 0.01; f's gradient is 2: trunk weight 1 + 0.01 * 2 * 2, bias
    0.02, v 2 + 0.01 * 2. So trunk 1.04 v + 0.02, head 2.02 f + 1.01.
    Client 1 with these, f = 1.04 * -3 + 0.02 = -3.1: head weight 2.02 + 0.031, bias 1.01 - 0.01; f's gradient is -2.02:
    trunk weight 1.04 + 0.0606, bias 0.02 - 0.0202, v -3 - 0.0202 * 1.04. Its Delta is of the model it was sent.
    """
    method, state = by_hand(lr=0.01)
    assert method.generated(state, np.arange(2)).flatten().tolist() == [5.0, -5.0]
    new = method.aggregate(state, Model(torch.tensor([[6.0], [-6.0]], dtype=torch.float64)), cohort_of(method, [0, 1]))
    assert new.table.flatten().tolist() == pytest.approx([2.02, -3.021008])
    assert parts_of(method, new) == pytest.approx([1.1006, -0.0002, 2.051, 1.0])
    after = [2.051 * (1.1006 * v - 0.0002) + 1 for v in (2.02, -3.021008)]
    fit = ((6 - after[0]) ** 2 + (-6 - after[1]) ** 2) / 4
    assert new.terms.tolist() == pytest.approx([0.5, fit, 0, 0])


def test_decay_reaches_every_row() -> None:
    """weight_decay 0.5: client 1 was not there; its row is -3 - 0.1 * 0.5 * -3 = -2.85, v_0 is 2.2 - 0.1."""
    method, state = by_hand({"weight_decay": 0.5})
    new = method.aggregate(state, Model(torch.tensor([[6.0]], dtype=torch.float64)), cohort_of(method, [0]))
    assert new.table.flatten().tolist() == pytest.approx([2.1, -2.85])


def test_momentum_goes_on_between_visits() -> None:
    """Momentum 0.5, twice nothing to learn after a visit: row 0 moves by 0.2, 0.1, 0.05."""
    method, state = by_hand({"optimiser": "momentum", "momentum": 0.5})
    cohort, places = cohort_of(method, [0]), []
    answer = torch.tensor([[6.0]], dtype=torch.float64)
    for _ in range(3):
        state = method.aggregate(state, Model(answer), cohort)
        places.append(state.table[0].item())
        answer = method.generated(state, cohort.ids)
    assert places == pytest.approx([2.2, 2.3, 2.35])


def test_one_visit_is_the_transposed_jacobian() -> None:
    """The change is alpha J^T (ttheta - theta), J by forward differentiation of a network written here."""
    method, state = server("pfedhn", None, PLAIN, n=4, server_lr=0.05, server_steps=7)
    cohort = cohort_of(method, [2])
    uploads = uploads_of(method, state, cohort)
    delta = uploads.params[0] - method.download(state, cohort).params[0]

    def model(table: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        parts = method.layout.unflatten(weights)
        z = functional.linear(table[2], parts["trunk.0.weight"], parts["trunk.0.bias"])
        for layer in (1, 2, 3):
            z = functional.linear(torch.relu(z), parts[f"trunk.{layer}.weight"], parts[f"trunk.{layer}.bias"])
        return functional.linear(z, parts["head.weight"], parts["head.bias"])

    assert torch.allclose(model(state.table, state.weights), method.generated(state, np.array([2]))[0], atol=1e-13)
    new = method.aggregate(state, uploads, cohort)
    jacobians = torch.func.jacfwd(model, argnums=(0, 1))(state.table, state.weights)
    for old, moved, jacobian in zip((state.table, state.weights), (new.table, new.weights), jacobians, strict=True):
        assert torch.allclose(moved - old, 0.05 * torch.tensordot(delta, jacobian, dims=1), rtol=0, atol=1e-12)


def test_sizes_of_its_code() -> None:
    """Embedding 1 + clients / 4, novel ones counted; Linear(e, 100), three times Linear(100, 100), a head."""
    from panacea.methods import make_method

    method, state = server("pfedhn", None, n=8, novel=(7,))
    keys = {"embedding": None, "hidden": 100}
    made: Any = make_method("pfedhn", keys)
    state = made.init_server(method.setting)
    assert state.table.shape == (7, 3)
    assert state.weights.numel() == (3 + 1) * 100 + 3 * 101 * 100 + 101 * 11


@pytest.mark.parametrize("count", [2, 3])
def test_a_client_nobody_trusts_says_nothing(count: int) -> None:
    """The others' steps stay whole: trust 1, 0, 1 is as if the middle one had not been there."""
    method, state = server("pfedhn", None, PLAIN, n=4)
    whole, some = cohort_of(method, [0, 1, 3]), cohort_of(method, [0, 3])
    trust = torch.tensor([[1.0], [0.0], [1.0]], dtype=torch.float64)
    uploads = uploads_of(method, state, whole)
    a = method.aggregate(state, uploads, dataclasses.replace(whole, trust=trust))
    b = method.aggregate(state, Model(uploads.params[[0, 2]]), some)
    assert torch.allclose(a.weights, b.weights, rtol=0, atol=1e-13)
    half = dataclasses.replace(whole, trust=trust + torch.tensor([[0.0], [0.5], [0.0]]))
    sent = method.download(state, whole).params
    halved = sent + torch.tensor([[1.0], [0.5], [1.0]]) * (uploads.params - sent)
    c, d = method.aggregate(state, uploads, half), method.aggregate(state, Model(halved), whole)
    assert torch.allclose(c.weights, d.weights, rtol=0, atol=1e-13)


# --- newcomers --------------------------------------------------------------------------------------------------------


def newcomer(experiment: Any) -> torch.Tensor:
    ids = experiment.federation.novel_ids
    return personal_models(
        experiment.method, experiment.state, experiment.engine, experiment.federation, ids, novel=True
    )[0]


def test_a_newcomer_is_the_mean_or_a_fresh_row() -> None:
    mean, fresh = (toy_experiment("pfedhn", {"novel": novel}) for novel in ("mean", "init"))
    for experiment in (mean, fresh):
        play(experiment, 2)
    server_state, method = mean.state.server, mean.method
    expected = method.generate(server_state, server_state.table.mean(dim=0, keepdim=True))  # type: ignore[attr-defined]
    assert torch.equal(newcomer(mean), expected)
    assert not torch.allclose(newcomer(fresh), expected)
    assert (mean.method.newcomer_uses, toy_experiment("pfedhn", {"novel": "fit_embedding"}).method.newcomer_uses) == (
        "nothing", "train split",
    )  # fmt: skip


@pytest.mark.parametrize("engine", ["sequential", "vectorised"])
@pytest.mark.parametrize("scope", ["all", "last"])
def test_fitting_an_embedding_is_gradient_descent_on_it(scope: str, engine: str) -> None:
    """Against a loop over autograd with the whole train split as batch."""
    keys = {"novel": "fit_embedding", "fit_steps": 12, "fit_lr": 0.3, "scope": scope}
    experiment = toy_experiment("pfedhn", keys, batch_size=100, engine=engine)
    play(experiment, 2)
    state: Any = experiment.state.server
    before = [value.clone() for _, value in named_leaves(state)]
    method: Any = experiment.method
    x, y = experiment.federation.client(int(experiment.federation.novel_ids[0]))
    v = state.table.mean(dim=0)
    losses = []
    for _ in range(13):
        v = v.detach().requires_grad_()
        generated = method.network.models(method.layout.unflatten(state.weights), v.unsqueeze(0))
        model = method.scope.join(generated, state.rest)[0]
        parts = list(experiment.target.layout.unflatten(model).values())
        hidden = torch.relu(functional.linear(x.double(), parts[0], parts[1]))
        loss = functional.cross_entropy(functional.linear(hidden, parts[2], parts[3]), y)
        losses.append(loss.item())
        v = v - 0.3 * torch.autograd.grad(loss, v)[0]
    assert torch.allclose(newcomer(experiment)[0], model, rtol=0, atol=1e-10)
    assert losses[-1] < losses[0]
    after = [value for _, value in named_leaves(state)]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))  # the hypernetwork stays as it is


# --- pFedHN-PC --------------------------------------------------------------------------------------------------------


def test_a_client_keeps_its_last_layer() -> None:
    """It moves at visits, is never sent, and stays where it is while its owner is away; the common start stays too."""
    experiment = toy_experiment("pfedhn_pc", cohort=2, rounds=8)
    method: Any = experiment.method
    start = experiment.state.server.rest.clone()
    heads: dict[int, torch.Tensor] = {}
    for number in range(1, 9):
        cohort = experiment.cohort(number)
        (report,) = play(experiment, 1)
        assert report.bytes_down == report.bytes_up == 8 * 2 * 20  # 20 of 32 parameters
        ids, kept = experiment.state.clients.packed()
        for client, head in zip(ids.tolist(), kept.params, strict=True):
            moved = client not in heads or not torch.equal(head, heads[client])
            assert moved is (client in cohort.ids.tolist())
            heads[client] = head.clone()
    assert torch.equal(experiment.state.server.rest, start)
    ids = experiment.federation.train_ids
    models, _ = personal_models(method, experiment.state, experiment.engine, experiment.federation, ids, novel=False)
    body, own = method.scope.split(models)
    for row, client in enumerate(ids.tolist()):
        assert torch.equal(own[row], heads.get(client, start))
    assert torch.equal(body, method.generated(experiment.state.server, ids))


def test_a_visit_trains_body_and_last_layer_together() -> None:
    """From the common start, what comes back and what is kept is plain SGD from the initial model, as in FedAvg."""
    ours, plain = toy_experiment("pfedhn_pc", {"head_scale": 1e-300}, cohort=1), toy_experiment("fedavg", cohort=1)
    play(plain, 1)
    cohort = ours.cohort(1)
    download = ours.method.download(ours.state.server, cohort)
    trained = ours.engine.train(
        ours.method, download, ours.method.init_client(download), ours.state.statistics.send(cohort), cohort
    )
    method: Any = ours.method
    whole = method.scope.join(trained.uploads.params, trained.kept.params)
    assert torch.allclose(whole[0], plain.state.server.params, rtol=0, atol=1e-14)
    kept = Model(trained.kept.params + 1)  # the next visit goes on from what was kept
    carry = method.start(download, kept, Local(None, Sgd(0.1)))  # type: ignore[arg-type]
    assert torch.equal(carry.params, method.scope.join(download.params, kept.params))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_newcomer_trains_its_last_layer_only(momentum: float) -> None:
    steps = {n: toy_experiment("pfedhn_pc", {"head_steps": n}, momentum=momentum, weight_decay=0.1) for n in (1, 40)}
    bodies, heads = [], []
    for experiment in steps.values():
        play(experiment, 2)
        method: Any = experiment.method
        body, head = method.scope.split(newcomer(experiment))
        bodies.append(body)
        heads.append(head)
        assert torch.equal(body, method.generate(experiment.state.server, experiment.state.server.table.mean(0, True)))
    assert torch.equal(*bodies)
    assert not torch.allclose(*heads)
    fed = experiment.federation
    few, many = (
        experiment.engine.evaluate(method.scope.join(bodies[0], head), tensor(1, 0), fed.novel_ids, "train").loss[0]
        for head in heads
    )
    assert many < few


def test_without_a_last_layer_of_its_own_it_learns_the_same() -> None:
    """The server's rule is pFedHN's for the body: the same uploads of the body give the same weights."""
    pc, state = server("pfedhn_pc", GRAPH)
    plain, other = server("pfedhn", GRAPH, {"scope": "hidden"})
    assert torch.equal(state.weights, other.weights)
    assert torch.allclose(rounds(pc, state, [[0, 1]]).rest, state.rest)  # type: ignore[arg-type]
    cohort = cohort_of(pc, [0, 1])
    uploads = uploads_of(pc, state, cohort)
    whole = plain.scope.join(uploads.params, other.rest)
    a, b = pc.aggregate(state, uploads, cohort), plain.aggregate(other, Model(whole), cohort)
    assert torch.equal(a.weights, b.weights)
