"""Branches of a rewritten attention: ATen's kernel, the original operations, and the condition between
them."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses import FakeTensorMode
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from litz_lowering.fx_passes.attention.forms import value_of
from litz_lowering.fx_passes.attention.masks import LIMIT, MaskStep
from litz_lowering.fx_passes.attention.matched import Attention
from litz_lowering.fx_passes.attention.operands import AttentionOperand

aten = torch.ops.aten
ORIGINAL = "litz_as_written"
"""Key in ``meta`` of the module with the original operations, which are not rewritten again."""


class GraphWriter:
    """Adds calls with metadata to a graph, with the origin of a node that they replace."""

    def __init__(self, graph: Graph, mode: FakeTensorMode, origin: Node) -> None:
        self.graph = graph
        self._mode = mode
        self._origin = {key: each for key, each in origin.meta.items() if key != "val"}

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        """Add a call of ``target``."""
        made = self.graph.call_function(target, args, kwargs)
        given, keywords = map_arg((args, kwargs), lambda node: node.meta["val"])
        with self._mode:
            value = target(*given, **keywords)
        return self._known(made, value)

    def placeholder(self, name: str, like: Node) -> Node:
        """Add a placeholder for the value of ``like`` in another graph."""
        return self._known(self.graph.placeholder(name), like.meta["val"])

    def _known(self, node: Node, value: Any) -> Node:
        node.meta = {**self._origin, "val": value}
        return node


# --- condition -----------------------------------------------------------------------------------------


def condition(writer: GraphWriter, found: Attention, mask: Node | None) -> Node:
    """Scalar that is true when the kernel computes the same as the original operations.

    It holds when inputs are finite and not huge, and every row of the mask leaves a score. NaN makes each
    comparison false, so the original operations handle it.
    """
    query, key, value = (_largest(writer, each.source) for each in (found.query, found.key, found.value))
    scores = writer.call(
        aten.mul.Tensor, writer.call(aten.mul.Tensor, query, key), found.depth * found.growth
    )
    holds = writer.call(aten.le.Scalar, scores, found.masks.limit)
    for each in (query, key, value):
        holds = _both(writer, holds, writer.call(aten.le.Scalar, each, LIMIT))
    for part in found.masks.parts:
        if part.value is None:
            highest = writer.call(aten.amax.default, part.node)
            holds = _both(writer, holds, writer.call(aten.le.Scalar, highest, part.ceiling))
    if mask is not None and found.masks.floor is not None:
        best = writer.call(aten.amin.default, writer.call(aten.amax.default, mask, [-1]))
        holds = _both(writer, holds, writer.call(aten.ge.Scalar, best, found.masks.floor))
    return holds


def _largest(writer: GraphWriter, source: Node) -> Node:
    return writer.call(aten.amax.default, writer.call(aten.abs.default, source))


def _both(writer: GraphWriter, one: Node, other: Node) -> Node:
    return writer.call(aten.logical_and.default, one, other)


# --- mask ----------------------------------------------------------------------------------------------


def added_mask(writer: GraphWriter, steps: Sequence[MaskStep], dtype: torch.dtype) -> Node | None:
    """4-D tensor that is added to the scores; None without masks."""
    total: Node | None = None
    for step in steps:
        viewed = _viewed(writer, step.node, step.shape)
        if step.value is None:
            total = viewed if total is None else writer.call(aten.add.Tensor, total, viewed)
            continue
        fill_value = writer.call(aten.full.default, [], step.value, dtype=dtype, device=torch.device("cpu"))
        if total is None:
            total = writer.call(aten.full.default, [], 0.0, dtype=dtype, device=torch.device("cpu"))
        total = writer.call(
            aten.where.self, viewed, *((total, fill_value) if step.inverted else (fill_value, total))
        )
    return total


def _viewed(writer: GraphWriter, node: Node, shape: Sequence[int]) -> Node:
    value = value_of(node)
    assert value is not None, "the node is a tensor"
    return node if tuple(value.shape) == tuple(shape) else writer.call(aten.view.default, node, list(shape))


# --- branches -------------------------------------------------------------------------------------------


def kernel_branch(
    mode: FakeTensorMode, found: Attention, operands: Sequence[Node], mask: Node | None
) -> GraphModule:
    """Branch from ``operands`` to ATen's attention, as (batch, queries, heads, depth)."""
    graph = Graph()
    writer = GraphWriter(graph, mode, found.root)
    inputs = {node: writer.placeholder(f"x{position}", node) for position, node in enumerate(operands)}
    query, key, value = (
        _kernel_operand(writer, each, inputs) for each in (found.query, found.key, found.value)
    )
    settings: dict[str, Any] = {"scale": found.scale}
    if mask is not None:
        settings["attn_mask"] = _with_rows(writer, inputs[mask], broadcast=True)
    kernel = aten._scaled_dot_product_flash_attention_for_cpu.default
    both = writer.call(kernel, query, key, value, 0.0, found.masks.causal, **settings)
    result = writer.call(operator.getitem, both, 0)
    graph.output((writer.call(aten.permute.default, result, [0, 2, 1, 3]),))
    return GraphModule(torch.nn.Module(), graph)


def _kernel_operand(writer: GraphWriter, each: AttentionOperand, inputs: Mapping[Node, Node]) -> Node:
    """Operand in the form that the kernel takes."""
    made = _viewed(writer, inputs[each.source], each.shape)
    if each.transposed:
        made = writer.call(aten.transpose.int, made, -2, -1)
    return _with_rows(writer, made)


def _with_rows(writer: GraphWriter, node: Node, broadcast: bool = False) -> Node:
    """Copy of a tensor whose last dimension is not contiguous, which the kernel requires without checking; else
    the tensor."""
    value = value_of(node)
    assert value is not None, "the node is a tensor"
    if value.stride(-1) == 1 or (broadcast and value.shape[-1] == 1):
        return node
    return writer.call(aten.clone.default, node, memory_format=torch.contiguous_format)


def written_branch(
    mode: FakeTensorMode, found: Attention, interior: Iterable[Node], operands: Sequence[Node]
) -> GraphModule:
    """Branch with the original operations on the same operands; its result has the kernel's dimension order."""
    graph = Graph()
    writer = GraphWriter(graph, mode, found.root)
    known = {node: writer.placeholder(f"x{position}", node) for position, node in enumerate(operands)}
    for node in interior:
        known[node] = graph.node_copy(node, known.__getitem__)
    shape = [*found.lead, found.rows, found.depth]
    result = writer.call(aten.permute.default, _viewed(writer, known[found.root], shape), [0, 2, 1, 3])
    graph.output((writer.call(aten.clone.default, result, memory_format=torch.contiguous_format),))
    module = GraphModule(torch.nn.Module(), graph)
    module.meta[ORIGINAL] = True
    return module


def interior_of(found: Attention) -> tuple[list[Node], list[Node]]:
    """Nodes of an attention, and the nodes that they read.

    The first list contains ``root`` and all that it is computed from, down to queries, keys, values and masks, in
    program order. The second has the same order for equal attentions.
    """
    ends = [found.query.source, found.key.source, found.value.source]
    ends += [part.node for part in found.masks.parts]
    nodes = list(found.root.graph.nodes)
    own = _own(nodes, ends)
    inside: set[Node] = set()
    others: set[Node] = set()
    waiting = [found.root]
    while waiting:
        node = waiting.pop()
        if node in own and node not in inside:
            inside.add(node)
            waiting.extend(node.all_input_nodes)
        elif node not in own:
            others.add(node)
    read = dict.fromkeys((*ends, *(node for node in nodes if node in others)))
    return [node for node in nodes if node in inside], list(read)


def _own(nodes: Iterable[Node], ends: Collection[Node]) -> set[Node]:
    """Calls that depend on ``ends``, and calls that depend on no input."""
    moved: set[Node] = set(ends)
    fixed: set[Node] = set()
    for node in nodes:
        if node.op != "call_function" or node in moved:
            continue
        if any(each in moved for each in node.all_input_nodes):
            moved.add(node)
        elif all(each in fixed for each in node.all_input_nodes):
            fixed.add(node)
    return (moved | fixed) - set(ends)
