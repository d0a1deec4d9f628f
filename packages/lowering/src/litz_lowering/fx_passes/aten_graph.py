"""What the FX passes hand one another."""

from __future__ import annotations

from dataclasses import dataclass

from torch.fx import Graph
from torch.nn import Module


@dataclass(frozen=True, slots=True)
class AtenGraph:
    """An FX graph and the module that holds what its ``get_attr`` nodes name. Passes copy a graph before editing it."""

    module: Module
    graph: Graph
