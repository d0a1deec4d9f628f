"""Results that are views of an input whose elements share memory, as those of an expanded tensor do.

In a graph with symbols, AOTAutograd makes such a result again by ``as_strided`` of the input. The gradient of
``as_strided`` is divided among the elements that share memory; that of the program's views belongs to the viewed ones.
"""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_leaves

LINE = (
    "litz: a call runs in eager: it returns a view of an expanded argument that needs a gradient, and its sizes are "
    "symbols. Pass dynamic=False, or return a copy."
)


def returns_view_of_expanded_input(gm: GraphModule) -> bool:
    """Report whether a captured graph with symbols returns a view of an expanded input that needs a gradient."""
    inputs = [node.meta.get("example_value") for node in gm.graph.find_nodes(op="placeholder")]
    storages = {
        each.untyped_storage()._cdata
        for each in inputs
        if isinstance(each, torch.Tensor) and each.requires_grad and _is_expanded(each)
    }
    if not storages or not any(isinstance(each, torch.SymInt) for each in inputs):
        return False
    (results,) = gm.graph.output_node().args
    found = [each.meta.get("example_value") for each in tree_leaves(results) if isinstance(each, Node)]
    return any(
        isinstance(each, torch.Tensor)
        and each.layout == torch.strided
        and each.untyped_storage()._cdata in storages
        for each in found
    )


def _is_expanded(value: torch.Tensor) -> bool:
    """Report whether a dimension that may have several elements has stride 0."""
    if value.layout != torch.strided:
        return False
    each = zip(value.shape, value.stride(), strict=True)
    return any(
        type(stride) is int and stride == 0 and (type(size) is not int or size > 1) for size, stride in each
    )
