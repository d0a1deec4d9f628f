"""When a kernel may write a result over the memory of one of its inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from litz_ir.plan.kernel import Kernel, Phase, Statement, Store
from litz_ir.scalar.expr import Expr, Load, indirects_in, walk
from litz_ir.symbols.term import Size
from litz_scheduler.loop_order import bodies_of, stores_of


@dataclass(frozen=True, slots=True)
class _Touched:
    """What a phase touches: the offsets at which it reads each buffer, and the statements that store to each."""

    loads: Mapping[str, set[Size]]
    stores: Mapping[str, list[Statement]]


class Overwriting:
    """What may be asked of a kernel, which is read through once."""

    def __init__(self, kernel: Kernel) -> None:
        self._parameters = kernel.parameters
        self._phases = tuple(map(_touched, kernel.phases))

    def allows(self, roots: Sequence[str], read: str, written: str) -> bool:
        """True when ``written`` may take the memory of ``read``; ``roots`` says whose memory each parameter is bound
        to.

        Both must be bound once, the one only read, the other only stored to; and the only phase that touches either
        must load ``read`` at the very offset at which it stores, since a phase computes all values before it stores
        any.
        """
        source, target = self._only(roots, read, "in"), self._only(roots, written, "out")
        if source is None or target is None:
            return False
        touching = [phase for phase in self._phases if target in phase.stores or source in phase.loads]
        if len(touching) != 1:
            return False
        stores = touching[0].stores.get(target, [])
        if len(stores) != 1 or not isinstance(stores[0], Store) or stores[0].mode != "set":
            return False
        return touching[0].loads.get(source, set()) <= {stores[0].offset}

    def _only(self, roots: Sequence[str], name: str, access: str) -> str | None:
        """The parameter that is bound to a memory, when it is one and has that access."""
        bound = [p for p, each in zip(self._parameters, roots, strict=True) if each == name]
        return bound[0].name if len(bound) == 1 and bound[0].access == access else None


def _touched(phase: Phase) -> _Touched:
    stores: dict[str, list[Statement]] = {}
    for statement in phase.statements:
        for buffer, _ in stores_of(statement):
            stores.setdefault(buffer, []).append(statement)
    return _Touched(_loads(phase.statements), stores)


def _loads(statements: Iterable[Statement]) -> dict[str, set[Size]]:
    """The offsets at which statements read each buffer, those read to find out where to store included."""
    bodies: list[Expr] = []
    for statement in statements:
        bodies.extend(bodies_of(statement))
        bodies.extend(atom.value for _, offset in stores_of(statement) for atom in indirects_in(offset))
    found: dict[str, set[Size]] = {}
    for node in walk(*bodies):
        if isinstance(node, Load):
            found.setdefault(node.buffer, set()).add(node.index[0])
    return found
