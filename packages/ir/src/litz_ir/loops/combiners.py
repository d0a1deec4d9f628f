"""Combiners of reductions and scans."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from litz_ir.dtypes import DType, compute_dtype
from litz_ir.errors import GraphError
from litz_ir.loops.reduction_kinds import REDUCTION_KINDS, ReductionKind
from litz_ir.scalar.build import cast
from litz_ir.scalar.expr import Param, substitute_params
from litz_ir.scalar.node import Expr, walk

ReductionName = str
"""Name of a row of :data:`~litz_ir.loops.reduction_kinds.REDUCTION_KINDS`."""


@dataclass(frozen=True, slots=True)
class NamedCombiner:
    """A combiner of the table of reduction kinds, by name. Raises :class:`GraphError` for an unknown name."""

    name: ReductionName
    """Name in the table."""

    def __post_init__(self) -> None:
        if self.name not in REDUCTION_KINDS:
            raise GraphError(f"unknown combiner {self.name!r}", hint=f"one of {', '.join(REDUCTION_KINDS)}")

    @property
    def kind(self) -> ReductionKind:
        """The row of the table."""
        return REDUCTION_KINDS[self.name]

    @property
    def inputs(self) -> int:
        """Number of values combined at each point."""
        return self.kind.inputs

    @property
    def components(self) -> int:
        """Number of values that are accumulated."""
        return self.kind.results

    @property
    def results(self) -> int:
        """Number of results."""
        return self.kind.results


SORT = NamedCombiner("sort")
"""The combiner that sorts the scanned axis."""


@dataclass(frozen=True, slots=True)
class UserCombiner:
    """A user-given associative combination of tuples of ``n`` values."""

    body: tuple[Expr, ...]
    """``n`` expressions over ``Param(0..n-1)``, the accumulated values, and ``Param(n..2n-1)``, the new element."""
    identity: tuple[Expr, ...]
    """``n`` literals."""
    finish: tuple[Expr, ...]
    """Expressions over ``Param(0..n-1)`` that compute the results from the accumulated values."""

    @property
    def inputs(self) -> int:
        """Number of values combined at each point."""
        return len(self.identity)

    @property
    def components(self) -> int:
        """Number of values that are accumulated."""
        return len(self.identity)

    @property
    def results(self) -> int:
        """Number of results."""
        return len(self.finish)


Combiner = NamedCombiner | UserCombiner
"""A combiner of a reduction or scan: a row of the table of reduction kinds, or given by expressions."""


def partial_results_combiner(combiner: NamedCombiner, dtypes: tuple[DType, ...]) -> Combiner:
    """The combiner of partial results of a reduction, whose elements have these dtypes.

    Raises :class:`GraphError` for a sort.
    """
    definition = combiner.kind.definition(dtypes)
    if combiner.kind.merges_states:
        return combiner
    return UserCombiner(definition.merge, definition.identity, definition.components)


def as_user_combiner(
    combiner: NamedCombiner, values: tuple[Expr, ...]
) -> tuple[UserCombiner, tuple[Expr, ...]]:
    """The same combination of ``values`` by a user combiner, with the values that it combines: the initial states.

    Floats below 32 bits are accumulated in ``f32``. Raises :class:`GraphError` for a sort.
    """
    dtypes = tuple(value.dtype for value in values)
    results = combiner.kind.definition(dtypes).dtypes
    definition = combiner.kind.definition(tuple(map(compute_dtype, dtypes)))
    finish = tuple(cast(each, dtype) for each, dtype in zip(definition.components, results, strict=True))
    wide = tuple(cast(value, compute_dtype(value.dtype)) for value in values)
    states = tuple(substitute_params(each, wide) for each in definition.initial)
    return UserCombiner(definition.merge, definition.identity, finish), states


def result_operands(combiner: Combiner, position: int, dtypes: tuple[DType, ...]) -> frozenset[int]:
    """Positions of the combined values, which have these dtypes, that the result at ``position`` depends on."""
    if isinstance(combiner, UserCombiner):
        return _components_read(combiner.body, _params(combiner.finish[position : position + 1]))
    if not combiner.kind.combines:
        return frozenset(range(combiner.inputs))
    definition = combiner.kind.definition(dtypes)
    return _params(definition.initial[k] for k in _components_read(definition.merge, frozenset({position})))


def _components_read(merge: Sequence[Expr], components: frozenset[int]) -> frozenset[int]:
    """The components of states that ``components`` of merged states depend on."""
    found: frozenset[int] = frozenset()
    new = components
    while new:
        found |= new
        new = frozenset(k % len(merge) for k in _params(merge[k] for k in new)) - found
    return found


def _params(roots: Iterable[Expr]) -> frozenset[int]:
    return frozenset(node.position for node in walk(*roots) if isinstance(node, Param))
