"""Graphs over tensors of the device ``meta``, which have shapes and no values: no kernel would compute anything."""

from __future__ import annotations

import torch
from torch.fx import GraphModule

LINE = "litz: a call runs in eager: its tensors are on the device meta, where nothing is computed"


def computes_on_meta(gm: GraphModule) -> bool:
    """Report whether a captured graph has a tensor on the device ``meta``."""
    return any(_is_on_meta(node.meta.get("example_value")) for node in gm.graph.nodes)


def _is_on_meta(value: object) -> bool:
    if isinstance(value, torch.Tensor):
        return value.device.type == "meta"
    return isinstance(value, tuple | list) and any(map(_is_on_meta, value))
