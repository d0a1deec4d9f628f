"""Accessors of kernel statements: the values that they evaluate, load and store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from litz_ir.plan import Accumulate, Kernel, ScanStore, Statement, Store
from litz_ir.scalar import Expr, Load, Scalar, indirects_in, loads, walk
from litz_ir.symbols import Size


def values_of(statement: Statement) -> tuple[Expr, ...]:
    """Return the expressions that a statement evaluates, without those in indirect indices of its offsets."""
    return (statement.value,) if isinstance(statement, Store) else statement.values


def targets_of(statement: Statement) -> tuple[tuple[str, Size], ...]:
    """Return the buffer and offset of each store of a statement."""
    match statement:
        case Store():
            return ((statement.buffer, statement.offset),)
        case ScanStore():
            return statement.targets
        case Accumulate():
            return ()


def expressions(statement: Statement) -> tuple[Expr, ...]:
    """Return all expressions that a statement evaluates: its values, and the indirect indices of its offsets."""
    indices = (atom.value for _, target in targets_of(statement) for atom in indirects_in(target))
    return (*values_of(statement), *indices)


def terms_of(statement: Statement) -> Iterable[Size]:
    """Yield the index terms of a statement's offsets and expressions."""
    for _, target in targets_of(statement):
        yield target
    for node in walk(*expressions(statement)):
        yield from node.terms


def _is_map(statement: Statement) -> bool:
    """True for a statement whose points do not depend on each other."""
    return isinstance(statement, Store)


def can_prefetch(statements: Sequence[Statement]) -> bool:
    """True for statements that accumulate and store to no buffer that they load, so that loads of later iterations can
    be issued early."""
    loaded = {load.buffer for each in statements for load in loads(*expressions(each))}
    stores = [each for each in statements if not isinstance(each, Accumulate)]
    return len(stores) < len(statements) and all(
        isinstance(each, Store) and each.mode == "set" and each.buffer not in loaded for each in stores
    )


def can_flatten(kernel: Kernel) -> bool:
    """True for a kernel whose axes can all be treated as outer ones: one phase, with independent points."""
    return len(kernel.phases) == 1 and all(map(_is_map, kernel.phases[0].statements))


def independent_runs(statements: Sequence[Statement]) -> Iterator[Sequence[Statement]]:
    """Divide statements into runs of consecutive ones that share no buffer and no accumulated result."""
    touched = [_touched(statement) for statement in statements]
    last = {each: k for k, own in enumerate(touched) for each in own}
    start = end = 0
    for k, own in enumerate(touched):
        if start < k and end < k:
            yield statements[start:k]
            start = k
        end = max([end, k, *(last[each] for each in own)])
    yield statements[start:]


def _touched(statement: Statement) -> set[object]:
    """Return the buffers and accumulated results that a statement reads or writes."""
    nodes = list(walk(*expressions(statement)))
    read: set[object] = {node.buffer for node in nodes if isinstance(node, Load)}
    read |= {node.name for node in nodes if isinstance(node, Scalar)}
    results = [name for name, _ in statement.results] if isinstance(statement, Accumulate) else []
    return read | {buffer for buffer, _ in targets_of(statement)} | set(results)
