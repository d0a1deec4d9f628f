"""Kernels whose multiplications are rounded together with the additions that follow them."""

from __future__ import annotations

from collections.abc import Sequence

from litz_codegen_triton.emit.indexing.statements import values_of
from litz_ir.plan import Kernel, Store
from litz_ir.scalar import Expr, Op, walk


def contracts_multiplications(kernels: Sequence[Kernel], *, has_scores: bool = False) -> bool:
    """Return True for the kernels of a launch that have a reduction, scan or matmul of floats.

    False where an exponential is of ``a * b`` less another value, which is mostly the largest ``a * b`` of the row,
    rounded: contracted with the subtraction, a large one would differ from it by more than an exponential can hold.
    Kernels that multiply tiles (``has_scores``) are contracted all the same.
    """
    values = [value for kernel in kernels for value in _values(kernel)]
    return any(map(_combines_floats, kernels)) and (
        has_scores or not any(map(_subtracts_from_multiplication, walk(*values)))
    )


def _values(kernel: Kernel) -> Sequence[Expr]:
    statements = (each for phase in kernel.phases for each in phase.statements)
    return [value for each in statements for value in values_of(each)]


def _combines_floats(kernel: Kernel) -> bool:
    statements = (each for phase in kernel.phases for each in phase.statements)
    combined = (each.values for each in statements if not isinstance(each, Store))
    return any(value.dtype.is_float for values in combined for value in values)


def _subtracts_from_multiplication(expr: Expr) -> bool:
    match expr:
        case Op(name="exp" | "exp2" | "expm1", args=(Op(name="sub", args=(Op(name="mul"), _)),)):
            return True
    return False
