"""Python's operators and functions on symbolic ints, floats and bools.

Integers are index terms where terms express them. All other numbers are computed by the host once per call, as eager
computes them, so that kernels receive a value: see `litz.host.emit.scalars` and `litz_codegen_cpp.host.host_values`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Literal

import torch

from litz_ir.dtypes import DType, b1, f64, i64
from litz_ir.errors import SymbolError
from litz_ir.scalar import Expr, Scalar, build
from litz_ir.symbols import Size, Term, add, maximum, minimum, mul
from litz_lowering.contexts.context import Lowered, LoweringContext
from litz_lowering.contexts.registry import REGISTRY

OperandKind = Literal["numbers", "bits", "floats", "bools"]
"""Type that operands are converted to: ``numbers`` to floats if one is a float, else to integers; ``bits`` to bools if
all are bools, else to integers."""


@dataclass(frozen=True, slots=True)
class PythonOperator:
    """A function of numbers, by its names in FX graphs."""

    names: tuple[str, ...]
    """Names of the function in the registry of rules."""
    compute: Callable[..., Expr]
    """Body of the result, of bodies of the operands."""
    operands: OperandKind = "numbers"
    """Type that operands are converted to."""
    term: Callable[..., Size] | None = None
    """Index term of the result, for integer operands. It holds even where torch has replaced a symbol by the value that
    an assertion promises but that is not yet checked."""


def _op(name: str) -> Callable[..., Expr]:
    return partial(build.op, name)


def _row(python: str, scalar: str, operands: OperandKind = "numbers") -> PythonOperator:
    """Row of an operator that is one scalar operation."""
    return PythonOperator((python,), _op(scalar), operands)


_BINARY_TERMS: tuple[PythonOperator, ...] = (
    PythonOperator(("operator.add",), _op("add"), term=add),
    PythonOperator(("operator.sub",), _op("sub"), term=lambda a, b: add(a, mul(b, -1))),
    PythonOperator(("operator.mul",), _op("mul"), term=mul),
    PythonOperator(("operator.neg",), _op("neg"), term=lambda a: mul(a, -1)),
    PythonOperator(("operator.pos",), lambda a: a, term=lambda a: a),
    PythonOperator(("torch.sym_min",), _op("minimum"), term=minimum),
    PythonOperator(("torch.sym_max",), _op("maximum"), term=maximum),
    PythonOperator(("torch.sym_sum",), lambda *a: reduce(_op("add"), a), term=add),
)

_ARITHMETIC: tuple[PythonOperator, ...] = (
    _row("operator.truediv", "div", "floats"),
    _row("operator.floordiv", "floor_div"),
    _row("operator.mod", "remainder"),
    _row("operator.pow", "pow"),
    PythonOperator(("builtins.abs", "operator.abs"), _op("abs")),
    _row("operator.and_", "bit_and", "bits"),
    _row("operator.or_", "bit_or", "bits"),
    _row("operator.xor", "bit_xor", "bits"),
    _row("operator.invert", "bit_not", "bits"),
    _row("operator.lshift", "shift_left"),
    _row("operator.rshift", "shift_right"),
    *(_row(f"operator.{name}", name) for name in ("eq", "ne", "lt", "le", "gt", "ge")),
    PythonOperator(("torch.sym_not", "operator.not_"), _op("bit_not"), "bools"),
)

_FLOAT_FUNCTIONS: tuple[PythonOperator, ...] = (
    PythonOperator(("torch.sym_float",), lambda a: a, "floats"),
    *(_row(f"math.{name}", name, "floats") for name in ("floor", "ceil", "trunc")),
    *(
        _row(f"torch._sym_{name}", name, "floats")
        for name in ("sqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "log2")
    ),
)

OPERATORS: tuple[PythonOperator, ...] = (*_BINARY_TERMS, *_ARITHMETIC, *_FLOAT_FUNCTIONS)
"""All operators that convert their operands to one type; ``round`` and ``sym_ite`` have rules below."""


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool) or (isinstance(value, Expr) and value.dtype == b1)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int | Term) or (isinstance(value, Expr) and value.dtype.is_integer)


def _common_dtype(kind: OperandKind, operands: Sequence[Any]) -> DType:
    """Dtype that operands are converted to."""
    match kind:
        case "floats":
            return f64
        case "bools":
            return b1
        case "bits":
            return b1 if all(map(_is_bool, operands)) else i64
    return i64 if all(_is_bool(each) or _is_integer(each) for each in operands) else f64


def _number(ctx: LoweringContext, body: Callable[[], Expr], term: Callable[[], Size | None]) -> Lowered:
    """Number of a node: an index term where there is one, else the host's value of a body."""
    value = ctx.node.meta["val"]
    if isinstance(value, bool) or not isinstance(value, int | torch.SymInt):
        computed = body()
        return Scalar(ctx.host_scalar(computed).name, b1 if computed.dtype == b1 else f64)
    exact = term()
    if exact is not None:
        return exact
    try:
        return ctx.builder.symbols.size(value)
    except SymbolError:
        assert isinstance(value, torch.SymInt), "an int has a term"
        integer = ctx.host_integer(body(), "value")
        ctx.builder.symbols.substitute(value, integer.name)
        return integer


def _serve(operator: PythonOperator) -> None:
    """Register the rule of an operator."""

    def lower_operator(ctx: LoweringContext, *args: Any) -> Lowered:
        operands = args[0] if len(args) == 1 and isinstance(args[0], tuple) else args

        def body() -> Expr:
            dtype = _common_dtype(operator.operands, operands)
            return operator.compute(*(ctx.number(each, dtype) for each in operands))

        def term() -> Size | None:
            exact = operator.term is not None and all(isinstance(each, int | Term) for each in operands)
            return operator.term(*operands) if operator.term is not None and exact else None

        return _number(ctx, body, term)

    REGISTRY.add(lower_operator, *operator.names)


for _operator in OPERATORS:
    _serve(_operator)


def _choice(ctx: LoweringContext, condition: Any, a: Any, b: Any) -> Lowered:
    """One of two numbers."""
    dtype = b1 if _is_bool(a) and _is_bool(b) else _common_dtype("numbers", (a, b))
    numbers = [ctx.number(each, dtype) for each in (a, b)]
    return _number(ctx, lambda: build.where(ctx.number(condition, b1), *numbers), lambda: None)


def _rounded(ctx: LoweringContext, x: Any, digits: Any = None) -> Lowered:
    """Nearest integer, or nearest float of so many decimal digits, of two the even one."""
    if digits is None:
        return _number(ctx, lambda: build.op("round", ctx.number(x, f64)), lambda: None)
    if not isinstance(digits, int) or abs(digits) > _EXACT_POWERS:
        raise ctx.error(f"round to {digits} decimal digits is not supported, only to {_EXACT_POWERS} at most")
    body = partial(_positive_digits if digits >= 0 else _negative_digits, digits=abs(digits))
    return _number(ctx, lambda: body(ctx.number(x, f64)), lambda: None)


REGISTRY.add(_choice, "torch.sym_ite")
REGISTRY.add(_rounded, "builtins.round")

_EXACT_POWERS = 22
"""Largest power of ten that f64 represents."""

_SPLIT = build.const(2.0**27 + 1, f64)
"""Factor of Veltkamp's splitting of an f64 into halves, whose products are exact."""

_FRACTIONS_END = build.const(2.0**52, f64)
"""Number above which all f64 are integers."""

_HALF = build.const(0.5, f64)


def _product_error(a: Expr, b: Expr, product: Expr) -> Expr:
    """``a * b - product``, exactly (Dekker 1971)."""
    add, sub, mul = _op("add"), _op("sub"), _op("mul")

    def halves(x: Expr) -> tuple[Expr, Expr]:
        scaled = mul(_SPLIT, x)
        high = sub(scaled, sub(scaled, x))
        return high, sub(x, high)

    (a1, a2), (b1_, b2) = halves(a), halves(b)
    return add(add(add(sub(mul(a1, b1_), product), mul(a1, b2)), mul(a2, b1_)), mul(a2, b2))


def _positive_digits(x: Expr, digits: int) -> Expr:
    """``x`` rounded at a digit after the point, as Python rounds the decimal form of its exact value."""
    power, size = build.const(10.0**digits, f64), build.op("abs", x)
    product = build.op("mul", size, power)
    nearest = build.op("round", product)
    error = _product_error(size, power, product)
    excess = build.op("sub", product, nearest)
    zero, one = build.const(0.0, f64), build.const(1.0, f64)
    above = build.logical_and(build.op("eq", excess, _HALF), build.op("gt", error, zero))
    below = build.logical_and(build.op("eq", excess, build.op("neg", _HALF)), build.op("lt", error, zero))
    moved = build.op(
        "sub", build.op("add", nearest, build.where(above, one, zero)), build.where(below, one, zero)
    )
    result = build.op("copysign", build.op("div", moved, power), x)
    return build.where(build.op("lt", product, _FRACTIONS_END), result, x)


def _negative_digits(x: Expr, digits: int) -> Expr:
    """``x`` rounded to a multiple of a power of ten."""
    power, size = build.const(10.0**digits, f64), build.op("abs", x)
    rest = build.op("remainder", size, power)
    multiple = build.op("sub", size, rest)
    doubled = build.op("mul", rest, build.const(2.0, f64))
    is_odd = build.op(
        "ne", build.op("remainder", multiple, build.const(2 * 10.0**digits, f64)), build.const(0.0, f64)
    )
    tie = build.logical_and(build.op("eq", doubled, power), is_odd)
    raised = build.op("bit_or", build.op("gt", doubled, power), tie)
    return build.op("copysign", build.where(raised, build.op("add", multiple, power), multiple), x)
