"""In-place reuse: kernels that may write a result to the memory of one of their inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from litz_ir.loops import Axis
from litz_ir.plan import Accumulate, Kernel, Phase, Statement, Store
from litz_ir.scalar import Expr, Load, Masked, NestedReduction, Scalar, indirects_in, walk
from litz_ir.symbols import Size, substitute, symbol
from litz_scheduler.analysis.loop_order import bodies_of, stores_of


@dataclass(frozen=True, slots=True)
class _PhaseAccesses:
    """The memory accesses of a phase."""

    axes: tuple[Axis, ...]
    """The axes of the phase."""
    statements: tuple[Statement, ...]
    """Its statements."""
    loads: Mapping[str, set[Size]]
    """The offsets at which it loads each buffer."""
    stores: Mapping[str, list[Statement]]
    """The statements that store to each buffer."""

    def readers(self, source: str) -> list[Statement]:
        """Return the statements that load ``source``."""
        return [statement for statement in self.statements if source in _loads((statement,))]


class InPlaceReuse:
    """In-place reuse within one kernel, which is analysed once and asked for several buffers.

    ``threads`` is true on a device where the threads of a block compute a tile in common, so that one thread may
    store an element that another one loads. The only order between such threads is that a value is computed before it
    is stored.
    """

    def __init__(self, kernel: Kernel, *, threads: bool) -> None:
        self._threads = threads
        self._parameters = kernel.parameters
        self._phases = tuple(map(_phase_accesses, kernel.phases))
        self._subkernels = tuple(InPlaceReuse(each.kernel, threads=threads) for each in kernel.subkernels)
        self._invocations = tuple(each.invocations for each in kernel.subkernels)

    def allows(self, roots: Sequence[str], read: str, written: str) -> bool:
        """Return True when ``written`` may use the memory of ``read``.

        ``roots`` gives the memory root bound to each parameter. Each of the two must be bound to one parameter,
        ``read`` to an input and ``written`` to an output. The phase that stores must be the last one that accesses
        either, and load ``read`` at the offset at which it stores. Earlier phases must load, at each outer point,
        only what that point stores. With ``threads``, the stored value must depend on every element of ``read`` that
        is loaded. In a horizontally fused kernel exactly one invocation may access them.
        """
        if self._subkernels:
            return self._subkernel_allows(roots, read, written)
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
        if not all(_aligned_loads(final, phase, source) <= {offset} for phase in before):
            return False
        return not self._threads or self._depends_on_all(stores[0], source)

    def _depends_on_all(self, store: Store, source: str) -> bool:
        """Return True where a stored value depends on all loaded elements of ``source``.

        A dependence through the results of reductions counts. A phase loads an element once for all statements that
        use it, except inside nested reductions and masked bodies.
        """
        known: list[Statement] = [store]
        wanted = _scalars(store)
        for phase in reversed(self._phases):
            for statement in phase.statements:
                if isinstance(statement, Accumulate) and any(name in wanted for name, _ in statement.results):
                    known.append(statement)
                    wanted |= _scalars(statement)
            readers = phase.readers(source)
            depends = [statement in known for statement in readers]
            if not all(depends) and (not any(depends) or _loads_inside(readers, source)):
                return False
        return True

    def _subkernel_allows(self, roots: Sequence[str], read: str, written: str) -> bool:
        """Return True where one invocation alone accesses the two buffers, and its subkernel allows the reuse."""
        memory = dict(zip((parameter.name for parameter in self._parameters), roots, strict=True))
        found = []
        for subkernel, invocations in zip(self._subkernels, self._invocations, strict=True):
            for invocation in invocations:
                own = [memory[name] for name in invocation.buffers]
                if read in own or written in own:
                    found.append((subkernel, own))
        return len(found) == 1 and found[0][0].allows(found[0][1], read, written)

    def _only(self, roots: Sequence[str], name: str, access: str) -> str | None:
        """Return the single parameter bound to a memory root, where it has that access; else None."""
        bound = [p for p, each in zip(self._parameters, roots, strict=True) if each == name]
        return bound[0].name if len(bound) == 1 and bound[0].access == access else None


def _aligned_loads(final: _PhaseAccesses, phase: _PhaseAccesses, source: str) -> set[Size | None]:
    """Return the offsets at which ``phase`` loads a buffer, over the axes of ``final``.

    The offset is None where the two phases have axes of different sizes.
    """
    if [axis.size for axis in phase.axes] != [axis.size for axis in final.axes]:
        return {None}
    names = {own.name: symbol(axis.name) for own, axis in zip(phase.axes, final.axes, strict=True)}
    return {substitute(offset, names) for offset in phase.loads.get(source, set())}


def _scalars(statement: Statement) -> set[str]:
    """Return the results of earlier phases that a statement reads."""
    return {node.name for node in walk(*_evaluated(statement)) if isinstance(node, Scalar)}


def _loads_inside(statements: Iterable[Statement], source: str) -> bool:
    """Return True where a buffer is loaded inside a nested reduction or a masked body."""
    nodes = walk(*(body for statement in statements for body in _evaluated(statement)))
    inside = walk(*(node.body for node in nodes if isinstance(node, NestedReduction | Masked)))
    return any(isinstance(node, Load) and node.buffer == source for node in inside)


def _phase_accesses(phase: Phase) -> _PhaseAccesses:
    """Return the memory accesses of a phase."""
    stores: dict[str, list[Statement]] = {}
    for statement in phase.statements:
        for buffer, _ in stores_of(statement):
            stores.setdefault(buffer, []).append(statement)
    return _PhaseAccesses(phase.axes, phase.statements, _loads(phase.statements), stores)


def _loads(statements: Iterable[Statement]) -> dict[str, set[Size]]:
    """Return the offsets at which statements load each buffer, loads in store offsets included."""
    bodies = [body for statement in statements for body in _evaluated(statement)]
    found: dict[str, set[Size]] = {}
    for node in walk(*bodies):
        if isinstance(node, Load):
            found.setdefault(node.buffer, set()).add(node.index[0])
    return found


def _evaluated(statement: Statement) -> tuple[Expr, ...]:
    """Return all expressions that a statement evaluates: its bodies, and the indirect indices of its stores."""
    indices = (atom.value for _, offset in stores_of(statement) for atom in indirects_in(offset))
    return (*bodies_of(statement), *indices)
