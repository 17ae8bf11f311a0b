"""One visit to a client as a local programme."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from panacea.core.local import Local
from panacea.core.method import Method, Model
from panacea.core.parameters import Parameters
from panacea.core.records import Tree
from panacea.core.types import Batch

__all__ = ["Visit"]


class Visit(Method):
    """A local programme: one visit to a client by another method, of which one model is wanted.

    Attributes:
        method: whose `start`, `step` and `finish` are run.
        result: of (upload, kept state, download) the model that is wanted.
        opened: the method's download made of the `Model` that the programme is given; None: it is given a download.
    """

    def __init__(
        self,
        method: Method,
        result: Callable[[Tree, Tree, Tree], Parameters],
        opened: Callable[[Model], Tree] | None = None,
    ) -> None:
        super().__init__()
        self.method, self.result, self.opened = method, result, opened
        self.draws, self.gradients = method.draws, method.gradients

    def start(self, download: Tree, client: Tree, local: Local) -> Tree:
        """As the method; a client without a state is a fresh one."""
        download = self._received(download)
        return self.method.start(download, self._state(download, client), local)

    def step(self, carry: Tree, download: Tree, client: Tree, batches: tuple[Batch, ...], local: Local) -> Tree:
        """As the method."""
        download = self._received(download)
        return self.method.step(carry, download, self._state(download, client), batches, local)

    def finish(self, carry: Tree, download: Tree, client: Tree, steps: int | Tensor) -> tuple[Model, None]:
        """Only the wanted model."""
        download = self._received(download)
        upload, kept = self.method.finish(carry, download, self._state(download, client), steps)
        return Model(self.result(upload, kept, download)), None

    def _received(self, download: Tree) -> Tree:
        return download if self.opened is None else self.opened(download)

    def _state(self, download: Tree, client: Tree) -> Tree:
        return self.method.init_client(download) if client is None else client
