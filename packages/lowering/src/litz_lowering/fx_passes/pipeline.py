"""FX passes that run on an ATen graph before lowering, in order."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch.fx import GraphModule, Node

from litz_ir.passes import Pass, PassContext, run_passes
from litz_lowering.aten.fallback import EFFECT
from litz_lowering.contexts.options import LoweringOptions
from litz_lowering.fx_passes.aten_graph import AtenGraph
from litz_lowering.fx_passes.attention.rewrite import HandWrittenAttention
from litz_lowering.fx_passes.effects import UnwrapEffects
from litz_lowering.fx_passes.random_state import UnwrapRandomState
from litz_lowering.fx_passes.views import is_returned
from litz_lowering.fx_passes.wide_matmuls import WideMatmuls
from litz_lowering.fx_passes.without_vectors import WithoutVectors


@dataclass
class RemoveNoOps:
    """Remove views and identities that change nothing.

    Nodes that the graph returns stay, as they are tensors of their own, and so does a ``detach`` between a result
    and its memory, which decides autograd's view of it.
    """

    name: str = "fx.remove_no_ops"
    ulp: int = 0

    def apply(self, data: AtenGraph, context: PassContext) -> AtenGraph:
        """Return the graph without them, or ``data`` itself where there are none."""
        return _without(data, _is_no_op, lambda node: node.all_input_nodes[0])


@dataclass
class RemoveDeadCode:
    """Remove operations without users and effects."""

    name: str = "fx.remove_dead_code"
    ulp: int = 0

    def apply(self, data: AtenGraph, context: PassContext) -> AtenGraph:
        """Return the graph without them, or ``data`` itself where there are none."""
        if not any(not node.users and not _stays(node) for node in data.graph.nodes):
            return data
        graph = copy.deepcopy(data.graph)
        graph.eliminate_dead_code(_stays)
        return AtenGraph(data.module, graph)


def post_grad(options: LoweringOptions) -> tuple[Pass[AtenGraph, AtenGraph], ...]:
    """Passes over an ATen graph before it is lowered, in order."""
    return (
        UnwrapEffects(),
        RemoveNoOps(),
        RemoveDeadCode(),
        WithoutVectors(),
        *([WideMatmuls(options.wide_matmuls)] if options.wide_matmuls else []),
        HandWrittenAttention(options.attention),
        RemoveDeadCode(name="fx.remove_dead_code_2"),
        UnwrapRandomState(),
    )


def remove_no_ops(gm: GraphModule) -> None:
    """Remove views and identities that change nothing, and operations without users, from ``gm``, which is changed.

    :func:`litz_lowering.lower` does so too, on a copy.
    """
    source = AtenGraph(gm, gm.graph)
    found = run_passes((RemoveNoOps(), RemoveDeadCode()), source, PassContext({}))
    if found is not source:
        gm.graph = found.graph


REQUIRED = ("fx.flex_attention", "fx.decompose_hops", "fx.unwrap_effects", "fx.unwrap_random_state")
"""Passes without which a graph may not be lowered; they take no fuel."""

_IDENTITIES = ("aten.alias.default", "aten.detach.default", "aten.lift_fresh.default")
_SAME_SHAPE = (
    "aten.view.default",
    "aten.expand.default",
    "aten._unsafe_view.default",
    "aten.reshape.default",
)


def _stays(node: Node) -> bool:
    """True for a node that runs even without users."""
    return EFFECT in node.meta or node.is_impure()


def _is_no_op(node: Node) -> bool:
    if node.op != "call_function" or any(user.op == "output" for user in node.users):
        return False
    target = str(node.target)
    if target in _IDENTITIES:
        return target != "aten.detach.default" or not is_returned(node)
    return target in _SAME_SHAPE and _same_geometry(node, node.all_input_nodes[0])


def _same_geometry(a: Node, b: Node) -> bool:
    """True when shapes and strides agree. Symbolic ones are compared as expressions, which adds no guard."""
    first, second = a.meta.get("val"), b.meta.get("val")
    if not isinstance(first, torch.Tensor) or not isinstance(second, torch.Tensor):
        return False
    if first.layout != torch.strided or second.layout != torch.strided or first.dim() != second.dim():
        return False
    sizes = zip((*first.shape, *first.stride()), (*second.shape, *second.stride()), strict=True)
    return all(_expression(one) == _expression(other) for one, other in sizes)


def _expression(size: int | torch.SymInt) -> object:
    return size.node.expr if isinstance(size, torch.SymInt) else size


def _without(
    data: AtenGraph, remove: Callable[[Node], bool], replacement: Callable[[Node], Node]
) -> AtenGraph:
    """Copy a graph with the uses of each removed node redirected to its replacement."""
    names = {node.name for node in data.graph.nodes if remove(node)}
    if not names:
        return data
    graph = copy.deepcopy(data.graph)
    for node in _named(graph.nodes, names):
        node.replace_all_uses_with(replacement(node))
        graph.erase_node(node)
    return AtenGraph(data.module, graph)


def _named(nodes: Iterable[Node], names: set[str]) -> list[Node]:
    return [node for node in nodes if node.name in names]
