"""Layouts of saved tensors: those that a forward may choose, and backwards compiled for the strides they get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch._dynamo.compiled_autograd
from torch._guards import TracingContext
from torch.fx import GraphModule, Node

from litz.capture.descriptors import leading_tokens
from litz.capture.gradients.batched import in_batches
from litz.capture.runtime_wrappers import Strides, as_traced
from litz.host.runtime.load import HostFunction
from litz.host.runtime.torch_memory import materialised
from litz_ir.loops import ComplexRef, Ref
from litz_ir.plan import Plan
from litz_ir.symbols import floordiv

_SAME = ("aten.detach.default", "aten.alias.default")
_VIEWS = ("aten.view.default", "aten._unsafe_view.default")
_BY_STRIDES = ("aten._unsafe_view", "aten.as_strided")
"""Operators that depend on strides though their schema has no view: ATen may refuse other strides."""


def saved_in_any_layout(forward: GraphModule, backward: GraphModule, outputs: int) -> frozenset[str]:
    """Return the nodes of a forward whose tensors only the backward reads, by elements: never as views or results.

    The first ``outputs`` results are the function's. There are none under compiled autograd, which traces the
    backward again with strides that it was not partitioned for.
    """
    if torch._dynamo.config.compiled_autograd or torch._dynamo.compiled_autograd.compiled_autograd_enabled:
        return frozenset()
    (results,) = next(iter(reversed(forward.graph.nodes))).args
    assert isinstance(results, list | tuple)
    given = {node.name: node for node in backward.graph.nodes if node.op == "placeholder"}
    returned = {each.name for each in results[:outputs] if isinstance(each, Node)}
    saved = {each.name for each in results[outputs:] if isinstance(each, Node)} - returned
    return frozenset(name for name in saved if name in given and _is_read_by_elements(given[name]))


def _is_read_by_elements(node: Node, saved: Node | None = None) -> bool:
    """Report whether no reader of a ``saved`` tensor depends on its strides, through a node that is a view of it."""
    saved = saved or node
    return all(
        _is_read_by_elements(user, saved)
        if str(user.target) in _SAME or _divides_dimensions(saved, user)
        else _reads_elements(user.target)
        for user in node.users
    )


def _divides_dimensions(saved: Node, view: Node) -> bool:
    """Report whether a view has the dimensions of a tensor, some of them divided, which any strides allow."""
    values = [each.meta.get("val") for each in (saved, view)]
    if str(view.target) not in _VIEWS or not all(isinstance(each, torch.Tensor) for each in values):
        return False
    shapes = [each.shape for each in values if isinstance(each, torch.Tensor)]
    if not all(type(size) is int and size > 0 for shape in shapes for size in shape):
        return False
    parts = iter(shapes[1])
    for size in shapes[0]:
        count = 1
        while count < size:
            count *= next(parts, size + 1)
        if count != size:
            return False
    return all(size == 1 for size in parts)


def _reads_elements(target: object) -> bool:
    """Report whether an operator neither returns views nor depends on strides."""
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in ("aten", "prims"):
        return False
    views = any(argument.alias_info is not None for argument in target._schema.arguments)
    return not views and not str(target).startswith(_BY_STRIDES)


def expect(gm: GraphModule, inputs: Sequence[Any]) -> dict[int, Strides]:
    """Update a graph's placeholders to the strides of its actual inputs; return the traced strides that differ, by
    position."""
    traced: dict[int, Strides] = {}
    nodes = (node for node in gm.graph.nodes if node.op == "placeholder")
    for position, (node, given) in enumerate(zip(nodes, inputs, strict=True)):
        known, real = _strides(node.meta.get("val")), _strides(given)
        if known is not None and real is not None and known != real:
            traced[position] = known
            node.meta["val"] = given
    return traced


def _strides(value: object) -> Strides | None:
    """Return the strides of a tensor, or ``None`` where they have a symbol."""
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return None
    return value.stride() if all(type(stride) is int for stride in value.stride()) else None


def given_as_traced(call: HostFunction, traced: Mapping[int, Strides]) -> HostFunction:
    """Return the call of a graph that runs as ATen operations, which restores the traced strides of its inputs."""
    if not traced:
        return call

    def run(args: list[Any]) -> Sequence[Any]:
        for position, strides in traced.items():
            args[position] = as_traced(args[position], strides)
        return call(args)

    return run


def report_strides(gm: GraphModule, plan: Plan) -> None:
    """Report the strides of a forward's outputs to AOTAutograd, which traces the backward with them.

    Litz keeps eager's strides wherever memory allows them; symbolic ones are eager's by construction. Effect tokens,
    which precede all other outputs, are removed by AOTAutograd and therefore left out.
    """
    context = TracingContext.try_get()
    if context is None or context.output_strides is None:
        return
    context.output_strides.extend(_result_strides(plan)[leading_tokens(gm) :])


def with_traced_strides(gm: GraphModule, plan: Plan, call: HostFunction) -> HostFunction:
    """Return the call of a forward whose results have the strides that AOTAutograd traced its backward with; ``call``
    itself where the plan gives these."""
    (results,) = next(iter(reversed(gm.graph.nodes))).args
    assert isinstance(results, list | tuple)
    wanted = [_strides(each.meta.get("val")) if isinstance(each, Node) else None for each in results]
    made = zip(wanted, _result_strides(plan), strict=True)
    changed = [
        (k, strides) for k, (strides, given) in enumerate(made) if strides and given and strides != given
    ]
    if not changed:
        return call

    def run(args: list[Any]) -> Sequence[Any]:
        found = list(call(args))
        for k, strides in changed:
            found[k] = as_traced(found[k], strides)
        return found

    return run


def _result_strides(plan: Plan) -> list[tuple[Any, ...] | None]:
    """Return the strides of a graph's results in its plan; ``None`` for those that are not computed, and for symbolic
    ones, which are as traced and may have no value yet."""
    placements = dict(plan.buffers)
    found: list[tuple[Any, ...] | None] = []
    for output in plan.outputs:
        strides: tuple[Any, ...] | None = None
        if isinstance(output, Ref) and output.name in placements:
            strides = placements[output.name].type.layout.strides
            if isinstance(output, ComplexRef):
                strides = tuple(floordiv(stride, 2) for stride in strides[:-1])
            if not all(isinstance(stride, int) for stride in strides):
                strides = None
        found.append(strides)
    return found


def with_resolved_tangents(
    gm: GraphModule, call: HostFunction, overwritten: Sequence[int] = ()
) -> HostFunction:
    """Return the call of a backward graph for any incoming gradients.

    It resolves their negative bit and gives memory to zero tensors among them, which no guard checks, and runs for
    one after another of a batch. The call may write its arguments at the positions ``overwritten``.
    """
    inputs = gm.graph.find_nodes(op="placeholder")
    tangents = [position for position, node in enumerate(inputs) if node.name.startswith("tangents")]

    def run(args: list[Any]) -> Sequence[Any]:
        for position in tangents:
            given = args[position]
            if isinstance(given, torch.Tensor) and (given.is_neg() or given._is_zerotensor()):
                args[position] = materialised(given).resolve_neg()
        return call(args)

    return in_batches(run, tangents, overwritten)
