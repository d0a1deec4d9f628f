"""Places values in storages: over a dying input where a kernel allows it, else in dead memory, else in fresh memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from litz_ir.device import Device
from litz_ir.fused.decision import Decision
from litz_ir.loops.layout import span
from litz_ir.loops.nodes import Output
from litz_ir.passes.base import PassContext
from litz_ir.plan.kernel import Kernel, Phase, Store
from litz_ir.plan.program import Allocate, CallStep, Free, Launch, Placement, RegionStep, Step, Storage
from litz_ir.scalar.expr import Load, walk
from litz_ir.symbols.table import SymbolTable
from litz_ir.symbols.term import Size, add, mul
from litz_scheduler.cost.traffic import estimate
from litz_scheduler.loop_order import bodies_of
from litz_scheduler.memory.liveness import escaping, last_uses, root

NEAR = 8
"""Dead memory waits at most this many steps for a value of its size; then the host gets it back."""

ALIGNMENT = 64
"""Storages are a multiple of this many bytes: a cache line, and a full register."""

UNPLACED = "?"
"""The storage of a value that this pass is yet to place."""

Slot = tuple[Size, Device]


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Every placement, the storages, the steps with allocation in between, and the modelled peak in bytes."""

    placements: dict[str, Placement]
    storages: tuple[Storage, ...]
    steps: tuple[Step, ...]
    peak: int


def place(
    steps: Sequence[Step],
    placements: Mapping[str, Placement],
    outputs: tuple[Output, ...],
    kernels: Mapping[str, Kernel],
    symbols: SymbolTable,
    context: PassContext,
) -> MemoryPlan:
    """Give a storage to every value whose placement says :data:`UNPLACED`, in the order of the steps."""
    return _Placer(steps, placements, outputs, kernels, symbols, context).run()


class _Placer:
    def __init__(
        self,
        steps: Sequence[Step],
        placements: Mapping[str, Placement],
        outputs: tuple[Output, ...],
        kernels: Mapping[str, Kernel],
        symbols: SymbolTable,
        context: PassContext,
    ) -> None:
        self.given = steps
        self.placements = dict(placements)
        self.kernels = kernels
        self.symbols = symbols
        self.context = context
        self.kept = escaping(outputs, placements)
        self.dying: dict[int, list[str]] = {}
        for name, position in last_uses(steps, placements).items():
            self.dying.setdefault(position, []).append(name)
        self.results = {n for step in steps for n in _produced(step)}
        self.demand = self._demand()
        self.storages: dict[str, Storage] = {}
        self.pool: dict[Slot, list[str]] = {}
        self.moved: set[str] = set()
        self.steps: list[Step] = []
        self.live = self.peak = 0

    def run(self) -> MemoryPlan:
        for position, step in enumerate(self.given):
            for name in self.demand.get(position, ()):
                self._take(name, step, position)
            self.steps.append(step)
            for name in self.dying.get(position, ()):
                self._release(name, position)
            self._drain(position)
        return MemoryPlan(self.placements, tuple(self.storages.values()), tuple(self.steps), self.peak)

    def _demand(self) -> dict[int, list[str]]:
        """Per step, the values that need memory there: a launch is the first to touch them."""
        seen: set[str] = set()
        found: dict[int, list[str]] = {}
        for position, step in enumerate(self.given):
            if not isinstance(step, Launch):
                continue
            for name in (root(buffer, self.placements) for buffer in step.buffers):
                if name not in seen and self.placements[name].storage == UNPLACED:
                    seen.add(name)
                    found.setdefault(position, []).append(name)
        return found

    def _slot(self, name: str) -> Slot:
        type_ = self.placements[name].type
        nbytes = mul(span(type_.shape, type_.layout), type_.dtype.itemsize)
        rounded = mul(add(nbytes, ALIGNMENT - 1) // ALIGNMENT, ALIGNMENT)
        return rounded, type_.device

    def _take(self, name: str, step: Step, position: int) -> None:
        slot = self._slot(name)
        storage, reason = None, "memory.fresh"
        if name not in self.kept:
            storage, reason = self._over_input(name, slot, step, position), "memory.inplace"
            if storage is None and self.pool.get(slot):
                storage, reason = self.pool[slot].pop(), "memory.reuse"
        if storage is None:
            storage, reason = f"s{len(self.storages)}", "memory.fresh"
            self.storages[storage] = Storage(storage, *slot)
            self.steps.append(Allocate(storage))
            self.live += estimate(slot[0], self.symbols)
            self.peak = max(self.peak, self.live)
        self.placements[name] = replace(self.placements[name], storage=storage)
        self.context.decide(Decision("memory", name, "place", reason, slot[0], f"in {storage}"))

    def _over_input(self, name: str, slot: Slot, step: Step, position: int) -> str | None:
        """The storage of an input that dies here and that the kernel reads only where, and before, it writes."""
        if not isinstance(step, Launch):
            return None
        kernel = self.kernels[step.kernel]
        written = _parameter(kernel, step, name)
        for other in self.dying.get(position, ()):
            placement = self.placements.get(other)
            if (
                placement is None
                or placement.storage in (None, UNPLACED)
                or other in self.kept
                or other in self.moved
            ):
                continue
            assert placement.storage is not None
            read = _parameter(kernel, step, other)
            fits = (self.storages[placement.storage].nbytes, placement.type.device) == slot
            same_width = placement.type.dtype.itemsize == self.placements[name].type.dtype.itemsize
            if (
                fits
                and same_width
                and read is not None
                and written is not None
                and _in_step(kernel, read, written)
            ):
                self.moved.add(other)
                return placement.storage
        return None

    def _release(self, name: str, position: int) -> None:
        placement = self.placements.get(name)
        if placement is None or name in self.kept or name in self.moved:
            return
        if placement.storage is None:
            if placement.base is None and name in self.results:
                self.steps.append(Free(name))
            return
        storage = self.storages[placement.storage]
        slot = (storage.nbytes, storage.device)
        self.pool.setdefault(slot, []).append(storage.name)

    def _drain(self, position: int) -> None:
        """Give back the dead memory that nothing soon to come has the size of."""
        for slot, names in self.pool.items():
            soon = sum(
                1
                for later in range(position + 1, position + 1 + NEAR)
                for name in self.demand.get(later, ())
                if name not in self.kept and self._slot(name) == slot
            )
            while len(names) > soon:
                self.steps.append(Free(names.pop()))
                self.live -= estimate(slot[0], self.symbols)


def _produced(step: Step) -> tuple[str, ...]:
    """What a call or region hands over: the plan drops it after its last use."""
    if isinstance(step, CallStep):
        return tuple(name for name in step.results if name is not None)
    return step.results if isinstance(step, RegionStep) else ()


def _parameter(kernel: Kernel, launch: Launch, name: str) -> str | None:
    """The parameter that a buffer is bound to, when it is bound to exactly one."""
    bound = [p.name for p, buffer in zip(kernel.parameters, launch.buffers, strict=True) if buffer == name]
    return bound[0] if len(bound) == 1 else None


def _in_step(kernel: Kernel, read: str, written: str) -> bool:
    """True when the only phase that stores to ``written`` loads ``read`` at that very offset, and no other does."""
    touching = [p for p in kernel.phases if _stores(p, written) or _loads(p, read)]
    if len(touching) != 1:
        return False
    stores, offsets = _stores(touching[0], written), _loads(touching[0], read)
    return len(stores) == 1 and stores[0].mode == "set" and offsets <= {stores[0].offset}


def _stores(phase: Phase, buffer: str) -> list[Store]:
    return [s for s in phase.statements if isinstance(s, Store) and s.buffer == buffer]


def _loads(phase: Phase, buffer: str) -> set[Size]:
    bodies = [body for statement in phase.statements for body in bodies_of(statement)]
    return {node.index[0] for node in walk(*bodies) if isinstance(node, Load) and node.buffer == buffer}
