"""The two functions that an attention becomes, the kernel and what was written, and what decides between them."""

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
AS_WRITTEN = "litz_as_written"
"""Mark in the ``meta`` of the module that holds what was written: nothing is rewritten in there."""


class GraphWriter:
    """Adds calls to a graph, with metadata; ``origin`` is the node for which they stand."""

    def __init__(self, graph: Graph, mode: FakeTensorMode, origin: Node) -> None:
        self.graph = graph
        self._mode = mode
        self._origin = {key: each for key, each in origin.meta.items() if key != "val"}

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        """A call of ``target``."""
        made = self.graph.call_function(target, args, kwargs)
        given, keywords = map_arg((args, kwargs), lambda node: node.meta["val"])
        with self._mode:
            value = target(*given, **keywords)
        return self._known(made, value)

    def placeholder(self, name: str, like: Node) -> Node:
        """An input that is given what ``like`` is in another graph."""
        return self._known(self.graph.placeholder(name), like.meta["val"])

    def _known(self, node: Node, value: Any) -> Node:
        node.meta = {**self._origin, "val": value}
        return node


# --- what decides --------------------------------------------------------------------------------------


def condition(writer: GraphWriter, found: Attention, mask: Node | None) -> Node:
    """True when the kernel gives what was written: numbers are finite and not huge, every row of the mask has a score.

    NaN makes every comparison false, so that what was written decides what becomes of it.
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


# --- the mask ------------------------------------------------------------------------------------------


def added_mask(writer: GraphWriter, parts: Sequence[MaskStep], dtype: torch.dtype) -> Node | None:
    """The 4-D tensor that is added to the scores; None for none."""
    total: Node | None = None
    for part in parts:
        seen = _viewed(writer, part.node, part.shape)
        if part.value is None:
            total = seen if total is None else writer.call(aten.add.Tensor, total, seen)
            continue
        written = writer.call(aten.full.default, [], part.value, dtype=dtype, device=torch.device("cpu"))
        if total is None:
            total = writer.call(aten.full.default, [], 0.0, dtype=dtype, device=torch.device("cpu"))
        total = writer.call(aten.where.self, seen, *((total, written) if part.inverted else (written, total)))
    return total


def _viewed(writer: GraphWriter, node: Node, shape: Sequence[int]) -> Node:
    value = value_of(node)
    assert value is not None, "it is a tensor"
    return node if tuple(value.shape) == tuple(shape) else writer.call(aten.view.default, node, list(shape))


# --- the two functions -----------------------------------------------------------------------------------


def kernel_branch(
    mode: FakeTensorMode, found: Attention, operands: Sequence[Node], mask: Node | None
) -> GraphModule:
    """The library's attention of the operands: batch by queries by heads by depth."""
    graph = Graph()
    writer = GraphWriter(graph, mode, found.root)
    inputs = {node: writer.placeholder(f"x{place}", node) for place, node in enumerate(operands)}
    query, key, value = (_taken(writer, each, inputs) for each in (found.query, found.key, found.value))
    settings: dict[str, Any] = {"scale": found.scale}
    if mask is not None:
        settings["attn_mask"] = _with_rows(writer, inputs[mask], broadcast=True)
    kernel = aten._scaled_dot_product_flash_attention_for_cpu.default
    both = writer.call(kernel, query, key, value, 0.0, found.masks.causal, **settings)
    result = writer.call(operator.getitem, both, 0)
    graph.output((writer.call(aten.permute.default, result, [0, 2, 1, 3]),))
    return GraphModule(torch.nn.Module(), graph)


def _taken(writer: GraphWriter, each: AttentionOperand, inputs: Mapping[Node, Node]) -> Node:
    """An operand as the kernel takes it."""
    made = _viewed(writer, inputs[each.source], each.shape)
    if each.transposed:
        made = writer.call(aten.transpose.int, made, -2, -1)
    return _with_rows(writer, made)


def _with_rows(writer: GraphWriter, node: Node, broadcast: bool = False) -> Node:
    """The tensor, copied where the elements of a row do not lie beside one another: the kernel does not ask."""
    value = value_of(node)
    assert value is not None, "it is a tensor"
    if value.stride(-1) == 1 or (broadcast and value.shape[-1] == 1):
        return node
    return writer.call(aten.clone.default, node, memory_format=torch.contiguous_format)


def written_branch(
    mode: FakeTensorMode, found: Attention, interior: Iterable[Node], operands: Sequence[Node]
) -> GraphModule:
    """What was written, of the same operands, in the same order of dimensions."""
    graph = Graph()
    writer = GraphWriter(graph, mode, found.root)
    known = {node: writer.placeholder(f"x{place}", node) for place, node in enumerate(operands)}
    for node in interior:
        known[node] = graph.node_copy(node, known.__getitem__)
    shape = [*found.lead, found.rows, found.depth]
    result = writer.call(aten.permute.default, _viewed(writer, known[found.root], shape), [0, 2, 1, 3])
    graph.output((writer.call(aten.clone.default, result, memory_format=torch.contiguous_format),))
    module = GraphModule(torch.nn.Module(), graph)
    module.meta[AS_WRITTEN] = True
    return module


def interior_of(found: Attention) -> tuple[list[Node], list[Node]]:
    """(what ``root`` is computed from, down to queries, keys, values and masks, and ``root`` itself, in program order;
    what that reads, in the same order for equal attentions)."""
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
    """The calls that depend on ``ends``, and those that depend on nothing."""
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
