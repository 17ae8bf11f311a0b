r"""`neighbourhood`: a client whose updates contradict those of its neighbours in the relation graph loses its weight.

For servers that take no mean, where there is nothing to make robust: whatever a method does with uploads, it does less
of it with those of a doubted client (`Cohort.trust`). Related clients should change their models in similar directions,
so the direction of a client's update is predicted from its neighbours', and a residual that stays large is the sign of
a lie. With ``D_i`` the update of client i (`Method.unchanged`) and s its sketch (`panacea.robustness.sketch`), for the
clients of a round, in this order:

    l_i = 2 ||D_i|| / (||D_i|| + m),  m the median length of the last 200      how loud: short updates are mostly noise
    d_i = s(D_i) / ||s(D_i)||                                                  direction
    v_i <- (v_i + l_i d_i) / 2,  at its first visit l_i d_i                    what is remembered of client i
    a_ij = A_ij g_ij t_j                                                       for neighbours j that were heard
    p_i = sum_j a_ij v_j / sum_j a_ij                                          what its neighbourhood does
    q_i = ||p_i|| / (sum_j a_ij ||v_j|| / sum_j a_ij)                          1 if it agrees with itself, 0 if not
    r_i = ||d_i - p_i / ||p_i|| ||^2 / 2 = 1 - cos(d_i, p_i)                   residual
    c_i <- c_i + memory min(1, l_i) q_i (1 - r_i - c_i),  at first 1/2         agreement, over several visits
    t_i = (c_i - b + width) / (2 width), at least 0, at most 1                 trust
    b = min(0, median of c over the clients heard - width)

A_ij is the weight of the edge, g_ij the probability that the method's generator gives it (`Method.link_probability`; 1
where there is none), t_j the trust in the neighbour before the round. So an odd round is made good by the next one, a
neighbourhood that is at odds with itself hardly accuses anybody, and a doubted client accuses nobody. Since b follows
the median, at least half of the clients heard have full trust, whatever happens. Clients with fewer than two neighbours
heard are believed. An upload with no trust at all is refused.

An update more than `factor` times as long as is usual (`panacea.robustness.lengths`) is refused too, and counts as
r_i = 2 with full weight: lies that feed on the server's mistakes grow without bound, honest updates shrink.

Memory: `sketch` + 1 numbers per client and 201 more, whatever the size of the model.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from panacea.core.method import Method
from panacea.core.records import Tree, leaves, record
from panacea.core.screening import Judged, refuse
from panacea.core.types import ClientIds, Cohort, Setting
from panacea.errors import RequestError
from panacea.graphs import ClientGraph
from panacea.robustness.defences import DEFENCES, DefenceKeys, Guard
from panacea.robustness.lengths import Lengths
from panacea.robustness.sketch import Sketch
from panacea.robustness.updates import updates_of

__all__ = ["Heard", "Neighbourhood", "NeighbourhoodKeys"]

_ENOUGH = 2  # neighbours heard before a client is judged by them
_INNOCENT = 0.5  # agreement of a client before it is judged
_TINY = 1e-30


@record
class Heard:
    """What is remembered.

    Attributes:
        directions: ``[clients, sketch]`` v; 0 for clients never heard.
        agreement: ``[clients]`` c.
        lengths: of the latest updates, and how long is usual.
    """

    directions: Tensor
    agreement: Tensor
    lengths: Lengths


class NeighbourhoodKeys(DefenceKeys):
    """Keys of `neighbourhood`."""

    sketch: int = Field(256, ge=8, description="numbers remembered of a client's updates")
    memory: float = Field(0.5, gt=0, le=1, description="weight of a visit in a client's agreement with its neighbours")
    factor: float = Field(5.0, gt=1, description="an update may be so many times as long as the usual one")
    width: float = Field(0.1, gt=0, le=1, description="trust falls from 1 to 0 between agreement +width and -width")


class Neighbourhood(Guard):
    """See the module."""

    name, summary = "neighbourhood", "less weight for clients whose updates contradict their neighbours' in the graph"
    key_model = NeighbourhoodKeys
    keys: NeighbourhoodKeys
    method: Method
    graph: ClientGraph
    starts: ClientIds  # where the arcs to every client begin
    sketch: Sketch

    def begin(self, setting: Setting, method: Method) -> None:
        """Look up the neighbours."""
        if setting.graph is None:
            raise RequestError("defence=neighbourhood needs a relation graph and this data has none; try graph=knn")
        self.method, self.graph = method, setting.graph
        self.starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(setting.graph.degree)])
        self.sketch = Sketch(self.keys.sketch, setting.streams)

    def restored(self, tensors: dict[str, Tensor]) -> Heard | None:
        """What was heard."""
        if not tensors:
            return None
        lengths = Lengths(tensors["memory.lengths.latest"], tensors["memory.lengths.largest"])
        return Heard(tensors["memory.directions"], tensors["memory.agreement"], lengths)

    def judge(
        self, memory: Heard | None, judged: Judged, sent: Tensor, cohort: Cohort, server: Tree = None
    ) -> tuple[Tree, Judged]:
        """Hear the cohort, then compare each of its clients with its neighbours."""
        if not leaves(judged.uploads):
            return memory, judged
        updates = updates_of(judged.unchanged, judged.uploads)
        largest = updates.abs().amax(dim=1, keepdim=True).clamp_min(_TINY)  # its square may be too large a number
        lengths = (updates / largest).norm(dim=1) * largest[:, 0]
        if memory is None:
            memory = self._nothing(updates)
        memory, judged = self._without_too_long(memory, judged, lengths, sent, cohort)
        usable = judged.trust[:, 0] > 0
        if not bool(usable.any()):
            return memory, judged
        places, ids = torch.from_numpy(cohort.ids).to(usable.device)[usable], cohort.ids[usable.cpu().numpy()]
        sketches, lengths = self.sketch((updates / largest)[usable]), lengths[usable]
        trust_before = self.trust(memory)
        recent = memory.lengths.then(lengths)
        said = 2 / (1 + recent.median() / lengths.clamp_min(_TINY))
        directions = sketches / sketches.norm(dim=1, keepdim=True).clamp_min(_TINY)
        new = self._remembered(memory, places, said[:, None] * directions)
        memory = Heard(new, memory.agreement, recent)
        near, coherence = self._predicted(memory, ids, trust_before, server)
        step = self.keys.memory * said.clamp_max(1) * coherence
        old = memory.agreement[places]
        agreement = old + step * ((directions * near).sum(dim=1) - old)
        memory = replace(memory, agreement=memory.agreement.index_copy(0, places, agreement))
        trust = judged.trust.clone()
        trust[usable, 0] *= self.trust(memory)[places]
        judged, believed = replace(judged, trust=trust), (trust > 0) | ~usable[:, None]
        if not bool(believed.all()):
            judged = refuse(judged, believed, sent, "contradicts its neighbours", cohort)
        return memory, judged

    def _nothing(self, updates: Tensor) -> Heard:
        """The memory before the first round."""
        n, width = self.graph.n, min(updates.shape[1], self.keys.sketch)
        return Heard(
            updates.new_zeros(n, width),
            updates.new_full((n,), _INNOCENT),
            Lengths.none(updates),
        )

    def _without_too_long(
        self, memory: Heard, judged: Judged, lengths: Tensor, sent: Tensor, cohort: Cohort
    ) -> tuple[Heard, Judged]:
        """Updates as long as no honest one was are refused, and held against their clients."""
        sound = (lengths <= self.keys.factor * memory.lengths.usual()) | (judged.trust[:, 0] == 0)
        if bool(sound.all()):
            return memory, judged
        places = torch.from_numpy(cohort.ids).to(sound.device)[~sound]
        agreement = memory.agreement.index_copy(
            0, places, torch.lerp(memory.agreement[places], -torch.ones_like(lengths[~sound]), self.keys.memory)
        )
        judged = refuse(judged, sound[:, None], sent, "too long an update", cohort)
        return replace(memory, agreement=agreement), judged

    def trust(self, memory: Heard) -> Tensor:
        """``[clients]`` from 0 to 1, 1 for clients never heard."""
        width = self.keys.width
        heard = memory.directions.any(dim=1)
        if not bool(heard.any()):
            return torch.ones_like(memory.agreement)
        bar = (memory.agreement[heard].median() - width).clamp_max(0)
        return torch.where(heard, ((memory.agreement - bar + width) / (2 * width)).clamp(0, 1), 1.0)

    @staticmethod
    def _remembered(memory: Heard, places: Tensor, new: Tensor) -> Tensor:
        """``[clients, sketch]`` directions with the round's; the first of a client counts in full."""
        old = memory.directions[places]
        first = ~old.any(dim=1, keepdim=True)
        return memory.directions.index_copy(0, places, torch.where(first, new, (old + new) / 2))

    def _predicted(self, memory: Heard, ids: ClientIds, trust: Tensor, server: Tree) -> tuple[Tensor, Tensor]:
        """``[rows, sketch]`` unit directions of the neighbourhoods, and ``[rows]`` how far each agrees with itself.

        Both are 0 for clients without enough neighbours heard.
        """
        like = memory.directions
        sources, _, edges = self.graph.arcs()
        arcs = np.concatenate([np.arange(self.starts[i], self.starts[i + 1]) for i in ids])
        rows = np.repeat(np.arange(len(ids)), self.starts[ids + 1] - self.starts[ids])
        near, columns = np.unique(sources[arcs], return_inverse=True)
        if not len(near):
            return like.new_zeros(len(ids), like.shape[1]), like.new_zeros(len(ids))
        strength = torch.from_numpy(edges[arcs]).to(like)
        likely = self.method.link_probability(server, ids[rows], sources[arcs])
        weights = like.new_zeros(len(ids), len(near))
        weights[torch.from_numpy(rows).to(like.device), torch.from_numpy(columns).to(like.device)] = (
            strength if likely is None else strength * likely
        )
        places = torch.from_numpy(near).to(like.device)
        spoken = like[places]
        lengths = spoken.norm(dim=1)
        enough = ((weights > 0) & (lengths > 0)).sum(dim=1) >= _ENOUGH
        weights = weights * torch.where(lengths > 0, trust[places], 0.0)
        total = weights.sum(dim=1, keepdim=True).clamp_min(_TINY)
        mean = weights @ spoken / total
        size = mean.norm(dim=1)
        coherence = size / (weights @ lengths / total[:, 0]).clamp_min(_TINY)
        known = enough & (size > 0)
        unit = mean / size.clamp_min(_TINY)[:, None]
        return torch.where(known[:, None], unit, 0.0), torch.where(known, coherence.clamp_max(1), 0.0)


DEFENCES[Neighbourhood.name] = Neighbourhood
