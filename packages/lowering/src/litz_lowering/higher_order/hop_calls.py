"""Calls of higher-order operators (HOPs) as eager runs them, with their traced functions.

Traced functions cannot be stored in a plan. The call is a routine that accompanies the plan, as constants do, and
such a plan is not cached on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from litz_ir.loops import Extern, Value
from litz_lowering.contexts.context import LoweringContext
from litz_lowering.contexts.results import computed_positions, leaf_types, nested_results
from litz_lowering.contexts.values import Lowered, Subgraph, Tensor

HopRoutine = Callable[..., tuple[Any, ...]]


def call_hop(
    ctx: LoweringContext, read: Callable[[Node], Lowered], reason: str
) -> tuple[Lowered, str, HopRoutine]:
    """Append an ``Extern`` of the node's operator; return its value, and the routine with its name.

    ``read`` gives the lowered value of an argument. A call that contains random operators keeps its order in the
    random stream; any other is ordered as an effect.
    """
    node = ctx.node
    leaves, spec = pytree.tree_flatten((node.args, node.kwargs), is_leaf=lambda leaf: isinstance(leaf, Node))
    given: dict[int, Lowered] = {}
    operands = list(leaves)
    for position, leaf in enumerate(leaves):
        value = read(leaf) if isinstance(leaf, Node) else leaf
        if isinstance(value, Subgraph):
            operands[position] = value.module
        elif isinstance(leaf, torch.SymInt):
            given[position] = ctx.builder.symbols.size(leaf)
        elif isinstance(leaf, Node):
            given[position] = value
    returned_positions = computed_positions(ctx)
    types = leaf_types(ctx)
    name = f"graph.{ctx.origin.node}"
    values: dict[int, Value] = {}
    for position in returned_positions:
        kind = types[position]
        assert kind is not None, "a present result has a type"
        values[position] = ctx.value(kind, ctx.position(position))
    ctx.append(
        Extern(
            results=tuple(values.values()),
            target=name,
            arguments=tuple(map(ctx.argument, given.values())),
            layout_requirement="exact",
            unpack=True,
            reason=reason,
            token="rng" if any(map(_draws, _graphs(operands))) else "effect",
            origin=ctx.origin,
        )
    )
    routine = _routine(node.target, operands, spec, tuple(given), returned_positions)
    return nested_results(ctx, {position: Tensor(value) for position, value in values.items()}), name, routine


def _routine(
    operator: Any,
    operands: Sequence[Any],
    spec: pytree.TreeSpec,
    positions: Sequence[int],
    returned_positions: Sequence[int],
) -> HopRoutine:
    def run(*given: Any) -> tuple[Any, ...]:
        leaves = list(operands)
        for index, value in zip(positions, given, strict=True):
            leaves[index] = value
        args, kwargs = pytree.tree_unflatten(leaves, spec)
        with torch.no_grad():
            found = pytree.tree_leaves(operator(*args, **kwargs), is_leaf=lambda leaf: leaf is None)
        inputs = {_memory(value) for value in given if isinstance(value, torch.Tensor)}
        return tuple(_own(found[index], inputs) for index in returned_positions)

    return run


def _own(value: Any, inputs: set[int]) -> torch.Tensor:
    """Return a result in memory of its own; numbers become one-element tensors."""
    if not isinstance(value, torch.Tensor):
        return torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None)
    return value.clone() if _memory(value) in inputs else value


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _graphs(values: Sequence[Any]) -> Iterator[Any]:
    """Yield traced graphs and operators among the arguments, including those in nested graphs."""
    for value in values:
        yield value
        if isinstance(value, GraphModule):
            yield from _graphs(list(value.children()))


def _draws(value: Any) -> bool:
    """True for a random operator, and for a graph that calls one."""
    if isinstance(value, torch._ops.OpOverload):
        return torch.Tag.nondeterministic_seeded in value.tags
    return isinstance(value, GraphModule) and any(_draws(node.target) for node in value.graph.nodes)
