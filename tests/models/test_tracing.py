"""Every network can be traced by torch.fx, and the trace works for any batch size."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.fx import symbolic_trace

from panacea.models import (
    DomainClassifier,
    FedAvgCnn,
    GruSeq2Seq,
    LeafCelebaCnn,
    LeafFemnistCnn,
    McMahanCnn,
    Mlp,
    SmallCnn,
    resnet18,
)

NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (lambda: Mlp((2,), 2), (2,)),
    "mlp flattened": (lambda: Mlp((2, 3), (4, 5)), (2, 3)),
    "mlp scalar": (lambda: Mlp((3,), ()), (3,)),
    "linear": (lambda: Mlp((3,), 2, ()), (3,)),
    "gru": (lambda: GruSeq2Seq(2, 8, horizon=4), (12, 2)),
    "gru of one feature": (lambda: GruSeq2Seq(1, 8, horizon=4), (12, 1)),
    "gru of two layers": (lambda: GruSeq2Seq(2, 8, 2, horizon=4), (12, 2)),
    "cnn": (lambda: McMahanCnn(1, 12, 3), (1, 12, 12)),
    "leaf_femnist": (lambda: LeafFemnistCnn(1, 12, 3), (1, 12, 12)),
    "leaf_celeba": (lambda: LeafCelebaCnn(3, 21, 2), (3, 21, 21)),
    "fedavg_cnn": (lambda: FedAvgCnn(1, 16, 3), (1, 16, 16)),
    "small_cnn": (lambda: SmallCnn(1, 8, 3), (1, 8, 8)),
    "domains": (lambda: DomainClassifier(3, 4), (3, 9, 9)),
    "resnet18": (lambda: resnet18(4), (3, 32, 32)),
    "resnet18 cifar": (lambda: resnet18(4, "cifar", "group"), (3, 8, 8)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_trace_equals_network_at_any_batch_size(name: str):
    build, shape = NETWORKS[name]
    model = build().eval()
    traced = symbolic_trace(model)
    for batch in (1, 4):
        x = torch.rand(batch, *shape)
        assert torch.equal(traced(x), model(x))


@pytest.mark.parametrize("name", NETWORKS)
def test_only_torch_layers_hold_parameters(name: str):
    traced = symbolic_trace(NETWORKS[name][0]())
    modules = dict(traced.named_modules())
    called = [modules[str(node.target)] for node in traced.graph.nodes if node.op == "call_module"]
    assert called
    assert all(type(module).__module__.startswith("torch.nn.modules.") for module in called)
    assert not [node for node in traced.graph.nodes if node.op == "get_attr"]


@pytest.mark.parametrize("name", NETWORKS)
def test_samples_do_not_mix(name: str):
    """A folded batch holds samples of many clients: each sample's output is its own."""
    build, shape = NETWORKS[name]
    model = build().eval()
    x = torch.rand(6, *shape)
    torch.testing.assert_close(model(x)[2:4], model(x[2:4]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_last_layer_is_fc(name: str):
    parameters = [parameter for parameter, _ in NETWORKS[name][0]().named_parameters()]
    assert parameters[-2:] == ["fc.weight", "fc.bias"]
