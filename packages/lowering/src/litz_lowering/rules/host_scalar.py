"""Values of tensors that the host reads, and assertions on them."""

from __future__ import annotations

from typing import Any

import torch

from litz_ir.dtypes import b1, f64
from litz_ir.scalar import Expr, Scalar, build
from litz_ir.symbols import symbol
from litz_lowering.contexts.context import Lowered, LoweringContext, Tensor
from litz_lowering.contexts.registry import rule


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
