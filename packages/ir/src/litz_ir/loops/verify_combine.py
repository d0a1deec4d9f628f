"""The invariants of combiners, in loop graphs and in kernels."""

from __future__ import annotations

from litz_ir.dtypes import DType, b1
from litz_ir.loops.nodes import SORT, Combiner, UserCombiner
from litz_ir.scalar.expr import Expr
from litz_ir.scalar.verify import BodyScope, ErrorLocation, verify_bodies


def verify_combiner(
    combiner: Combiner,
    bodies: tuple[Expr, ...],
    results: int,
    location: ErrorLocation,
    *,
    scans: bool = False,
) -> tuple[DType, ...]:
    """Check that a combiner takes and gives as many values as there are; gives the dtypes of its results. ``scans``
    where a scan combines."""
    check_combiner_arity(combiner, len(bodies), results, location)
    values = tuple(body.dtype for body in bodies)
    check_sort(combiner, values, scans, location)
    if isinstance(combiner, UserCombiner):
        check_combine(combiner, values, location)
        return tuple(expr.dtype for expr in combiner.finish)
    if combiner.name in ("any", "all"):
        return (b1,)
    if combiner.name == "softmax_sum" and values[0] != values[1]:
        location.fail("combiner-dtype", f"scores are {values[0]}, values {values[1]}", "cast the values")
    if combiner.name == "softmax_sum":
        return (values[0],) * 3
    return (values * combiner.results)[: combiner.results]


def check_combiner_arity(combiner: Combiner, values: int, results: int, location: ErrorLocation) -> None:
    """As many values are combined and results named as the combiner takes and gives."""
    if values != combiner.inputs:
        location.fail("combiner-arity", f"the combiner takes {combiner.inputs} values, {values} are given")
    if results != combiner.results:
        location.fail("combiner-arity", f"the combiner gives {combiner.results} results, {results} are named")


def check_sort(combiner: Combiner, values: tuple[DType, ...], scans: bool, location: ErrorLocation) -> None:
    """Scans sort, and integers are sorted."""
    if combiner != SORT:
        return
    if not scans:
        location.fail("combiner-sort", "a row in order is no one value", "scan it")
    if not values[0].is_integer:
        location.fail("combiner-sort", f"{values[0]} is sorted", "make keys of integers")


def check_combine(combiner: UserCombiner, values: tuple[DType, ...], location: ErrorLocation) -> None:
    """A combine body maps two tuples of values to one, and reads nothing else."""
    if len(combiner.body) != len(combiner.identity):
        identities, bodies = len(combiner.identity), len(combiner.body)
        location.fail("combiner-arity", f"{identities} identities, but {bodies} combining bodies")
    for what, exprs in (("identity", combiner.identity), ("combining body", combiner.body)):
        dtypes = tuple(expr.dtype for expr in exprs)
        if dtypes != values:
            shown = [", ".join(map(str, part)) for part in (dtypes, values)]
            location.fail("combiner-dtype", f"the {what} is ({shown[0]}), the values are ({shown[1]})")
    verify_bodies(combiner.identity, BodyScope(), location)
    verify_bodies(combiner.body, BodyScope(parameters=values + values), location)
    verify_bodies(combiner.finish, BodyScope(parameters=values), location)
