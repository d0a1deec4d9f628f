"""Results whose gradient depends on the views by which they were made.

In a graph with symbols, AOTAutograd rebuilds a result that is a view of another result or of an input from that
base, by the views that autograd knows of the returned tensor. A result of a kernel is a single ``as_strided`` of its
memory. Its gradient is that of the program's views, except for ``as_strided`` of a view: that may contain elements
outside the view, whose gradient eager drops.
"""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node


def strides_a_view(gm: GraphModule) -> bool:
    """Report whether a result of a graph with symbols is ``as_strided`` of a view."""
    inputs = gm.graph.find_nodes(op="placeholder")
    if not any(_has_symbols(node.meta.get("val")) for node in inputs):
        return False
    (results,) = gm.graph.output_node().args
    assert isinstance(results, list | tuple)
    return any(isinstance(each, Node) and _is_strided_view(each) for each in results)


def _is_strided_view(node: Node) -> bool:
    """Report whether ``as_strided`` of a view is among the views that made a node."""
    base = base_of(node)
    while base is not None:
        if node.target is torch.ops.aten.as_strided.default and base_of(base) is not None:
            return True
        node, base = base, base_of(base)
    return False


def base_of(node: Node) -> Node | None:
    """Return the tensor that a view is a view of; ``None`` for other nodes."""
    if not isinstance(node.target, torch._ops.OpOverload) or not node.target.is_view:
        return None
    base = node.args[0] if node.args else None
    return base if isinstance(base, Node) else None


def _has_symbols(value: object) -> bool:
    """Report whether a size is a symbol, or a tensor has one."""
    if isinstance(value, torch.Tensor):
        return any(isinstance(size, torch.SymInt) for size in value.shape)
    return isinstance(value, torch.SymInt)
