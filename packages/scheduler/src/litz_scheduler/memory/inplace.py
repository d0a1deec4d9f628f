"""When a kernel may write a result over the memory of one of its inputs."""

from __future__ import annotations

from collections.abc import Sequence

from litz_ir.plan.kernel import Kernel, Phase, ScanStore, Store
from litz_ir.scalar.expr import Load, indirects_in, walk
from litz_ir.symbols.term import Size
from litz_scheduler.loop_order import bodies_of, stores_of


def may_overwrite(kernel: Kernel, roots: Sequence[str], read: str, written: str) -> bool:
    """True when ``written`` may take the memory of ``read``; ``roots`` says whose memory each parameter is bound to.

    Both must be bound once, the one only read, the other only stored to; and the only phase that touches either must
    load ``read`` at the very offset at which it stores, since a phase computes all values before it stores any.
    """
    source, target = _only(kernel, roots, read, "in"), _only(kernel, roots, written, "out")
    if source is None or target is None:
        return False
    touching = [p for p in kernel.phases if target in _stored(p) or _loads(p, source)]
    if len(touching) != 1:
        return False
    stores = [s for s in touching[0].statements if target in _stored(Phase((), (s,)))]
    if len(stores) != 1 or not isinstance(stores[0], Store) or stores[0].mode != "set":
        return False
    return _loads(touching[0], source) <= {stores[0].offset}


def _only(kernel: Kernel, roots: Sequence[str], name: str, access: str) -> str | None:
    """The parameter that is bound to a memory, when it is one and has that access."""
    bound = [p for p, each in zip(kernel.parameters, roots, strict=True) if each == name]
    return bound[0].name if len(bound) == 1 and bound[0].access == access else None


def _stored(phase: Phase) -> set[str]:
    return {buffer for statement in phase.statements for buffer, _ in stores_of(statement)}


def _loads(phase: Phase, buffer: str) -> set[Size]:
    """The offsets at which a phase reads a buffer, those read to find out where to store included."""
    bodies = [body for statement in phase.statements for body in bodies_of(statement)]
    for statement in phase.statements:
        for _, offset in stores_of(statement) if isinstance(statement, Store | ScanStore) else ():
            bodies.extend(atom.value for atom in indirects_in(offset))
    return {node.index[0] for node in walk(*bodies) if isinstance(node, Load) and node.buffer == buffer}
