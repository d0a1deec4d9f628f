"""What needs memory, from when until when: values that kernels write, each over a dying input where that is allowed."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from litz_ir.device import Device
from litz_ir.loops import Output, span
from litz_ir.plan import CallStep, Kernel, Launch, Placement, RegionStep, Step, memory_root, touched_by
from litz_ir.symbols import Size, add, mul
from litz_scheduler.memory.inplace import InPlaceReuse
from litz_scheduler.memory.liveness import escaping, last_uses

ALIGNMENT = 64
"""Memory starts at, and is, a multiple of this many bytes: a cache line, and a full register."""

UNPLACED = "?"
"""The storage of a value that is yet to be placed."""

FRESH = ("linear", "convolution")
"""Routines whose results lie in memory that nobody else has, so that a kernel may write over them."""


@dataclass(slots=True, kw_only=True)
class LiveInterval:
    """``nbytes`` bytes that are wanted from step ``first`` to step ``last``; what is ``escapes`` is returned."""

    nbytes: Size
    first: int
    last: int
    escapes: bool


@dataclass(slots=True, kw_only=True)
class Slot(LiveInterval):
    """Memory that ``values`` hold one after the other. What steps other than launches touch is ``host_visible`` by
    the host as
    a tensor; of the rest it needs the address alone."""

    values: list[str]
    device: Device
    host_visible: bool = False


@dataclass(slots=True, kw_only=True)
class CallResult(LiveInterval):
    """Memory that the step ``first`` hands over."""

    name: str


@dataclass(slots=True)
class SlotRequests:
    """Everything that takes memory. ``reused`` names the values that lie in what a routine returned or in a donated
    input, and that, which their placements say already."""

    placements: dict[str, Placement]
    slots: list[Slot] = field(default_factory=list)
    results: list[CallResult] = field(default_factory=list)
    reused: list[tuple[str, str]] = field(default_factory=list)

    def nbytes(self, name: str) -> Size:
        """The bytes of a value's memory, to the end of its last element."""
        return placement_bytes(self.placements[name])


def slot_requests(
    steps: Sequence[Step],
    placements: Mapping[str, Placement],
    outputs: tuple[Output, ...],
    kernels: Mapping[str, Kernel],
    tiled: Container[str],
    donated: Iterable[str] = (),
) -> SlotRequests:
    """What the steps take memory for: values whose placement says :data:`UNPLACED`, and what calls return.

    ``tiled`` has the kinds of devices whose threads have tiles together, ``donated`` the inputs whose memory is free
    once they are read."""
    return _Finder(steps, placements, outputs, kernels, tiled, donated).run()


def placement_bytes(placement: Placement) -> Size:
    """The bytes of a value's memory, to the end of its last element."""
    return mul(span(placement.type.shape, placement.type.layout), placement.type.dtype.itemsize)


def aligned_bytes(nbytes: Size) -> Size:
    """The next multiple of :data:`ALIGNMENT`."""
    return mul(add(nbytes, ALIGNMENT - 1) // ALIGNMENT, ALIGNMENT)


def step_results(step: Step) -> tuple[str, ...]:
    """What a call or region hands over: the plan drops it after its last use. What is kept was there before."""
    if isinstance(step, CallStep):
        return tuple(name for name in step.results if name is not None)
    return step.results if isinstance(step, RegionStep) and step.kind != "frozen" else ()


SlotShape = tuple[Size, Device, int]


class _Finder:
    def __init__(
        self,
        steps: Sequence[Step],
        placements: Mapping[str, Placement],
        outputs: tuple[Output, ...],
        kernels: Mapping[str, Kernel],
        tiled: Container[str],
        donated: Iterable[str],
    ) -> None:
        self.steps = steps
        self.kernels = kernels
        self.tiled = tiled
        self.overwriting: dict[str, InPlaceReuse] = {}
        self.slots: dict[int, dict[SlotShape, list[str]]] = {}
        self.found = SlotRequests(dict(placements))
        self.kept = escaping(outputs, placements)
        self.last = last_uses(steps, placements)
        self.dying: dict[int, list[str]] = {}
        for name, position in self.last.items():
            self.dying.setdefault(position, []).append(name)
        self.homes: dict[str, Slot] = {}
        own = (name for name in donated if self.found.placements[name].type.layout.offset == 0)
        self.donated = frozenset(own)
        self.fresh = set(self.donated)
        self.moved: set[str] = set()

    def run(self) -> SlotRequests:
        for position, step in enumerate(self.steps):
            self._note_fresh(step)
            if isinstance(step, Launch):
                for name in dict.fromkeys(memory_root(buffer, self._placements) for buffer in step.buffers):
                    if name not in self.homes and self._placements[name].storage == UNPLACED:
                        self._house(name, step, position)
        self._mark_seen()
        self._collect_results()
        return self.found

    @property
    def _placements(self) -> dict[str, Placement]:
        return self.found.placements

    def _note_fresh(self, step: Step) -> None:
        """Remember the results of a step that a kernel may write over."""
        if isinstance(step, CallStep) and step.target in FRESH:
            for name in step_results(step):
                placement = self._placements[name]
                if placement.base is None and placement.type.layout.offset == 0:
                    self.fresh.add(name)

    def _house(self, name: str, step: Launch, position: int) -> None:
        """Memory for a value that the launch at ``position`` is the first to touch."""
        placement = self._placements[name]
        nbytes, kept = aligned_bytes(placement_bytes(placement)), name in self.kept
        over = self._dying_input(name, nbytes, kept, step, position)
        if over is None:
            home = Slot(
                values=[name], nbytes=nbytes, device=placement.type.device, first=position,
                last=self.last[name], escapes=kept,
            )  # fmt: skip
            self.found.slots.append(home)
            self.homes[name] = home
            return
        self.moved.add(over)
        if over in self.homes:
            home = self.homes[name] = self.homes[over]
            home.values.append(name)
            home.last, home.escapes = self.last[name], kept
        else:
            self._placements[name] = replace(placement, storage=None, base=over)
            self.found.reused.append((name, over))
            if not kept:
                self.fresh.add(name)

    def _dying_input(self, name: str, nbytes: Size, kept: bool, step: Launch, position: int) -> str | None:
        """An input that dies here and that the kernel reads only where, and before, it writes ``name``."""
        placement = self._placements[name]
        slot = (nbytes, placement.type.device, placement.type.dtype.itemsize)
        fits = self._suits_caller if kept else self._is_free
        fitting = [other for other in self._dying_slots(position).get(slot, ()) if fits(other, placement)]
        if not fitting:
            return None
        if step.kernel not in self.overwriting:
            threads = placement.type.device.kind in self.tiled
            self.overwriting[step.kernel] = InPlaceReuse(self.kernels[step.kernel], threads=threads)
        roots = [memory_root(buffer, self._placements) for buffer in step.buffers]
        allows = self.overwriting[step.kernel].allows
        return next((other for other in fitting if allows(roots, other, name)), None)

    def _dying_slots(self, position: int) -> dict[SlotShape, list[str]]:
        """What dies at a step by its bytes, device and bytes per element; what is kept left out."""
        if position not in self.slots:
            found: dict[SlotShape, list[str]] = {}
            for other in self.dying.get(position, ()):
                placement = self._placements.get(other)
                if placement is not None and other not in self.kept:
                    type_ = placement.type
                    slot = (aligned_bytes(placement_bytes(placement)), type_.device, type_.dtype.itemsize)
                    found.setdefault(slot, []).append(other)
            self.slots[position] = found
        return self.slots[position]

    def _is_free(self, other: str, _: Placement) -> bool:
        """True for memory of its own that nothing has taken yet."""
        return other not in self.moved and (other in self.homes or other in self.fresh)

    def _suits_caller(self, other: str, result: Placement) -> bool:
        """True for such memory where it is allocated as the ``result`` that the caller keeps: of its very size, and
        neither what a routine returned, of which the result would be a view, nor a donated input of another type."""
        if other in self.donated:
            return other not in self.moved and self._placements[other].type == result.type
        if other in self.moved or other not in self.homes or result.type.layout.offset != 0:
            return False
        return all(
            placement_bytes(self._placements[value]) == placement_bytes(result)
            for value in self.homes[other].values
        )

    def _mark_seen(self) -> None:
        for step in self.steps:
            for name in () if isinstance(step, Launch) else touched_by(step):
                home = self.homes.get(memory_root(name, self._placements))
                if home is not None:
                    home.host_visible = True

    def _collect_results(self) -> None:
        last = last_uses(self.steps, self._placements)
        kept = {memory_root(name, self._placements) for name in self.kept}
        for position, step in enumerate(self.steps):
            for name in step_results(step):
                placement = self._placements[name]
                if placement.base is None:
                    self.found.results.append(
                        CallResult(
                            name=name,
                            nbytes=placement_bytes(placement),
                            first=position,
                            last=last[name],
                            escapes=name in kept,
                        )
                    )
