"""When a kernel may write a result over the memory of one of its inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from litz_ir.loops import Axis
from litz_ir.plan import Accumulate, Kernel, Phase, Statement, Store
from litz_ir.scalar import Expr, Load, Masked, NestedReduction, Scalar, indirects_in, walk
from litz_ir.symbols import Size, substitute, symbol
from litz_scheduler.loop_order import bodies_of, stores_of


@dataclass(frozen=True, slots=True)
class _Touched:
    """What a phase of these axes and statements touches: the offsets at which it reads each buffer, and the statements
    that store to each."""

    axes: tuple[Axis, ...]
    statements: tuple[Statement, ...]
    loads: Mapping[str, set[Size]]
    stores: Mapping[str, list[Statement]]

    def readers(self, source: str) -> list[Statement]:
        """The statements that load ``source``."""
        return [statement for statement in self.statements if source in _loads((statement,))]


class InPlaceReuse:
    """What may be asked of a kernel, which is read through once. ``threads``: threads have a tile together, and the one
    that stores an element need not be the one that loads it. It waits for nothing but what it stores."""

    def __init__(self, kernel: Kernel, *, threads: bool) -> None:
        self._threads = threads
        self._parameters = kernel.parameters
        self._phases = tuple(map(_touched, kernel.phases))
        self._parts = tuple(InPlaceReuse(part.kernel, threads=threads) for part in kernel.subkernels)
        self._bindings = tuple(part.invocations for part in kernel.subkernels)

    def allows(self, roots: Sequence[str], read: str, written: str) -> bool:
        """True when ``written`` may take the memory of ``read``; ``roots`` says whose memory each parameter is bound
        to.

        Both must be bound once, the one only read, the other only stored to; and the phase that stores must be the last
        that touches either, and load ``read`` at the very offset at which it stores. Phases before it must read within
        an outer point what that point stores. Where threads have tiles together, what is stored must be computed from
        every element of ``read`` that is loaded. Of a pack one loop must be the only one that touches them.
        """
        if self._parts:
            return self._allows_one(roots, read, written)
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
        if not all(_over(final, phase, source) <= {offset} for phase in before):
            return False
        return not self._threads or self._waits(stores[0], source)

    def _waits(self, store: Store, source: str) -> bool:
        """True where what a statement stores is computed from all elements of ``source`` that are loaded, by itself or
        by sums that it knows of. A phase loads an element once, whoever wants it there, but for loops and conditions
        around that."""
        known: list[Statement] = [store]
        wanted = _scalars(store)
        for phase in reversed(self._phases):
            for statement in phase.statements:
                if isinstance(statement, Accumulate) and any(name in wanted for name, _ in statement.results):
                    known.append(statement)
                    wanted |= _scalars(statement)
            readers = phase.readers(source)
            waited = [statement in known for statement in readers]
            if not all(waited) and (not any(waited) or _loads_inside(readers, source)):
                return False
        return True

    def _allows_one(self, roots: Sequence[str], read: str, written: str) -> bool:
        memory = dict(zip((parameter.name for parameter in self._parameters), roots, strict=True))
        found = []
        for part, bindings in zip(self._parts, self._bindings, strict=True):
            for binding in bindings:
                own = [memory[name] for name in binding.buffers]
                if read in own or written in own:
                    found.append((part, own))
        return len(found) == 1 and found[0][0].allows(found[0][1], read, written)

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


def _scalars(statement: Statement) -> set[str]:
    """The results of earlier phases that a statement reads."""
    return {node.name for node in walk(*_evaluated(statement)) if isinstance(node, Scalar)}


def _loads_inside(statements: Iterable[Statement], source: str) -> bool:
    """True where a buffer is loaded inside of a loop of its own, or under a condition."""
    nodes = walk(*(body for statement in statements for body in _evaluated(statement)))
    inside = walk(*(node.body for node in nodes if isinstance(node, NestedReduction | Masked)))
    return any(isinstance(node, Load) and node.buffer == source for node in inside)


def _touched(phase: Phase) -> _Touched:
    stores: dict[str, list[Statement]] = {}
    for statement in phase.statements:
        for buffer, _ in stores_of(statement):
            stores.setdefault(buffer, []).append(statement)
    return _Touched(phase.axes, phase.statements, _loads(phase.statements), stores)


def _loads(statements: Iterable[Statement]) -> dict[str, set[Size]]:
    """The offsets at which statements read each buffer, those read to find out where to store included."""
    bodies = [body for statement in statements for body in _evaluated(statement)]
    found: dict[str, set[Size]] = {}
    for node in walk(*bodies):
        if isinstance(node, Load):
            found.setdefault(node.buffer, set()).add(node.index[0])
    return found


def _evaluated(statement: Statement) -> tuple[Expr, ...]:
    """All that a statement evaluates: its bodies, and where it stores."""
    held = (atom.value for _, offset in stores_of(statement) for atom in indirects_in(offset))
    return (*bodies_of(statement), *held)
