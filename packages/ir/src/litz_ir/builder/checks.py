"""Checks of what callers of the builder give: tensors, operands, literals, dtypes, sizes and names."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np

from litz_ir.builder.tensor import Tensor
from litz_ir.builder.views import as_int, sizes_of
from litz_ir.dtypes import ALL, DType, b1, extreme_value
from litz_ir.errors import DTypeError, GraphError
from litz_ir.scalar import build
from litz_ir.scalar.expr import Const
from litz_ir.scalar.node import Expr
from litz_ir.scalar.ops_table import OPS, ScalarOp
from litz_ir.symbols.polynomials import coefficient
from litz_ir.symbols.term import Size, Term, free_symbols

# --- tensors and operands ------------------------------------------------------------------------------------


def checked_tensor(value: object, role: str) -> Tensor:
    """Return a tensor; raises ``GraphError`` for anything else, which ``role`` describes."""
    if isinstance(value, Tensor):
        return value
    raise GraphError(f"{role} is {shown(value)}, but a tensor belongs there", hint=_hint(value))


def checked_tensors(values: object, role: str, *, least: int = 1) -> tuple[Tensor, ...]:
    """Return one tensor, or ``least`` or more in a list or tuple, as a tuple; raises ``GraphError`` for others."""
    if not isinstance(values, list | tuple):
        return (checked_tensor(values, role),)
    if len(values) < least:
        raise GraphError(f"{role} is {values!r}, but one tensor or more belongs there")
    return tuple(checked_tensor(each, f"{role}, element {k},") for k, each in enumerate(values))


def shown(value: object) -> str:
    """Return a value as the text of an error: short, and an array by its shape."""
    if isinstance(value, np.ndarray):
        return f"a NumPy array of shape {value.shape}"
    return f"{value!r:.60}"


def _hint(value: object) -> str:
    """Return the next step for a caller who gave something else than a tensor."""
    if isinstance(value, Expr):
        return "in the body of pointwise, apply litz_ir.scalar.op to expressions and litz_ir.scalar.const literals"
    if isinstance(value, Term):
        return f"in the body of pointwise, the value of a size is litz_ir.scalar.index({value}), an i64"
    if isinstance(value, list | tuple):
        return "give tensors as separate arguments, literals by full, and arrays as arguments of an input"
    if isinstance(value, DType):
        return "give a dtype by its keyword, dtype="
    if hasattr(value, "__array__"):
        return "add an input to the graph, of which the array is an argument when the graph runs"
    return "make a tensor by input, full or index"


def near(name: object, known: Collection[str]) -> str:
    """Return a hint with the known names that are spelled like ``name``; empty if there are none."""
    found = get_close_matches(name, known, 3) if isinstance(name, str) else []
    return f"did you mean {' or '.join(found)}?" if found else ""


def row_of(operation: object) -> ScalarOp:
    """Return the row of a scalar operation; raises ``GraphError`` for an unknown name."""
    row = OPS.get(operation) if isinstance(operation, str) else None
    if row is None:
        raise GraphError(
            f"unknown scalar operation {shown(operation)}",
            hint=near(operation, OPS) or "see litz_ir.scalar.OPS",
        )
    return row


def checked_operands(row: ScalarOp, operands: Sequence[object], dtype: DType | None) -> list[Tensor | Const]:
    """Return the operands of a scalar operation, literals in the dtype of the tensors that they meet.

    That dtype is ``dtype`` where a choice meets none. Raises ``GraphError`` for a wrong number of operands and for what
    is no operand, ``DTypeError`` for a literal that the dtype cannot hold.
    """
    if len(operands) != row.arity:
        raise GraphError(f"{row.name} takes {row.arity} arguments, got {len(operands)}")
    for each in operands:
        if not isinstance(each, Tensor | int | float | np.generic):
            raise GraphError(
                f"{row.name} of {shown(each)}, but tensors and literals are its operands", hint=_hint(each)
            )
    if not any(isinstance(each, Tensor) for each in operands):
        raise GraphError(f"{row.name} of literals alone", hint="one operand is a tensor; full makes one")
    # A choice has the dtype of what is chosen, not that of its condition.
    first = 1 if row.rule == "where" else 0
    met = [each.dtype for each in operands[first:] if isinstance(each, Tensor)]
    found = met[0] if met else dtype
    if found is None:
        raise DTypeError(
            f"{row.name} chooses between literals, which have no dtype of their own",
            hint="give dtype=, such as where(c, 1.5, 0.0, dtype=f32), or a tensor for one of them",
        )
    return [
        each if isinstance(each, Tensor) else literal(each, b1 if k < first else found, row.name)
        for k, each in enumerate(operands)
    ]


# --- literals ------------------------------------------------------------------------------------------------


def literal(value: object, dtype: DType, user: str) -> Const:
    """Return a literal of a dtype, for the operation ``user``; floats are rounded to nearest.

    Raises ``DTypeError`` for a value that the dtype cannot hold: a fraction for an integer, a value out of range, a
    number that a float overflows or rounds to 0, a bool for a number, and a number for a bool.
    """
    number: Any = value.item() if isinstance(value, np.generic) else value
    if not isinstance(number, int | float):
        raise GraphError(f"{user} of {shown(value)}, but a literal belongs there: an int, float or bool")
    fault, hint = _literal_fault(number, dtype)
    if fault:
        raise DTypeError(f"{user} of the literal {number!r:.60}: {fault}", hint=hint)
    return build.const(number, dtype)


def _literal_fault(number: int | float, dtype: DType) -> tuple[str, str]:
    """Return the reason that a dtype cannot hold a number, and a next step; empty if it can."""
    if dtype.is_bool:
        if isinstance(number, bool):
            return "", ""
        return "b1 holds truth values, not numbers", "write True or False, or convert the tensor by to"
    if isinstance(number, bool):
        return f"{dtype} holds numbers, not truth values", f"write {int(number)}, or convert the tensor by to"
    if dtype.is_float:
        return _float_fault(number, dtype), "write another value, or convert the tensor by to"
    if isinstance(number, float) and not number.is_integer():
        return f"{dtype} holds no fraction, infinity or NaN", "write an integer, or convert the tensor by to"
    low, high = extreme_value(dtype, largest=False), extreme_value(dtype, largest=True)
    if not low <= number <= high:
        return f"{dtype} holds {low} to {high}", "write a value in this range, or convert the tensor by to"
    return "", ""


def _float_fault(number: int | float, dtype: DType) -> str:
    """Return the reason that a float dtype cannot hold a number; empty if it can."""
    try:
        magnitude = abs(float(number))
    except OverflowError:
        return f"it overflows {dtype}"
    if math.isnan(magnitude):
        return ""
    if math.isinf(magnitude):
        return f"{dtype} has no infinity" if dtype.finite else ""
    # Half a step past the largest value, rounding overflows; at half of the smallest, it gives zero.
    half_step = math.ldexp(1.0, math.frexp(dtype.largest)[1] - dtype.mantissa - 2)
    if dtype.bits < 64 and magnitude >= dtype.largest + half_step:
        return f"it overflows {dtype}, whose largest value is {dtype.largest:g}"
    if magnitude and magnitude <= dtype.smallest / 2:
        return f"it rounds to 0 in {dtype}, whose smallest positive value is {dtype.smallest:g}"
    return ""


# --- dtypes, sizes and names ---------------------------------------------------------------------------------


def checked_dtype(value: object, user: str) -> DType:
    """Return a dtype; raises ``DTypeError`` for anything else, which ``user`` was given."""
    if isinstance(value, DType):
        return value
    known = [dtype.name for dtype in ALL if str(value) in (dtype.name, dtype.torch_name)]
    raise DTypeError(
        f"the dtype of {user} is {shown(value)}, but a dtype of litz_ir.dtypes belongs there",
        hint=f"give litz_ir.dtypes.{known[0] if known else 'f32'}",
    )


def checked_shape(shape: object, user: str) -> tuple[Size, ...]:
    """Return the sizes of a shape as ints and terms; raises ``GraphError`` for what is no shape."""
    if isinstance(shape, np.ndarray):
        shape = shape.tolist()
    if not isinstance(shape, Sequence) or isinstance(shape, str):
        hint = f"write ({shape},)" if isinstance(shape, int | np.integer | Term) else "write a tuple of sizes"
        raise GraphError(
            f"the shape of {user} is {shown(shape)}, but a sequence of sizes belongs there", hint=hint
        )
    return sizes_of(shape, user)


def checked_int(value: object, role: str) -> int:
    """Return an integer of Python or NumPy as Python's; raises ``GraphError`` for anything else."""
    found = as_int(value)
    if found is None:
        raise GraphError(f"{role} is {shown(value)}, but an integer belongs there", hint="give an int")
    return found


def checked_name(name: object) -> str:
    """Return a name; raises ``GraphError`` for what is no string, and for an empty one."""
    if isinstance(name, str) and name:
        return name
    raise GraphError(f"the name {shown(name)} is no name of a value", hint="give a string that is not empty")


def unread_sizes(names: Iterable[str], shapes: Iterable[Sequence[Size]]) -> list[str]:
    """Return the symbols that the sizes in ``shapes`` do not determine, as the run solves for them."""
    unread = dict.fromkeys(names)
    sizes = [size for shape in shapes for size in shape]
    progress = True
    while progress:
        progress = False
        for size in sizes:
            unknown = [name for name in free_symbols(size) if name in unread]
            if len(unknown) == 1 and isinstance(slope := coefficient(size, unknown[0]), int) and slope:
                del unread[unknown[0]]
                progress = True
    return list(unread)
