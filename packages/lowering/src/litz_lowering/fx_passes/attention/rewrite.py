"""Pass that replaces attention written as separate operators by ATen's kernel."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch._subclasses import FakeTensorMode
from torch.fx import Graph, GraphModule, Node
from torch.nn import Module

from litz_ir.fused import Decision
from litz_ir.passes import PassContext
from litz_lowering import reasons
from litz_lowering.contexts.origins import origin_of
from litz_lowering.fx_passes.aten_graph import AtenGraph
from litz_lowering.fx_passes.attention.branches import (
    ORIGINAL,
    GraphWriter,
    added_mask,
    aten,
    condition,
    interior_of,
    kernel_branch,
    written_branch,
)
from litz_lowering.fx_passes.attention.constants import KnownTensors
from litz_lowering.fx_passes.attention.forms import ATTENTION, SOFTMAX, value_of
from litz_lowering.fx_passes.attention.matched import Attention, Refused, attention_of
from litz_lowering.fx_passes.patterns import Match, Mismatch, find

_STAGE = "rewrite"
"""Stage of the pass's decisions: one for each attention that matched, or nearly did."""

_SOFTMAXES = ("aten._softmax.default", "aten._safe_softmax.default")
_MATMULS = ("aten.bmm.default", "aten.baddbmm.default")
_NEAR = 8
"""Largest number of operations between a matmul and a softmax that still look like attention."""


@dataclass(frozen=True, slots=True)
class HandWrittenAttention:
    """Replace ``softmax(q @ k^T * scale + mask) @ v`` by a ``cond`` between ATen's kernel and the
    original.

    The kernel is chosen at run time, where it provably gives the same result: see :mod:`.branches`.
    """

    enabled: bool = True
    """Option of the user."""
    name: str = "fx.attention"
    ulp: int = 64

    def apply(self, data: AtenGraph, context: PassContext) -> AtenGraph:
        """Return the rewritten graph, or ``data`` itself where nothing is rewritten."""
        is_original = getattr(data.module, "meta", {}).get(ORIGINAL, False)
        if not self.enabled or is_original or not any(_is_one_of(n, _SOFTMAXES) for n in data.graph.nodes):
            return data
        mode = detect_fake_mode([node.meta.get("val") for node in data.graph.nodes])
        if mode is None:
            return data
        graph = copy.deepcopy(data.graph)
        rewriter = _Rewriter(copy.copy(data.module), graph, mode)
        for attention in _rewritable(graph, KnownTensors(data.module), context):
            rewriter.make(attention)
        return AtenGraph(rewriter.module, graph) if rewriter.made else data


class _Rewriter:
    """Replaces attentions in a graph. Equal branches are stored once, so equal layers are lowered and compiled
    once."""

    def __init__(self, module: Module, graph: Graph, mode: FakeTensorMode) -> None:
        self.module = module
        self._graph = graph
        self._mode = mode
        self._known: dict[str, str] = {}
        self.made = 0

    def make(self, found: Attention) -> None:
        """Replace ``found.root`` by a ``cond``."""
        root = found.root
        interior, operands = interior_of(found)
        dtype = _value(root).dtype
        with self._graph.inserting_before(root):
            writer = GraphWriter(self._graph, self._mode, root)
            mask = added_mask(writer, found.masks.parts, dtype)
            if mask is not None and mask not in operands:
                operands.append(mask)
            holds = condition(writer, found, mask)
            branches = (
                self._branch(kernel_branch(self._mode, found, operands, mask)),
                self._branch(written_branch(self._mode, found, interior, operands)),
            )
            chosen = self._chosen(found, holds, branches, operands)
            result = writer.call(aten.permute.default, chosen, [0, 2, 1, 3])
            result = writer.call(aten.clone.default, result, memory_format=torch.contiguous_format)
            if result.meta["val"].shape != _value(root).shape:
                result = writer.call(aten.view.default, result, list(_value(root).shape))
        root.replace_all_uses_with(result)
        self._graph.erase_node(root)
        self.made += 1

    def _chosen(self, found: Attention, holds: Node, branches: tuple[str, str], operands: list[Node]) -> Node:
        """Add the ``cond`` and its result of shape (batch, queries, heads, depth)."""
        batch, heads = found.lead
        functions = tuple(map(self._graph.get_attr, branches))
        choice = self._graph.call_function(
            torch.ops.higher_order.cond, (holds, *functions, tuple(operands)), {}
        )
        with self._mode:
            value = torch.empty(batch, found.rows, heads, found.depth, dtype=_value(found.root).dtype)
        origin = {key: each for key, each in found.root.meta.items() if key != "val"}
        choice.meta = {**origin, "val": (value,)}
        result = self._graph.call_function(operator.getitem, (choice, 0), {})
        result.meta = {**origin, "val": value}
        return result

    def _branch(self, branch: GraphModule) -> str:
        """Name of the attribute that holds a branch; equal branches share one."""
        key = _graph_text(branch.graph)
        if key not in self._known:
            name = f"attention_{len(self._known)}"
            self._known[key] = name
            setattr(self.module, name, branch)
        return self._known[key]


def _rewritable(graph: Graph, constants: KnownTensors, context: PassContext) -> Iterator[Attention]:
    """Yield the attentions to rewrite, and record others with the reason.

    The next is matched after the last is replaced, whose result it may read.
    """
    matched: set[Node] = set()
    for node in list(graph.nodes):
        match = find(ATTENTION, node) if _is_one_of(node, _MATMULS) else None
        if not isinstance(match, Match):
            continue
        softmax = match.node("softmax")
        matched.add(softmax)
        found = attention_of(match, constants)
        if isinstance(found, Attention):
            _record(context, softmax, Refused(reasons.ATTENTION_KERNEL))
            yield found
        else:
            _record(context, softmax, found)
    for node in graph.nodes:
        if _is_one_of(node, _SOFTMAXES) and node not in matched and (missed := _near_miss(node)):
            _record(context, node, missed)


def _near_miss(softmax: Node) -> Refused | None:
    """Reason against a softmax between two matmuls that is no supported attention; None without such matmuls."""
    above, below = _path(softmax, lambda node: node.all_input_nodes), _path(softmax, lambda node: node.users)
    if above is None or below is None:
        return None
    for match in (find(SOFTMAX, softmax), find(ATTENTION, below)):
        if isinstance(match, Mismatch):
            other = reasons.ATTENTION_DIMENSION if match.node is softmax else reasons.ATTENTION_STEP
            return Refused(reasons.ATTENTION_READ if match.readers else other, str(match.node.target))
    return None


def _path(start: Node, neighbours: Callable[[Node], Any]) -> Node | None:
    """Nearest matmul within a few operations in one direction."""
    reached = [start]
    for _ in range(_NEAR):
        reached = list(dict.fromkeys(each for node in reached for each in neighbours(node)))
        if (matmul := next((each for each in reached if _is_one_of(each, _MATMULS)), None)) is not None:
            return matmul
    return None


def _record(context: PassContext, softmax: Node, refused: Refused) -> None:
    verdict = "call" if refused.reason is reasons.ATTENTION_KERNEL else "leave"
    about = f"{refused.about}; " if refused.about else ""
    note = f"{about}{origin_of(softmax).describe()}"
    context.decide(Decision(_STAGE, softmax.name, verdict, refused.reason, note=note))


def _graph_text(graph: Graph) -> str:
    """Text of a graph without node names, equal for equal functions."""
    numbers: dict[Node, int] = {}
    lines = []
    for node in graph.nodes:
        numbers[node] = len(numbers)
        value = value_of(node)
        type_ = "" if value is None else f"{value.dtype} {tuple(value.shape)} {value.stride()}"
        arguments = _numbered((node.args, node.kwargs), numbers)
        lines.append(f"{node.op} {node.target if node.op == 'call_function' else ''} {arguments} {type_}")
    return "\n".join(lines)


def _numbered(value: object, numbers: dict[Node, int]) -> str:
    match value:
        case Node():
            return f"%{numbers[value]}"
        case tuple() | list():
            return f"({', '.join(_numbered(each, numbers) for each in value)})"
        case dict():
            return f"{{{', '.join(f'{key}: {_numbered(each, numbers)}' for key, each in value.items())}}}"
    return repr(value)


def _value(node: Node) -> torch.Tensor:
    value = value_of(node)
    assert value is not None, "the node is a tensor"
    return value


def _is_one_of(node: Node, targets: tuple[str, ...]) -> bool:
    return node.op == "call_function" and str(node.target) in targets
