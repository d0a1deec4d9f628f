"""Loads that a pointwise phase can issue before it computes, some of them before the phases that reduce.

Correctly rounded square roots and quotients have a slow path for special operands. It is a branch, and the assembler
moves no load across a branch: a load after one in the text would leave memory idle until then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from litz_ir.scalar import Expr, Load, Masked, NestedReduction, Op, Scalar, indirects_in, walk


def early_loads(bodies: Iterable[Expr]) -> tuple[Load, ...]:
    """Return the loads that depend on no mask and on no other load, in the order of their uses."""
    return tuple(dict.fromkeys(_loads(bodies)))


def _loads(bodies: Iterable[Expr], indirect: bool = False) -> Iterator[Load]:
    visited: set[Expr] = set()
    stack = list(reversed(list(bodies)))
    while stack:
        expr = stack.pop()
        if expr in visited:
            continue
        visited.add(expr)
        match expr:
            case Load() if indirect or not any(map(indirects_in, expr.index)):
                yield expr
            case Masked():
                stack += [expr.other, expr.cond]
            case Op():
                stack += reversed(expr.args)


def independent_loads(bodies: Iterable[Expr]) -> tuple[Load, ...]:
    """Return the loads that depend on no mask and on no result of another phase, in the order of their uses; their
    indices may be loaded.

    A row that is short is reduced in the time of one access to memory. Two that follow it, such as those of a class and
    of its score, would take twice as long again.
    """
    return tuple(load for load in dict.fromkeys(_loads(bodies, indirect=True)) if _is_independent(load))


def _is_independent(load: Load) -> bool:
    """True for a load whose index depends on loads alone."""
    atoms = [atom for term in load.index for atom in indirects_in(term)]
    return not any(
        isinstance(each, Scalar | Masked | NestedReduction) for each in walk(*(a.value for a in atoms))
    )
