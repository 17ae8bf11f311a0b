"""Networks that add a penalty to every sample's loss in training."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from panacea.core.method import Method
from panacea.core.random import Streams
from panacea.data.task import Task
from panacea.engines.forward import LoopForward, build_forward
from panacea.models.target import TargetModel, objective
from tests.toy import largest_difference, play, toy_experiment, trajectory

TASK = Task("classification", (3,), classes=2)


class Penalised(nn.Module):
    """A network and, in training, the squares of its outputs."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        out: Tensor = self.inner(x)
        return (out, out.square().sum(dim=-1)) if self.training else out


class PenaltyInside(Method):
    """FedAvg on the penalised network."""

    def enlarge(self, module: nn.Module, task: Task, streams: Streams) -> nn.Module:
        return Penalised(module)


def test_the_penalty_is_minimised_and_the_loss_reported() -> None:
    outputs, targets = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0])
    losses = nn.functional.cross_entropy(outputs, targets, reduction="none")
    minimised, found = objective(TASK, (outputs, torch.tensor([1.0, 2.0])), targets)
    torch.testing.assert_close(minimised, losses + torch.tensor([1.0, 2.0]))
    torch.testing.assert_close(found, losses)
    same, plain = objective(TASK, outputs, targets)
    assert same is plain


@pytest.mark.parametrize("kind", ["vmap", "loop"])
def test_every_way_gives_the_pair(kind: str) -> None:
    target = TargetModel(Penalised(nn.Linear(3, 2)), TASK, torch.float64)
    x, params = torch.randn(4, 5, 3, dtype=torch.float64), target.initial.repeat(4, 1) + torch.rand(4, 1)
    mask = torch.ones(4, 5, dtype=torch.float64).tril(diagonal=2)
    outputs, penalty = build_forward(target, kind)(
        target.layout.parts(params), torch.zeros(4, 0), x, training=True, mask=mask
    )[0]
    (expected, more), _ = LoopForward(target)(target.layout.parts(params), torch.zeros(4, 0), x, training=True)
    assert outputs.shape == (4, 5, 2)
    torch.testing.assert_close(penalty * mask, more * mask)
    torch.testing.assert_close(outputs * mask[..., None], expected * mask[..., None])
    assert isinstance(
        build_forward(target, kind)(target.layout.parts(params), torch.zeros(4, 0), x, training=False)[0], Tensor
    )


@pytest.mark.engine
def test_both_engines_train_with_it() -> None:
    name, results, reports = "tests.engines.test_penalties:PenaltyInside", [], []
    for engine in ("sequential", "vectorised"):
        experiment = toy_experiment(name, engine=engine)
        reports.append([report.loss for report in play(experiment, 4)])
        results.append(trajectory(experiment))
    assert largest_difference(*results) < 1e-9
    assert reports[0] == pytest.approx(reports[1])
    plain = toy_experiment("fedavg")
    first = play(plain, 1)[0]
    play(plain, 3)
    assert not torch.allclose(plain.state.server.params, results[0]["server.params"])
    shrunk = results[0]["server.params"].norm() < plain.state.server.params.norm()
    assert bool(shrunk)
    one_step = [toy_experiment(n, local_steps=1) for n in (name, "fedavg")]
    assert play(one_step[0], 1)[0].loss == pytest.approx(play(one_step[1], 1)[0].loss)  # the first loss has no penalty
    assert first.loss > 0
