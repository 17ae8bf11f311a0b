"""The GPU that is none refuses what a GPU refuses, and sees what goes wrong there unseen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.gpu import stand_in
from tests.gpu.streams import Machine, RaceError


@pytest.fixture(autouse=True)
def machine() -> Iterator[Machine]:
    with stand_in() as machine:
        yield machine


def test_where_tensors_are() -> None:
    host = torch.arange(3.0)
    there = host.to("cuda")
    assert (there.device, there.is_cuda) == (torch.device("cuda", 0), True)
    assert (2 * there + 1).sum().device == torch.zeros(2, device="cuda").device == there.device
    assert not torch.zeros_like(there, device="cpu").is_cuda
    there += 1
    assert host.tolist() == [0.0, 1.0, 2.0]  # a copy
    assert there.cpu().tolist() == there.tolist() == [1.0, 2.0, 3.0]


def test_gradients() -> None:
    weights = torch.tensor([[1.0, 2.0]], requires_grad=True)
    x = torch.tensor([[3.0], [4.0]], device="cuda")
    (slope,) = torch.autograd.grad((weights.to("cuda") @ x).sum(), weights)
    assert slope.tolist() == [[3.0, 4.0]]
    assert not slope.is_cuda


def test_what_is_refused() -> None:
    there, host = torch.ones(2, device="cuda"), torch.ones(2)
    with pytest.raises(RuntimeError, match="same device"):
        there + host
    with pytest.raises(TypeError, match="numpy"):
        there.numpy()
    assert (there + torch.tensor(1.0)).tolist() == [2.0, 2.0]  # a single number may come from the host


@pytest.mark.parametrize("what", ["item", "mask", "host", "fetch"])
def test_what_is_refused_during_a_capture(what: str) -> None:
    there, host = torch.ones(2, device="cuda"), torch.ones(2)
    looks = {
        "item": lambda: float(there.sum()),
        "mask": lambda: there[there > 0],
        "host": lambda: host.to("cuda"),
        "fetch": there.cpu,
    }
    with pytest.raises(RuntimeError, match="capturing"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        looks[what]()
    looks[what]()


def test_a_graph_runs_when_it_is_replayed() -> None:
    x, total = torch.tensor([1.0, 2.0], device="cuda"), torch.zeros((), device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        doubled = (2 * x)[1:]
        total += doubled.sum()
        ones = torch.ones(1, device="cuda")
    assert total.item() == 0  # nothing was done
    assert doubled.isnan().all()
    for n in (1, 2):
        x.fill_(n)
        graph.replay()
        assert (doubled.item(), ones.item()) == (2 * n, 1)
    assert total.item() == 6


def test_waits_are_counted(machine: Machine) -> None:
    there, host = torch.ones(2, device="cuda"), torch.ones(2)
    host.to("cuda", non_blocking=True)
    there.add_(1).mul_(2)
    assert not machine.waits
    for wait in (there.cpu, lambda: host.to("cuda"), lambda: bool(there.any()), lambda: there[there > 0]):
        machine.waits.clear()
        wait()
        assert machine.waits.total() == 1


@pytest.mark.parametrize("waits", [True, False])
def test_reading_what_another_stream_writes(waits: bool) -> None:
    x, side = torch.ones(2, device="cuda"), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = 2 * x
    if waits:
        torch.cuda.current_stream().wait_event(side.record_event())
        assert (y + 1).tolist() == [3.0, 3.0]
    else:
        with pytest.raises(RaceError, match="may still write"):
            y + 1


@pytest.mark.parametrize("waits", ["stream", "host", "no"])
def test_writing_what_another_stream_reads(waits: str) -> None:
    x, side = torch.ones(2, device="cuda"), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = 2 * x
        if waits == "host":
            y.cpu()
    if waits == "stream":
        torch.cuda.current_stream().wait_stream(side)
    if waits == "no":
        with pytest.raises(RaceError, match="may still read"):
            x.add_(1)
    else:
        x.add_(1)


@pytest.mark.parametrize("waits", [True, False])
def test_memory_that_is_let_go_while_another_stream_reads_it(waits: bool) -> None:
    x, side = torch.ones(2, device="cuda"), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        _y = 2 * x
    del x
    if waits:
        torch.cuda.current_stream().wait_stream(side)
        torch.ones(2, device="cuda")
    else:
        with pytest.raises(RaceError, match="may still use"):
            torch.ones(2, device="cuda")
