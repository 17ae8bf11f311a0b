r"""Simple-Tuning: after training every client makes its own last layer anew and trains it alone on its own data.

    theta_i = (b, h):  b from the model that is the client's own, frozen;  h ~ U(-1/sqrt(d), 1/sqrt(d)) for all weights
    and biases of the last linear layer of d inputs (what `torch.nn.Linear` does), then `epochs` passes of
    h <- h - lr grad_h f_i(b, h)  on the client's train samples

What a backdoor taught the last layer is gone; what it taught the rest has to be reached anew. Clients whose data are
clean cannot teach it again. It is scored apart, as `tuned`, beside the model it began from.

Read its success rate beside its accuracy: a client with few samples takes few steps (10 epochs of 40 samples in batches
of 64 are 10 steps), and a head that has learnt nothing has forgotten everything. With more epochs at a higher rate the
head recovers, and so does a part of the backdoor, which the frozen layers still carry.

Source: Qin et al., Revisiting personalized federated learning: robustness against backdoor attacks, KDD 2023; used in
the Panacea papers on FedAvg's global model, Ditto's own and Panacea's generated ones. Any method will do here.

Differences from the paper:
    * Epochs and rate are given nowhere: 10 epochs, lr 0.01.
    * An epoch is as many batches as hold the client's samples, each drawn anew without repeats, like all local steps.
    * BatchNorm's running statistics are frozen with the rest, but while the head is trained it normalises by batch.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from panacea.core.local import Iterate, Local, Sgd
from panacea.core.method import Adaptation, Method, Model
from panacea.core.random import Streams
from panacea.core.scope import Scope, part_step
from panacea.core.types import Batch, ClientIds, Cohort
from panacea.engines.base import Engine, epoch_steps
from panacea.errors import RequestError
from panacea.models.target import TargetModel

__all__ = ["TuneHead", "fresh_heads", "last_layer", "tuning"]


class TuneHead(Method):
    """A local programme: the last layer that the client has made anew is trained, the rest stays as it was received."""

    def __init__(self, scope: Scope, lr: float) -> None:
        super().__init__()
        self.scope, self.sgd = scope, Sgd(lr)

    def start(self, download: Model, client: Model, local: Local) -> Iterate:
        """The received body with the new head."""
        return self.sgd.start(self.scope.join(client.params, self.scope.split(download.params)[1]))

    def step(self, carry: Iterate, download: Model, client: Model, batches: tuple[Batch, ...], local: Local) -> Iterate:
        """Plain SGD at a rate of its own."""
        return part_step(self.scope, "chosen", carry, batches, replace(local, sgd=self.sgd), track=False)


def last_layer(target: TargetModel) -> nn.Linear:
    """The layer that owns the last tensor: linear, what it gives is what the network gives, and not the only one."""
    name = target.layout.names[-1].rpartition(".")[0]
    layer = target.module.get_submodule(name)
    if not isinstance(layer, nn.Linear) or not _gives_outputs(target, layer):
        raise RequestError(
            "defence=simple_tuning makes a last linear layer anew whose outputs are the network's; here the last layer "
            f"is '{name}', {layer}"
        )
    if Scope.of(target.layout, "last").rest is None:
        raise RequestError(f"defence=simple_tuning: the network has a single layer ('{name}'); nothing else is kept")
    return layer


def _gives_outputs(target: TargetModel, layer: nn.Module) -> bool:
    """Tried out on two samples of zeros: some methods put networks of their own behind the user's."""
    seen: list[Tensor] = []
    hook = layer.register_forward_hook(lambda _, __, out: seen.append(out))
    try:
        with torch.no_grad():
            x = target.initial.new_zeros((2, *target.task.inputs))
            outputs, _ = target.forward(target.initial, target.statistics, x, training=False)
    finally:
        hook.remove()
    return bool(seen) and torch.equal(seen[-1].flatten(), outputs.flatten())


def fresh_heads(layer: nn.Linear, size: int, streams: Streams, ids: ClientIds, like: Tensor) -> Tensor:
    """``[rows, size]``: every client's new last layer, by a stream of its own."""
    drawn = [torch.rand(size, generator=streams.torch("simple tuning", client=int(i)), dtype=like.dtype) for i in ids]
    return torch.stack(drawn).mul(2).sub(1).div(layer.in_features**0.5).to(like.device)


def tuning(engine: Engine, cohort: Cohort, epochs: float, lr: float) -> Adaptation:
    """The programme for the clients of a cohort."""
    target, samples = engine.target, engine.samples
    scope = Scope.of(target.layout, "last")
    heads = fresh_heads(last_layer(target), scope.chosen_size, samples.streams, cohort.ids, engine.home)
    steps = epoch_steps(epochs, samples.counts("train", cohort.ids), engine.local.batch_size)
    return Adaptation(TuneHead(scope, lr), steps, kept=Model(heads))
