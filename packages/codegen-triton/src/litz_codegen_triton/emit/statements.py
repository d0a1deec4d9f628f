"""What the statements of a kernel evaluate, read and write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from litz_ir.plan import Accumulate, Kernel, ScanStore, Statement, Store
from litz_ir.scalar import Expr, Load, Scalar, indirects_in, walk
from litz_ir.symbols import Size


def values_of(statement: Statement) -> tuple[Expr, ...]:
    """The expressions that a statement evaluates, those inside its offsets' indirect indices left out."""
    return (statement.value,) if isinstance(statement, Store) else statement.values


def targets_of(statement: Statement) -> tuple[tuple[str, Size], ...]:
    """(buffer, offset) of everything that a statement stores."""
    match statement:
        case Store():
            return ((statement.buffer, statement.offset),)
        case ScanStore():
            return statement.targets
        case Accumulate():
            return ()


def expressions(statement: Statement) -> tuple[Expr, ...]:
    """All that a statement evaluates: its values and what its offsets' indirect indices hold."""
    held = (atom.value for _, target in targets_of(statement) for atom in indirects_in(target))
    return (*values_of(statement), *held)


def terms_of(statement: Statement) -> Iterable[Size]:
    """The index terms of a statement."""
    for _, target in targets_of(statement):
        yield target
    for node in walk(*expressions(statement)):
        yield from node.terms


def is_map(statement: Statement) -> bool:
    """True for a statement that writes every point on its own."""
    return isinstance(statement, Store)


def accumulates(statements: Sequence[Statement]) -> bool:
    """True for statements of which none writes: what a loop of them reads, it may read long before."""
    return all(isinstance(statement, Accumulate) for statement in statements)


def can_flatten(kernel: Kernel) -> bool:
    """True when all axes may be treated as outer ones: one phase whose points do not depend on each other."""
    return len(kernel.phases) == 1 and all(map(is_map, kernel.phases[0].statements))


def independent_runs(statements: Sequence[Statement]) -> Iterator[Sequence[Statement]]:
    """Runs of statements, each of which reads nothing that an earlier one reads or writes and vice versa."""
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
    """The buffers and accumulated results that a statement reads or writes."""
    nodes = list(walk(*expressions(statement)))
    read: set[object] = {node.buffer for node in nodes if isinstance(node, Load)}
    read |= {node.name for node in nodes if isinstance(node, Scalar)}
    results = [name for name, _ in statement.results] if isinstance(statement, Accumulate) else []
    return read | {buffer for buffer, _ in targets_of(statement)} | set(results)
