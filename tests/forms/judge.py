"""Comparison of results: right ones are about as near to an f64 run of eager as eager's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

EAGERS = 4.0
"""Largest distance of a result from the f64 run, in multiples of eager's own distance."""

ROUNDINGS: Mapping[torch.dtype, float] = MappingProxyType({torch.float64: 16384.0, torch.float32: 16.0})
"""Further distance allowed to a result, in roundings at the largest value; 2 for narrower floats. The f64 run of eager
accumulates roundings of its own: a result in f64 is no nearer to the exact value than that."""


def results(
    function: Callable[..., Any], arguments: Sequence[Tensor], *, gradients: bool = False
) -> list[Tensor]:
    """Return the results of a function, then the gradients of its floating-point arguments by fixed ones of the
    results."""
    if not gradients:
        return tree_leaves(function(*arguments))
    own = [each.detach().requires_grad_(each.is_floating_point()) for each in arguments]
    made: list[Tensor] = tree_leaves(function(*own))
    ramps = [
        torch.linspace(0.5, 1.5, each.numel(), device=each.device).view(each.shape).to(each.dtype)
        for each in made
    ]
    torch.autograd.backward(made, ramps)
    return [each.detach() for each in made] + [each.grad for each in own if each.grad is not None]


def widened(tensor: Tensor) -> Tensor:
    """Return a floating-point tensor in f64, another one as it is."""
    return tensor.double() if tensor.is_floating_point() else tensor


def difference(
    found: Sequence[Tensor], eager: Sequence[Tensor], exact: Sequence[Tensor], *, sequential: int = 0
) -> str:
    """Return the first wrong result with its figures; empty where all are right.

    ``sequential`` is the number of elements that are added one after another: the expected distance of such a sum is
    the square root of their number, in roundings.
    """
    if len(found) != len(eager):
        return f"{len(found)} results, eager {len(eager)}"
    for number, each in enumerate(zip(found, eager, exact, strict=True)):
        wrong = _difference(*each, math.sqrt(sequential))
        if wrong:
            return f"result {number}: {wrong}"
    return ""


def _difference(found: Tensor, eager: Tensor, exact: Tensor, further: float) -> str:
    if (found.dtype, found.shape) != (eager.dtype, eager.shape):
        return f"{found.dtype} {tuple(found.shape)}, eager {eager.dtype} {tuple(eager.shape)}"
    if not eager.is_floating_point():
        count = int((found != eager).sum())
        return f"{count} of {eager.numel()} elements differ" if count else ""
    rounded = exact.to(eager.dtype).double()
    off = found.double() - rounded
    odd = ~rounded.isfinite()
    same = (found.double() == rounded) | (found.isnan() & rounded.isnan())
    unlike = (odd | ~found.isfinite()) & ~same
    if bool(unlike.any()):
        return f"{int(unlike.sum())} of {eager.numel()} elements are infinite or NaN in one of the two"
    if not off.numel():
        return ""
    off, own = (each.masked_fill(odd, 0.0).abs().max() for each in (off, eager.double() - rounded))
    scale = float(rounded.masked_fill(odd, 0.0).abs().max())
    roundings = ROUNDINGS.get(eager.dtype, 2.0) + further
    eagers = 0.0 if math.isnan(float(own)) else EAGERS * float(own)
    bound = eagers + roundings * torch.finfo(eager.dtype).eps * scale
    return (
        f"off by {float(off):.3g}, eager by {float(own):.3g}, bound {bound:.3g}" if float(off) > bound else ""
    )
