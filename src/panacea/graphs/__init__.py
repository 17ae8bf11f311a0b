"""Relations between clients."""

from panacea.graphs.client_graph import ClientGraph

__all__ = ["ClientGraph"]
