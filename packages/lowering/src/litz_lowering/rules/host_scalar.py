"""Scalars computed on the host: symbolic floats and bools, values of tensors, and assertions on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from litz_ir.dtypes import b1, f64, i64
from litz_ir.errors import SymbolError
from litz_ir.scalar import Expr, Scalar, build
from litz_ir.symbols import Size, Term, add, maximum, minimum, mul, symbol
from litz_lowering.contexts.context import Lowered, LoweringContext, Tensor
from litz_lowering.contexts.registry import REGISTRY, rule

_ARITHMETIC: dict[str, tuple[str, Callable[..., Size] | None]] = {
    "add": ("add", add),
    "sub": ("sub", lambda a, b: add(a, mul(b, -1))),
    "mul": ("mul", mul),
    "truediv": ("div", None),
    "pow": ("pow", None),
    "floordiv": ("floor_div", None),
    "mod": ("remainder", None),
}
"""Python's operators as scalar operations, and as index terms where both arguments are integers."""

_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def _float(ctx: LoweringContext, value: Any) -> Expr:
    return ctx.number(value, f64)


def _serve(name: str, make: Callable[..., Expr], exact: Callable[..., Size] | None = None) -> None:
    """Register a Python or ``torch.sym_`` function, lowered by the body that ``make`` gives.

    For integers ``exact`` is used where given. It computes from the arguments, which is right even where torch
    has replaced a symbol by the value that an assertion promises but that is not yet checked. Other integers are
    terms of the metadata, or else host scalars.
    """

    def lower_scalar(ctx: LoweringContext, *args: Any) -> Lowered:
        value = ctx.node.meta["val"]
        if isinstance(value, bool) or not isinstance(value, int | torch.SymInt):
            return make(ctx, *args)
        if exact is not None and all(isinstance(a, int | Term) for a in args):
            return exact(*args)
        try:
            return ctx.builder.symbols.size(value)
        except SymbolError:
            assert isinstance(value, torch.SymInt), "an int has a term"
            made = ctx.host_integer(make(ctx, *args), "value")
            ctx.builder.symbols.substitute(value, made.name)
            return made

    REGISTRY.add(lower_scalar, name)


def _arithmetic(name: str) -> Callable[..., Expr]:
    return lambda ctx, a, b: build.op(name, _float(ctx, a), _float(ctx, b))


def _comparison(name: str) -> Callable[..., Expr]:
    def make(ctx: LoweringContext, a: Any, b: Any) -> Expr:
        dtype = i64 if all(isinstance(v, int | Term) for v in (a, b)) else f64
        return build.op(name, ctx.number(a, dtype), ctx.number(b, dtype))

    return make


def _logical(name: str) -> Callable[..., Expr]:
    return lambda ctx, a, b: build.op(name, ctx.number(a, b1), ctx.number(b, b1))


def _unary(name: str) -> Callable[..., Expr]:
    return lambda ctx, a: build.op(name, _float(ctx, a))


def _either(ctx: LoweringContext, condition: Any, a: Any, b: Any) -> Expr:
    dtype = i64 if all(isinstance(v, int | Term) for v in (a, b)) else f64
    return build.where(ctx.number(condition, b1), ctx.number(a, dtype), ctx.number(b, dtype))


for _python, (_scalar, _exact) in _ARITHMETIC.items():
    _serve(f"operator.{_python}", _arithmetic(_scalar), _exact)
for _name in _COMPARISONS:
    _serve(f"operator.{_name}", _comparison(_name))
_serve("operator.neg", _unary("neg"), lambda a: mul(a, -1))
_serve("operator.and_", _logical("bit_and"))
_serve("operator.or_", _logical("bit_or"))
_serve("torch.sym_float", _float)
_serve("torch.sym_not", lambda ctx, a: build.op("bit_not", ctx.number(a, b1)))
_serve("torch.sym_min", _arithmetic("minimum"), minimum)
_serve("torch.sym_max", _arithmetic("maximum"), maximum)
_serve("torch.sym_ite", _either)
for _name in ("trunc", "floor", "ceil"):
    _serve(f"math.{_name}", _unary(_name))
_serve("builtins.round", _unary("round"))
for _name in ("sqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "log2"):
    _serve(f"torch._sym_{_name}", _unary(_name))


@rule("aten._local_scalar_dense.default", "aten.item.default")
def item(ctx: LoweringContext, x: Tensor) -> Lowered:
    """Value of a one-element tensor, read once per call."""
    value = ctx.node.meta["val"]
    body = x.load((0,) * x.rank)
    if isinstance(value, bool | torch.SymBool) or not isinstance(value, int | torch.SymInt):
        kind = b1 if isinstance(value, bool | torch.SymBool) else f64
        return Scalar(ctx.host_scalar(build.cast(body, kind)).name, kind)
    # Where torch replaced the symbol by an asserted value, the tensor still has to be read and compared.
    own = None if isinstance(value, int) else ctx.builder.symbols.symbol_of(value)
    if own is None or own in ctx.builder.bound:
        return ctx.host_integer(body, "value")
    ctx.bind(own, body)
    return symbol(own)


@rule("aten._assert_scalar.default")
def assert_scalar(ctx: LoweringContext, condition: Any, message: str) -> None:
    """Raise unless a host condition holds."""
    if isinstance(condition, Expr):
        ctx.check(condition, message)


@rule("aten._assert_async.msg", "aten._assert_async.default")
def assert_tensor(ctx: LoweringContext, x: Tensor, message: str = "assertion failed") -> None:
    """Raise unless the element of a one-element tensor is true."""
    ctx.check(build.cast(x.load((0,) * x.rank), b1), message)


@rule("aten._functional_assert_async.msg")
def assert_functional(ctx: LoweringContext, x: Tensor, message: str, token: Tensor) -> Tensor:
    """Raise unless the element of a one-element tensor is true; the token is passed through."""
    ctx.check(build.cast(x.load((0,) * x.rank), b1), message)
    return token


@rule("aten.sym_constrain_range.default", "aten.sym_constrain_range_for_size.default")
def constrain(ctx: LoweringContext, *_: Any, **__: Any) -> None:
    """Ignore a constraint on a symbol, which the ShapeEnv knows already."""
