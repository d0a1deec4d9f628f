"""Places values in storages: over a dying input where a kernel allows it, else in dead memory, else in fresh memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from litz_ir.device import Device
from litz_ir.fused.decision import Decision
from litz_ir.loops.layout import span
from litz_ir.loops.nodes import Output
from litz_ir.passes.base import PassContext
from litz_ir.plan.kernel import Kernel
from litz_ir.plan.program import Allocate, CallStep, Free, Launch, Placement, RegionStep, Step, Storage
from litz_ir.symbols.table import SymbolTable
from litz_ir.symbols.term import Size, add, mul
from litz_scheduler.cost.traffic import estimate
from litz_scheduler.memory.inplace import may_overwrite
from litz_scheduler.memory.liveness import escaping, last_uses, root

NEAR = 8
"""Dead memory waits at most this many steps for a value of its size; then the host gets it back."""

ALIGNMENT = 64
"""Storages are a multiple of this many bytes: a cache line, and a full register."""

UNPLACED = "?"
"""The storage of a value that this pass is yet to place."""

FRESH = ("linear", "convolution")
"""Routines whose results lie in memory that nobody else has, so that a kernel may write over them."""

Slot = tuple[Size, Device]
"""Bytes and device: storages that agree in both are interchangeable."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Every placement, the storages, the steps with allocation in between, and the modelled peak in bytes: of storages
    and of what calls return, symbolic sizes at their hints."""

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
        self.results = {name for step in steps for name in _produced(step)}
        self.fresh = {
            name
            for step in steps
            if isinstance(step, CallStep) and step.target in FRESH
            for name in _produced(step)
            if placements[name].base is None and placements[name].type.layout.offset == 0
        }
        self.demand = self._demand()
        self.slots = {name: self._slot(name) for names in self.demand for name in names}
        self.soon = Counter(slot for names in self.demand[1:NEAR] for slot in self._reusing(names))
        self.storages: dict[str, Storage] = {}
        self.pool: dict[Slot, list[str]] = {}
        self.moved: set[str] = set()
        self.successors: dict[str, str] = {}
        self.steps: list[Step] = []
        self.live = self.peak = 0

    def run(self) -> MemoryPlan:
        for position, step in enumerate(self.given):
            for name in self.demand[position]:
                self._take(name, step, position)
            self.steps.append(step)
            self._arrive(step)
            for name in self.dying.get(position, ()):
                self._release(name)
            self._look_ahead(position)
            self._drain()
        return MemoryPlan(self.placements, tuple(self.storages.values()), tuple(self.steps), self.peak)

    # --- what is needed when -----------------------------------------------------------------------------

    def _demand(self) -> list[list[str]]:
        """Per step, the values that need memory there: a launch is the first to touch them."""
        seen: set[str] = set()
        found: list[list[str]] = [[] for _ in self.given]
        for position, step in enumerate(self.given):
            if not isinstance(step, Launch):
                continue
            for name in (root(buffer, self.placements) for buffer in step.buffers):
                if name not in seen and self.placements[name].storage == UNPLACED:
                    seen.add(name)
                    found[position].append(name)
        return found

    def _reusing(self, names: Sequence[str]) -> list[Slot]:
        return [self.slots[name] for name in names if name not in self.kept]

    def _look_ahead(self, position: int) -> None:
        """Let ``soon`` count the slots wanted in the :data:`NEAR` steps after ``position``."""
        if position:
            self.soon.subtract(self._reusing(self.demand[position]))
        if position + NEAR < len(self.given):
            self.soon.update(self._reusing(self.demand[position + NEAR]))

    def _slot(self, name: str) -> Slot:
        type_ = self.placements[name].type
        nbytes = mul(span(type_.shape, type_.layout), type_.dtype.itemsize)
        rounded = mul(add(nbytes, ALIGNMENT - 1) // ALIGNMENT, ALIGNMENT)
        return rounded, type_.device

    # --- taking and giving back ---------------------------------------------------------------------------

    def _take(self, name: str, step: Step, position: int) -> None:
        slot = self.slots[name]
        storage, reason = None, "memory.fresh"
        if name not in self.kept:
            other = self._dying_input(name, slot, step, position)
            if other is not None:
                self.moved.add(other)
                storage, reason = self.placements[other].storage, "memory.inplace"
                if storage is None:
                    self.successors[name] = other
                    self.placements[name] = replace(self.placements[name], storage=None, base=other)
                    self.context.decide(Decision("memory", name, "place", reason, slot[0], f"in %{other}"))
                    return
            elif self.pool.get(slot):
                storage, reason = self.pool[slot].pop(), "memory.reuse"
        if storage is None:
            storage, reason = f"s{len(self.storages)}", "memory.fresh"
            self.storages[storage] = Storage(storage, *slot)
            self.steps.append(Allocate(storage))
            self._grow(slot[0])
        self.placements[name] = replace(self.placements[name], storage=storage)
        self.context.decide(Decision("memory", name, "place", reason, slot[0], f"in {storage}"))

    def _dying_input(self, name: str, slot: Slot, step: Step, position: int) -> str | None:
        """An input that dies here and that the kernel reads only where, and before, it writes ``name``."""
        if not isinstance(step, Launch):
            return None
        for other in self.dying.get(position, ()):
            placement = self.placements.get(other)
            if placement is None or other in self.kept or other in self.moved:
                continue
            if placement.storage in (None, UNPLACED):
                fits = other in self.fresh and self._slot(other) == slot
            else:
                assert placement.storage is not None
                fits = (self.storages[placement.storage].nbytes, placement.type.device) == slot
            same_width = placement.type.dtype.itemsize == self.placements[name].type.dtype.itemsize
            roots = [root(buffer, self.placements) for buffer in step.buffers]
            if fits and same_width and may_overwrite(self.kernels[step.kernel], roots, other, name):
                return other
        return None

    def _arrive(self, step: Step) -> None:
        """Count the memory of what a call returns."""
        for name in _produced(step):
            if self.placements[name].base is None:
                self._grow(self._slot(name)[0])

    def _grow(self, nbytes: Size) -> None:
        self.live += estimate(nbytes, self.symbols)
        self.peak = max(self.peak, self.live)

    def _release(self, name: str) -> None:
        placement = self.placements.get(name)
        if placement is None or name in self.kept or name in self.moved:
            return
        if name in self.successors:
            name = self.successors[name]
            placement = self.placements[name]
        if placement.storage is not None:
            storage = self.storages[placement.storage]
            self.pool.setdefault((storage.nbytes, storage.device), []).append(storage.name)
        elif placement.base is None and name in self.results:
            self.steps.append(Free(name))
            self.live -= estimate(self._slot(name)[0], self.symbols)

    def _drain(self) -> None:
        """Give back the dead memory that nothing soon to come has the size of."""
        for slot, names in list(self.pool.items()):
            while len(names) > self.soon[slot]:
                self.steps.append(Free(names.pop()))
                self.live -= estimate(slot[0], self.symbols)
            if not names:
                del self.pool[slot]


def _produced(step: Step) -> tuple[str, ...]:
    """What a call or region hands over: the plan drops it after its last use. What is kept was there before."""
    if isinstance(step, CallStep):
        return tuple(name for name in step.results if name is not None)
    return step.results if isinstance(step, RegionStep) and step.kind != "keep" else ()
