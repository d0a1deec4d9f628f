"""When a kernel may write a result over the memory of one of its inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from litz_ir.loops.nodes import Axis
from litz_ir.plan.kernel import Kernel, Phase, Statement, Store
from litz_ir.scalar.expr import Expr, Load, indirects_in, walk
from litz_ir.symbols.term import Size, substitute, symbol
from litz_scheduler.loop_order import bodies_of, stores_of


@dataclass(frozen=True, slots=True)
class _Touched:
    """What a phase over these axes touches: the offsets at which it reads each buffer, and the statements that store to
    each."""

    axes: tuple[Axis, ...]
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

        Both must be bound once, the one only read, the other only stored to; and the phase that stores must be the last
        that touches either, and load ``read`` at the very offset at which it stores, since a phase computes all values
        of a point before it stores any. Phases before it must read within an outer point what that point stores.
        """
        source, target = self._only(roots, read, "in"), self._only(roots, written, "out")
        if source is None or target is None:
            return False
        touching = [phase for phase in self._phases if target in phase.stores or source in phase.loads]
        if not touching or any(target in phase.stores for phase in touching[:-1]):
            return False
        *before, final = touching
        stores = final.stores.get(target, [])
        if len(stores) != 1 or not isinstance(stores[0], Store) or stores[0].mode != "set":
            return False
        offset = stores[0].offset
        if not final.loads.get(source, set()) <= {offset}:
            return False
        return all(_over(final, phase, source) <= {offset} for phase in before)

    def _only(self, roots: Sequence[str], name: str, access: str) -> str | None:
        """The parameter that is bound to a memory, when it is one and has that access."""
        bound = [p for p, each in zip(self._parameters, roots, strict=True) if each == name]
        return bound[0].name if len(bound) == 1 and bound[0].access == access else None


def _over(final: _Touched, phase: _Touched, source: str) -> set[Size | None]:
    """The offsets at which ``phase`` reads a buffer, as offsets over the axes of ``final``; None where those are not of
    the same sizes."""
    if [axis.size for axis in phase.axes] != [axis.size for axis in final.axes]:
        return {None}
    names = {own.name: symbol(axis.name) for own, axis in zip(phase.axes, final.axes, strict=True)}
    return {substitute(offset, names) for offset in phase.loads.get(source, set())}


def _touched(phase: Phase) -> _Touched:
    stores: dict[str, list[Statement]] = {}
    for statement in phase.statements:
        for buffer, _ in stores_of(statement):
            stores.setdefault(buffer, []).append(statement)
    return _Touched(phase.axes, _loads(phase.statements), stores)


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
