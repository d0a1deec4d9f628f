"""Graphs over tensors of the device ``meta``, which have shapes and no values: no kernel would compute anything."""

from __future__ import annotations

import torch
from torch.fx import GraphModule
from torch.utils._pytree import tree_leaves

LINE = "litz: a call runs in eager: its tensors are on the device meta, where nothing is computed"


def computes_on_meta(gm: GraphModule) -> bool:
    """Report whether a captured graph has a tensor on the device ``meta``."""
    values = (tree_leaves(node.meta.get("example_value")) for node in gm.graph.nodes)
    return any(
        isinstance(each, torch.Tensor) and each.device.type == "meta" for leaves in values for each in leaves
    )
