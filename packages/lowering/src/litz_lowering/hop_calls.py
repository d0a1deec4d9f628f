"""Operators that run functions and that nothing is generated for: one call of the operator, its functions inside.

The functions are traced graphs, which no plan can hold: the call is a routine that travels beside the plan, as
constants do, and such a plan is not kept on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from litz_ir.loops import Extern, Value
from litz_lowering.context import LoweringContext
from litz_lowering.results import present, result_types, returned
from litz_lowering.values import Lowered, Subgraph, Tensor

HopRoutine = Callable[..., tuple[Any, ...]]


def call_hop(
    ctx: LoweringContext, read: Callable[[Node], Lowered], reason: str
) -> tuple[Lowered, str, HopRoutine]:
    """An ``Extern`` of the node's operator; gives what the node becomes, and the routine under its name.

    ``read`` gives what an argument of the node has become. Random operators inside keep their place in the stream;
    otherwise the call is taken to have an effect.
    """
    node = ctx.node
    leaves, spec = pytree.tree_flatten((node.args, node.kwargs), is_leaf=lambda leaf: isinstance(leaf, Node))
    given: dict[int, Lowered] = {}
    held = list(leaves)
    for position, leaf in enumerate(leaves):
        value = read(leaf) if isinstance(leaf, Node) else leaf
        if isinstance(value, Subgraph):
            held[position] = value.module
        elif isinstance(leaf, torch.SymInt):
            given[position] = ctx.builder.symbols.size(leaf)
        elif isinstance(leaf, Node):
            given[position] = value
    kept = present(ctx)
    types = result_types(ctx)
    name = f"graph.{ctx.origin.node}"
    values: dict[int, Value] = {}
    for position in kept:
        kind = types[position]
        assert kind is not None, "what is present has a type"
        values[position] = ctx.value(kind, ctx.position(position))
    ctx.append(
        Extern(
            results=tuple(values.values()),
            target=name,
            arguments=tuple(map(ctx.argument, given.values())),
            layout_requirement="exact",
            unpack=True,
            reason=reason,
            token="rng" if any(map(_draws, _graphs(held))) else "effect",
            origin=ctx.origin,
        )
    )
    routine = _routine(node.target, held, spec, tuple(given), kept)
    return returned(ctx, {position: Tensor(value) for position, value in values.items()}), name, routine


def _routine(
    operator: Any, held: Sequence[Any], spec: pytree.TreeSpec, places: Sequence[int], kept: Sequence[int]
) -> HopRoutine:
    def run(*given: Any) -> tuple[Any, ...]:
        leaves = list(held)
        for place, value in zip(places, given, strict=True):
            leaves[place] = value
        args, kwargs = pytree.tree_unflatten(leaves, spec)
        with torch.no_grad():
            found = pytree.tree_leaves(operator(*args, **kwargs), is_leaf=lambda leaf: leaf is None)
        taken = {_memory(value) for value in given if isinstance(value, torch.Tensor)}
        return tuple(_own(found[position], taken) for position in kept)

    return run


def _own(value: Any, taken: set[int]) -> torch.Tensor:
    """A result with memory of its own; numbers as tensors of one element."""
    if not isinstance(value, torch.Tensor):
        return torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None)
    return value.clone() if _memory(value) in taken else value


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _graphs(held: Sequence[Any]) -> Iterator[Any]:
    """The traced graphs and operators among the arguments, those inside graphs too."""
    for value in held:
        yield value
        if isinstance(value, GraphModule):
            yield from _graphs(list(value.children()))


def _draws(value: Any) -> bool:
    """True for a random operator, and for a graph that calls one."""
    if isinstance(value, torch._ops.OpOverload):
        return torch.Tag.nondeterministic_seeded in value.tags
    return isinstance(value, GraphModule) and any(_draws(node.target) for node in value.graph.nodes)
