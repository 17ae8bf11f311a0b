"""FedAMP and HeurFedAMP by hand, the mixtures' properties, and groups that were planted.

By hand, one step a round, the network of tests/methods/test_worked_examples.py. Round 1: nobody was heard,
u_i = (1, 0, 0), w_0 = (1.4, 0.8, 0.4), w_1 = (1, -0.2, -0.2), whose squared distance is 0.16 + 1 + 0.36 = 1.52. With
sigma = 1.52 and alpha = 0.38 e, xi_01 = alpha exp(-1) / sigma = 0.25; HeurFedAMP with xi_ii = 0.75 has the same, for
there is one other. So u_0 = (1.3, 0.55, 0.25) and u_1 = (1.1, 0.05, -0.05). Round 2, rho = 0.5:
from the centre: client 0, prediction 2.65, error -0.35, gradient -0.7 (1, 2, 1), no pull yet, w_0 = (1.37, 0.69, 0.32);
    client 1, prediction 0, error 1, w_1 = (1.1, -0.15, -0.25);
from its own: client 0, gradient (0.8, 1.6, 0.8) and pull 0.5 (0.1, 0.25, 0.15), w_0 = (1.315, 0.6275, 0.3125);
    client 1, gradient (0, 1.2, 1.2) and pull 0.5 (-0.1, -0.25, -0.15), w_1 = (1.005, -0.3075, -0.3125);
from its own, the pull in closed form, (w - 0.1 g + 0.05 u) / 1.05: ((1.32, 0.64, 0.32) + 0.05 u_0) / 1.05 =
    (1.385, 0.6675, 0.3325) / 1.05, and ((1, -0.32, -0.32) + 0.05 u_1) / 1.05 = (1.055, -0.3175, -0.3225) / 1.05.
"""

from __future__ import annotations

import dataclasses
import math
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example as example_case
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from panacea.core.types import Setting
from panacea.methods import make_method
from panacea.methods.fedamp import _slope
from panacea.methods.message_passing import MessagePassing
from tests.methods.test_worked_examples import AFTER_ONE, example, trajectory_of_all
from tests.methods.visits import after, both_engines, close, evaluated, look, sampled
from tests.toy import largest_difference, play, toy_experiment, trajectory

ATTENTION = ("exp", "scad", "mcp", "sqrt")
ALPHA = 0.38 * math.e
BY_DISTANCE = ("fedamp", {"sigma": 1.52, "alpha": ALPHA, "lam": 0.5 * ALPHA})
BY_COSINE = ("heurfedamp", {"self_weight": 0.75, "rho": 0.5})
CLOSED = [[v / 1.05 for v in row] for row in ([1.385, 0.6675, 0.3325], [1.055, -0.3175, -0.3225])]


@both_engines
@pytest.mark.parametrize(("name", "parameters"), [BY_DISTANCE, BY_COSINE])
class TestByHand:
    def test_the_centres(self, name: str, parameters: dict[str, Any], engine: str) -> None:
        experiment = example(name, 1, parameters, engine=engine)
        assert trajectory_of_all(experiment).tolist() == [[1.0, 0.0, 0.0]] * 2
        play(experiment, 1)
        assert trajectory_of_all(experiment).tolist() == [pytest.approx(row) for row in AFTER_ONE]
        download = look(experiment).downloads
        assert download.params.tolist() == [pytest.approx([1.3, 0.55, 0.25]), pytest.approx([1.1, 0.05, -0.05])]
        assert download.rho.flatten().tolist() == pytest.approx([0.5, 0.5])

    @pytest.mark.parametrize(
        ("keys", "expected"),
        [
            ({}, [[1.37, 0.69, 0.32], [1.1, -0.15, -0.25]]),
            ({"start": "own"}, [[1.315, 0.6275, 0.3125], [1.005, -0.3075, -0.3125]]),
        ],
    )
    def test_the_second_round(
        self, name: str, parameters: dict[str, Any], keys: dict[str, Any], expected: list[list[float]], engine: str
    ) -> None:
        experiment = example(name, 1, {**parameters, **keys}, engine=engine)
        play(experiment, 2)
        assert trajectory_of_all(experiment).tolist() == [pytest.approx(row) for row in expected]
        assert experiment.state.server.models.tolist() == [pytest.approx(row) for row in expected]

    def test_the_pull_in_closed_form(self, name: str, parameters: dict[str, Any], engine: str) -> None:
        """Already the first step is drawn back: ((1.4, 0.8, 0.4) + 0.05 (1, 0, 0)) / 1.05, and likewise client 1."""
        experiment = example(name, 1, {**parameters, "start": "own", "prox": "closed_form"}, engine=engine)
        first = look(experiment).uploads.params
        drawn = [[1.45, 0.8, 0.4], [1.05, -0.2, -0.2]]
        assert first.tolist() == [pytest.approx([v / 1.05 for v in row]) for row in drawn]
        experiment = example(name, 1, {**parameters, "start": "own"}, engine=engine)
        play(experiment, 1)
        changed = experiment.method.parameters.model_copy(update={"prox": "closed_form"})
        experiment.method.parameters = changed
        assert look(experiment).uploads.params.tolist() == [pytest.approx(row) for row in CLOSED]


def test_distances_count_squared_and_each_attention_function_by_its_formula() -> None:
    """Models 0, 1 and 3 on a line, sigma 4, alpha 0.4: x = 1/4, 9/4, 1 in units of sigma, xi = 0.1 times sigma A'."""
    formulas = {
        "exp": lambda x: math.exp(-x),
        "mcp": lambda x: max(0.0, 1 - x / 2),
        "sqrt": lambda x: 1 / math.sqrt(1 + x),
        "scad": lambda x: 1.0 if x <= 2 / 4.7 else max(0.0, (3.7 * 2 / 4.7 - x) / (2.7 * 2 / 4.7)),
    }
    for attention, f in formulas.items():
        xi = mixture(
            "fedamp", {"attention": attention, "sigma": 4.0, "alpha": 0.4}, torch.tensor([[0.0], [1.0], [3.0]])
        )
        a, b, c = 0.1 * f(0.25), 0.1 * f(2.25), 0.1 * f(1.0)
        expected = [[1 - a - b, a, b], [a, 1 - a - c, c], [b, c, 1 - b - c]]
        assert xi.tolist() == [pytest.approx(row) for row in expected]


def mixture(
    name: str, parameters: dict[str, Any], models: Tensor, heard: Tensor | None = None, round: int = 2
) -> Tensor:
    """xi between these models of all clients, ``[clients, clients]``."""
    n = len(models)
    method = alone(name, parameters, n, models.shape[1])
    known = torch.ones(n, dtype=torch.bool) if heard is None else heard
    models = models.double()
    return method.weights(models, models, known, torch.eye(n, dtype=torch.bool), round)


def alone(name: str, parameters: dict[str, Any], n: int, size: int) -> MessagePassing:
    """A method whose setting is that of n clients and vectors of a size, all zero at the start."""
    method = make_method(name, parameters)
    assert isinstance(method, MessagePassing)
    initial = torch.zeros(size, dtype=torch.float64)
    method.setting = dataclasses.replace(some_setting(), initial=initial, train_ids=np.arange(n))
    return method


@cache
def some_setting() -> Setting:
    setting: Setting = toy_experiment("fedamp").method.setting
    return setting


@st.composite
def some_models(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Models of two to six clients, some of them equal, near or far, and who of them was heard."""
    n = draw(st.integers(2, 6))
    values = st.sampled_from([0.0, 1e-20, 1e-3, 0.5, -1.0, 3.0, 1e4])
    rows = draw(st.lists(st.tuples(values, values, values), min_size=n, max_size=n))
    heard = draw(st.lists(st.booleans(), min_size=n, max_size=n))
    return torch.tensor(rows, dtype=torch.float64), torch.tensor(heard)


EXTREMES = [
    {}, {"coupling": 100.0}, {"alpha": 1e300}, {"sigma": 1e-300}, {"sigma": 1e-12, "alpha": 1e9},
    {"sigma": 1e300}, {"sigma_factor": 1e-9}, {"sigma_factor": 1e6}, {"alpha_power": 1.0},
]  # fmt: skip


ALL_EQUAL = (torch.ones(3, 3, dtype=torch.float64), torch.ones(3, dtype=torch.bool))
THIRDS = (torch.tensor([[0.0, 0, 0], [0.1, 0, 0], [0.2, 0, 0], [0.7, 0, 0]]).double(), torch.ones(4, dtype=torch.bool))


@settings(max_examples=60, deadline=None)
@example_case(case=ALL_EQUAL, attention="exp", parameters={"alpha": 1e300})
@example_case(case=THIRDS, attention="exp", parameters={"coupling": 100.0, "sigma": 1.0})
@example_case(case=THIRDS, attention="sqrt", parameters={"alpha": 1e300, "sigma": 1e-30})
@given(case=some_models(), attention=st.sampled_from(ATTENTION), parameters=st.sampled_from(EXTREMES))
def test_rows_are_mixtures_of_models_that_were_heard(
    case: tuple[Tensor, Tensor], attention: str, parameters: dict[str, Any]
) -> None:
    models, heard = case
    xi = mixture("fedamp", {"attention": attention, **parameters}, models, heard)
    is_mixture(xi, heard)


@settings(max_examples=60, deadline=None)
@given(
    case=some_models(),
    sigma=st.sampled_from([0.0, 1.0, 25.0, 1e6]),
    share=st.sampled_from([0.0, 0.3, 1.0]),
    on=st.sampled_from(["params", "delta"]),
)
def test_rows_of_the_heuristic_are_mixtures_too(
    case: tuple[Tensor, Tensor], sigma: float, share: float, on: str
) -> None:
    models, heard = case
    xi = mixture("heurfedamp", {"sigma": sigma, "self_weight": share, "cos_on": on}, models, heard)
    is_mixture(xi, heard)
    others = (heard & ~torch.eye(len(models), dtype=torch.bool)).any(dim=1)
    assert close(xi.diagonal()[others], torch.full((int(others.sum()),), share, dtype=torch.float64))


def is_mixture(xi: Tensor, heard: Tensor) -> None:
    assert bool((xi >= 0).all())
    assert close(xi.sum(dim=1), torch.ones(len(xi), dtype=torch.float64))
    outside = ~heard & ~torch.eye(len(xi), dtype=torch.bool)
    assert not bool(xi[outside].any())  # nobody listens to a client that was never heard


@pytest.mark.parametrize("attention", ATTENTION)
def test_equal_models_share_all_there_is_and_no_more(attention: str) -> None:
    """The guard: off-diagonal weights of 2 * 7 / sigma are scaled to sum to one; small ones are left alone."""
    same = torch.ones(3, 4, dtype=torch.float64)
    xi = mixture("fedamp", {"attention": attention, "alpha": 7.0, "sigma": 1.0}, same)
    assert close(xi, torch.tensor([[0.0, 0.5, 0.5], [0.5, 0.0, 0.5], [0.5, 0.5, 0.0]]).double())
    xi = mixture("fedamp", {"attention": attention, "alpha": 0.2, "sigma": 1.0}, same)
    assert close(xi, (0.2 + 0.4 * torch.eye(3)).double(), 1e-7)
    xi = mixture("fedamp", {"attention": attention, "coupling": 0.5}, same)
    assert close(xi, (0.25 + 0.25 * torch.eye(3)).double())  # alpha=auto: coupling is what equal models weigh together


@pytest.mark.parametrize("attention", ATTENTION)
def test_attention_falls_from_one_and_integrates_to_an_increasing_concave_function(attention: str) -> None:
    x = torch.linspace(0, 40, 400_001, dtype=torch.float64)
    slope = _slope(attention, x)
    assert float(slope[0]) == 1.0
    assert bool((slope >= 0).all())
    assert bool((slope.diff() <= 1e-15).all())  # A is concave
    whole = torch.cumulative_trapezoid(slope, x)
    assert bool((whole.diff() >= 0).all())  # and increasing
    expected = 2 * (math.sqrt(41) - 1) if attention == "sqrt" else 1.0
    assert float(whole[-1]) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("attention", ["exp", "scad", "mcp"])
def test_nobody_is_near_as_sigma_goes_to_zero(attention: str) -> None:
    models = torch.randn(5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert torch.equal(mixture("fedamp", {"attention": attention, "sigma": 1e-4}, models), torch.eye(5).double())
    wide = mixture("fedamp", {"attention": attention, "sigma": 1e3}, models)
    assert bool((wide.diagonal() < 0.1).all())


def test_the_median_is_of_all_pairs_heard_whoever_asks() -> None:
    """Distances 1, 4 and 9 between models heard, one that was not far away: sigma is 0.5 * 4 for every row asked."""
    models = torch.tensor([[0.0], [1.0], [3.0], [100.0]], dtype=torch.float64)
    heard = torch.tensor([True, True, True, False])
    method = alone("fedamp", {"sigma_factor": 0.5, "coupling": 0.3}, 4, 1)
    same = torch.eye(4, dtype=torch.bool)
    together = method.weights(models, models, heard, same, 1)
    assert float(together[0, 1]) == pytest.approx(0.1 * math.exp(-1 / 2))
    assert float(together[1, 2]) == pytest.approx(0.1 * math.exp(-4 / 2))
    for row in range(4):
        assert torch.equal(method.weights(models[[row]], models, heard, same[[row]], 1)[0], together[row])


@pytest.mark.parametrize("heard", [0, 1, 3, 4, 5, 9, 20])
def test_of_very_many_models_the_median_is_of_some_that_were_heard(heard: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every so-manieth of those heard, at most four: however many others there are, and wherever they stand."""
    monkeypatch.setattr("panacea.methods.fedamp._PAIRED", 4)
    generator = torch.Generator().manual_seed(heard)
    models = torch.randn(20, 3, generator=generator, dtype=torch.float64)
    known = torch.zeros(20, dtype=torch.bool)
    known[torch.randperm(20, generator=generator)[:heard]] = True
    some = models[known][:: max(1, math.ceil(heard / 4))]
    pairs = torch.cdist(some, some).square()[~torch.eye(len(some), dtype=torch.bool)]
    expected = float(pairs.median()) if len(pairs) else 1e-30
    sigma = alone("fedamp", {"sigma_factor": 1.0}, 20, 1)._sigma(models, known)
    assert float(sigma) == pytest.approx(expected)


def test_a_decreasing_step_weakens_the_mixture_and_strengthens_the_pull() -> None:
    models = torch.tensor([[0.0], [1.0]])
    for power, by in ((0.0, 1.0), (0.5, 3.0), (1.0, 9.0)):
        parameters = {"alpha": 0.9, "sigma": 1.0, "alpha_power": power, "lam": 0.45}
        xi = mixture("fedamp", parameters, models, round=9)
        assert float(xi[0, 1]) == pytest.approx(0.9 * math.exp(-1) / by)
        assert alone("fedamp", parameters, 2, 1).pull(9) == pytest.approx(0.5 * by)


@pytest.mark.parametrize("change", [{"lam": 0.2}, {"sigma": 0.3}, {"alpha": 0.02}, {"alpha_power": 1.0}])
def test_each_parameter_changes_the_trajectory(change: dict[str, float]) -> None:
    base = {"lam": 0.05, "sigma": 1.0, "alpha": 0.05}
    a, b = (after(3, "fedamp", parameters, cohort=6) for parameters in (base, base | change))
    assert largest_difference(trajectory(a), trajectory(b)) > 1e-6


@pytest.mark.parametrize(("name", "key"), [("fedamp", "lam"), ("heurfedamp", "rho")])
def test_a_stronger_pull_ends_closer_to_the_centre(name: str, key: str) -> None:
    """The proximal term has a gradient: one visit from the same state."""
    for prox in ("gradient", "closed_form"):
        distances = []
        for pull in (0.0, 1.0, 5.0):
            experiment = after(2, name, {"prox": prox, key: 0.5}, cohort=6)
            experiment.method.parameters = experiment.method.parameters.model_copy(update={key: pull})
            seen = look(experiment)
            distances.append((seen.kept.params - seen.downloads.params).norm(dim=1))
        assert bool((distances[1] < distances[0]).all())
        assert bool((distances[2] < distances[1]).all())


@pytest.mark.parametrize("start", ["centre", "own"])
@pytest.mark.parametrize("prox", ["gradient", "closed_form"])
def test_alone_and_without_a_pull_the_heuristic_is_separate(start: str, prox: str) -> None:
    parameters = {"self_weight": 1.0, "rho": 0.0, "start": start, "prox": prox}
    amp, separate = after(4, "heurfedamp", parameters, cohort=2), after(4, "separate", cohort=2)
    assert not sampled(amp).all()
    assert close(evaluated(amp), evaluated(separate))


def test_without_neighbours_and_a_pull_fedamp_is_separate() -> None:
    for start in ("centre", "own"):
        amp = after(4, "fedamp", {"sigma": 1e-9, "lam": 0.0, "start": start}, cohort=2)
        assert close(evaluated(amp)[sampled(amp)], evaluated(after(4, "separate", cohort=2))[sampled(amp)])


def test_cosines_are_of_models_or_of_what_they_moved() -> None:
    """From (10, 0) two clients moved to (10, 1) and (10, -1) and one to (11, 1): of models all cosines are near one."""
    models = torch.tensor([[10.0, 1.0], [10.0, -1.0], [11.0, 1.0]]).double()
    for on, origin in (("params", (0.0, 0.0)), ("delta", (10.0, 0.0))):
        method = alone("heurfedamp", {"cos_on": on, "sigma": 2.0, "self_weight": 0.4}, 3, 2)
        method.setting = dataclasses.replace(method.setting, initial=torch.tensor([10.0, 0.0]).double())
        xi = method.weights(models, models, torch.ones(3, dtype=torch.bool), torch.eye(3, dtype=torch.bool), 1)
        moved = [[a - b for a, b in zip(row, origin, strict=True)] for row in models.tolist()]
        e = [math.exp(2 * cosine(moved[0], moved[j])) for j in (1, 2)]
        assert xi[0].tolist() == pytest.approx([0.4, 0.6 * e[0] / sum(e), 0.6 * e[1] / sum(e)])


def cosine(a: list[float], b: list[float]) -> float:
    return sum(p * q for p, q in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)
