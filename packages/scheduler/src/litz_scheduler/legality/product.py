"""Products of matrices among reductions: loops that a GPU computes tile by tile, with rules of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from litz_ir.loops import Axis, Combiner, Kind, Operation, Pointwise, Reduction, Scatter
from litz_ir.passes import PassContext
from litz_ir.scalar import Expr, folds, product_factors
from litz_scheduler.draft import Seen


@dataclass(frozen=True, slots=True)
class Sides:
    """The outer axes of a product, those of one point left out: those that its left factor alone varies along, those of
    the right one, and the others. ``scores``: the left factor holds products itself, computed for all columns at a
    time."""

    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    batch: tuple[Axis, ...]
    scores: bool = False


def graphics(context: PassContext) -> frozenset[str]:
    """The kinds of devices that have processors of their own to share tiles out to."""
    return frozenset(device.kind for device, known in context.capabilities.items() if known.processors > 0)


def product_sides(operation: Operation, kinds: frozenset[str]) -> Sides | None:
    """The sides of a sum of products of two factors on a device of one of these kinds, each of which varies along an
    outer axis that the other one does not know, or of which one holds products itself; ``None`` for anything else.
    Values that are weighed by a softmax are such a sum too.

    Such a loop reads every element of a factor for many results. It pays to keep it apart: what is computed of its
    result at the same point may follow in its kernel, and what needs the same products at the same points beside it.
    """
    if not isinstance(operation, Reduction) or operation.results[0].type.device.kind not in kinds:
        return None
    return sides_of(operation.combiner, operation.bodies, operation.axes)


def sides_of(combiner: Combiner, bodies: Sequence[Expr], axes: Sequence[Axis]) -> Sides | None:
    """The sides of what a combiner makes of bodies, at every point of the outer axes."""
    factors, scores = _factors(combiner, bodies), bool(folds(*bodies))
    if factors is not None:
        left, right = (factor.free_symbols for factor in factors)
    elif scores and combiner == Kind("sum"):
        left, right = bodies[0].free_symbols, frozenset()  # what holds products may be summed as it is
    else:
        return None
    wide = [axis for axis in axes if axis.size != 1]
    rows = tuple(axis for axis in wide if axis.name in left - right)
    columns = tuple(axis for axis in wide if axis.name in right - left)
    if not scores and not (rows and columns):
        return None
    return Sides(rows, columns, tuple(axis for axis in wide if axis not in rows + columns), scores)


def _factors(combiner: Combiner, bodies: Sequence[Expr]) -> Sequence[Expr] | None:
    """The two factors whose products are summed."""
    if combiner == Kind("softmax_sum"):
        return bodies
    return product_factors(bodies[0]) if combiner == Kind("sum") else None


def holds_products(operation: Operation) -> bool:
    """True for loops whose bodies hold sums of their own."""
    match operation:
        case Pointwise() | Reduction():
            return bool(folds(*operation.bodies))
        case Scatter():
            return bool(folds(operation.body))
    return False


def shares_products(newcomer: Seen, members: Sequence[Seen]) -> bool:
    """True for a reduction that holds sums which a member computes at the same points."""
    own = set(folds(*newcomer.bodies)) if newcomer.reduces else set()
    return any(seen.reduces and own.intersection(folds(*seen.bodies)) for seen in members)


def is_product(operation: Operation, kinds: frozenset[str]) -> bool:
    """True for what :func:`product_sides` knows the sides of."""
    return product_sides(operation, kinds) is not None
