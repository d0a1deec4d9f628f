"""Minima and maxima of terms."""

from __future__ import annotations

from collections.abc import Callable

from litz_ir.errors import SymbolError
from litz_ir.symbols.nodes import Max, Min, Sum, extremum
from litz_ir.symbols.polynomials import add
from litz_ir.symbols.term import Size


def minimum(*xs: Size) -> Size:
    """The least of one or more arguments."""
    return _extremum(Min, min, xs)


def maximum(*xs: Size) -> Size:
    """The greatest of one or more arguments."""
    return _extremum(Max, max, xs)


def _extremum(kind: type[Min] | type[Max], pick: Callable[[int, int], int], xs: tuple[Size, ...]) -> Size:
    """A minimum or maximum, flattened; of arguments that differ by a constant only one remains."""
    best: dict[Size, int] = {}
    pending = list(reversed(xs))
    while pending:
        x = pending.pop()
        if type(x) is kind:
            pending.extend(reversed(x.args))
            continue
        constant = x if isinstance(x, int) else x.constant if type(x) is Sum else 0
        base = x if not constant else add(x, -constant)
        best[base] = pick(best[base], constant) if base in best else constant
    args = [add(base, constant) for base, constant in best.items()]
    if not args:
        raise SymbolError(f"{kind.function}() needs at least one argument")
    return args[0] if len(args) == 1 else extremum(kind, tuple(args))
