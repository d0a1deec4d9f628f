"""Rewrite ``exp`` as ``exp2``, the instruction that GPUs have.

The scale ``log2(e)`` between them is merged into a constant scale of the exponent if it has one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from litz_ir.dtypes import f32
from litz_ir.scalar import Const, Expr, Load, Masked, NestedReduction, Op, Param, Scalar, const, op, transform

LOG2_E = math.log2(math.e)

_LARGE = 1e30
"""Bound on finite constants that can be scaled: a larger one may overflow ``f32``."""


def is_moderate(expr: Expr) -> bool:
    """True for an expression that a scale near 1 cannot make infinite.

    It has no large finite constant, and no load outside nested reductions: a loaded additive mask may be the lowest
    number of its dtype.
    """
    stack, visited = [expr], {expr}
    while stack:
        node = stack.pop()
        if isinstance(node, (Load, Scalar, Param)):
            return False
        if isinstance(node, Const) and node.dtype.is_float and _LARGE < abs(node.value) < math.inf:
            return False
        further = set(_summands(node)) - visited
        stack += further
        visited |= further
    return True


def _summands(expr: Expr) -> Sequence[Expr]:
    """Return the operands that an expression's value is computed from, without conditions."""
    match expr:
        case NestedReduction():
            return ()
        case Op(name="where", args=(_, *chosen)):
            return chosen
        case Masked():
            return expr.body, expr.other
    return expr.children


def in_powers_of_two(expr: Expr) -> Expr:
    """Replace ``exp`` with ``exp2`` wherever the scaled exponent cannot overflow."""
    return transform(expr, _power)


def with_reciprocals(expr: Expr) -> Expr:
    """Replace divisions of f32 by constants with multiplications, which may differ in their last bit.

    That is less than the order of the sums in a score may change.
    """
    return transform(expr, _reciprocal)


def _reciprocal(expr: Expr) -> Expr:
    match expr:
        case Op(name="div", args=(dividend, Const() as divisor)) if (
            expr.dtype == f32 and 1 / _LARGE < abs(divisor.value) < _LARGE
        ):
            scale = 1 / divisor.value
            match dividend:
                case (
                    Op(name="mul", args=(body, Const() as inner))
                    | Op(name="mul", args=(Const() as inner, body))
                ):
                    return op("mul", body, const(inner.value * scale, f32))
            return op("mul", dividend, const(scale, f32))
    return expr


def _power(expr: Expr) -> Expr:
    if isinstance(expr, Op) and expr.name == "exp" and expr.dtype == f32:
        match expr.args[0]:
            case Op(name="sub" | "add" as name, args=(a, b)) if is_moderate(a) or is_moderate(b):
                # If one operand is moderate, the other alone decides whether the exponent is infinite, scaled or not.
                return op("exp2", op(name, times_log2_e(a), times_log2_e(b)))
            case exponent if is_moderate(exponent):
                return op("exp2", times_log2_e(exponent))
    return expr


def times_log2_e(expr: Expr) -> Expr:
    """Multiply an expression by log2(e), which is merged into a constant scale that it has."""
    match expr:
        case Op(name="mul", args=(body, Const() as scale)) | Op(name="mul", args=(Const() as scale, body)):
            merged = scale.value * LOG2_E
            return body if merged == 1.0 else op("mul", body, const(merged, expr.dtype))
        case Op(name="where", args=(condition, body, other)):
            return op("where", condition, times_log2_e(body), times_log2_e(other))
        case Masked():
            return Masked(expr.cond, times_log2_e(expr.body), times_log2_e(expr.other))
        case Const() if math.isinf(expr.value):
            return expr
        case _ if not is_moderate(expr):
            return op("mul", expr, const(LOG2_E, expr.dtype))
        case Const():
            return const(expr.value * LOG2_E, expr.dtype)
        case Op(name="sub" | "add", args=(body, other)) if _is_scaled(body) or _is_scaled(other):
            return op(expr.name, times_log2_e(body), times_log2_e(other))
    return op("mul", expr, const(LOG2_E, expr.dtype))


def without_scale(score: Expr) -> tuple[Expr, float]:
    """Take a positive constant scale out of a score, which may be minus infinity under a condition.

    Returns the score without it, and the scale: 1 where there is none.
    """
    match score:
        case Op(name="mul", args=(body, Const() as scale)) | Op(name="mul", args=(Const() as scale, body)):
            return (body, scale.value) if 1 / _LARGE < scale.value < _LARGE else (score, 1.0)
        case Op(name="where", args=(condition, body, Const(value=other) as hidden)) if other == -math.inf:
            inner, taken = without_scale(body)
            return op("where", condition, inner, hidden), taken
        case Masked(other=Const(value=other)) if other == -math.inf:
            inner, taken = without_scale(score.body)
            return Masked(score.cond, inner, score.other), taken
    return score, 1.0


def _is_scaled(expr: Expr) -> bool:
    """True for an expression with a constant scale."""
    match expr:
        case Op(name="mul", args=args):
            return any(isinstance(arg, Const) for arg in args)
        case Op(name="where", args=(_, body, _)) | Masked(body=body):
            return _is_scaled(body)
    return False
