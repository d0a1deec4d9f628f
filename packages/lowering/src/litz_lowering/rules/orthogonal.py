"""Orthogonal polynomials of a degree known while compiling: their recurrences, unrolled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from litz_lowering.context import Declined, LoweringContext, Tensor
from litz_lowering.registry import REGISTRY, rule
from litz_lowering.rules import formula as f
from litz_lowering.rules.formula import Num, Number, where
from litz_lowering.rules.pointwise import PointwiseRow, lower_pointwise

HIGHEST_DEGREE = 64
"""What is unrolled; polynomials above it are left to ATen."""

Polynomial = Callable[[Num, int], Num]


@dataclass(frozen=True, slots=True)
class Chebyshev:
    """A kind by its first polynomial ``first * x + offset`` and, inside (-1, 1) above degree ``recurred``, ``closed``
    of the arc cosine and the degree."""

    first: int
    offset: int
    closed: Polynomial
    recurred: int
    shifted_recurred: int


def _first_kind(angle: Num, n: int) -> Num:
    return f.unary("cos")(n * angle)


def _second_kind(angle: Num, n: int) -> Num:
    return f.unary("sin")((n + 1) * angle) / f.unary("sin")(angle)


def _third_kind(angle: Num, n: int) -> Num:
    half = angle * 0.5
    value = f.unary("cos")((n + 0.5) * angle) / f.unary("cos")(half)
    return where(f.unary("sin")(half).eq(1), (2 * n + 1) * (-1) ** n, value)


def _fourth_kind(angle: Num, n: int, *, shifted: bool = False) -> Num:
    half = angle * 0.5
    value = f.unary("sin")((n + 0.5) * angle) / f.unary("sin")(half)
    # What eager gives where the angle is lost; the shifted form is eager's too.
    return where(f.unary("cos")(half).eq(1), (-1) ** n if shifted else 2 * n + 1, value)


CHEBYSHEV = {
    "t": Chebyshev(1, 0, _first_kind, 6, 6),
    "u": Chebyshev(2, 0, _second_kind, 8, 6),
    "v": Chebyshev(2, -1, _third_kind, 8, 6),
    "w": Chebyshev(2, 1, _fourth_kind, 8, 4),
}


def _recur(x: Num, n: int, first: Num, step: Callable[[Num, Num, int], Num]) -> Num:
    """The ``n``-th from 1, ``first`` and ``step(last, before, k)``, which gives number ``k + 1``."""
    if n <= 0:
        return x.like(1 if n == 0 else 0)
    before, last = x.like(1), first
    for k in range(1, n):
        before, last = last, step(last, before, k)
    return last


def _chebyshev(kind: Chebyshev, x: Num, n: int, *, shifted: bool = False) -> Num:
    twice = x + x
    if shifted:
        x = twice - 1
        twice = x + x
    first = (x if kind.first == 1 else twice) + kind.offset
    value = _recur(x, n, first, lambda last, before, _: twice * last - before)
    if n <= (kind.shifted_recurred if shifted else kind.recurred):
        return value
    closed = partial(_fourth_kind, shifted=True) if shifted and kind.closed is _fourth_kind else kind.closed
    return where(f.absolute(x) < 1, closed(f.unary("acos")(x), n), value)


def _hermite_h(x: Num, n: int) -> Num:
    return _recur(x, n, x + x, lambda last, before, k: (x + x) * last - before * (2 * k))


def _hermite_he(x: Num, n: int) -> Num:
    return _recur(x, n, x, lambda last, before, k: x * last - before * k)


def _laguerre(x: Num, n: int) -> Num:
    def step(last: Num, before: Num, k: int) -> Num:
        return ((2 * k + (1.0 - x)) * last - before * k) / (k + 1)

    return _recur(x, n, 1.0 - x, step)


def _legendre(x: Num, n: int) -> Num:
    return _recur(x, n, x, lambda last, before, k: ((2 * k + 1) * x * last - before * k) / (k + 1))


POLYNOMIALS: dict[str, Polynomial] = {
    "hermite_polynomial_h": _hermite_h,
    "hermite_polynomial_he": _hermite_he,
    "laguerre_polynomial_l": _laguerre,
    "legendre_polynomial_p": _legendre,
    **{f"chebyshev_polynomial_{name}": partial(_chebyshev, kind) for name, kind in CHEBYSHEV.items()},
    **{
        f"shifted_chebyshev_polynomial_{name}": partial(_chebyshev, kind, shifted=True)
        for name, kind in CHEBYSHEV.items()
    },
}


def _serve(name: str, polynomial: Polynomial) -> None:
    def lower_polynomial(ctx: LoweringContext, x: Tensor, n: Number) -> Tensor | Declined:
        if not isinstance(n, int | float) or n > HIGHEST_DEGREE:
            return Declined(f"a polynomial of a degree above {HIGHEST_DEGREE} or unknown while compiling")
        return lower_pointwise(ctx, PointwiseRow(lambda v: polynomial(v, int(n))), (x,), {})

    REGISTRY.add(lower_polynomial, f"aten.special_{name}.n_scalar")


for _name, _polynomial in POLYNOMIALS.items():
    _serve(_name, _polynomial)


@rule(*(f"aten.special_{name}.{overload}" for name in POLYNOMIALS for overload in ("default", "x_scalar")))
def degree_from_data(ctx: LoweringContext, x: Tensor | Number, n: Tensor) -> Declined:
    """A tensor of degrees."""
    return Declined("a polynomial whose degree is data has no loop of fixed length")
