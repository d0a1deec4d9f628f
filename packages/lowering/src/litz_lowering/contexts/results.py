"""Results of higher-order operators: tensors, numbers and None, nested."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch

from litz_ir.loops import HostScalar, ScalarRef, tensor_type
from litz_ir.scalar import Scalar, build
from litz_ir.symbols import free_symbols, symbol
from litz_lowering.contexts.context import LoweringContext
from litz_lowering.contexts.outputs import NUMBERS, flatten
from litz_lowering.contexts.values import Lowered, ResultType, Tensor, fixed


def leaf_types(ctx: LoweringContext) -> tuple[ResultType, ...]:
    """Type of every leaf that the operator returns; numbers as one-element tensors, None for None."""
    return tuple(leaf_type(ctx, leaf) for leaf in flatten(ctx.node.meta["val"]))


def leaf_type(ctx: LoweringContext, leaf: object) -> ResultType:
    """Type of one leaf; that of a number is a one-element tensor's.

    Raises an error for complex tensors, which control flow does not support.
    """
    match leaf:
        case torch.Tensor() if leaf.is_complex():
            raise ctx.error(
                "control flow cannot return complex tensors", hint="this graph runs as ATen operations"
            )
        case torch.Tensor():
            return fixed(ctx.builder.symbols.tensor_type(leaf))
        case None:
            return None
    return fixed(tensor_type(NUMBERS[_number_kind(ctx, leaf)]))


def _number_kind(ctx: LoweringContext, leaf: object) -> Literal["int", "float", "bool"]:
    match leaf:
        case bool() | torch.SymBool():
            return "bool"
        case int() | torch.SymInt():
            return "int"
        case float() | torch.SymFloat():
            return "float"
    raise ctx.error(f"control flow cannot return a {type(leaf).__name__}")


def computed_positions(ctx: LoweringContext) -> tuple[int, ...]:
    """Positions of the leaves that the region computes. None and numbers known beforehand are left out."""
    leaves = enumerate(flatten(ctx.node.meta["val"]))
    return tuple(k for k, leaf in leaves if leaf is not None and not _is_known(ctx, leaf))


def _is_known(ctx: LoweringContext, leaf: object) -> bool:
    """True for a number that the region does not determine: a literal, or an expression of defined symbols."""
    if isinstance(leaf, torch.SymInt):
        return all(map(ctx.builder.symbols.has_source, free_symbols(ctx.builder.symbols.size(leaf))))
    return isinstance(leaf, int | float)


def nested_results(ctx: LoweringContext, results: Mapping[int, Lowered]) -> Lowered:
    """Nest the results as the operator returns them; numbers are read from their tensors."""
    position = iter(range(len(leaf_types(ctx))))

    def visit(leaf: object) -> Lowered:
        if isinstance(leaf, list | tuple):
            return tuple(map(visit, leaf))
        found = results.get(next(position))
        if leaf is None or isinstance(leaf, torch.Tensor):
            return found
        if isinstance(leaf, int | float):
            return leaf
        if isinstance(leaf, torch.SymInt) and _is_known(ctx, leaf):
            return ctx.builder.symbols.size(leaf)
        assert isinstance(found, Tensor), "a number that the region computes is in a tensor"
        return _number(ctx, leaf, found)

    return visit(ctx.node.meta["val"])


def _number(ctx: LoweringContext, leaf: object, tensor: Tensor) -> Lowered:
    """Number in a one-element tensor, as a symbol where torch made one for it."""
    kind = _number_kind(ctx, leaf)
    symbols = ctx.builder.symbols
    if isinstance(leaf, torch.SymInt):
        name = symbols.symbol_of(leaf)
        if name is None:
            raise ctx.error(f"a number that control flow returns must be a single symbol, not {leaf}")
        symbols.set_source(name, f"the value of {tensor.name}")
        ctx.append(HostScalar(results=(), symbol=name, body=tensor.load(()), origin=ctx.origin))
        return symbol(name)
    reference: ScalarRef = ctx.host_scalar(build.cast(tensor.load(()), NUMBERS[kind]))
    return Scalar(reference.name, NUMBERS[kind])
