"""Data that FX passes take and return."""

from __future__ import annotations

from dataclasses import dataclass

from torch.fx import Graph
from torch.nn import Module


@dataclass(frozen=True, slots=True)
class AtenGraph:
    """An FX graph, and the module that holds the attributes of its ``get_attr`` nodes.

    Passes copy a graph before they edit it.
    """

    module: Module
    """Holds the attributes."""
    graph: Graph
    """The FX graph."""
