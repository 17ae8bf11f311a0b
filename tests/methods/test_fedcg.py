"""FedCG: numbers worked out by hand, what it reduces to, its switches, what travels, and what it refuses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from panacea.data.federation import Federation
from panacea.data.task import Task
from panacea.errors import RequestError
from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment
from panacea.experiment.modules import client_module, observed
from panacea.methods import make_method
from panacea.methods.fedcg import FedCgState
from panacea.models.target import objective
from tests.toy import largest_difference, outcome, play, toy_experiment, trajectory

ENGINES = ("sequential", "vectorised")


def with_values(experiment: Experiment, values: dict[str, Any]) -> None:
    """Put numbers into the server's model, by the tensors' names."""
    layout, params = experiment.target.layout, experiment.state.server.params.clone()
    for name, value in values.items():
        params[layout.slices[name]] = torch.as_tensor(value, dtype=params.dtype).flatten()
    experiment.state.server = FedCgState(params, experiment.state.server.domains, experiment.state.server.first_updates)


def part(experiment: Experiment, name: str) -> list[float]:
    values: list[float] = experiment.target.layout.unflatten(experiment.state.server.params)[name].flatten().tolist()
    return values


def by_hand(engine: str, **parameters: Any) -> Experiment:
    """``a x`` with two domains: positive inputs are of domain 1 for the teacher, all others of domain 0."""
    clients = [([[1.0]], [[3.0]]), ([[-1.0]] * 3, [[1.0]] * 3)]
    fed = Federation.from_clients(clients, task=Task("regression", (1,), (1,)), val=0, test=0, name="hand")
    flat: dict[str, Any] = {"data": "hand", "method": "fedcg", "local_steps": 1, "lr": 0.1, "dtype": "float64"}
    flat |= {"cohort": 2, "rounds": 3, "engine": engine, "method.domains": 2}
    flat |= {f"method.{key}": value for key, value in parameters.items()}
    experiment = Experiment(build_config(flat), fed, nn.Linear(1, 1, bias=False).double())
    first = torch.zeros(64)
    first[0] = 1
    start = {"network.agnostic.weight": 1, "network.nodes": [1, 3], "network.projections.0": 1, "network.balance": 1}
    teacher = {"1.weight": first, "1.bias": 0, "3.weight": torch.stack([torch.zeros(64), first]), "3.bias": [0.1, 0]}
    student = {"1.weight": 0, "1.bias": 0, "3.weight": 0, "3.bias": 0}
    start |= {f"given.teacher.{name}": value for name, value in teacher.items()}
    with_values(experiment, start | {f"student.{name}": value for name, value in student.items()})
    return experiment


@pytest.mark.parametrize("engine", ENGINES)
def test_a_round_by_hand(engine: str) -> None:
    """One step at rate 0.1 of ``a x + lambda relu(v_d w) x``, from a = w = lambda = 1, v = (1, 3), A the identity.

    Client 0: x = 1, y = 3, domain 1: 1 + 3 = 4, error 1, slope 2. Gradients: a 2; lambda 2 * 3 = 6; v_1 2; w 2 * 3 = 6.
        So a = 0.8, lambda = 0.4, v = (1, 2.8), w = 0.4.
    Client 1: x = -1, y = 1 (three times), domain 0: -1 - 1 = -2, error -3, slope -6. Gradients of a, lambda, v_0, w: 6.
        So a = 0.4, lambda = 0.4, v = (0.4, 3), w = 0.4.
    Means with 1/4 and 3/4: a = 0.5, lambda = 0.4, v = (0.55, 2.95), w = 0.4.
    The student is zero, so its probabilities are 1/2 and only its last bias has a gradient: (1/2, 1/2) less the one-hot
    domain. At rate 0.2: client 0 (-0.1, 0.1), client 1 (0.1, -0.1); the mean is (0.05, -0.05), and T = 1: so is the
    teacher.
    A with beta 0.6: (0.6, 0.4) and (0.4, 0.6). Loss: (1 + 9) / 2, the student's not counted.
    At test x = 1: p_0 = 1 / (1 + exp(-0.1)); Vhat = 0.4 (0.6 * 0.55 + 0.4 * 2.95, 0.4 * 0.55 + 0.6 * 2.95) =
    (0.604, 0.796); output 0.5 + 0.4 (p_0 0.604 + p_1 0.796).
    """
    experiment = by_hand(engine, beta=0.6, student_lr=0.2, teacher_every=1)
    (report,) = play(experiment, 1)
    assert part(experiment, "network.agnostic.weight") == pytest.approx([0.5])
    assert part(experiment, "network.balance") == pytest.approx([0.4])
    assert part(experiment, "network.nodes") == pytest.approx([0.55, 2.95])
    assert part(experiment, "network.projections.0") == pytest.approx([0.4])
    assert part(experiment, "given.adjacency") == pytest.approx([0.6, 0.4, 0.4, 0.6])
    assert part(experiment, "student.3.bias") == pytest.approx([0.05, -0.05])
    assert part(experiment, "given.teacher.3.bias") == pytest.approx([0.05, -0.05])
    assert part(experiment, "given.teacher.1.weight") == [0.0] * 64
    assert report.loss == pytest.approx(5.0)
    p = 1 / (1 + math.exp(-0.1))
    out = client_module(experiment, 0)(torch.ones(1, 1, dtype=torch.float64))
    assert out.item() == pytest.approx(0.5 + 0.4 * (p * 0.604 + (1 - p) * 0.796))


@pytest.mark.parametrize("engine", ENGINES)
def test_the_federation_mean_levels_the_teacher(engine: str) -> None:
    """The teacher's scores are (0.1, relu(x)): client 0 sees (0.1, 1), client 1 (0.1, 0); weighed (0.1, 0.25).

    A bias of 5 for domain 0 hides domain 1, but not once the means are taken off.
    """
    experiment = by_hand(engine, standardise="federation", teacher_every=2)
    with_values(experiment, {"given.teacher.3.bias": [5.1, 0]})
    play(experiment, 1)
    assert part(experiment, "seen.means")[:2] == pytest.approx([5.1, 0.25])
    assert part(experiment, "seen.means")[2:] == [0.0, 0.0]  # the student's before its first step
    assert observed(experiment)["teacher_entropy"] == pytest.approx(-sum(p * math.log2(p) for p in (0.25, 0.75)))
    play(experiment, 1)
    assert part(experiment, "seen.means")[:2] == part(experiment, "seen.means")[2:]  # the teacher is the student now


class Picture(nn.Module):
    """Two convolutions (one in groups, one reflecting), batch normalisation and a linear layer, on 5 x 5 images."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, padding=1, padding_mode="reflect")
        self.norm = nn.BatchNorm2d(4)
        self.conv2 = nn.Conv2d(4, 6, 3, groups=2, bias=False)
        self.fc = nn.Linear(54, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.conv1(x)))
        out: Tensor = self.fc(torch.flatten(torch.relu(self.conv2(x)), 1))
        return out


def pictures(engine: str = "vectorised", dtype: str = "float64", groups: bool = True, **parameters: Any) -> Experiment:
    """Six clients of two kinds: bright and dark images."""
    generator = np.random.default_rng(0)
    clients = []
    for i, size in enumerate((4, 9, 12, 7, 10, 3)):
        y = generator.integers(0, 3, size)
        x = generator.normal(size=(size, 1, 5, 5)) * 0.3 + (i % 2) + 0.5 * y[:, None, None, None]
        clients.append((x, y))
    known = np.arange(6) % 2 if groups else None
    fed = Federation.from_clients(clients, task=Task("classification", (1, 5, 5), classes=3), name="own", groups=known)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        net = Picture()
    flat = {"data": "own", "method": "fedcg", "lr": 0.05, "rounds": 8, "cohort": 4, "local_steps": 3, "batch_size": 5}
    flat |= {"engine": engine, "dtype": dtype} | {f"method.{key}": value for key, value in parameters.items()}
    return Experiment(build_config(flat), fed, net)


SWITCHES: list[dict[str, Any]] = [
    {},
    {"layers": "all", "adjacency": "per_layer", "gcn_layers": 2},
    {"layers": "fc+conv2", "w_mode": "full"},
    {"w_mode": "bottleneck", "bottleneck": 3},
    {"w_mode": "bottleneck", "bottleneck": 3, "gcn_layers": 2},
    {"w_mode": "identity", "gcn_layers": 2, "out_relu": False, "a_init": "rand"},
    {"branch": "specific_only", "layers": "all", "a_kind": "uniform"},
    {"branch": "separate_models"},
    {"standardise": "batch", "student_lr": 0.1, "teacher_every": 2},
    {"standardise": "federation", "student_lr": 0.1, "teacher_every": 2},
    {"source": "oracle", "a_kind": "hamming"},
    {"source": "kmeans", "soft_test": False},
    {"domains": 1},
]


@pytest.mark.engine
@pytest.mark.parametrize("parameters", SWITCHES, ids=str)
def test_every_switch_trains_alike_in_both_engines(parameters: dict[str, Any]) -> None:
    results, losses = [], []
    for engine in ENGINES:
        experiment = pictures(engine, **{"domains": 2} | parameters)
        losses = [report.loss for report in play(experiment, 8)]
        results.append(outcome(experiment))
    assert largest_difference(*results) < 1e-9
    assert losses[-1] < losses[0]


def values_at(experiment: Experiment, x: Tensor, training: bool = False) -> Any:
    target = experiment.target
    return target.forward(experiment.state.server.params, target.statistics, x, training=training)[0]


def test_without_lambda_it_is_the_plain_network() -> None:
    experiment = pictures(layers="all", lambda_init=0.0)
    x = torch.randn(7, 1, 5, 5, dtype=torch.float64)
    plain = Picture().double()
    own = experiment.target.layout.unflatten(experiment.state.server.params)
    for name, value in plain.named_parameters():
        layer, _, leaf = name.rpartition(".")
        found = own.get(f"network.{layer}.agnostic.{leaf}", own.get(f"network.{name}"))
        assert found is not None
        value.data.copy_(found)
    torch.testing.assert_close(values_at(experiment, x), plain.eval()(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
def test_it_reduces_to_fedavg(engine: str) -> None:
    """A constant lambda of 0: whatever domains, student and teacher do, theta_a is FedAvg's after every round."""
    fixed = {"lambda_init": 0.0, "learn_lambda": False, "layers": "all"}
    enlarged, plain = toy_experiment("fedcg", fixed, engine=engine), toy_experiment("fedavg", engine=engine)
    for _ in range(4):
        play(enlarged, 1)
        play(plain, 1)
        own = enlarged.target.layout.unflatten(enlarged.state.server.params)
        for name, value in plain.target.layout.unflatten(plain.state.server.params).items():
            layer, _, leaf = name.rpartition(".")
            torch.testing.assert_close(own[f"network.{layer}.agnostic.{leaf}"], value, rtol=1e-12, atol=1e-12)


def test_soft_is_hard_where_the_student_is_sure() -> None:
    x = torch.randn(9, 1, 5, 5, dtype=torch.float64)
    outputs = []
    for soft in (True, False):
        experiment = pictures(soft_test=soft, domains=3)
        before = values_at(experiment, x)
        with_values(experiment, {"student.fc.bias": [0.0, 1e4, 0.0]})
        outputs += [before, values_at(experiment, x)]
    soft_before, soft_after, hard_before, hard_after = outputs
    torch.testing.assert_close(soft_after, hard_after, rtol=0, atol=0)
    assert not torch.allclose(soft_before, hard_before)


def test_what_is_given_has_no_gradient_and_stays() -> None:
    experiment = pictures(domains=3)
    target = experiment.target
    leaf = experiment.state.server.params.clone().requires_grad_(True)
    x, y = torch.randn(6, 1, 5, 5, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1, 2])
    given, _ = target.forward(leaf, target.statistics, x, training=True)
    (gradient,) = torch.autograd.grad(objective(target.task, given, y)[0].sum(), leaf)
    for name, value in target.layout.unflatten(gradient).items():
        assert bool((value == 0).all()) == name.startswith("given."), name
    before = {name: part(experiment, name) for name in target.layout.names}
    experiment = pictures(domains=3, a_kind="uniform", teacher_every=3)
    experiment.engine.local = type(experiment.engine.local)(**vars(experiment.engine.local) | {"weight_decay": 0.1})
    play(experiment, 2)
    for name in target.layout.names:
        if name.startswith("given.teacher"):
            assert part(experiment, name) == before[name]  # not even weight decay
    play(experiment, 1)
    assert part(experiment, "given.teacher.fc.bias") == part(experiment, "student.fc.bias")


def test_the_student_learns_to_imitate_the_teacher() -> None:
    experiment = pictures(domains=2, standardise="federation", student_lr=0.2, teacher_every=100)
    play(experiment, 10)
    early = observed(experiment)
    play(experiment, 80)
    late = observed(experiment)
    assert late["teacher_entropy"] > 0.5  # there is something to learn
    assert late["student_agreement"] > max(0.9, early["student_agreement"])


def test_rows_of_the_adjacency_sum_to_one_and_nearer_domains_count_more() -> None:
    """Distances of V = (0, 1, 3): row 0 has h = (1, 1/3), so 0.5 (3/4, 1/4)."""
    from panacea.models.domain_graph import similarity

    a = similarity(torch.tensor([[0.0], [1.0], [3.0]], dtype=torch.float64), 0.5)
    assert a[0].tolist() == pytest.approx([0.5, 0.375, 0.125], rel=1e-6)
    assert a.sum(dim=1).tolist() == pytest.approx([1.0] * 3)
    assert similarity(torch.zeros(3, 2), 0.5)[0].tolist() == pytest.approx([0.5, 0.25, 0.25])  # all the same
    assert similarity(torch.zeros(1, 2), 0.5).tolist() == [[1.0]]
    for parameters in ({"adjacency": "per_layer", "layers": "all"}, {"a_init": "rand"}, {"a_kind": "uniform"}):
        experiment = pictures(**parameters)
        for _ in range(2):
            found = experiment.target.layout.unflatten(experiment.state.server.params)["given.adjacency"]
            assert torch.allclose(found.sum(dim=-1), torch.ones(()).to(found))
            play(experiment, 1)


def test_two_domains_at_the_papers_beta_are_one() -> None:
    """beta = 0.5 leaves 0.5 for the other domain: all of A is 1/2, and both domains get the same parameters."""
    x = torch.randn(9, 1, 5, 5, dtype=torch.float64)
    for beta, same in ((0.5, True), (0.7, False)):
        experiment = pictures(domains=2, beta=beta, soft_test=False)
        play(experiment, 1)
        outputs = []
        for bias in ([1e4, 0.0], [0.0, 1e4]):
            with_values(experiment, {"student.fc.bias": bias})
            outputs.append(values_at(experiment, x))
        assert torch.allclose(*outputs, rtol=1e-9) == same


def test_the_hamming_adjacency() -> None:
    """Groups 0..3 as two bits: from 00 to 01 and 10 one bit, to 11 two: h = (1, 1, 1/2), so 0.5 (0.4, 0.4, 0.2)."""
    experiment = pictures(domains=4, source="oracle", a_kind="hamming")
    play(experiment, 1)
    assert part(experiment, "given.adjacency")[:4] == pytest.approx([0.5, 0.2, 0.2, 0.1])


@pytest.mark.parametrize(
    ("parameters", "given"),
    [({}, "teacher"), ({"source": "oracle"}, "domain"), ({"standardise": "federation"}, "means")],
)
def test_bytes_are_those_of_the_formula(parameters: dict[str, Any], given: str) -> None:
    """4 s (P_a + D P_s + P_W + n_lambda + D^2 + 2 P_g) down, without D^2 and the teacher up; P_g = 18,816 + 65 D."""
    experiment = pictures(dtype="float32", domains=3, **parameters)
    (report,) = play(experiment, 1)
    s, d = 4, 3
    agnostic = sum(p.numel() for p in Picture().parameters())
    filter_size, classifier = 2 * 3 * 3, 18_816 + 65 * d  # conv2 has 2 channels a group and no bias
    trained = agnostic + d * 6 * filter_size + filter_size**2 + 1 + classifier
    down = {"teacher": classifier, "domain": d, "means": classifier + 2 * d}[given] + d * d
    statistics = 2 * 4
    assert report.bytes_down == 4 * s * (trained + down + statistics)
    assert report.bytes_up == 4 * s * (trained + (2 * d if given == "means" else 0) + statistics)


def test_an_oracle_tells_each_client_its_group() -> None:
    experiment = pictures(domains=3, source="oracle")
    cohort = experiment.cohort(1)
    place = experiment.target.layout.slices["given.domain"]
    sent = experiment.method.download(experiment.state.server, cohort).params[:, place]
    assert sent.argmax(dim=1).tolist() == (cohort.ids % 2).tolist()
    assert sent.sum(dim=1).tolist() == [1.0] * len(cohort)
    assert trajectory(experiment)["evaluated.False"][:, place].argmax(dim=1).tolist() == [0, 1, 0, 1, 0, 1]


def test_k_means_knows_clients_from_their_first_visit_on() -> None:
    experiment = pictures(domains=2, source="kmeans")
    place = experiment.target.layout.slices["given.domain"]
    first = experiment.cohort(1)
    sent = experiment.method.download(experiment.state.server, first).params[:, place]
    assert sent.unique().tolist() == [0.5]  # not clustered yet: all domains alike
    play(experiment, 1)
    members = experiment.state.server.first_updates.members
    assert members.sum(dim=1).nonzero().squeeze(1).tolist() == first.ids.tolist()
    evaluated = trajectory(experiment)["evaluated.False"][:, place]
    assert torch.equal(evaluated, members)  # zeros for the others: the student decides
    play(experiment, 7)
    assert bool((experiment.state.server.first_updates.members.sum(dim=1) == 1).all())


def test_what_is_logged() -> None:
    experiment = pictures(domains=2, layers="conv2+fc")
    play(experiment, 2)
    logged = experiment.method.diagnostics(experiment.state.server, experiment.state.clients, np.arange(6))
    assert logged["lambda.conv2"] == part(experiment, "network.conv2.balance")[0]
    assert set(logged) == {"lambda.conv2", "lambda.fc", "a_largest", "a_01", "a_10"}
    seen = observed(experiment)
    assert set(seen) == {"domain_entropy", "teacher_entropy", "student_agreement"}
    assert all(0 <= value <= 1 for value in seen.values())


def test_the_exported_network_is_the_evaluated_one() -> None:
    experiment = pictures(layers="all", dtype="float32")
    play(experiment, 2)
    x = torch.randn(5, 1, 5, 5)
    module = client_module(experiment, 0)
    found, _ = experiment.target.forward(
        experiment.state.server.params, experiment.state.statistics.common, x, training=False
    )
    torch.testing.assert_close(module(x), found, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"domains": 0}, "method.domains=0: must be greater than or equal to 1"),
        ({"layers": "conv9"}, r"no layer 'conv9'; use last, all or some of conv1, norm, conv2, fc"),
        ({"w_mode": "wide"}, "method.w_mode=wide: must be"),
        ({"a_kind": "hamming"}, "method: a_kind=hamming .* needs source=oracle and a power of two as domains"),
        ({"a_kind": "hamming", "source": "oracle", "domains": 3}, "a power of two"),
        ({"source": "kmeans", "standardise": "batch"}, "standardise=batch is for source=teacher"),
        ({"source": "oracle", "domains": 1}, "needs at least 2 domains"),
        ({"source": "oracle", "groups": False}, "method.source=oracle: this data set has no known groups"),
        ({"beta": 1.5}, "method.beta=1.5: must be less than or equal to 1"),
    ],
)
def test_wrong_requests_are_one_line(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        pictures(**parameters)
    assert "\n" not in str(caught.value)


def test_a_projection_that_would_not_fit_is_refused() -> None:
    """LEAF's FEMNIST convolution: 51,264 parameters a domain, W over all of them would have 2.6 thousand million."""
    from panacea.core.random import Streams
    from panacea.models import LeafFemnistCnn

    method = make_method("fedcg", {"w_mode": "full"})
    with pytest.raises(
        RequestError, match="layer 'conv2' has 51264 parameters a domain, so W would have 2,627,997,696"
    ):
        method.enlarge(LeafFemnistCnn(), Task("classification", (1, 28, 28), classes=62), Streams(0))


def test_a_network_without_fitting_layers_is_refused() -> None:
    from panacea.models.domains import find_layers

    with pytest.raises(RequestError, match="no linear, convolution or batch normalisation layer"):
        find_layers(nn.GRU(2, 3), "last")
