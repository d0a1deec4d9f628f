"""Selection of ``flex_attention`` calls that become loops, and tracing of their functions."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from litz_ir.fused import Decision, Reason
from litz_ir.loops import LoopGraph
from litz_ir.passes import PassContext
from litz_lowering import reasons
from litz_lowering.contexts.inputs import attribute
from litz_lowering.contexts.origins import origin_of
from litz_lowering.decompose.table import Decompositions
from litz_lowering.fx_passes.aten_graph import AtenGraph
from litz_lowering.higher_order.captured_gradients import return_alone, write_numbers
from litz_lowering.rules.flex_attention.functions import CAPTURED_READS, composition_obstacle

MARK = "litz.flex_attention"
"""Key in ``meta`` of attention that a rule lowers to loops."""

_FORWARD = torch.ops.higher_order.flex_attention
_BACKWARD = torch.ops.higher_order.flex_attention_backward
_DTYPES = (torch.bfloat16, torch.float16, torch.float32)
_BLOCK_MASK: Mapping[Any, int] = {_FORWARD: 4, _BACKWARD: 9}
_OTHERS: Mapping[Any, tuple[int, int]] = {_FORWARD: (7, 8), _BACKWARD: (12, 13)}
"""Positions, among the arguments, of the block mask and of the tensors that score and mask functions capture."""
_MOST_WIDTH = 256
"""The most elements of a head in blocks of queries, which are in the caches of a CPU."""


@dataclass
class MarkFlexAttention:
    """Mark ``flex_attention`` calls that become loops, and trace their functions as eager runs them.

    Scores are f32 and positions 64-bit integers. A function qualifies where its loop graph is one expression per
    point.
    """

    nested_reductions: frozenset[str]
    """Kinds of devices whose loop bodies may hold sums; others keep the call."""
    blocked: frozenset[str]
    """Kinds of these that compute attention in blocks of queries; others take all forms of it."""
    decompositions: Decompositions
    """Decomposition table used while tracing."""
    lowered: Callable[[GraphModule], LoopGraph]
    """Lowers a traced function to its loop graph."""
    stored: frozenset[str] = frozenset()
    """Names of calls that their device cannot compute in blocks, so that they stay matmuls, in whatever subgraph."""
    deterministic: bool = False
    """Refuse gradients of captured tensors, which are sums in no fixed order."""
    name: str = "fx.flex_attention"
    ulp: int = 0

    def apply(self, data: AtenGraph, context: PassContext) -> AtenGraph:
        """Return the graph with marked calls, or ``data`` itself where there is no attention."""
        found = [node.name for node in data.graph.nodes if self._concerns(node)]
        if not found:
            return data
        module, graph = copy.copy(data.module), copy.deepcopy(data.graph)
        for node in (each for each in graph.nodes if each.name in found):
            reason, about = _refusal(node, self.deterministic), ""
            if reason is None and node.name in self.stored:
                reason = reasons.FLEX_ATTENTION_BLOCKS
            if reason is None:
                functions = self._functions(module, node)
                about = next(filter(None, (self._refused(each) for _, each in functions)), "")
                reason = reasons.FLEX_ATTENTION_FUNCTION if about else reasons.FLEX_ATTENTION_FUSED
                if CAPTURED_READS in node.meta and node.meta[CAPTURED_READS] is None:
                    reason, about = (
                        reasons.FLEX_ATTENTION_GRADIENT,
                        "the gradient of a captured tensor is not a sum of scatters of its elements",
                    )
            if reason is reasons.FLEX_ATTENTION_FUSED:
                node.meta[MARK] = True
                for path, function in functions:
                    _replace(module, graph, node, path, function)
            verdict = "generate" if reason is reasons.FLEX_ATTENTION_FUSED else "leave"
            note = "; ".join(filter(None, (about, origin_of(node).describe())))
            context.decide(Decision("rewrite", node.name, verdict, reason, note=note))
        return AtenGraph(module, graph)

    def _concerns(self, node: Node) -> bool:
        if node.op != "call_function" or node.target not in _BLOCK_MASK:
            return False
        kind = _value(node.args[0]).device.type
        return kind in self.nested_reductions and (kind not in self.blocked or _suits_blocks(node))

    def _refused(self, function: GraphModule) -> str:
        return composition_obstacle(self.lowered(function))

    def _functions(self, module: torch.nn.Module, node: Node) -> list[tuple[tuple[int, ...], GraphModule]]:
        """Functions of a node, traced again, and their paths among its arguments."""
        query, mask_position = _value(node.args[0]), _BLOCK_MASK[node.target]
        score, gradient = (query.new_empty((), dtype=torch.float32) for _ in range(2))
        positions = [query.new_empty((), dtype=torch.int64) for _ in range(4)]
        captured, masks = ([_value(each) for each in _argument(node, k, ())] for k in _OTHERS[node.target])
        calls: list[tuple[tuple[int, ...], Sequence[Any]]] = [((mask_position, -1), (*positions, *masks))]
        if node.target is _FORWARD:
            calls.append(((3,), (score, *positions, *captured)))
        else:
            calls += [
                ((7,), (score, *positions, *captured)),
                ((8,), (score, *positions, gradient, *captured)),
            ]
        functions = [(path, self._traced(module, _reached(node.args, path), given)) for path, given in calls]
        for path, function in functions:
            wanted = _wanted(node) if path == (8,) else ()
            reads = return_alone(function, wanted)
            if wanted:
                node.meta[CAPTURED_READS] = reads
        return functions

    def _traced(self, module: torch.nn.Module, function_node: Node, values: Sequence[Any]) -> GraphModule:
        """Trace a function of the node with arguments ``values``."""
        function = attribute(module, str(function_node.target))
        assert isinstance(function, GraphModule), "flex_attention is given traced functions"
        table = {op: how for op, how in self.decompositions.items() if isinstance(op, torch._ops.OpOverload)}
        mode = detect_fake_mode(values)
        assert mode is not None, "graphs are traced with fake tensors"
        with mode, torch.no_grad():
            traced = make_fx(function, table, _allow_non_fake_inputs=True)(*values)
        write_numbers(traced, values[0])
        return traced


def _suits_blocks(node: Node) -> bool:
    """Return True for an attention that is computed block by block: forward, and of heads of known width."""
    query, _, value = (_value(each) for each in node.args[:3])
    widths = (query.shape[-1], value.shape[-1])
    known = all(isinstance(width, int) and width <= _MOST_WIDTH for width in widths)
    return node.target is _FORWARD and known


def forget_lists(graph: Graph) -> None:
    """Remove the block lists of a block mask of one block, which nobody reads.

    The operators that compute them then need not run, nor be saved for a backward.
    """
    for node in graph.nodes:
        if node.op != "call_function" or node.target not in _BLOCK_MASK:
            continue
        place = _BLOCK_MASK[node.target]
        mask = node.args[place]
        if all(each is None or _value(each).shape[-1] == 1 for each in (mask[3], mask[7])):
            lists = slice(2, 10)
            emptied = (*mask[: lists.start], *(None for _ in mask[lists]), *mask[lists.stop :])
            node.args = _with(node.args, (place,), emptied)


def _refusal(node: Node, deterministic: bool = False) -> Reason | None:
    """Reason for not lowering an attention to loops; None where its arguments allow it.

    ``deterministic`` forbids sums of floats in no fixed order.
    """
    query, key, value = (_value(each) for each in node.args[:3])
    if not all(each.dtype == query.dtype and each.dtype in _DTYPES for each in (query, key, value)):
        return reasons.FLEX_ATTENTION_DTYPE
    if any(size == 0 for each in (query, key, value) for size in each.shape if isinstance(size, int)):
        return reasons.FLEX_ATTENTION_EMPTY
    if node.target is _BACKWARD and (node.args[5] is None or (deterministic and _wanted(node))):
        return reasons.FLEX_ATTENTION_GRADIENT
    return None


def _wanted(node: Node) -> frozenset[int]:
    """Positions of captured tensors whose gradient is read."""
    captured = [user for user in node.users if user.target is operator.getitem and user.args[1] == 3]
    read = [inner for user in captured for inner in user.users if inner.users]
    return frozenset(each.args[1] for each in read if isinstance(each.args[1], int))


def _value(argument: Any) -> Any:
    return argument.meta["val"] if isinstance(argument, Node) else argument


def _argument(node: Node, position: int, default: Any) -> Any:
    return node.args[position] if position < len(node.args) else default


def _reached(arguments: Any, path: tuple[int, ...]) -> Any:
    for position in path:
        arguments = arguments[position]
    return arguments


def _replace(
    module: torch.nn.Module, graph: Graph, node: Node, path: tuple[int, ...], function: GraphModule
) -> None:
    """Make a node call another function."""
    name = f"{node.name}_{_reached(node.args, path).target}"
    setattr(module, name, function)
    with graph.inserting_before(node):
        attr = graph.get_attr(name)
    node.args = _with(node.args, path, attr)


def _with(arguments: tuple[Any, ...], path: tuple[int, ...], item: Any) -> tuple[Any, ...]:
    """Copy nested arguments with the item at ``path`` replaced."""
    position = path[0] % len(arguments)
    inner = _with(arguments[position], path[1:], item) if path[1:] else item
    return (*arguments[:position], inner, *arguments[position + 1 :])
