"""Relations between clients."""

from panacea.graphs.client_graph import ClientGraph
from panacea.graphs.convert import as_graph
from panacea.graphs.files import read_graph

__all__ = ["ClientGraph", "as_graph", "read_graph"]
