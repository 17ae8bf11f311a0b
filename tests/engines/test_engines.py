"""Each engine on its own: errors that say where, counts of work, losses, adaptation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from panacea.core.local import Iterate, Local
from panacea.core.method import Model
from panacea.core.types import Batch
from panacea.errors import RequestError, RunFailure
from panacea.methods import FedAvg, FedProx

from .build import cohort_of, engine_of, federation, initial_state, labels, run, seeded
from .networks import mlp

TASK = labels((5,))
BOTH = pytest.mark.parametrize("name", ["sequential", "vectorised"])


def network() -> nn.Module:
    return seeded(lambda: mlp(nn.BatchNorm1d(9), nn.ReLU()))


# --- failures ---------------------------------------------------------------------------------------------------


class Failing(FedAvg):
    """Fails when client 3 is at its fifth gradient."""

    name = "failing"

    def __init__(self, error: Exception, fed: Any) -> None:
        super().__init__()
        self.error, self.steps = error, 0
        self.own = fed.client(3)[0].double()

    def step(self, carry: Iterate, download: Model, client: None, batches: tuple[Batch, ...], local: Local) -> Iterate:
        if any((self.own == batches[0].x[0]).all(dim=1)):
            self.steps += 1
            if self.steps == 5:
                raise self.error
        return super().step(carry, download, client, batches, local)


def failing_round(error: Exception) -> None:
    fed = federation(TASK)
    engine = engine_of("sequential", network(), fed, steps=9)
    method = Failing(error, fed)
    state = initial_state(method, engine, fed)
    cohort = cohort_of(engine, fed, 12)
    downloads = method.download(state.server, cohort)
    engine.train(method, downloads, None, state.statistics.send(cohort), cohort)


def test_the_sequential_engine_says_where_it_failed():
    with pytest.raises(RunFailure) as caught:
        failing_round(IndexError("no such thing"))
    assert str(caught.value) == (
        "failing failed for client 3 ('site 3') in round 12, step 5: IndexError: no such thing"
    )
    assert isinstance(caught.value.__cause__, IndexError)


def test_an_error_with_a_message_of_its_own_is_left_alone():
    with pytest.raises(RequestError, match=r"^say it plainly$"):
        failing_round(RequestError("say it plainly"))


# --- work -------------------------------------------------------------------------------------------------------


class TwoGradients(FedAvg):
    """Two draws and three gradients a step, one of which BatchNorm does not see."""

    draws = 2
    gradients = 3

    def step(self, carry: Iterate, download: Model, client: None, batches: tuple[Batch, ...], local: Local) -> Iterate:
        first = local.grad(carry.params, batches[0])
        second = local.grad(carry.params - 0.01 * first, batches[1], track=False)
        third = local.grad(carry.params, batches[1], extra=lambda w: 0.05 * w.square().sum(dim=-1, keepdim=True))
        return local.sgd(carry, first + second - 0.5 * third)


@BOTH
def test_gradient_evaluations_are_counted_per_client_and_step(name: str):
    fed = federation(TASK)
    engine = engine_of(name, network(), fed, steps=4, block=2)
    run(FedAvg(), engine, fed, 2)
    assert engine.gradient_evaluations == 2 * 7 * 4
    run(TwoGradients(), engine, fed, 1, size=5)
    assert engine.gradient_evaluations == 2 * 7 * 4 + 5 * 4 * 3


@BOTH
def test_only_a_clients_own_steps_are_counted(name: str):
    fed = federation(TASK)
    engine = engine_of(name, network(), fed, steps=np.array([1, 2, 3, 4, 5, 6, 7]), block=3)
    run(FedAvg(), engine, fed, 1)
    assert engine.gradient_evaluations == 28


@pytest.mark.engine
def test_several_gradients_a_step_agree_between_engines():
    """Draws, gradients at other points, untracked passes and extra terms, with BatchNorm and Dropout."""
    fed = federation(TASK)
    states = []
    for name in ("sequential", "vectorised"):
        build = seeded(lambda: mlp(nn.BatchNorm1d(9, eps=0.03), nn.Tanh(), nn.Dropout(0.3)))
        state, _ = run(TwoGradients(), engine_of(name, build, fed, momentum=0.5), fed, 6, size=5)
        states.append(state)
    torch.testing.assert_close(states[1].server.params, states[0].server.params, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(states[1].statistics.common, states[0].statistics.common, rtol=1e-10, atol=1e-10)


@BOTH
def test_an_extra_term_is_part_of_the_gradient_but_not_of_the_reported_loss(name: str):
    """The documented loss and gradient of one step, by autograd on the plain module."""
    fed = federation(TASK, train=(6, 6))
    weights: dict[str, Any] = {}

    class Once(FedProx):
        def step(self, carry: Iterate, download: Model, client: None, batches: Any, local: Local) -> Iterate:
            weights["batch"] = batches[0]
            return super().step(carry, Model(download.params + 1.0), client, batches, local)

    module = seeded(lambda: mlp(nn.Tanh()))
    engine = engine_of(name, module, fed, steps=1, batch_size=6, lr=1.0)
    method = Once()
    state = initial_state(method, engine, fed)
    cohort = cohort_of(engine, fed, 1, size=1)
    start = method.download(state.server, cohort)
    trained = engine.train(method, start, None, state.statistics.send(cohort), cohort)
    x, y = fed.client(int(cohort.ids[0]))
    plain = seeded(lambda: mlp(nn.Tanh())).double()
    loss = nn.functional.cross_entropy(plain(x.double()), y)
    loss.backward()
    slope = torch.cat([p.grad.flatten() for p in plain.parameters()])
    expected = engine.target.initial - (slope - method.parameters.mu * 1.0)
    torch.testing.assert_close(trained.uploads.params[0], expected, rtol=1e-11, atol=1e-11)
    assert trained.loss.tolist() == [pytest.approx(float(loss.detach()), rel=1e-11)]


@BOTH
def test_losses_are_each_clients_own(name: str):
    fed = federation(TASK)
    settings = {"steps": np.array([1, 2, 3, 4, 5, 6, 7])}
    engine = engine_of(name, network(), fed, block=4, **settings)
    method, cohort = FedAvg(), cohort_of(engine, fed, 1)
    state = initial_state(method, engine, fed)
    together = engine.train(method, method.download(state.server, cohort), None, state.statistics.send(cohort), cohort)
    assert together.loss.shape == (7,)
    for client in range(7):
        one = engine_of(name, network(), fed, **settings)
        own = cohort_of(one, fed, 1)
        own = type(own)(own.ids[client : client + 1], own.counts[client : client + 1], 1, own.trust[:1])
        alone = one.train(method, method.download(state.server, own), None, state.statistics.send(own), own)
        torch.testing.assert_close(together.loss[client : client + 1], alone.loss, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(together.uploads.params[client], alone.uploads.params[0], rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(together.statistics[client], alone.statistics[0], rtol=1e-10, atol=1e-10)


@BOTH
def test_steps_and_purpose_of_an_adaptation(name: str):
    fed = federation(TASK)
    engine = engine_of(name, network(), fed)
    method, cohort = FedAvg(), cohort_of(engine, fed, 1)
    state = initial_state(method, engine, fed)
    down, statistics = method.download(state.server, cohort), state.statistics.send(cohort)
    usual = engine.train(method, down, None, statistics, cohort)
    assert engine.gradient_evaluations == 21
    longer = engine.train(method, down, None, statistics, cohort, steps=5)
    assert engine.gradient_evaluations == 21 + 35
    other = engine.train(method, down, None, statistics, cohort, purpose="adapt")
    assert not torch.allclose(usual.uploads.params, longer.uploads.params)
    many = slice(4, None)  # smaller clients draw all they have, whatever the purpose
    assert not torch.isclose(usual.uploads.params[many], other.uploads.params[many]).all(dim=1).any()


@BOTH
def test_what_was_given_is_not_written_to(name: str):
    fed = federation(TASK)
    engine = engine_of(name, network(), fed, momentum=0.9)
    method, cohort = FedAvg(), cohort_of(engine, fed, 1)
    state = initial_state(method, engine, fed)
    down, statistics = method.download(state.server, cohort), state.statistics.send(cohort)
    before = [t.clone() for t in (down.params, statistics, engine.samples.x, engine.target.initial)]
    engine.train(method, down, None, statistics, cohort)
    engine.evaluate(down.params, statistics, cohort.ids, "test")
    after = [down.params, statistics, engine.samples.x, engine.target.initial]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


class Rescaling(nn.Module):
    """Writes into its own input."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        x /= 2.0
        return self.fc(x)


class _Half(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x / 2.0


@pytest.mark.parametrize(
    ("name", "forward"), [("sequential", "auto"), ("vectorised", "batched"), ("vectorised", "loop")]
)
def test_a_network_that_writes_into_its_input_spoils_no_data(name: str, forward: str):
    fed = federation(TASK)
    engine = engine_of(name, seeded(Rescaling), fed, forward=forward)
    before = engine.samples.x.clone()
    state, _ = run(TwoGradients(), engine, fed, 2)  # several gradients on one batch
    plain = engine_of("sequential", seeded(lambda: nn.Sequential(_Half(), nn.Linear(5, 3))), fed)
    expected, _ = run(TwoGradients(), plain, fed, 2)
    torch.testing.assert_close(state.server.params, expected.server.params, rtol=1e-11, atol=1e-11)
    cohort = cohort_of(engine, fed, 1)
    params = engine.target.initial.expand(7, -1).contiguous()
    first = engine.evaluate(params, engine.target.statistics.expand(7, -1), cohort.ids, "test")
    second = engine.evaluate(params, engine.target.statistics.expand(7, -1), cohort.ids, "test")
    assert first.loss.tolist() == second.loss.tolist()
    assert torch.equal(engine.samples.x, before)
