"""Elements of statements: subscripts, numbers, operands, indices."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from differential.scope import Scope


def dimension(scope: Scope, x: torch.Tensor) -> int:
    """Draw a dimension of ``x``, counted from either end."""
    return scope.choose(0, x.dim() - 1) - (x.dim() if scope.chance(30) else 0)


def _slice(scope: Scope, size: int) -> str:
    """Draw a slice of a dimension, as text of a subscript."""
    start = scope.choose(0, min(size, 3))
    stop = scope.choose(max(size - 3, 0), size)
    step = scope.one((1, 1, 1, 2, 3))
    how = scope.choose(0, 5)
    text = {0: ":", 1: f"{start}:", 2: f":{stop}", 3: f"{start}:{stop}", 4: f"{start}:{stop}:{step}"}.get(how)
    return text or f"::{step}"


def subscript(scope: Scope, x: torch.Tensor) -> str:
    """Basic indices: slices, integers, an ellipsis."""
    parts = []
    for size in x.shape:
        if size and scope.chance(20):
            parts.append(str(scope.choose(-size, size - 1)))
        else:
            parts.append(_slice(scope, size))
    if parts and scope.chance(15):
        parts[scope.choose(0, len(parts) - 1)] = "..."
    if scope.chance(5):
        parts.append("None")
    return ", ".join(parts) or "..."


def number(scope: Scope, dtype: torch.dtype) -> str:
    """Draw a literal that every dtype of the family represents."""
    if dtype == torch.bool:
        return scope.one(("True", "False"))
    if dtype.is_floating_point and scope.chance(40):
        return scope.one(("0.5", "-1.5", "2.5"))
    return (
        scope.one(("0", "1", "2", "3"))
        if dtype == torch.uint8
        else scope.one(("-2", "-1", "0", "1", "2", "3"))
    )


def broadcasts(shape: Sequence[int], to: Sequence[int]) -> bool:
    """Report that a shape broadcasts to another one."""
    if len(shape) > len(to):
        return False
    return all(a == b or a == 1 for a, b in zip(reversed(shape), reversed(to)))


def fits(dtype: torch.dtype, into: torch.dtype) -> bool:
    """Report that values of one dtype may be written to a tensor of the other."""
    if into.is_complex:
        return True
    return not dtype.is_complex and (into.is_floating_point or not dtype.is_floating_point)


def operand(scope: Scope, name: str, *, exact: bool = False) -> str:
    """An operand that broadcasts to the shape of ``name``: a tensor, a number, or an inline copy or view."""
    x = scope[name]
    other = scope.pick(
        lambda t: broadcasts(t.shape, x.shape) and fits(t.dtype, x.dtype),
        exact=exact,
    )
    how = scope.choose(0, 11)
    if other is None or how == 0:
        return number(scope, x.dtype)
    y = scope[other]
    if y.dim() and how in (1, 2):
        return f"{other}.flip({dimension(scope, y)})"
    if y.dim() and how == 3:
        return f"{other}.roll(1, {dimension(scope, y)})"
    if y.dim() >= 2 and how in (4, 5) and y.shape[-1] == y.shape[-2]:
        return f"{other}.transpose(-1, -2)" + (".clone()" if scope.chance(60) else "")
    if how == 6:
        return f"{other}.clone()"
    if how == 7 and x.dim() and y.shape == x.shape and x.dtype != torch.bool:
        return f"{other}.sum({dimension(scope, y)}, keepdim=True)"
    if how == 8:
        return f"{other}.expand_as({name})"
    return other


def permutation(scope: Scope, size: int) -> list[int]:
    """Draw a permutation of the numbers below ``size``, as text."""
    left = list(range(size))
    return [left.pop(scope.choose(0, len(left) - 1)) for _ in range(size)]


def index_vector(scope: Scope, size: int, count: int | None = None, *, unique: bool = False) -> str:
    """Draw a literal vector of indices below ``size``."""
    if unique:
        numbers = permutation(scope, size)[: scope.choose(1, size) if count is None else count]
    else:
        wanted = scope.choose(1, 4) if count is None else count
        numbers = [scope.choose(0, size - 1) for _ in range(wanted)]
    return f"torch.tensor({numbers})"
