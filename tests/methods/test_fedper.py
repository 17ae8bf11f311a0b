"""FedPer, FedRep and FedBN: what travels, what stays, and which part moves when.

By hand, the bias being personal (the network w1 x1 + w2 x2 + b and its samples: tests/methods/test_worked_examples.py).
FedPer, one step: (1.4, 0.8 | 0.4) and (1, -0.2 | -0.2), so by samples the weights are (1.1, 0.05). Round 2: client 0
    at (1.1, 0.05 | 0.4), prediction 1.6, error -1.4, gradient -2.8 (1, 2, 1), (1.38, 0.61 | 0.68); client 1 at
    (1.1, 0.05 | -0.2), prediction -0.15, error 0.85, gradient 1.7 (0, 1, 1), (1.1, -0.12 | -0.37); weights
    (1.17, 0.0625).
FedRep, two steps, half of them for the head: first b = 0.4 and -0.2 alone. Then the weights alone: client 0 at
    (1, 0 | 0.4), prediction 1.4, error -1.6, gradient -3.2 (1, 2), (1.32, 0.64); client 1 at (1, 0 | -0.2), prediction
    -0.2, error 0.8, gradient 1.6 (0, 1), (1, -0.16). By samples (1.08, 0.04).
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from panacea.core.types import Newcomers
from panacea.errors import RequestError
from panacea.evaluation.evaluate import admitted_models
from tests.methods.test_worked_examples import example, trajectory_of_all
from tests.methods.visits import after, both_engines, close, evaluated, everyone, look, sampled
from tests.toy import play, toy_experiment

BODY, HEAD = slice(0, 20), slice(20, 32)  # of the toy network: hidden 3 x 5 + 5, fc 5 x 2 + 2
WITH_NORM = {"model.norm": "batch"}
NORM = slice(20, 30)  # hidden 15 + 5, then scales and shifts of five units, fc 10 + 2


@both_engines
class TestByHand:
    def test_two_rounds_of_fedper(self, engine: str) -> None:
        experiment = example("fedper", 1, {"personal": "bias"}, engine=engine)
        play(experiment, 1)
        assert experiment.state.server.params.tolist() == pytest.approx([1.1, 0.05])
        assert trajectory_of_all(experiment).tolist() == [
            pytest.approx([1.1, 0.05, 0.4]),
            pytest.approx([1.1, 0.05, -0.2]),
        ]
        play(experiment, 1)
        assert trajectory_of_all(experiment).tolist() == [
            pytest.approx([1.17, 0.0625, 0.68]),
            pytest.approx([1.17, 0.0625, -0.37]),
        ]

    def test_a_round_of_fedrep(self, engine: str) -> None:
        experiment = example("fedrep", 2, {"personal": "bias", "head_share": 0.5}, engine=engine)
        play(experiment, 1)
        assert trajectory_of_all(experiment).tolist() == [
            pytest.approx([1.08, 0.04, 0.4]),
            pytest.approx([1.08, 0.04, -0.2]),
        ]


@pytest.mark.parametrize("name", ["fedper", "fedrep"])
def test_the_last_layer_stays_and_the_rest_travels(name: str) -> None:
    experiment = after(2, name, cohort=6)
    seen = look(experiment)
    assert seen.downloads.params.shape == seen.uploads.params.shape == (6, 20)
    assert seen.kept.params.shape == (6, 12)
    models = evaluated(experiment)
    assert bool((models[:, BODY] == models[0, BODY]).all())
    assert len({tuple(row) for row in models[:, HEAD].tolist()}) == 6
    assert torch.equal(models[:, HEAD], experiment.state.clients.packed()[1].params)
    share = seen.cohort.counts / seen.cohort.counts.sum()
    play(experiment, 1)
    assert close(experiment.state.server.params, (share * seen.uploads.params).sum(dim=0))


@pytest.mark.parametrize("name", ["fedper", "fedrep"])
def test_a_client_never_sampled_has_the_initial_head_on_the_newest_body(name: str) -> None:
    experiment = after(2, name, cohort=2)
    models, seen = evaluated(experiment), sampled(experiment)
    assert not seen.all()
    assert bool((models[~seen][:, HEAD] == experiment.target.initial[HEAD]).all())
    assert bool((models[:, BODY] == experiment.state.server.params).all())
    assert bool((models[seen][:, HEAD] != experiment.target.initial[HEAD]).any(dim=1).all())


@pytest.mark.parametrize("name", ["fedper", "fedrep"])
def test_the_personal_part_can_be_named(name: str) -> None:
    experiment = after(1, name, {"personal": "hidden.0.bias+fc.weight"}, cohort=6)
    moved = evaluated(experiment) != evaluated(experiment)[0]
    assert bool(moved[1:, 15:30].any())
    assert not bool(moved[:, :15].any())
    assert not bool(moved[:, 30:].any())
    assert experiment.state.server.params.shape == (17,)


@pytest.mark.parametrize("name", ["fedper", "fedrep"])
@pytest.mark.parametrize(
    ("personal", "words"),
    [("fd", "did you mean 'fc'"), ("hidden+fc", "nothing is left to share"), ("all", "nothing is left to share"),
     ("fc+", "empty name"), ("", "empty name")],
)  # fmt: skip
def test_wrong_names_are_refused_in_one_line(name: str, personal: str, words: str) -> None:
    with pytest.raises(RequestError) as caught:
        toy_experiment(name, {"personal": personal})
    assert "method.personal=" in str(caught.value)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@both_engines
@pytest.mark.parametrize("name", ["fedper", "fedrep"])
def test_a_newcomer_trains_only_the_head(name: str, engine: str) -> None:
    experiment = after(2, name, {"head_steps": 3}, engine=engine)
    body = experiment.state.server.params
    novel = experiment.federation.novel_ids
    start, _ = admitted_models(experiment.method, experiment.state, experiment.target, Newcomers(novel, None))
    assert torch.equal(start[0], torch.cat([body, experiment.target.initial[HEAD]]))
    found = evaluated(experiment, novel=True)
    assert torch.equal(found[0, BODY], body)
    assert bool((found[0, HEAD] != experiment.target.initial[HEAD]).any())
    statistics = experiment.state.statistics.average().expand(1, -1)
    before, end = (experiment.engine.evaluate(model, statistics, novel, "train").loss for model in (start, found))
    assert end < before
    longer = evaluated(after(2, name, {"head_steps": 30}, engine=engine), novel=True)
    assert experiment.engine.evaluate(longer, statistics, novel, "train").loss < end


def test_one_round_of_fedper_moves_both_parts_as_fedavg_does() -> None:
    """From the common start local training is FedAvg's; only then the ways part."""
    fedper, fedavg = look(toy_experiment("fedper")), look(toy_experiment("fedavg"))
    assert torch.equal(fedper.uploads.params, fedavg.uploads.params[:, BODY])
    assert torch.equal(fedper.kept.params, fedavg.uploads.params[:, HEAD])


@both_engines
@pytest.mark.parametrize("keys", [{}, {"momentum": 0.9, "weight_decay": 0.05}, {"local_epochs": 5}, {"clip": 1e-3}])
def test_fedrep_trains_the_head_first_and_then_the_body(keys: dict[str, Any], engine: str) -> None:
    """Stopped after t steps of a visit; K_h is half of each client's own number, rounded up."""
    experiment = toy_experiment("fedrep", {"head_share": 0.5}, engine=engine, cohort=6, local_steps=5, **keys)
    method, trace = experiment.method, []
    step = method.step

    def watched(carry: Any, *others: Any) -> Any:
        new = step(carry, *others)
        trace.append((carry.taken, carry.model.params, new.model.params, others[-1].steps))
        return new

    method.step = watched  # type: ignore[method-assign]
    seen = look(experiment)
    numbers = experiment.engine.local.steps_of(seen.cohort.ids, None)
    assert len(set(numbers.tolist())) == (4 if "local_epochs" in keys else 1)
    moved_head, moved_body = 0, 0
    for taken, old, new, steps in trace:
        lead = old.reshape(-1, 32), new.reshape(-1, 32)
        counts = torch.as_tensor(steps).reshape(-1).expand(len(lead[0]))
        for row, count in enumerate(counts.tolist()):
            at, first = int(taken.reshape(-1)[row]), max(1, min(-(-count // 2), count - 1))
            if at >= count:
                continue  # a client that has finished; what it computes is thrown away
            resting, moving = (BODY, HEAD) if at < first else (HEAD, BODY)
            assert torch.equal(lead[0][row, resting], lead[1][row, resting])
            assert not torch.equal(lead[0][row, moving], lead[1][row, moving])
            if "clip" in keys:  # the part that rests does not count in the length
                assert float((lead[1][row] - lead[0][row]).norm()) == pytest.approx(0.1 * 1e-3)
            moved_head, moved_body = moved_head + (at < first), moved_body + (at >= first)
    heads = sum(max(1, min(-(-count // 2), count - 1)) for count in numbers.tolist())
    assert (moved_head, moved_body) == (heads, int(numbers.sum()) - heads)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("share", "steps", "head"),
    [(10 / 11, 11, 10), (10 / 11, 50, 46), (10 / 11, 22, 20), (0.3, 50, 15), (0.6, 25, 15), (0.07, 100, 7),
     (0.99, 3, 2), (0.01, 5, 1)],
)  # fmt: skip
def test_the_share_of_the_head_is_rounded_up(share: float, steps: int, head: int, dtype: str) -> None:
    """With a step of the head fewer or more, its bias would be another: it follows a geometric sequence.

    Client 0 with the weights (1, 0): b <- b - 0.01 * 2 (1 + b - 3) from 0, so that b = 2 - 2 * 0.98^t.
    """
    rate = 0.01
    experiment = example("fedrep", steps, {"personal": "bias", "head_share": share}, dtype=dtype, lr=rate)
    play(experiment, 1)
    found = float(experiment.state.clients.packed()[1].params[0, 0])
    assert found == pytest.approx(2 - 2 * (1 - 2 * rate) ** head, abs=1e-4)


def norm_and_rest(models: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return models[:, NORM], torch.cat([models[:, :20], models[:, 30:]], dim=1)


def test_batch_norm_stays_with_the_client() -> None:
    experiment = after(2, "fedbn", cohort=6)
    assert experiment.target.layout.slices["hidden.1.weight"].start == NORM.start
    assert experiment.target.layout.slices["hidden.1.bias"].stop == NORM.stop
    norm, rest = norm_and_rest(evaluated(experiment))
    assert bool((rest == rest[0]).all())
    assert len({tuple(row) for row in norm.tolist()}) == 6
    statistics = experiment.state.statistics.send(everyone(experiment))
    assert len({tuple(row) for row in statistics.tolist()}) == 6
    assert experiment.config.buffers == "local"
    seen = look(experiment)
    assert seen.downloads.params.shape == (6, 32)
    share = seen.cohort.counts / seen.cohort.counts.sum()
    play(experiment, 1)
    assert close(experiment.state.server.params, (share * seen.uploads.params).sum(dim=0))


def test_a_newcomer_of_fedbn_is_given_the_mean() -> None:
    experiment = after(3, "fedbn", cohort=2)
    own = experiment.state.clients.packed()[1].params
    assert 2 <= len(own) < 6  # of those who have one
    found = evaluated(experiment, novel=True)
    norm, rest = norm_and_rest(found)
    assert close(norm[0], own.mean(dim=0))
    assert torch.equal(rest[0], experiment.state.server.params)
    newcomers = Newcomers(experiment.federation.novel_ids, None)
    _, statistics = admitted_models(experiment.method, experiment.state, experiment.target, newcomers)
    assert close(statistics[0], experiment.state.statistics.own.packed()[1].mean(dim=0))
    assert experiment.method.newcomer_uses == "nothing"
    before = toy_experiment("fedbn")
    assert torch.equal(evaluated(before, novel=True)[0], before.target.initial)


def test_fedbn_moves_the_shared_layers_as_fedavg_with_local_statistics() -> None:
    fedbn, fedavg = look(toy_experiment("fedbn")), look(toy_experiment("fedavg", buffers="local", **WITH_NORM))
    norm, rest = norm_and_rest(fedavg.uploads.params)
    assert torch.equal(fedbn.uploads.params, rest)
    assert torch.equal(fedbn.kept.params, norm)


def test_fedbn_is_refused_without_batch_norm_in_one_line() -> None:
    with pytest.raises(RequestError, match=r"^method=fedbn: the network has no BatchNorm[^\n]*$"):
        toy_experiment("fedbn", **{"model.norm": "none"})
