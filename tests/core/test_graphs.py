from __future__ import annotations

import torch

from panacea.core.graphs import captured_in
from tests.gpu import stand_in


def test_graphs_that_are_replayed_at_a_time_share_no_workspace() -> None:
    """The 33rd is captured in the stream of the first one, and cuBLAS has one workspace for each stream."""
    with stand_in():
        x = torch.eye(2, device="cuda")
        graphs = []
        for _ in range(33):
            graphs.append(torch.cuda.CUDAGraph())
            with captured_in(graphs[-1], warm_up=lambda: x @ x):
                x @ x
        for graph in (graphs[0], graphs[-1]):
            lane = torch.cuda.Stream()
            lane.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(lane):
                graph.replay()


def test_nor_with_products_in_the_stream_of_their_capture() -> None:
    with stand_in():
        x = torch.eye(2, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with captured_in(graph, warm_up=lambda: x @ x):
            x @ x
        lanes = [torch.cuda.Stream() for _ in range(32)]
        lanes[-1].wait_stream(torch.cuda.current_stream())
        graph.replay()
        with torch.cuda.stream(lanes[-1]):
            x @ x
