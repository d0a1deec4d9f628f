"""Removal of copies from joint graphs: clones, and casts to a wider dtype and back."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from litz_lowering.types.node_memory import may_write, storage_of

_CLONE = torch.ops.aten.clone.default
_CAST = torch.ops.aten._to_copy.default
_WIDER = {
    torch.bfloat16: (torch.float32, torch.float64),
    torch.float16: (torch.float32, torch.float64),
    torch.float32: (torch.float64,),
}
"""The wider dtypes that have every value of a dtype."""


def remove_copies(graph: Graph) -> None:
    """Edit a joint graph in place so that readers of a copy read what it copies, where both have the same strides.

    Otherwise the partitioner may save the same values twice. A dropout with probability 0 is a clone, for example: its
    result is saved for the gradient of a matmul, and its argument for that of an activation.

    A copy stays where it or what it copies shares memory with an input of the graph, a result, or an argument of an
    operator that may write to its arguments: there it matters that a copy has memory of its own.
    """
    shared: set[int | None] = set()
    for node in graph.nodes:
        if node.op == "placeholder":
            shared.add(storage_of(node))
        elif node.op == "output" or may_write(node):
            shared.update(storage_of(each) for each in node.all_input_nodes)
    for node in list(graph.nodes):
        source = _copied(node)
        if source is not None and shared.isdisjoint((storage_of(node), storage_of(source))):
            node.replace_all_uses_with(source)
            graph.erase_node(node)


def _copied(node: Node) -> Node | None:
    """Return the node whose value a node copies, with the same dtype and strides; ``None`` for other nodes."""
    source = node.args[0] if node.target in (_CLONE, _CAST) else None
    if node.target == _CAST and isinstance(source, Node):
        wide, source = source, source.args[0] if source.target == _CAST else None
        if not isinstance(source, Node) or not _holds(wide, source):
            return None
    if not isinstance(source, Node) or "recompute" in node.meta or "recompute" in source.meta:
        return None  # a checkpoint says which of both is saved
    given, found = source.meta.get("val"), node.meta.get("val")
    if not isinstance(given, Tensor) or not isinstance(found, Tensor):
        return None
    if given.dtype != found.dtype or given.device != found.device or given.layout != found.layout:
        return None
    strides = zip(given.stride(), found.stride(), strict=True)
    return source if all(statically_known_true(a == b) for a, b in strides) else None


def _holds(wide: Node, source: Node) -> bool:
    """Report whether the dtype of a cast has every value of its source's, on one device."""
    given, found = source.meta.get("val"), wide.meta.get("val")
    if not isinstance(given, Tensor) or not isinstance(found, Tensor) or given.device != found.device:
        return False
    return found.dtype in _WIDER.get(given.dtype, ())
