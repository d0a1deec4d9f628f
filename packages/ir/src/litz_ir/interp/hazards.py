"""Whether the outer points of a kernel run may have disturbed each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from litz_ir.interp.encoding import Array
from litz_ir.plan.kernel import Kernel, ScanStore, Statement, Store
from litz_ir.scalar.expr import Expr, Indirect, loads
from litz_ir.symbols.term import Size, Term


def stored_buffers(statement: Statement) -> tuple[str, ...]:
    """The buffers that a statement writes."""
    if isinstance(statement, Store):
        return (statement.buffer,)
    return tuple(name for name, _ in statement.targets) if isinstance(statement, ScanStore) else ()


def loaded_buffers(statement: Statement) -> set[str]:
    """The buffers that a statement reads, those read to find an offset included."""
    values, offsets = _parts(statement)
    values += tuple(atom.value for offset in offsets for atom in _atoms(offset))
    return {load.buffer for load in loads(*values)}


def _parts(statement: Statement) -> tuple[tuple[Expr, ...], tuple[Size, ...]]:
    if isinstance(statement, Store):
        return (statement.value,), (statement.offset,)
    if isinstance(statement, ScanStore):
        return statement.values, tuple(offset for _, offset in statement.targets)
    return statement.values, ()


def _atoms(offset: Size) -> Iterator[Indirect]:
    if isinstance(offset, Term):
        yield from (atom for atom in offset.atoms() if isinstance(atom, Indirect))


def racy_buffers(kernel: Kernel, buffers: Mapping[str, Array]) -> frozenset[str]:
    """The buffers through which one outer point could meet what another one wrote.

    A buffer qualifies when it is written by several statements, or written and read, or shares memory with such a one.
    A single statement cannot disturb itself: it serves its points in order.
    """
    statements = [statement for phase in kernel.phases for statement in phase.statements]
    writes = [name for s in statements for name in stored_buffers(s) if name in buffers]
    touched = [*writes, *(name for s in statements for name in loaded_buffers(s) if name in buffers)]
    found: set[str] = set()
    for k, written in enumerate(writes):
        for other, name in enumerate(touched):
            if other != k and np.may_share_memory(buffers[written], buffers[name]):
                found |= {written, name}
    return frozenset(found)


@dataclass
class AccessLog:
    """Which outer point read or wrote which byte addresses, of the buffers under suspicion."""

    names: frozenset[str]
    addresses: list[Array] = field(default_factory=list)
    owners: list[Array] = field(default_factory=list)
    writes: list[Array] = field(default_factory=list)

    def record(
        self, name: str, array: Array, offsets: Array, owners: Array, mask: Array | None, write: bool
    ) -> None:
        """Note accesses to elements ``offsets`` of ``array``, by the outer points ``owners``."""
        if name not in self.names:
            return
        parts = np.broadcast_arrays(offsets, owners, True if mask is None else mask)
        kept = parts[2].reshape(-1)
        start = array.__array_interface__["data"][0]
        self.addresses.append(parts[0].reshape(-1)[kept] * array.strides[0] + start)
        self.owners.append(parts[1].reshape(-1)[kept])
        self.writes.append(np.full(int(kept.sum()), write))

    def conflict(self) -> bool:
        """True when an element that was written was touched by more than one outer point."""
        if not self.addresses:
            return False
        addresses, owners = np.concatenate(self.addresses), np.concatenate(self.owners)
        if not len(addresses):
            return False
        order = np.argsort(addresses, kind="stable")
        addresses, owners, writes = addresses[order], owners[order], np.concatenate(self.writes)[order]
        starts = np.flatnonzero(np.concatenate([[True], addresses[1:] != addresses[:-1]]))
        several = np.minimum.reduceat(owners, starts) != np.maximum.reduceat(owners, starts)
        return bool((several & np.logical_or.reduceat(writes, starts)).any())
