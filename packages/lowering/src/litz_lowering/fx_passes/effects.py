"""Removal of torch's effect tokens; loop graphs order effects by tokens of their own."""

from __future__ import annotations

import copy
import operator
from dataclasses import dataclass

import torch
from torch.fx import Node

from litz_ir.passes import PassContext
from litz_lowering.aten.fallback import EFFECT
from litz_lowering.fx_passes.aten_graph import AtenGraph


@dataclass
class UnwrapEffects:
    """Replace ``with_effects(token, op, *args)`` by a call of ``op``; the token is passed through.

    Lowering gives the call the token ``effect``, which keeps it alive and in program order.
    """

    name: str = "fx.unwrap_effects"
    ulp: int = 0

    def apply(self, data: AtenGraph, context: PassContext) -> AtenGraph:
        """Return the graph without the wrappers, or ``data`` itself where there are none."""
        if not any(_is_wrapper(node) for node in data.graph.nodes):
            return data
        graph = copy.deepcopy(data.graph)
        for node in list(graph.nodes):
            if _is_wrapper(node):
                _unwrap(node)
        return AtenGraph(data.module, graph)


def _is_wrapper(node: Node) -> bool:
    return node.op == "call_function" and node.target is torch.ops.higher_order.with_effects


def _unwrap(node: Node) -> None:
    graph = node.graph
    token, target, *args = node.args
    assert isinstance(token, Node) and isinstance(target, torch._ops.OpOverload), (
        "with_effects wraps an overload"
    )
    _, *values = node.meta["val"]
    with graph.inserting_before(node):
        plain = graph.call_function(target, tuple(args), dict(node.kwargs))
    returned = target._schema.returns
    plain.meta = {key: value for key, value in node.meta.items() if key != "val"} | {EFFECT: True}
    if returned:
        plain.meta["val"] = values[0] if len(returned) == 1 else tuple(values)
    for user in list(node.users):
        position = user.args[1]
        if user.target is not operator.getitem or not isinstance(position, int):
            continue
        if position == 0:
            user.replace_all_uses_with(token)
        elif len(returned) == 1:
            user.replace_all_uses_with(plain)
        else:
            user.args = (plain, position - 1)
            continue
        graph.erase_node(user)
    graph.erase_node(node)
