"""The invariants of combiners, in loop graphs and in kernels."""

from __future__ import annotations

from litz_ir.dtypes import DType
from litz_ir.errors import DTypeError
from litz_ir.loops.nodes import SORT, Combiner, UserCombiner
from litz_ir.scalar.node import Expr
from litz_ir.scalar.verify import BodyScope, ErrorLocation, verify_bodies


def verify_combiner(
    combiner: Combiner,
    bodies: tuple[Expr, ...],
    results: int,
    location: ErrorLocation,
    *,
    scans: bool = False,
) -> tuple[DType, ...]:
    """Check that a combiner fits its values and results; returns the dtypes of the results.

    ``scans`` is true for the combiner of a scan.
    """
    _check_combiner_arity(combiner, len(bodies), results, location)
    values = tuple(body.dtype for body in bodies)
    if isinstance(combiner, UserCombiner):
        _check_combine(combiner, values, location)
        return tuple(expr.dtype for expr in combiner.finish)
    if combiner == SORT:
        _check_sort(values, scans, location)
        return values
    try:
        return combiner.kind.definition(values).dtypes
    except DTypeError as error:
        shown = ", ".join(map(str, values))
        location.fail("combiner-dtype", f"{combiner.name} of ({shown}): {error.message}", "cast the values")


def _check_combiner_arity(combiner: Combiner, values: int, results: int, location: ErrorLocation) -> None:
    """The numbers of values and results are those of the combiner."""
    if values != combiner.inputs:
        location.fail("combiner-arity", f"the combiner takes {combiner.inputs} values, {values} are given")
    if results != combiner.results:
        location.fail("combiner-arity", f"the combiner gives {combiner.results} results, {results} are named")


def _check_sort(values: tuple[DType, ...], scans: bool, location: ErrorLocation) -> None:
    """A sort is the combiner of a scan, and of integers."""
    if not scans:
        location.fail("combiner-sort", "a reduction cannot sort", "sort by a scan")
    if not values[0].is_integer:
        location.fail("combiner-sort", f"{values[0]} values are sorted", "map them to integer keys")


def _check_combine(combiner: UserCombiner, values: tuple[DType, ...], location: ErrorLocation) -> None:
    """The body of a user combiner maps two tuples of values to one and refers only to its parameters."""
    if len(combiner.body) != len(combiner.identity):
        identities, bodies = len(combiner.identity), len(combiner.body)
        location.fail("combiner-arity", f"the combiner has {identities} identities, but {bodies} bodies")
    for role, exprs in (("identity", combiner.identity), ("body", combiner.body)):
        dtypes = tuple(expr.dtype for expr in exprs)
        if dtypes != values:
            shown = [", ".join(map(str, each)) for each in (dtypes, values)]
            location.fail("combiner-dtype", f"the {role} is ({shown[0]}), the values are ({shown[1]})")
    verify_bodies(combiner.identity, BodyScope(), location)
    verify_bodies(combiner.body, BodyScope(parameters=values + values), location)
    verify_bodies(combiner.finish, BodyScope(parameters=values), location)
