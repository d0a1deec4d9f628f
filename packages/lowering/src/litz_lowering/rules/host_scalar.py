"""Numbers that the host computes: symbolic floats and bools, values read out of tensors, and checks of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from litz_ir.dtypes import b1, f64, i64
from litz_ir.loops.nodes import Assert, HostScalar
from litz_ir.scalar import build
from litz_ir.scalar.expr import Expr, Scalar
from litz_ir.symbols.term import Size, Term
from litz_lowering.context import Lowered, LoweringContext, Tensor
from litz_lowering.registry import REGISTRY, rule

_ARITHMETIC = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "truediv": "div",
    "pow": "pow",
    "floordiv": "floor_div",
    "mod": "remainder",
}
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def _float(ctx: LoweringContext, value: Any) -> Expr:
    return ctx.number(value, f64)


def _is_size(ctx: LoweringContext) -> bool:
    value = ctx.node.meta.get("val")
    return isinstance(value, int | torch.SymInt) and not isinstance(value, bool)


def _serve(name: str, make: Callable[..., Lowered]) -> None:
    """Serve a Python or ``torch.sym_`` function; what comes out as an integer is a term, read from the metadata."""

    def lower_scalar(ctx: LoweringContext, *args: Any) -> Lowered:
        if _is_size(ctx):
            return ctx.builder.symbols.size(ctx.node.meta["val"])
        return make(ctx, *args)

    REGISTRY.add(lower_scalar, name)


def _arithmetic(name: str) -> Callable[..., Lowered]:
    return lambda ctx, a, b: build.op(name, _float(ctx, a), _float(ctx, b))


def _comparison(name: str) -> Callable[..., Lowered]:
    def make(ctx: LoweringContext, a: Any, b: Any) -> Lowered:
        dtype = i64 if all(isinstance(v, int | Term) for v in (a, b)) else f64
        return build.op(name, ctx.number(a, dtype), ctx.number(b, dtype))

    return make


def _logical(name: str) -> Callable[..., Lowered]:
    return lambda ctx, a, b: build.op(name, ctx.number(a, b1), ctx.number(b, b1))


for _python, _scalar in _ARITHMETIC.items():
    _serve(f"operator.{_python}", _arithmetic(_scalar))
for _name in _COMPARISONS:
    _serve(f"operator.{_name}", _comparison(_name))
_serve("operator.neg", lambda ctx, a: build.op("neg", _float(ctx, a)))
_serve("operator.and_", _logical("bit_and"))
_serve("operator.or_", _logical("bit_or"))
_serve("torch.sym_float", _float)
_serve("torch.sym_not", lambda ctx, a: build.op("bit_not", ctx.number(a, b1)))
_serve("torch.sym_min", lambda ctx, a, b: build.op("minimum", _float(ctx, a), _float(ctx, b)))
_serve("torch.sym_max", lambda ctx, a, b: build.op("maximum", _float(ctx, a), _float(ctx, b)))
for _name in ("sqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "log2"):
    _serve(f"torch._sym_{_name}", lambda ctx, a, name=_name: build.op(name, _float(ctx, a)))


@rule("aten._local_scalar_dense.default", "aten.item.default")
def item(ctx: LoweringContext, x: Tensor) -> Lowered:
    """The value of a one-element tensor, read once per call."""
    value = ctx.node.meta["val"]
    zeros: tuple[Size, ...] = (0,) * x.rank
    if isinstance(value, torch.SymInt):
        name = ctx.builder.symbols.symbol_of(value)
        if name is None:
            raise ctx.error("a value read from a tensor has to be a symbol of its own")
        ctx.builder.symbols.sourced(name, f"the value of {x.name}")
        ctx.append(
            HostScalar(results=(), symbol=name, body=build.cast(x.load(zeros), i64), origin=ctx.origin)
        )
        return ctx.builder.symbols.size(value)
    kind = b1 if isinstance(value, bool | torch.SymBool) else f64
    reference = ctx.host_scalar(build.cast(x.load(zeros), kind))
    return Scalar(reference.name, kind)


@rule("aten._assert_scalar.default")
def assert_scalar(ctx: LoweringContext, condition: Any, message: str) -> None:
    """Raise unless a host condition holds."""
    if isinstance(condition, Expr):
        _assert(ctx, condition, message)


@rule("aten._assert_async.msg", "aten._assert_async.default")
def assert_tensor(ctx: LoweringContext, x: Tensor, message: str = "assertion failed") -> None:
    """Raise unless the one element of a tensor is true."""
    _assert(ctx, build.cast(x.load((0,) * x.rank), b1), message)


@rule("aten._functional_assert_async.msg")
def assert_functional(ctx: LoweringContext, x: Tensor, message: str, token: Tensor) -> Tensor:
    """The same, threading a token that stays what it was."""
    _assert(ctx, build.cast(x.load((0,) * x.rank), b1), message)
    return token


def _assert(ctx: LoweringContext, condition: Expr, message: str) -> None:
    ctx.append(Assert(results=(), condition=condition, message=message, token="assert", origin=ctx.origin))


@rule("aten.sym_constrain_range.default", "aten.sym_constrain_range_for_size.default")
def constrain(ctx: LoweringContext, *_: Any, **__: Any) -> None:
    """A fact about a symbol: the ShapeEnv holds it already."""
