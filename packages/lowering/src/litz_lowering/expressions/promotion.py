"""Type promotion of tensors, 0-d tensors and Python numbers, and operands in the dtype of computation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import torch

from litz_ir.dtypes import DType, b1, compute_dtype, i64, promote
from litz_ir.scalar import Expr, build
from litz_ir.symbols import Term
from litz_lowering.contexts.context import Axes, Tensor
from litz_lowering.expressions.formula import Num, Number
from litz_lowering.types.torch_types import litz_dtype, torch_dtype

Argument = Tensor | Expr | Term | Number
_RANK = {"bool": 0, "int": 1, "uint": 1, "float": 2}


def promoted(arguments: Iterable[Any]) -> DType:
    """Dtype to which eager promotes these operands; lists and None are ignored.

    Tensors with dimensions come first, then 0-d tensors, then numbers. A later class counts only when its kind
    (bool, integer, float) is higher than the dtype of the earlier ones. Raises :class:`TypeError` without any
    operand.
    """
    classes: list[DType | None] = [None, None, None]
    for argument in arguments:
        found = _class_of(argument)
        if found is not None:
            rank, dtype = found
            before = classes[rank]
            classes[rank] = dtype if before is None else promote(before, dtype)
    result: DType | None = None
    for each in classes:
        if each is not None and (result is None or _RANK[each.kind] > _RANK[result.kind]):
            result = each
    if result is None:
        raise TypeError("no operand has a dtype")
    return result


def _class_of(argument: Any) -> tuple[int, DType] | None:
    if isinstance(argument, Tensor):
        return (0 if argument.rank else 1), argument.dtype
    if isinstance(argument, bool):
        return 2, b1
    if isinstance(argument, int | Term):
        return 2, i64
    if isinstance(argument, float):
        return 2, litz_dtype(torch.get_default_dtype())
    if isinstance(argument, Expr):
        return 2, argument.dtype if argument.dtype.is_bool else litz_dtype(torch.get_default_dtype())
    return None


def rounded(value: Number, dtype: DType) -> Number:
    """Python number rounded to ``dtype``, as eager rounds a scalar operand of a comparison."""
    if not dtype.is_low_precision:
        return value
    return _rounded(float(value), math.copysign(1.0, value), dtype)


@lru_cache(maxsize=1024)
def _rounded(value: float, sign: float, dtype: DType) -> float:
    """Round a float; its sign distinguishes zeros in the cache."""
    return float(torch.tensor(value, dtype=torch_dtype(dtype)).item())


def operand(argument: Argument, common: DType, *, exact: bool = True) -> Callable[[Axes], Num | Number]:
    """Operand at an index, promoted to ``common`` and cast to the dtype in which ``common`` is computed.

    A Python number is returned as it is, to become a literal of the other operand's dtype. With ``exact``,
    numbers and 0-d tensors keep full precision where ``common`` is a 16-bit float; else they are rounded to it
    first.
    """
    compute = compute_dtype(common)
    if isinstance(argument, Tensor):
        if argument.rank == 0 and exact and common.is_low_precision:
            return lambda axes: Num(build.cast(argument.load(()), compute))
        return lambda axes: Num(build.cast(build.cast(argument.at(axes), common), compute))
    if isinstance(argument, Expr | Term):
        number = argument if isinstance(argument, Expr) else build.index(argument)
        scalar = Num(build.cast(number if exact else build.cast(number, common), compute))
        return lambda axes: scalar
    literal = argument if exact else rounded(argument, common)
    return lambda axes: literal
