"""The pass: finds attention that was written by hand, rewrites what the kernel can stand for, and names the rest."""

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
from litz_lowering.fx_passes.aten_graph import AtenGraph
from litz_lowering.fx_passes.attention.branches import (
    AS_WRITTEN,
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
from litz_lowering.origins import origin_of

STAGE = "rewrite"
"""The stage of the decisions that the pass records: one for each attention, found or nearly found."""

_SOFTMAXES = ("aten._softmax.default", "aten._safe_softmax.default")
_PRODUCTS = ("aten.bmm.default", "aten.baddbmm.default")
_NEAR = 8
"""So many operations may stand between a product and a softmax for the two to look like attention."""


@dataclass(frozen=True, slots=True)
class HandWrittenAttention:
    """``softmax(q @ k^T * scale + mask) @ v`` becomes a choice between the library's kernel and what was written.

    The kernel is chosen at run time, where it provably gives the same: see :mod:`.branches`. ``enabled`` is the user's.
    """

    enabled: bool = True
    name: str = "fx.attention"
    ulp: int = 64

    def apply(self, data: AtenGraph, context: PassContext) -> AtenGraph:
        """The graph with choices instead; itself where there is nothing to rewrite."""
        written = getattr(data.module, "meta", {}).get(AS_WRITTEN, False)
        if not self.enabled or written or not any(_is_one_of(n, _SOFTMAXES) for n in data.graph.nodes):
            return data
        mode = detect_fake_mode([node.meta.get("val") for node in data.graph.nodes])
        if mode is None:
            return data
        graph = copy.deepcopy(data.graph)
        change = _Change(copy.copy(data.module), graph, mode)
        for found in _found(graph, KnownTensors(data.module), context):
            change.make(found)
        return AtenGraph(change.module, graph) if change.made else data


class _Change:
    """Puts choices into a graph. Equal functions are one, so that equal layers are lowered and compiled once."""

    def __init__(self, module: Module, graph: Graph, mode: FakeTensorMode) -> None:
        self.module = module
        self._graph = graph
        self._mode = mode
        self._known: dict[str, str] = {}
        self.made = 0

    def make(self, found: Attention) -> None:
        """Let a choice compute what ``found.root`` computed."""
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
        """The node that runs one of two functions, and what it gives: batch by queries by heads by depth."""
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
        """The attribute that holds a function; that of an equal one, if there is one."""
        key = _spelled(branch.graph)
        if key not in self._known:
            name = f"attention_{len(self._known)}"
            self._known[key] = name
            setattr(self.module, name, branch)
        return self._known[key]


def _found(graph: Graph, constants: KnownTensors, context: PassContext) -> Iterator[Attention]:
    """What can be rewritten, one after another: the next is looked for when the last is in place, whose result it may
    read. Everything else that looks like attention is recorded with the reason."""
    seen: set[Node] = set()
    for node in list(graph.nodes):
        match = find(ATTENTION, node) if _is_one_of(node, _PRODUCTS) else None
        if not isinstance(match, Match):
            continue
        softmax = match.node("softmax")
        seen.add(softmax)
        found = attention_of(match, constants)
        if isinstance(found, Attention):
            _record(context, softmax, Refused("attention.kernel"))
            yield found
        else:
            _record(context, softmax, found)
    for node in graph.nodes:
        if _is_one_of(node, _SOFTMAXES) and node not in seen and (missed := _near_miss(node)):
            _record(context, node, missed)


def _near_miss(softmax: Node) -> Refused | None:
    """Why a softmax between two products is no attention that the kernel knows; None where there are no products."""
    above, below = _path(softmax, lambda node: node.all_input_nodes), _path(softmax, lambda node: node.users)
    if above is None or below is None:
        return None
    for match in (find(SOFTMAX, softmax), find(ATTENTION, below)):
        if isinstance(match, Mismatch):
            other = "attention.dimension" if match.node is softmax else "attention.step"
            return Refused("attention.read" if match.readers else other, str(match.node.target))
    return None


def _path(start: Node, ahead: Callable[[Node], Any]) -> Node | None:
    """The nearest product that is a few operations ahead."""
    reached = [start]
    for _ in range(_NEAR):
        reached = list(dict.fromkeys(each for node in reached for each in ahead(node)))
        if (product := next((each for each in reached if _is_one_of(each, _PRODUCTS)), None)) is not None:
            return product
    return None


def _record(context: PassContext, softmax: Node, why: Refused) -> None:
    verdict = "call" if why.reason == "attention.kernel" else "leave"
    about = f"{why.about}; " if why.about else ""
    note = f"{about}{origin_of(softmax).describe()}"
    context.decide(Decision(STAGE, softmax.name, verdict, why.reason, note=note))


def _spelled(graph: Graph) -> str:
    """The graph without its names: what equal functions have in common."""
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
    assert value is not None, "it is a tensor"
    return value


def _is_one_of(node: Node, targets: tuple[str, ...]) -> bool:
    return node.op == "call_function" and str(node.target) in targets
