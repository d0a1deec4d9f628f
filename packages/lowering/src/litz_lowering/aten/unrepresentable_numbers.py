"""Fallback for Python numbers that the dtype of a result cannot represent.

Eager refuses some and wraps or rounds others, differently for each operator, so the operator runs in ATen.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import torch
from torch.fx import Node

from litz_ir.dtypes import DType, i64
from litz_ir.symbols import Term, bounds
from litz_lowering.contexts.context import Declined, LoweringContext
from litz_lowering.expressions import formula as f
from litz_lowering.types.torch_types import torch_dtype

_OPERANDS = ("self", "other")
"""Arguments that eager converts to 0-d tensors, where numbers wrap."""

_WRAPPING = tuple(f"aten._foreach_{name}." for name in ("add", "sub", "mul", "div"))
_COUNTED = "aten.arange."
"""Operator that never reaches the number that bounds it."""


def unrepresentable_number(ctx: LoweringContext) -> Declined | None:
    """Decline an operator one of whose numbers the result's dtype cannot represent.

    A symbolic size that may be out of range is checked when the program runs.
    """
    target = ctx.node.target
    kind = next((kind for kind in ctx.outputs if kind is not None), None)
    if kind is None or not isinstance(target, torch._ops.OpOverload):
        return None
    given = ctx.named_arguments
    if any(type(value) is int and value > _limits(i64)[1] for value in given.values()):
        return Declined("a number is out of the range of int64", is_intended=True)
    for name in _converted(target):
        for number in _listed(given.get(name)):
            if isinstance(number, int | float) and not _is_representable(number, kind.dtype):
                return Declined(f"{kind.dtype} cannot represent {number}", is_intended=True)
            if isinstance(number, Node) and kind.dtype.is_integer:
                _check_size(ctx, number, kind.dtype)
    return None


@lru_cache(maxsize=4096)
def _converted(target: torch._ops.OpOverload) -> tuple[str, ...]:
    """Names of the arguments that an operator converts to its result's dtype."""
    if str(target).startswith((*_WRAPPING, _COUNTED)):
        return ()
    arguments = target._schema.arguments
    return tuple(a.name for a in arguments if "number" in str(a.type) and a.name not in _OPERANDS)


def _listed(argument: Any) -> Iterator[Any]:
    if isinstance(argument, list | tuple):
        yield from argument
    else:
        yield argument


@lru_cache(maxsize=4096, typed=True)
def _is_representable(number: float, dtype: DType) -> bool:
    """True when eager makes a tensor of the number; with two elements, since it rounds a single one to infinity."""
    try:
        torch.full((2,), number, dtype=torch_dtype(dtype))
    except RuntimeError:
        return False
    return True


def _limits(dtype: DType) -> tuple[int, int]:
    """Range of integers that eager converts to ``dtype``. For unsigned dtypes, negative ones wrap."""
    largest = (1 << (dtype.bits - dtype.is_signed)) - 1
    return -largest - dtype.is_signed, largest


def _check_size(ctx: LoweringContext, node: Node, dtype: DType) -> None:
    value = node.meta.get("val")
    if not isinstance(value, torch.SymInt):
        return
    size = ctx.builder.symbols.size(value)
    low, high = _limits(dtype)
    known = bounds(size, ctx.builder.symbols.ranges())
    message = f"value cannot be converted to type {torch_dtype(dtype)} without overflow"
    if (
        isinstance(size, Term)
        and dtype != i64
        and not (_at_most(low, known.low) and _at_most(known.high, high))
    ):
        ctx.check(((f.index(size) >= low) & (f.index(size) <= high)).expr, message)


def _at_most(low: Any, high: Any) -> bool:
    return low is not None and high is not None and bool(low <= high)
