"""Statements of module programs other than views and writes: operations with ordered effects, and matmuls."""

from __future__ import annotations

import torch
from torch import Tensor
from torch._higher_order_ops.effects import _register_effectful_op
from torch._library.effects import EffectType

from differential.pieces import operand
from differential.programs import Statement, is_inexact
from differential.scope import Scope
from differential.statements import Proposal, kind

NOTED: list[tuple[int, Tensor]] = []
"""Arguments of ``differential::noted`` since the list was emptied, in order."""


@torch.library.custom_op("differential::noted", mutates_args=())
def noted(x: Tensor, number: int) -> Tensor:
    """Return a copy of ``x``, and append another to :data:`NOTED`."""
    NOTED.append((number, x.detach().clone()))
    return x.clone(memory_format=torch.contiguous_format)


@noted.register_fake
def _noted_shape(x: Tensor, number: int) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


noted.register_autograd(lambda ctx, gradient: (gradient * 1, None))
_register_effectful_op(noted._opoverload, EffectType.ORDERED)


def _is_square(t: Tensor) -> bool:
    return t.dtype in (torch.float32, torch.float64) and t.dim() == 2 and 0 < t.shape[0] == t.shape[1] <= 33


@kind("effect", 10, _is_square)
def checked(scope: Scope, name: str, x: Tensor) -> Proposal:
    """Operations of ``torch.linalg`` with error checks, on matrices far from singular."""
    unit = f"torch.eye({x.shape[0]}, dtype={x.dtype})"
    near, square = (
        f"({unit} * {x.shape[0] + 1} + {name}.tanh())",
        f"({unit} + {name}.tanh() @ {name}.tanh().mT)",
    )
    other = scope.pick(lambda t: t.dtype == x.dtype and t.dim() == 2 and t.shape[0] == x.shape[0]) or name
    texts = [
        f"torch.linalg.inv({near})",
        f"torch.linalg.solve({near}, {other})",
        f"torch.linalg.cholesky({square})",
        f"torch.linalg.cholesky_ex({square}, check_errors=True)[0]",
        f"torch.linalg.solve({near}, {other}) @ torch.linalg.inv({near})",
    ]
    return Proposal(Statement(scope.one(texts), target=scope.fresh()), rough=True)


@kind("effect", 10, lambda t: is_inexact(t.dtype))
def written_down(scope: Scope, name: str, x: Tensor) -> Proposal:
    """A copy with a side effect that must happen once, in program order."""
    text = f"torch.ops.differential.noted({name}, {scope.choose(0, 9)})"
    return Proposal(Statement(text, target=scope.fresh()))


def _is_small_float(t: Tensor) -> bool:
    return is_inexact(t.dtype) and t.dim() in (2, 3, 4) and 0 < t.numel() <= 4000


@kind("product", 10, _is_small_float)
def multiplied(scope: Scope, name: str, x: Tensor) -> Proposal:
    """Matmuls with other tensors of the program, as layers compute them."""
    last = x.shape[-1]
    other = scope.pick(lambda t: t.dtype == x.dtype and t.dim() == 2 and last in t.shape)
    if other is None:
        return Proposal(Statement(f"{name} @ {name}.mT", target=scope.fresh()), rough=True)
    y = scope[other]
    if y.shape[1] != last:
        return Proposal(Statement(f"{name} @ {other}", target=scope.fresh()), rough=True)
    bias = scope.pick(lambda t: t.dtype == x.dtype and tuple(t.shape) == (y.shape[0],))
    added = "" if bias is None else f", {bias}"
    text = f"F.linear({name}, {other}{added})"
    return Proposal(Statement(text, target=scope.fresh()), rough=True)


@kind("product", 8, lambda t: t.dtype == torch.float32 and t.dim() == 4 and 0 < t.numel() <= 4000)
def convolved(scope: Scope, name: str, x: Tensor) -> Proposal | None:
    """A convolution of two tensors of the program, or with an input of its own."""
    weight = scope.pick(
        lambda t: t.dtype == x.dtype and t.dim() == 4 and t.shape[1] == x.shape[1] and t.numel() > 0
        and t.shape[2] <= x.shape[2] + 2 and t.shape[3] <= x.shape[3] + 2
    )  # fmt: skip
    if weight is None:
        return None
    return Proposal(Statement(f"F.conv2d({name}, {weight}, padding=1)", target=scope.fresh()), rough=True)


@kind("product", 8, lambda t: is_inexact(t.dtype))
def of_parameters(scope: Scope, name: str, x: Tensor) -> Proposal:
    """Arithmetic whose operands may all be parameters."""
    other = operand(scope, name)
    text = scope.one(
        (f"({name} * 2 - {other})", f"({name} + 1).to(torch.float64)", f"{name}.mT.contiguous()")
    )
    return Proposal(Statement(text, target=scope.fresh()))
