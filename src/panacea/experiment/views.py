"""What a page shows of a run that only the run itself knows: places, embeddings over rounds, how alike models are.

Everything goes to ``views.npz``; each array is there only where the run has it:

    positions              [clients, 2]      where the clients are, east and north, if their features say so
    property               [clients]         a number to sort and colour clients by; `property_name` says what it is
    embedding_rounds       [S]               evaluated rounds of which the embeddings were kept, at most 40
    embedding_clients      [m]               whose
    embeddings             [S, m, 2]         all in the same two directions, see `project`
    similarity_clients     [k]               whose models are compared
    similarity             [k, k]            cosine of their models, the common mean taken off
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from panacea.core.files import write_atomically
from panacea.data.picture import places
from panacea.evaluation.evaluate import personal_models
from panacea.hypernets import GeneratingMethod

if TYPE_CHECKING:
    from panacea.experiment.experiment import Experiment
    from panacea.experiment.rundir import RunDirectory

__all__ = ["Snapshots", "client_property", "model_similarity", "project", "write_views"]

Floats = npt.NDArray[np.float64]
_SNAPSHOTS = 40  # of the embeddings, at most
_CLIENTS = 1_000  # with embeddings: the first ones
_COMPARED = 256  # clients whose models are compared, at most
_NUMBERS = 25_000_000  # of models held for that


@dataclass
class Snapshots:
    """Embeddings at some of the evaluated rounds, kept in the checkpoint so that a resumed run has the same ones.

    Attributes:
        rounds: when.
        tables: ``[m, d]`` each, half precision: they are for a picture.
    """

    rounds: list[int] = field(default_factory=list)
    tables: list[Tensor] = field(default_factory=list)

    def take(self, experiment: Experiment) -> None:
        """After an evaluation: keep the embeddings, if the method has any and it is the turn of this round."""
        method, config, round = experiment.method, experiment.config, experiment.state.round
        if isinstance(method, GeneratingMethod) and _chosen(round, config.rounds or 0, config.eval_every):
            ids = experiment.federation.train_ids[:_CLIENTS]
            self.rounds.append(round)
            self.tables.append(method.encode(experiment.state.server, method.rows_of(ids)).half().cpu())

    def to_tensors(self) -> dict[str, Tensor]:
        """For a checkpoint; nothing where nothing was kept."""
        if not self.rounds:
            return {}
        return {"snapshots.rounds": torch.tensor(self.rounds), "snapshots.tables": torch.stack(self.tables)}

    @classmethod
    def restored(cls, tensors: dict[str, Tensor]) -> Snapshots:
        """The inverse of `to_tensors`."""
        if "snapshots.rounds" not in tensors:
            return cls()
        return cls(tensors["snapshots.rounds"].tolist(), list(tensors["snapshots.tables"].cpu()))


def _chosen(round: int, rounds: int, every: int) -> bool:
    """Whether an evaluated round is kept: at most 40 of them, evenly, always with the last one.

    >>> [round for round in range(1, 161) if (round % 2 == 0 or round == 160) and _chosen(round, 160, 2)][-3:]
    [152, 156, 160]
    """
    return -(-(rounds - round) // every) % -(-max(rounds, 1) // (every * _SNAPSHOTS)) == 0


def project(tables: Floats) -> Floats:
    r"""``[S, m, d] -> [S, m, 2]``: every snapshot on the two directions along which the last one varies most.

    With :math:`Z_s` the embeddings of snapshot s less their mean over clients and :math:`Z_S = U \Sigma V^\top`, the
    map is :math:`Z_s V_{:, :2}`; the directions are the same in all of them, so that movement is movement.
    """
    centred = tables - tables.mean(axis=1, keepdims=True)
    directions = np.linalg.svd(centred[-1], full_matrices=False)[2][:2]
    return np.asarray(centred @ directions.T)


def client_property(experiment: Experiment) -> tuple[Floats, str]:
    """A number per client to colour it by, and its name: group, first feature, degree or samples."""
    federation = experiment.federation
    if federation.groups is not None:
        return federation.groups.astype(float), "group"
    if federation.features is not None and federation.features.shape[1] >= 1:
        return federation.features[:, 0].astype(float), "first feature"
    if federation.graph is not None:
        return federation.graph.degree.astype(float), "degree"
    return federation.counts("train").astype(float), "train samples"


def model_similarity(experiment: Experiment, most: int = _COMPARED) -> tuple[npt.NDArray[np.int64], Floats] | None:
    """Clients ``[k]`` and ``[k, k]`` cosine between their models, the common mean taken off.

    None where all are one model or there are fewer than three clients.
    """
    federation = experiment.federation
    ids = federation.train_ids[: min(most, _NUMBERS // experiment.target.layout.size)]
    if len(ids) < 3:
        return None
    params, _ = personal_models(experiment.method, experiment.state, experiment.engine, federation, ids, novel=False)
    apart = params - params[0]  # exactly nothing where all are one model, which a mean of many is not
    apart = apart - apart.mean(dim=0)
    length = apart.norm(dim=1, keepdim=True)
    if not float(length.max()) > 1e-6 * max(float(params.abs().max()), 1e-30):
        return None
    unit = apart / length.clamp_min(1e-30)
    return ids, (unit @ unit.T).clamp(-1, 1).double().cpu().numpy()


def write_views(experiment: Experiment, directory: RunDirectory) -> None:
    """Write ``views.npz``."""
    federation, snapshots = experiment.federation, experiment.snapshots
    values, name = client_property(experiment)
    arrays: dict[str, npt.NDArray[Any]] = {"property": values.astype(np.float32), "property_name": np.array(name)}
    where = places(federation)
    if where is not None:
        arrays["positions"] = where.astype(np.float32)
    if snapshots.rounds and len(snapshots.tables[-1]) >= 3 and snapshots.tables[-1].shape[1] >= 2:
        tables = torch.stack(snapshots.tables).double().numpy()
        arrays["embedding_rounds"] = np.array(snapshots.rounds)
        arrays["embedding_clients"] = federation.train_ids[: tables.shape[1]]
        arrays["embeddings"] = project(tables).astype(np.float32)
    # where a client trains its model before it is used, making all of them is as long as an evaluation
    hidden = federation.remote and experiment.method.keeps_model  # their clients have them
    alike = model_similarity(experiment) if experiment.method.adapt() is None and not hidden else None
    if alike is not None:
        arrays["similarity_clients"], arrays["similarity"] = alike[0], alike[1].astype(np.float16)
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)  # type: ignore[arg-type]
    write_atomically(directory.views, content.getvalue())
