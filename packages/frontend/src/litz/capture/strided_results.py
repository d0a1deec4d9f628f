"""Results whose gradient depends on the views that they were made by.

Where a graph has symbols, AOTAutograd makes a result that shows memory of another one, or of an input, anew from that,
by the views that autograd knows of the tensor which the graph returned. Those of a kernel's result are one
``as_strided`` of its memory. Its gradient is that of the program's views, but for ``as_strided`` of a view: that may
show elements which the view has not, whose gradient eager drops.
"""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node


def strides_a_view(gm: GraphModule) -> bool:
    """Whether a result of a graph with symbols is made by ``as_strided`` of a view."""
    inputs = gm.graph.find_nodes(op="placeholder")
    if not any(_has_symbols(node.meta.get("val")) for node in inputs):
        return False
    (results,) = gm.graph.output_node().args
    assert isinstance(results, list | tuple)
    return any(isinstance(each, Node) and _is_strided_view(each) for each in results)


def _is_strided_view(node: Node) -> bool:
    """Whether ``as_strided`` of a view is among the views that a node was made by."""
    shown = _shown_by(node)
    while shown is not None:
        if node.target is torch.ops.aten.as_strided.default and _shown_by(shown) is not None:
            return True
        node, shown = shown, _shown_by(shown)
    return False


def _shown_by(node: Node) -> Node | None:
    """The tensor that a view shows memory of; ``None`` for what is no view."""
    if not isinstance(node.target, torch._ops.OpOverload) or not node.target.is_view:
        return None
    shown = node.args[0] if node.args else None
    return shown if isinstance(shown, Node) else None


def _has_symbols(value: object) -> bool:
    """Whether a size is a symbol, or a tensor has one."""
    if isinstance(value, torch.Tensor):
        return any(isinstance(size, torch.SymInt) for size in value.shape)
    return isinstance(value, torch.SymInt)
