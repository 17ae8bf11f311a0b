"""Trained networks as ordinary modules: a client's own, and one for a client that was never there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from panacea.core.method import Method
from panacea.core.types import Newcomers
from panacea.data.federation import Federation
from panacea.errors import RequestError, nearest
from panacea.evaluation.evaluate import admitted_models, personal_models
from panacea.experiment.experiment import Experiment

__all__ = ["Joined", "client_module", "find_client", "join", "observed"]

_OBSERVED = 2_000  # samples that a method's observations look at, at most


def find_client(federation: Federation, given: int | str, what: str = "client") -> int:
    """A client's number from its number or name; where a text would do as both it is a name."""
    last = len(federation) - 1
    if isinstance(given, str) and given in federation.names:
        return federation.names.index(given)
    if isinstance(given, str) and not given.isdecimal():
        close = nearest(given, federation.names)
        hint = f" did you mean '{close}'?" if close else ""
        raise RequestError(f"{what} '{given}' does not exist;{hint} clients are 0..{last} or their names")
    if not isinstance(given, str | int | np.integer) or isinstance(given, bool):
        raise RequestError(f"{what} {given!r} is neither a number nor a name; clients are 0..{last} or their names")
    if not 0 <= int(given) <= last:
        raise RequestError(f"{what} {given} does not exist; clients are 0..{last}")
    return int(given)


def client_module(experiment: Experiment, client: int) -> nn.Module:
    """A client's own network after the last round, in evaluation mode."""
    with torch.inference_mode(False), torch.enable_grad():  # the method may fine-tune, whatever the caller is doing
        params, statistics = personal_models(
            experiment.method,
            experiment.state,
            experiment.engine,
            experiment.federation,
            np.array([client], np.int64),
            novel=bool(experiment.federation.novel[client]),
        )
    return experiment.target.to_module(params[0], statistics[0]).eval()


def observed(experiment: Experiment) -> dict[str, float]:
    """The method's numbers that need inputs: of some train samples of every training client."""
    if experiment.federation.remote or type(experiment.method).observations is Method.observations:
        return {}
    federation = experiment.federation
    ids = federation.train_ids[:_OBSERVED]
    share = max(1, _OBSERVED // len(ids))
    x = torch.cat([federation.client(int(client))[0][:share] for client in ids])
    module = client_module(experiment, int(ids[0]))
    with torch.no_grad():
        return experiment.method.observations(module, x.to(next(module.parameters()).dtype))


@dataclass(frozen=True)
class Joined:
    """A newcomer's network, the clients it was linked to, and what a user should know."""

    module: nn.Module
    neighbours: tuple[int, ...]
    untrained: bool
    notes: tuple[str, ...]


def join(
    experiment: Experiment,
    neighbours: Sequence[int | str] | int = (),
    weights: Sequence[float] | None = None,
    features: Sequence[float] | None = None,
    *,
    untrained: bool = False,
) -> Joined:
    """A network for a client that is in no data set: from its links, without any training.

    Args:
        experiment: a trained one.
        neighbours: clients the newcomer is related to, by number or name; one need not be in a list.
        weights: of these links, all 1 by default.
        features: side information on the newcomer, for methods that use it.
        untrained: accept a method whose newcomers would train on data of their own, which there is none of here.

    Raises:
        RequestError: the method cannot give a newcomer a model like this, or an argument does not fit the run.
    """
    method, federation = experiment.method, experiment.federation
    if isinstance(neighbours, str | int | np.integer):  # one name: its letters are not clients
        neighbours = [neighbours]
    ids = [find_client(federation, given, "neighbour") for given in neighbours]
    uses, notes, name = method.newcomer_uses, [], method.name
    if uses == "train split" and not untrained:
        raise RequestError(
            f"method '{name}' trains a newcomer's model on the newcomer's own data, and there is none here: the model "
            "would be untrained (--untrained, in Python untrained=True, gives it as it is)"
        )
    if uses == "links" and federation.graph is None:
        raise RequestError(f"method '{name}' builds a newcomer's model from its links, but this run has no graph")
    if uses == "links" and not ids:
        raise RequestError(f"method '{name}' builds a newcomer's model from its links; name at least one neighbour")
    if uses == "nothing" and ids:
        notes.append(f"method '{name}' gives every newcomer the same model; its neighbours do not matter")
    held = [federation.names[i] for i in ids if federation.novel[i]]
    if held and uses == "links":
        notes.append(f"{', '.join(held)}: held out of training, so little is learnt from a link to it")
    graph = None if federation.graph is None else federation.graph.with_node(ids, weights)
    newcomers = Newcomers(np.array([len(federation)], np.int64), graph, _features(federation, features))
    params, statistics = admitted_models(method, experiment.state, experiment.target, newcomers)
    module = experiment.target.to_module(params[0], statistics[0]).eval()
    return Joined(module, tuple(ids), uses == "train split", tuple(notes))


def _features(federation: Federation, given: Sequence[float] | None) -> npt.NDArray[np.float32] | None:
    """The clients' features and the newcomer's, NaN where they are not given."""
    known = federation.features
    if known is None:
        if given is not None:
            raise RequestError("features: the clients of this run have none")
        return None
    row = np.full(known.shape[1], np.nan, np.float32) if given is None else np.asarray(given, np.float32)
    if row.shape != (known.shape[1],):
        raise RequestError(f"features: {row.size} given, the clients of this run have {known.shape[1]} each")
    if given is not None and not np.isfinite(row).all():
        raise RequestError("features: all must be finite numbers")
    return np.concatenate([known, row[None]])
