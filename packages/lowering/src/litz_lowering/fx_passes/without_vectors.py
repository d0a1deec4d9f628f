"""Singular values and eigenvalues without the vectors that nobody reads."""

from __future__ import annotations

import copy
import operator
from dataclasses import dataclass

import torch
from torch.fx import Node
from torch.fx.operator_schemas import normalize_function
from torch.utils import _pytree as pytree

from litz_ir.passes import PassContext
from litz_lowering.fx_passes.aten_graph import AtenGraph

_VECTORS: dict[object, tuple[str, frozenset[int]]] = {
    torch.ops.aten._linalg_svd.default: ("compute_uv", frozenset({0, 2})),
    torch.ops.aten._linalg_eigh.default: ("compute_v", frozenset({1})),
}
"""Argument by which an operator computes vectors, and the positions of these among its results."""


@dataclass
class WithoutVectors:
    """Ask decompositions for values alone where no vector is read.

    ``torch.linalg.svdvals`` and its like do so themselves, unless they are traced: then they compute both.
    """

    name: str = "fx.without_vectors"
    ulp: int = 0

    def apply(self, data: AtenGraph, context: PassContext) -> AtenGraph:
        """Return the graph with such calls, or ``data`` itself where there are none."""
        if not any(map(_reads_values_alone, data.graph.nodes)):
            return data
        graph = copy.deepcopy(data.graph)
        for node in filter(_reads_values_alone, graph.nodes):
            name, _ = _VECTORS[node.target]
            node.args, node.kwargs = (), {**_by_name(node), name: False}
            examples = pytree.tree_map_only(Node, lambda each: each.meta["val"], node.kwargs)
            node.meta["val"] = node.target(**examples)
        return AtenGraph(data.module, graph)


def _reads_values_alone(node: Node) -> bool:
    """True for a decomposition that computes vectors, of which no user reads one."""
    if node.target not in _VECTORS or "val" not in node.meta:
        return False
    name, vectors = _VECTORS[node.target]
    return _by_name(node).get(name, True) is True and all(
        user.target is operator.getitem and user.args[1] not in vectors for user in node.users
    )


def _by_name(node: Node) -> dict[str, object]:
    """Return the arguments of a call by the names of its operator's schema."""
    found = normalize_function(node.target, node.args, node.kwargs, normalize_to_only_use_kwargs=True)  # type: ignore[arg-type]
    assert found is not None
    return dict(found.kwargs)
