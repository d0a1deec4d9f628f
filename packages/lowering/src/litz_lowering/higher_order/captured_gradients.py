"""Gradients of captured tensors in the joint graph of a ``flex_attention`` score function."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.utils._python_dispatch import _disable_current_modes

from litz_lowering.contexts.inputs import attribute
from litz_lowering.rules.flex_attention.functions import CapturedRead

_BEFORE = 5
"""Results of a joint graph before the gradients of captured tensors: those of score, batch, head, query and key."""

_VIEWS_AND_CASTS = (
    torch.ops.aten.detach.default,
    torch.ops.aten.alias.default,
    torch.ops.aten._to_copy.default,
)


def captured_gradients(graph: Graph) -> Sequence[Node | None]:
    """Gradients of the captured tensors that a joint graph returns; None where there is none."""
    (returned,) = graph.output_node().args
    assert isinstance(returned, tuple | list), "a joint graph returns a gradient for each argument"
    return tuple(each if isinstance(each, Node) else None for each in returned[_BEFORE:])


def return_alone(traced: GraphModule, wanted: Collection[int]) -> tuple[CapturedRead, ...] | None:
    """Reduce a traced function to its first result, and the scattered terms of the gradients in ``wanted``.

    ``wanted`` holds positions of captured tensors, in a joint graph. Each gradient has to be a sum of scatters;
    the values and indices of these follow the first result, as the returned :class:`CapturedRead` records say.
    Returns None where a gradient is no such sum.
    """
    graph = traced.graph
    output = graph.output_node()
    (returned,) = output.args
    found: list[tuple[CapturedRead, Node]] = []
    known = True
    for position in sorted(wanted):
        gradient = captured_gradients(graph)[position]
        scatters = None if gradient is None else _scatters(gradient)
        found += [(CapturedRead(position, len(_indices(scatter))), scatter) for scatter in scatters or ()]
        known = known and scatters is not None
    first = returned[0] if isinstance(returned, tuple | list) else returned
    output.args = (
        (first, *(each for _, scatter in found for each in (scatter.args[2], *_indices(scatter)))),
    )
    graph.eliminate_dead_code()
    traced.recompile()
    return tuple(each for each, _ in found) if known else None


def write_numbers(traced: GraphModule, like: torch.Tensor) -> None:
    """Replace 0-d CPU tensors that a function captures with ``full`` calls on the device of ``like``."""
    graph = traced.graph
    for node in graph.find_nodes(op="get_attr"):
        constant: Any = attribute(traced, str(node.target))
        if (
            not isinstance(constant, torch.Tensor)
            or constant.dim()
            or constant.device.type != "cpu"
            or constant.is_complex()
        ):
            continue
        with _disable_current_modes():
            number = constant.item()
        kwargs: dict[str, Any] = {"dtype": constant.dtype, "device": like.device}
        with graph.inserting_before(node):
            filled = graph.call_function(torch.ops.aten.full.default, ([], number), kwargs)
        filled.meta["val"] = like.new_empty((), dtype=constant.dtype)
        node.replace_all_uses_with(filled)
        graph.erase_node(node)


def _scatters(gradient: Node) -> list[Node] | None:
    """Scatters of which a gradient is the sum; None where it is no such sum."""
    if gradient.target in _VIEWS_AND_CASTS:
        inner = gradient.args[0]
        return _scatters(inner) if isinstance(inner, Node) else None
    if gradient.target == torch.ops.aten.add.Tensor and not gradient.kwargs:
        terms = [_scatters(each) if isinstance(each, Node) else None for each in gradient.args]
        return [each for term in terms for each in term or ()] if None not in terms else None
    if gradient.target != torch.ops.flex_lib.zeros_and_scatter.default:
        return None
    shape: Any = gradient.args[0]
    return [gradient] if len(_indices(gradient)) == len(shape) else None


def _indices(scatter: Node) -> Sequence[Node]:
    indices: Any = scatter.args[1]
    return tuple(indices)
