"""A network in functional form: its vector, its statistics, its losses, and the way back to a module."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from panacea.data.task import Task
from panacea.errors import RequestError
from panacea.models import FedAvgCnn, GruSeq2Seq, Mlp
from panacea.models.target import TargetModel, sample_losses, sample_metric

LABELS = Task("classification", (4,), (), 3)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Dropout(0.5), nn.Linear(5, 3))


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# --- the vector -------------------------------------------------------------------------------------------------


def test_the_vector_holds_the_trainable_parameters_in_order():
    module = network()
    module[0].bias.requires_grad_(False)
    target = TargetModel(module, LABELS, torch.float64)
    assert target.layout.names == ("0.weight", "1.weight", "1.bias", "4.weight", "4.bias")
    own = {name: p.detach().double() for name, p in module.named_parameters()}
    assert torch.equal(target.initial, torch.cat([own[name].flatten() for name in target.layout.names]))
    assert target.initial.dtype == torch.float64
    assert not target.initial.requires_grad
    assert target.statistics_layout.names == ("1.running_mean", "1.running_var")
    assert target.statistics.tolist() == [0.0] * 5 + [1.0] * 5
    assert target.draws_noise


def test_the_users_module_is_left_alone():
    module = network().eval()
    before = copy.deepcopy(module.state_dict())
    target = TargetModel(module, LABELS, torch.float64)
    target.forward(target.initial + 1, target.statistics, draw(6, 4), training=True, key=torch.tensor(1))
    assert target.original is module
    assert isinstance(module[1], nn.BatchNorm1d)
    assert not module.training
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])
        assert value.dtype == before[name].dtype


def test_networks_without_noise_or_statistics():
    target = TargetModel(Mlp((4,), 3), LABELS)
    assert not target.draws_noise
    assert target.statistics.shape == (0,)
    assert target.statistics.dtype == target.initial.dtype == torch.float32
    quiet = TargetModel(nn.Sequential(nn.Dropout(0.0), nn.Linear(4, 3)), LABELS)
    assert not quiet.draws_noise


def test_a_pass_depends_on_its_arguments_only():
    target = TargetModel(network(), LABELS, torch.float64)
    x, params = draw(6, 4), target.initial + 0.1 * draw(target.layout.size, seed=1)
    statistics = target.statistics + 0.5
    key = torch.tensor(77)
    out, new = target.forward(params, statistics, x, training=True, key=key)
    target.forward(2 * params, 3 * statistics, x + 1, training=True, key=torch.tensor(5))
    target.forward(params, statistics, x, training=False)
    again, new_again = target.forward(params, statistics, x, training=True, key=key)
    assert torch.equal(out, again)
    assert torch.equal(new, new_again)
    assert not torch.equal(new, statistics)
    assert not torch.equal(out, target.forward(params, statistics, x, training=True, key=key + 1)[0])
    in_parts, _ = target.forward(target.layout.parts(params), statistics, x, training=True, key=key)
    assert torch.equal(in_parts, out)


def test_evaluation_and_frozen_passes_keep_the_statistics():
    target = TargetModel(network(), LABELS, torch.float64)
    for how in ({"training": False}, {"training": True, "frozen": True}):
        _, new = target.forward(target.initial, target.statistics + 1, draw(6, 4), **how)
        assert torch.equal(new, target.statistics + 1)


def test_a_network_without_trainable_parameters_is_refused():
    frozen = nn.Linear(4, 3)
    for parameter in frozen.parameters():
        parameter.requires_grad_(False)
    for module in (frozen, nn.ReLU()):
        with pytest.raises(RequestError, match="the network has no trainable parameter"):
            TargetModel(module, LABELS)


class Stateful(nn.Module):
    """A buffer of its own that training changes, in place or by assignment."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.fc = kind, nn.Linear(4, 3)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if self.training and self.kind == "in place":
            self.seen += 1
        if self.training and self.kind == "assigned":
            self.seen = self.seen + 1
        return self.fc(x) + self.seen


@pytest.mark.parametrize("kind", ["in place", "assigned"])
def test_foreign_state_is_refused(kind: str):
    with pytest.raises(RequestError, match="buffer 'seen' changes during training"):
        TargetModel(Stateful(kind), LABELS)


def test_a_constant_buffer_is_welcome_and_no_statistic():
    target = TargetModel(Stateful("constant"), LABELS)
    assert target.statistics.shape == (0,)
    assert target.layout.names == ("fc.weight", "fc.bias")


def test_instance_norm_with_running_statistics_is_refused():
    module = nn.Sequential(nn.Unflatten(1, (2, 2)), nn.InstanceNorm1d(2, track_running_stats=True), nn.Flatten())
    module.append(nn.Linear(4, 3))
    with pytest.raises(RequestError, match="buffer '1"):
        TargetModel(module, LABELS)


# --- the way back -----------------------------------------------------------------------------------------------

TASKS = {
    "batch norm and dropout": (network, LABELS),
    "mlp": (lambda: Mlp((4,), 3), LABELS),
    "cnn": (lambda: FedAvgCnn(1, 16, 3), Task("classification", (1, 16, 16), (), 3)),
    "gru": (lambda: GruSeq2Seq(2, 5, 2, horizon=3), Task("forecasting", (6, 2), (3,))),
}


@pytest.mark.parametrize("name", TASKS)
def test_a_module_with_these_weights_gives_these_outputs(name: str):
    build, task = TASKS[name]
    target = TargetModel(build(), task, torch.float64)
    params = target.initial + 0.1 * draw(target.layout.size, seed=1)
    statistics = target.statistics + draw(len(target.statistics), seed=2).abs()
    module = target.to_module(params, statistics)
    assert type(module) is type(target.original)
    assert not any("Stream" in type(m).__name__ or "Masked" in type(m).__name__ for m in module.modules())
    x = draw(5, *task.inputs, seed=3)
    expected, _ = target.forward(params, statistics, x, training=False)
    with torch.no_grad():
        found = module.eval()(x.float())  # the module has the user's own type
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)
    again = TargetModel(module, task, torch.float64)
    torch.testing.assert_close(again.initial, params.float().double(), rtol=0, atol=0)
    torch.testing.assert_close(again.statistics, statistics.float().double(), rtol=0, atol=0)


def test_handing_out_a_module_does_not_touch_the_original():
    module = network()
    target = TargetModel(module, LABELS)
    first, second = (target.to_module(target.initial + i, target.statistics) for i in range(2))
    assert torch.equal(module[0].weight, first[0].weight)
    assert not torch.equal(first[0].weight, second[0].weight)
    assert torch.equal(TargetModel(module, LABELS).initial, target.initial)


def test_tied_weights_are_one_entry_and_stay_tied():
    module = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Linear(4, 3))
    module[2].weight = module[0].weight
    target = TargetModel(module, LABELS, torch.float64)
    assert target.layout.names == ("0.weight", "0.bias", "2.bias", "3.weight", "3.bias")
    params = target.initial + 0.3 * draw(target.layout.size)
    back = target.to_module(params, target.statistics)
    assert back[2].weight is back[0].weight
    x = draw(5, 4)
    torch.testing.assert_close(
        back.double()(x).detach(), target.forward(params, target.statistics, x, training=False)[0], rtol=1e-6, atol=1e-6
    )
    leaf = params.clone().requires_grad_(True)
    out, _ = target.forward(leaf, target.statistics, x, training=True)
    (gradient,) = torch.autograd.grad(out.sum(), leaf)
    values = {name: p.detach().requires_grad_(True) for name, p in target.layout.unflatten(params).items()}
    h = torch.tanh(F.linear(x, values["0.weight"], values["0.bias"]))
    out = F.linear(F.linear(h, values["0.weight"], values["2.bias"]), values["3.weight"], values["3.bias"])
    expected = torch.autograd.grad(out.sum(), values["0.weight"])[0]
    torch.testing.assert_close(target.layout.unflatten(gradient)["0.weight"], expected)


# --- losses and metrics -----------------------------------------------------------------------------------------


def test_classification_losses_and_accuracy_with_and_without_rows():
    scores, y = draw(2, 5, 3), torch.tensor([[0, 1, 2, 0, 1], [2, 2, 0, 1, 1]])
    losses, metric = sample_losses(LABELS, scores, y), sample_metric(LABELS, scores, y)
    assert losses.shape == metric.shape == (2, 5)
    for row in range(2):
        expected = torch.stack([-F.log_softmax(scores[row, i], dim=0)[y[row, i]] for i in range(5)])
        torch.testing.assert_close(losses[row], expected)
        torch.testing.assert_close(sample_losses(LABELS, scores[row], y[row]), expected)
        right = [100.0 * (int(scores[row, i].argmax()) == int(y[row, i])) for i in range(5)]
        assert metric[row].tolist() == right
        assert sample_metric(LABELS, scores[row], y[row]).tolist() == right


def test_classification_with_as_many_classes_as_samples():
    """Axes of equal length must not be mixed up."""
    task = Task("classification", (4,), (), 5)
    scores, y = draw(5, 5, 5), torch.arange(5).expand(5, 5)
    losses = sample_losses(task, scores, y)
    torch.testing.assert_close(losses[3], sample_losses(task, scores[3], y[3]))


@pytest.mark.parametrize("outputs", [(), (4,), (2, 3)])
def test_squared_error_is_averaged_over_a_samples_outputs(outputs: tuple[int, ...]):
    task = Task("regression", (4,), outputs)
    found, y = draw(2, 5, *outputs), draw(2, 5, *outputs, seed=1)
    expected = (found - y).square().reshape(2, 5, -1).mean(dim=-1)
    torch.testing.assert_close(sample_losses(task, found, y), expected)
    torch.testing.assert_close(sample_losses(task, found[0], y[0]), expected[0])
    assert torch.equal(sample_metric(task, found, y), sample_losses(task, found, y))


class Noisy(Stateful):
    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(self.fc(x), 0.5, self.training)


def test_looking_for_foreign_state_takes_nothing_from_the_global_generator():
    module = Noisy("constant")
    before = torch.get_rng_state()
    TargetModel(module, LABELS)
    assert torch.equal(torch.get_rng_state(), before)
