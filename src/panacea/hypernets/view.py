"""The newcomers' view: the cohort encoded as if it were new, in the same pass as everybody as they are.

Behind the nodes the encoder carries a copy of each client of the cohort: its twin, as it were, that has just joined. A
copy starts from the mean of its neighbours' rows instead of a row of its own, it hears its neighbours, and nobody hears
it. Of its neighbours only some are heard, a number drawn for every visit (`Links`), and speak for all as in `thinned`.
With all of them, the same in every round, the server would learn by heart who has which neighbours; a newcomer has
others. (A newcomer that joins in earnest is heard, and nobody has heard the client it is like.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from panacea.hypernets.propagation import Block, Floats, thinned

__all__ = ["Links", "View", "with_copies"]

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Links:
    """The links that the cohort has in the view.

    Attributes:
        share: ``[cohort]`` of each client's links, in (0, 1]; one link at least.
        key: of the order in which they are taken.
    """

    share: Floats
    key: int

    def most(self, targets: Ids) -> Ids:
        """``[cohort]`` neighbours that each copy hears; `targets` are the listening ends of the cohort's links."""
        links = np.bincount(targets, minlength=len(self.share))
        return np.ceil(self.share * links).astype(np.int64)


@dataclass(frozen=True)
class View:
    """The copies' rows, made of the encoder's inputs.

    Attributes:
        start: from the inputs to the copies: the mean of the neighbours' rows.
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


def with_copies(blocks: Sequence[Block], cohort: Ids, names: Ids, most: Ids, key: int, like: Tensor) -> list[Block]:
    """The blocks with copies of the cohort behind the nodes, before and after every layer.

    Args:
        blocks: of the L layers; a node has the same place in all of them.
        cohort: places of the cohort among the first one's inputs.
        names: ``[inputs]`` which node each input is.
        most: ``[cohort]`` neighbours that each copy hears.
        key: of the order in which they are taken.
        like: gives dtype and device.
    """
    copy = np.full(blocks[0].n_in, -1, np.int64)
    copy[cohort] = np.arange(len(cohort))
    grown: list[Block] = []
    for layer, block in enumerate(blocks):
        if layer and block is blocks[layer - 1]:
            grown.append(grown[-1])
            continue
        arcs = np.flatnonzero(copy[block.targets] >= 0)
        listeners, speakers = copy[block.targets[arcs]], block.sources[arcs]
        kept, shares = thinned(listeners, names[speakers], names[cohort], block.coefficients[arcs], most, key)
        listeners, speakers = listeners[kept], speakers[kept]
        itself = speakers == cohort[listeners]
        n_in, n_out, copies = block.n_in, block.n_out, len(cohort)
        grown.append(
            Block.of(
                (n_out + copies, n_in + copies),
                (
                    np.concatenate([block.targets, n_out + listeners]),
                    np.concatenate([block.sources, np.where(itself, n_in + listeners, speakers)]),
                ),
                np.concatenate([block.coefficients, shares]),
                like,
                block.transposed is None,
                None if n_in == n_out else np.r_[:n_out, n_in : n_in + copies],
            )
        )
    return grown
