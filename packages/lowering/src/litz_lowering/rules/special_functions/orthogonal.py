"""Orthogonal polynomials by their recurrences, unrolled for small static degrees."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from litz_ir.scalar import build
from litz_lowering.contexts.context import Declined, LoweringContext, Tensor
from litz_lowering.contexts.registry import REGISTRY
from litz_lowering.expressions import formula as f
from litz_lowering.expressions.formula import Num, Number, where
from litz_lowering.rules.elementwise.pointwise import PointwiseRow, lower_pointwise

_UNROLLED = 64
"""Highest degree whose recurrence is unrolled."""

_HERMITE_LIMIT = {32: 128, 64: 512}
"""Eager's highest degree of Hermite polynomials by the width of the float, in bits; above it the result is NaN."""

Degree = int | Num
Polynomial = Callable[[Num, int], Num]
_Varying = Callable[[Num, Num], Num]


@dataclass(frozen=True, slots=True)
class Chebyshev:
    """A kind of Chebyshev polynomials.

    The first polynomial is ``first * x + offset``. Inside (-1, 1), ``closed`` is used above degree ``recurred``.
    At 1 the polynomial of degree n is ``1 + right n``, at -1 it is ``(1 + left n) (-1)^n``.
    """

    first: int
    offset: int
    closed: Callable[[Num, Degree], Num]
    """Closed form in terms of the arc cosine and the degree."""
    recurred: int
    """Highest degree that is computed by the recurrence inside (-1, 1)."""
    shifted_recurred: int
    """The same for shifted polynomials."""
    right: int
    left: int


def _alternating(n: Degree) -> Degree:
    """``(-1)^n``."""
    return (-1) ** n if isinstance(n, int) else 1.0 - 2.0 * f.absolute(f.fmod(n, 2))


def _first_kind(angle: Num, n: Degree) -> Num:
    return f.unary("cos")(n * angle)


def _second_kind(angle: Num, n: Degree) -> Num:
    return f.unary("sin")((n + 1) * angle) / f.unary("sin")(angle)


def _third_kind(angle: Num, n: Degree) -> Num:
    half = angle * 0.5
    value = f.unary("cos")((n + 0.5) * angle) / f.unary("cos")(half)
    return where(f.unary("sin")(half).eq(1), (2 * n + 1) * _alternating(n), value)


def _fourth_kind(angle: Num, n: Degree, *, shifted: bool = False) -> Num:
    half = angle * 0.5
    value = f.unary("sin")((n + 0.5) * angle) / f.unary("sin")(half)
    # Eager's value where the angle rounds to zero, which differs for shifted polynomials.
    return where(f.unary("cos")(half).eq(1), _alternating(n) if shifted else 2 * n + 1, value)


_CHEBYSHEV = {
    "t": Chebyshev(1, 0, _first_kind, 6, 6, right=0, left=0),
    "u": Chebyshev(2, 0, _second_kind, 8, 6, right=1, left=1),
    "v": Chebyshev(2, -1, _third_kind, 8, 6, right=0, left=2),
    "w": Chebyshev(2, 1, _fourth_kind, 8, 4, right=2, left=0),
}


def _recur(x: Num, n: int, first: Num, step: Callable[[Num, Num, int], Num]) -> Num:
    """``n``-th of 1, ``first`` and ``step(last, previous, k)``, which gives number ``k + 1``."""
    if n <= 0:
        return x.like(1 if n == 0 else 0)
    previous, last = x.like(1), first
    for k in range(1, n):
        previous, last = last, step(last, previous, k)
    return last


def _term(n: Num, first: Num, *coefficients: Num | Number) -> Num:
    """``n``-th polynomial by the scalar operation ``three_term``."""
    return Num(build.op("three_term", n.expr, first.expr, *(n.like(value).expr for value in coefficients)))


def _shifted(kind: Chebyshev, x: Num, *, shifted: bool) -> tuple[Num, Num, Callable[[Num, Degree], Num], int]:
    """Argument, first polynomial, closed form, and highest degree that the recurrence computes."""
    recurred, closed = kind.recurred, kind.closed
    if shifted:
        x, recurred = x + x - 1, kind.shifted_recurred
        closed = partial(_fourth_kind, shifted=True) if closed is _fourth_kind else closed
    return x, (x if kind.first == 1 else x + x) + kind.offset, closed, recurred


def _chebyshev(kind: Chebyshev, x: Num, n: int, *, shifted: bool = False) -> Num:
    x, first, closed, recurred = _shifted(kind, x, shifted=shifted)
    value = _recur(x, n, first, lambda last, before, _: (x + x) * last - before)
    return value if n <= recurred else where(f.absolute(x) < 1, closed(f.unary("acos")(x), n), value)


def _varying_chebyshev(kind: Chebyshev, x: Num, n: Num, *, shifted: bool = False) -> Num:
    x, first, closed, recurred = _shifted(kind, x, shifted=shifted)
    direct = (n > recurred) & (f.absolute(x) <= 1)
    left = (1 + kind.left * n) * _alternating(n)
    ends = where(x > 0, 1 + kind.right * n, left)
    value = where(f.absolute(x) < 1, closed(f.unary("acos")(x), n), ends)
    return where(direct, value, _term(where(direct, 0, n), first, 0, x + x, 1, 0, 0))


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


def _varying_hermite(x: Num, n: Num, gap: int) -> Num:
    beyond = n > _HERMITE_LIMIT[x.dtype.bits]
    slope = x if gap == 1 else x + x
    return where(beyond, math.nan, _term(where(beyond, 0, n), slope, 0, slope, 0, gap, 0))


def _varying_laguerre(x: Num, n: Num) -> Num:
    first = 1.0 - x
    return _term(where(x.eq(0) & (n > 0), 0, n), first, 2, first, 0, 1, 1)


def _varying_legendre(x: Num, n: Num) -> Num:
    at_end = f.absolute(x).eq(1) & (n > 0)
    return _term(where(at_end, f.fmod(n, 2), n), x, x + x, x, 0, 1, 1)


_POLYNOMIALS: dict[str, tuple[Polynomial, _Varying]] = {
    "hermite_polynomial_h": (_hermite_h, partial(_varying_hermite, gap=2)),
    "hermite_polynomial_he": (_hermite_he, partial(_varying_hermite, gap=1)),
    "laguerre_polynomial_l": (_laguerre, _varying_laguerre),
    "legendre_polynomial_p": (_legendre, _varying_legendre),
    **{
        f"{prefix}chebyshev_polynomial_{name}": (
            partial(_chebyshev, kind, shifted=bool(prefix)),
            partial(_varying_chebyshev, kind, shifted=bool(prefix)),
        )
        for name, kind in _CHEBYSHEV.items()
        for prefix in ("", "shifted_")
    },
}


def _whole(n: Num) -> Num:
    """``n`` truncated to an integer as in eager; values out of range become a negative degree."""
    return where((n > -(2.0**63)) & (n < 2.0**63), f.trunc(n), n.like(-1))


def _serve(name: str, polynomial: Polynomial, varying: _Varying) -> None:
    def body(x: Num, n: Num | Number) -> Num:
        if isinstance(n, Num):
            return varying(x, _whole(n))
        return polynomial(x, int(n)) if 0 <= n <= _UNROLLED else varying(x, _whole(x.like(n)))

    def lower_polynomial(ctx: LoweringContext, x: Tensor | Number, n: Tensor | Number) -> Tensor | Declined:
        if ctx.output is not None and ctx.output.dtype.is_low_precision:
            return Declined("eager has no orthogonal polynomials of 16-bit floats")
        return lower_pointwise(ctx, PointwiseRow(body), (x, n), {})

    REGISTRY.add(
        lower_polynomial, *(f"aten.special_{name}.{kind}" for kind in ("default", "x_scalar", "n_scalar"))
    )


for _name, _pair in _POLYNOMIALS.items():
    _serve(_name, *_pair)
