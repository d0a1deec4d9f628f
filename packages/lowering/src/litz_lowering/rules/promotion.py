"""Type promotion between tensors, 0-d tensors and Python numbers, and operands in the dtype they are computed in."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import torch

from litz_ir.dtypes import DType, b1, compute_dtype, i64, promote
from litz_ir.scalar import Expr, build
from litz_ir.symbols import Term
from litz_lowering.context import Axes, Tensor
from litz_lowering.rules.formula import Num, Number
from litz_lowering.torch_types import litz_dtype, torch_dtype

Argument = Tensor | Expr | Term | Number
_RANK = {"bool": 0, "int": 1, "uint": 1, "float": 2}


def promoted(arguments: Iterable[Any]) -> DType:
    """The dtype to which eager promotes these operands; lists and None are passed over.

    Tensors with dimensions come first, then 0-d tensors, then numbers: a later class only counts when its kind (bool,
    integer, float) is higher than what the earlier ones gave.
    """
    classes: list[DType | None] = [None, None, None]
    for argument in arguments:
        found = _class_of(argument)
        if found is not None:
            place, dtype = found
            before = classes[place]
            classes[place] = dtype if before is None else promote(before, dtype)
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


@lru_cache(maxsize=1024)
def rounded(value: Number, dtype: DType) -> Number:
    """A Python number rounded to ``dtype``, as eager rounds a scalar operand before it compares with it."""
    if not dtype.is_low_precision:
        return value
    return float(torch.tensor(value, dtype=torch_dtype(dtype)).item())


def operand(argument: Argument, common: DType, *, exact: bool = True) -> Callable[[Axes], Num | Number]:
    """The operand at an index, promoted to ``common`` and held in the dtype that ``common`` is computed in.

    A Python number stays one: it becomes a literal of whatever it meets. ``exact`` keeps numbers and 0-d tensors at
    full precision where ``common`` is narrow; else they are rounded to it first.
    """
    compute = compute_dtype(common)
    if isinstance(argument, Tensor):
        if argument.rank == 0 and exact and common.is_low_precision:
            return lambda axes: Num(build.cast(argument.load(()), compute))
        return lambda axes: Num(build.cast(build.cast(argument.at(axes), common), compute))
    if isinstance(argument, Expr):
        held = Num(build.cast(argument, compute))
        return lambda axes: held
    if isinstance(argument, Term):
        size = Num(build.cast(build.index(argument), compute))
        return lambda axes: size
    number = argument if exact else rounded(argument, common)
    return lambda axes: number
