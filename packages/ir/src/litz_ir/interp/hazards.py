"""Detection of conflicts between outer points of a kernel that run at the same time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from litz_ir.interp.encoding import Array
from litz_ir.plan.kernel import Kernel, ScanStore, Statement, Store
from litz_ir.scalar.expr import Indirect, loads
from litz_ir.scalar.node import Expr
from litz_ir.symbols.term import Size, Term


def stored_buffers(statement: Statement) -> tuple[str, ...]:
    """The buffers that a statement writes."""
    if isinstance(statement, Store):
        return (statement.buffer,)
    return tuple(name for name, _ in statement.targets) if isinstance(statement, ScanStore) else ()


def _loaded_buffers(statement: Statement) -> set[str]:
    """The buffers that a statement reads, including those read to compute an offset."""
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
    """The buffers through which one outer point may read or overwrite a value of another one.

    A buffer qualifies if several statements write it, if it is written and read, or if it shares memory with such a
    buffer. A single statement has no conflict with itself, since it visits its points in order.
    """
    statements = [statement for phase in kernel.phases for statement in phase.statements]
    writes = [name for s in statements for name in stored_buffers(s) if name in buffers]
    touched = [*writes, *(name for s in statements for name in _loaded_buffers(s) if name in buffers)]
    found: set[str] = set()
    for k, written in enumerate(writes):
        for other, name in enumerate(touched):
            if other != k and np.may_share_memory(buffers[written], buffers[name]):
                found |= {written, name}
    return frozenset(found)


@dataclass
class AccessLog:
    """Byte addresses that outer points read or wrote in some buffers."""

    names: frozenset[str]
    """Buffers to watch."""
    addresses: list[Array] = field(default_factory=list)
    """Addresses of accesses, by call of :meth:`record`."""
    owners: list[Array] = field(default_factory=list)
    """Number of the outer point of each access."""
    writes: list[Array] = field(default_factory=list)
    """True for each access that is a write."""

    def record(
        self, name: str, array: Array, offsets: Array, owners: Array, mask: Array | None, write: bool
    ) -> None:
        """Log accesses to elements ``offsets`` of ``array`` by the outer points ``owners``."""
        if name not in self.names:
            return
        broadcast = np.broadcast_arrays(offsets, owners, True if mask is None else mask)
        active = broadcast[2].reshape(-1)
        start = array.__array_interface__["data"][0]
        self.addresses.append(broadcast[0].reshape(-1)[active] * array.strides[0] + start)
        self.owners.append(broadcast[1].reshape(-1)[active])
        self.writes.append(np.full(int(active.sum()), write))

    def conflict(self) -> bool:
        """True if several outer points accessed one element and at least one of them wrote it."""
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
