"""Attention masks that are equal for all keys: they select rows of the result, and ATen's fused kernels need no mask.

Programs make such masks by broadcasting (``positions >= 0``). ATen's fused kernels refuse them for their stride of 0,
so that attention would run as two matmuls and a softmax, with its scores in memory.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.nn.functional import scaled_dot_product_attention

from litz.devices import is_gpu

_PARAMETERS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")


def select_rows(gm: GraphModule, on: Callable[[str], bool] = is_gpu) -> None:
    """Rewrite, in a graph that Dynamo captured, calls of attention whose boolean mask is equal for all keys.

    The rows that the mask excludes become zeros, as in eager. ``on`` selects the kinds of devices. Calls with dropout
    stay as they are, since each kernel draws numbers of its own.
    """
    found = [node for node in gm.graph.nodes if node.target is scaled_dot_product_attention]
    for node in found:
        given = dict(zip(_PARAMETERS, node.args)) | node.kwargs
        mask = given.get("attn_mask")
        plain = not given.get("dropout_p") and not given.get("is_causal")
        if plain and isinstance(mask, Node) and _is_equal_for_keys(mask.meta.get("example_value"), on):
            _select(gm.graph, node, given, mask)
    if found:
        gm.recompile()


def _is_equal_for_keys(mask: object, on: Callable[[str], bool]) -> bool:
    """Report whether a mask is boolean, on a selected device, and broadcast along the keys."""
    if not isinstance(mask, torch.Tensor) or mask.dtype != torch.bool or mask.dim() < 2:
        return False
    keys, stride = mask.shape[-1], mask.stride(-1)
    some = type(keys) is not int or keys > 0  # without keys there is no column to take
    return on(mask.device.type) and some and type(stride) is int and stride == 0


def _select(graph: torch.fx.Graph, node: Node, given: dict[str, Any], mask: Node) -> None:
    """Compute attention without a mask, and replace its rows where the mask is false."""
    node.args, node.kwargs = (), {**given, "attn_mask": None}
    with graph.inserting_after(node):
        first: Any = (mask, (..., slice(0, 1)))
        rows = graph.call_function(operator.getitem, first)
    with graph.inserting_after(rows):
        kept = graph.call_function(torch.where, (rows, node, 0.0))
    for made in (rows, kept):
        made.meta |= {name: value for name, value in node.meta.items() if name != "example_value"}
    node.replace_all_uses_with(kept, lambda user: user is not kept)
