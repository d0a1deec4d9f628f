"""Conditions that a load need not be masked by, since another point loads the same element where they hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from litz_ir.scalar import Const, Expr, Index, Op
from litz_ir.symbols import FloorDiv, Mod, Range, Size, Symbol, bounds, free_symbols


def is_met_elsewhere(
    condition: Expr, offset: Size, others: Iterable[Expr], ranges: Mapping[str, Range]
) -> bool:
    """Report whether a load at ``offset`` under a condition is one of an element that exists wherever it is run.

    So it is where the condition is an upper bound of an index on which neither the offset nor ``others``, the
    load's other conditions, depend: the point at which that index is least loads the same element, and meets the bound.
    The index is a symbol of ``ranges``, or the place within a row of a flattened one.
    """
    match condition:
        case Op(name="lt", args=(Index(term=index), Index() | Const() as limit)):
            match index:
                case Symbol(name=name):
                    period = 0
                case Mod(dividend=Symbol(name=name), divisor=int(period)) if period > 0:
                    pass
                case _:
                    return False
            least = bounds(index, ranges).low
            bound = bounds(limit.term if isinstance(limit, Index) else int(limit.value), ranges).low
            return (
                least is not None
                and bound is not None
                and least < bound
                and _is_constant_within(offset, name, period)
                and not any(name in each.free_symbols for each in others)
            )
    return False


def _is_constant_within(size: Size, name: str, period: int) -> bool:
    """Return True for a size that does not change with a symbol, or not within its multiples of ``period``."""
    if isinstance(size, int) or name not in free_symbols(size):
        return True
    match size:
        case FloorDiv(dividend=Symbol(name=divided), divisor=int(divisor)) if divided == name and period:
            return divisor % period == 0
    parts = list(size.children())
    return bool(parts) and all(_is_constant_within(each, name, period) for each in parts)
