"""The batches of a visit as a captured CUDA graph: from the rows' keys to gathered samples with one launch.

Drawing takes some forty small kernels, which on a GPU take longer to launch than to run. All that differs from round to
round are the keys of the rows' streams and where their samples begin. So where all clients have equally many samples
and nothing in the drawing depends on values, it is captured when it comes for the second time (see
`panacea.engines.capture`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from panacea.core.draws import counters, drawn_at_once, even_batches
from panacea.core.graphs import captured_in
from panacea.core.transfer import on_device
from panacea.engines.base import Samples
from panacea.engines.rows import Rows, Stretch

__all__ = ["DrawGraphs"]

_MOST_KINDS = 16
_MOST_BYTES = 64 * 2**20  # of a visit's samples; where there are more, launching is the least of it


@dataclass(frozen=True)
class _Shape:
    """What is fixed in a graph, beside where the samples are."""

    samples: int
    steps: int
    draws: int
    width: int


class DrawGraphs:
    """The captured drawings of one engine, by kind."""

    def __init__(self) -> None:
        self.graphs: OrderedDict[Hashable, _DrawGraph] = OrderedDict()
        self.seen: set[Hashable] = set()

    def stretches(self, rows: Rows, steps: int, draws: int, batch_size: int) -> Iterator[Stretch]:
        """See `Rows.stretches`, whose samples these are; a captured stretch is overwritten by the next of its kind."""
        shape = _captured_shape(rows, steps, draws, batch_size)
        if shape is None:
            yield from rows.stretches(steps, draws, batch_size, even=True)
            return
        kind = shape, tuple((len(party.ids), *_place(party.samples)) for party in rows.parties)
        if kind not in self.seen:
            self.seen.add(kind)
            yield from rows.stretches(steps, draws, batch_size, even=True)
            return
        if kind not in self.graphs:
            while len(self.graphs) >= _MOST_KINDS:
                self.graphs.popitem(last=False)
            self.graphs[kind] = _DrawGraph(rows, shape)
        self.graphs.move_to_end(kind)
        yield self.graphs[kind].replay(rows)


class _DrawGraph:
    """One captured drawing and its buffers."""

    def __init__(self, rows: Rows, shape: _Shape) -> None:
        self.shape = shape
        self.words, self.starts = _words(rows, shape.draws), rows.starts()
        self.rows = rows  # whose samples must not go, nor the numbers that keys are mixed with
        self.mixed = counters(shape.steps * shape.samples, self.words.device)
        self.graph = torch.cuda.CUDAGraph()
        with captured_in(self.graph, warm_up=self._drawn):
            x, y = self._drawn()
        equal = x.new_full((1,), 1 / shape.width, dtype=rows.parties[0].samples.dtype)
        self.stretch = Stretch(x, y, equal.expand(x.shape[:4]), None, rows.classes(shape.width))

    def _drawn(self) -> tuple[Tensor, Tensor]:
        shape = self.shape
        drawn = [even_batches(words, shape.samples, shape.steps, shape.width) for words in self.words]
        return self.rows.gathered(torch.stack(drawn, dim=1) + self.starts)

    def replay(self, rows: Rows) -> Stretch:
        """The batches of these rows."""
        self.words.copy_(_words(rows, self.shape.draws))
        self.starts.copy_(rows.starts())
        self.graph.replay()
        return self.stretch


def _captured_shape(rows: Rows, steps: int, draws: int, batch_size: int) -> _Shape | None:
    """What a graph of this drawing would be like; None where it cannot or need not be one."""
    counts = np.concatenate([p.samples.counts("train", p.ids) for p in rows.parties])
    first, n = rows.parties[0].samples, int(counts[0])
    width = min(batch_size, n)
    one = draws * steps * len(counts) * width * rows.sample_bytes(width)
    fixed = drawn_at_once(n, width) and not first.task.missing and not any(p.samples.marked for p in rows.parties)
    return _Shape(n, steps, draws, width) if fixed and one <= _MOST_BYTES and bool((counts == n).all()) else None


def _words(rows: Rows, draws: int) -> Tensor:
    """``[draws, rows]``: the keys, as torch has them."""
    keys = np.stack([rows.keys(d) for d in range(draws)])
    return on_device(keys.view(np.int64), rows.parties[0].samples.device)


def _place(samples: Samples) -> tuple[Hashable, ...]:
    """Where samples are: other ones may come to the same place, and are then read from there."""
    tensors = (samples.x, samples.y, samples.rows)
    return tuple((t.data_ptr(), t.shape, t.stride(), t.dtype) for t in tensors if t is not None)
