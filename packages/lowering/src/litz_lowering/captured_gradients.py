"""What the joint graph of a score function adds to the gradients of the tensors that the function looks into."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.utils._python_dispatch import _disable_current_modes

from litz_lowering.inputs import attribute
from litz_lowering.rules.flex_attention.functions import CapturedRead

BEFORE = 5
"""The results of a joint graph that come before the gradients of what is looked into: those of the score, the batch,
the head, the query and the key."""

_SHOWN = (torch.ops.aten.detach.default, torch.ops.aten.alias.default, torch.ops.aten._to_copy.default)


def captured_gradients(graph: Graph) -> Sequence[Node | None]:
    """A joint graph's gradients of what is looked into, None where there is none."""
    (returned,) = graph.output_node().args
    assert isinstance(returned, tuple | list), "a joint graph returns a gradient for each argument"
    return tuple(each if isinstance(each, Node) else None for each in returned[BEFORE:])


def return_alone(traced: GraphModule, wanted: Collection[int]) -> tuple[CapturedRead, ...] | None:
    """Let a function return its first result alone, and, where it is a joint graph of which the gradients of
    ``wanted`` tensors are asked for, behind it what is added to those: see :class:`CapturedRead`. None where one of
    them is something else than a sum of such."""
    graph = traced.graph
    output = graph.output_node()
    (returned,) = output.args
    found: list[tuple[CapturedRead, Node]] = []
    known = True
    for position in sorted(wanted):
        gradient = captured_gradients(graph)[position]
        parts = None if gradient is None else _scatters(gradient)
        found += [(CapturedRead(position, len(_indices(part))), part) for part in parts or ()]
        known = known and parts is not None
    first = returned[0] if isinstance(returned, tuple | list) else returned
    output.args = ((first, *(each for _, part in found for each in (part.args[2], *_indices(part)))),)
    graph.eliminate_dead_code()
    traced.recompile()
    return tuple(each for each, _ in found) if known else None


def write_numbers(traced: GraphModule, like: torch.Tensor) -> None:
    """Write numbers that a function holds as tensors of the CPU, an index say, as what fills a tensor on the device of
    another one."""
    graph = traced.graph
    for node in graph.find_nodes(op="get_attr"):
        held: Any = attribute(traced, str(node.target))
        if not isinstance(held, torch.Tensor) or held.dim() or held.device.type != "cpu" or held.is_complex():
            continue
        with _disable_current_modes():
            number = held.item()
        kind: dict[str, Any] = {"dtype": held.dtype, "device": like.device}
        with graph.inserting_before(node):
            filled = graph.call_function(torch.ops.aten.full.default, ([], number), kind)
        filled.meta["val"] = like.new_empty((), dtype=held.dtype)
        node.replace_all_uses_with(filled)
        graph.erase_node(node)


def _scatters(gradient: Node) -> list[Node] | None:
    """The scatters of which a gradient is the sum; None where it is no such sum."""
    if gradient.target in _SHOWN:
        inner = gradient.args[0]
        return _scatters(inner) if isinstance(inner, Node) else None
    if gradient.target == torch.ops.aten.add.Tensor and not gradient.kwargs:
        parts = [_scatters(each) if isinstance(each, Node) else None for each in gradient.args]
        return [each for part in parts for each in part or ()] if None not in parts else None
    if gradient.target != torch.ops.flex_lib.zeros_and_scatter.default:
        return None
    shape: Any = gradient.args[0]
    return [gradient] if len(_indices(gradient)) == len(shape) else None


def _indices(scatter: Node) -> Sequence[Node]:
    indices: Any = scatter.args[1]
    return tuple(indices)
