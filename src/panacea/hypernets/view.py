"""The newcomers' view: the cohort encoded as if it were new, in the same pass as everybody as they are.

Each client of the cohort is given the mean of its neighbours' rows instead of its own, and hears some of its neighbours
only, a number drawn for it in every round (`Links`). With all of them, the same in every round, the server would learn
by heart who has which neighbours; a newcomer has others. What the cohort says changes the codes of those who hear it,
and of these only some are heard by the cohort again. So the encoder carries, beside the nodes themselves, a copy of
each node on a way of at most L arcs from the cohort back to it; the copies listen to copies where there are any, else
to the nodes themselves. Nothing that the view does not change, and nothing that it does not need, is computed twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from panacea.hypernets.propagation import Block, Floats, thinned

__all__ = ["Links", "View", "copied_nodes", "evened", "with_copies"]

Ids = npt.NDArray[np.int64]

_EVEN = 16  # copies come in multiples of this many
_ALL = 1 << 40  # more neighbours than there are


@dataclass(frozen=True)
class Links:
    """The links that the cohort has in the view.

    Attributes:
        share: ``[cohort]`` of each client's links, in (0, 1]; one link at least.
        key: of the order in which they are taken.
    """

    share: Floats
    key: int

    def most(self, targets: Ids, copies: int) -> Ids:
        """``[copies]`` neighbours that each copy may hear; `targets` are the listening ends of the cohort's links."""
        links = np.bincount(targets, minlength=len(self.share))
        return np.pad(np.ceil(self.share * links).astype(np.int64), (0, copies - len(links)), constant_values=_ALL)


@dataclass(frozen=True)
class View:
    """The copies' rows, made of the encoder's inputs.

    Attributes:
        start: from the inputs to the copies: of the cohort the mean of the neighbours' rows, of others their own row.
        lonely: ``[copies, 1]`` who has no neighbour and is given the middle of all rows; None if nobody.
    """

    start: Block
    lonely: Tensor | None

    def of(self, h: Tensor, middle: Tensor | None) -> Tensor:
        """``[inputs, d0] -> [inputs + copies, d0]``; `middle` ``[d0]`` is the mean of all rows, None where h is all."""
        copies = self.start.mix(h)
        if self.lonely is not None:
            copies = torch.where(self.lonely, h.mean(dim=0) if middle is None else middle, copies)
        return torch.cat([h, copies])


def copied_nodes(blocks: Sequence[Block], cohort: Ids) -> tuple[Ids, Ids]:
    """The nodes that are copied, and how many arcs each is from the cohort that hears it.

    Args:
        blocks: of the L layers; a node has the same place in all of them.
        cohort: places of the cohort among the first one's inputs.

    Returns:
        Places ``[copies]`` among the inputs, the cohort first and then by distance, and these distances.
    """
    layers, different = len(blocks), {id(block): block for block in blocks}.values()
    sources = np.concatenate([block.sources for block in different])
    targets = np.concatenate([block.targets for block in different])
    there, back = np.full((2, blocks[0].n_in), layers + 1)
    there[cohort] = back[cohort] = 0
    for _ in range(layers):
        np.minimum.at(there, targets, there[sources] + 1)
        np.minimum.at(back, sources, back[targets] + 1)
    others = np.flatnonzero((there + back <= layers) & (back > 0))
    nodes = np.concatenate([cohort, others[np.argsort(back[others], kind="stable")]])
    return nodes, back[nodes]


def evened(nodes: Ids, n: int) -> tuple[Ids, Ids]:
    """More copies than needed, all of them kept to the last layer: rounds then have one of few shapes.

    A copy that nobody listens to changes nothing, and a GPU can use again what it captured in another round.

    >>> evened(np.array([3, 1]), 5)
    (array([3, 1, 0, 2, 4]), array([0, 0, 0, 0, 0]))
    """
    wanted = min(-(-len(nodes) // _EVEN) * _EVEN, n)
    others = np.setdiff1d(np.arange(n), nodes)
    nodes = np.concatenate([nodes, others[: wanted - len(nodes)]])
    return nodes, np.zeros(len(nodes), np.int64)


def with_copies(
    blocks: Sequence[Block], nodes: Ids, distances: Ids, like: Tensor, names: Ids, most: Ids, key: int
) -> list[Block]:
    """The blocks with copies of some nodes behind the nodes themselves, before and after every layer.

    After l of L layers the copies within L - l arcs of the cohort are left, after the last one those of the cohort.

    Args:
        blocks: of the L layers.
        nodes: ``[copies]`` places of what is copied among the first one's inputs.
        distances: ``[copies]`` arcs from each to the cohort.
        like: gives dtype and device.
        names: ``[inputs]`` which node each input is.
        most: ``[copies]`` neighbours that each copy may hear.
        key: of the order in which they are taken.
    """
    place = np.full(blocks[0].n_in, -1, np.int64)
    place[nodes] = np.arange(len(nodes))
    grown: list[Block] = []
    for layer, block in enumerate(blocks):
        before, after = (int((distances <= len(blocks) - done).sum()) for done in (layer, layer + 1))
        shape = block.n_out + after, block.n_in + before
        if grown and block is blocks[layer - 1] and (grown[-1].n_out, grown[-1].n_in) == shape:
            grown.append(grown[-1])  # no copy has been left behind
            continue
        sources, targets, coefficients = block.sources, block.targets, block.coefficients
        heard, told = place[sources], place[targets]
        chosen = np.flatnonzero((told >= 0) & (told < after))
        kept, shares = thinned(told[chosen], names[sources[chosen]], names[nodes], coefficients[chosen], most, key)
        chosen = chosen[kept]
        arcs = (
            np.concatenate([targets, block.n_out + told[chosen]]),
            np.concatenate([sources, np.where(heard >= 0, block.n_in + heard, sources)[chosen]]),
        )
        grown.append(
            Block.of(
                shape,
                arcs,
                np.concatenate([coefficients, shares]),
                like,
                block.transposed is None,
                None if block.n_in == block.n_out else np.r_[: block.n_out, block.n_in : block.n_in + after],
            )
        )
    return grown
