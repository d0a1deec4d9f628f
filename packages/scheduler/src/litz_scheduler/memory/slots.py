"""Slots: the memory that values written by kernels need, reused in place where a kernel allows it."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from litz_ir.device import Device
from litz_ir.loops import ComplexRef, Output
from litz_ir.plan import (
    CallStep,
    Kernel,
    Launch,
    Placement,
    RegionStep,
    Step,
    alias_path,
    memory_root,
    new_results,
    touched_by,
)
from litz_ir.symbols import Size
from litz_scheduler.memory.inplace import InPlaceReuse
from litz_scheduler.memory.liveness import escaping, last_uses

UNPLACED = "?"
"""The storage name of a value that has no memory yet."""

MayShare = Callable[[str], bool]
"""Function that says whether a value may share memory with values that were written before it."""


def always_shares(name: str) -> bool:
    """Return True: a value shares memory wherever that is legal."""
    return True


@dataclass(slots=True, kw_only=True)
class LiveInterval:
    """Bytes that are needed from a first to a last step."""

    nbytes: Size
    """The size in bytes."""
    first: int
    """The first step that needs them."""
    last: int
    """The last step that needs them."""
    escapes: bool
    """True where the caller receives them, so that they are not freed."""


@dataclass(slots=True, kw_only=True)
class Slot(LiveInterval):
    """Memory that values use one after another."""

    values: list[str]
    """The values, in the order that they are written."""
    device: Device
    """The device of the memory."""
    alone: bool = False
    """True where it must not share a storage with other slots."""
    host_visible: bool = False
    """True where a step other than a launch accesses it, for which the host needs a tensor; launches need the address
    alone."""


@dataclass(slots=True, kw_only=True)
class CallResult(LiveInterval):
    """Memory that the step ``first`` returns."""

    name: str
    """The name of the result."""


@dataclass(slots=True)
class SlotRequests:
    """Everything that takes memory, for a sequence of steps."""

    placements: dict[str, Placement]
    """The placement of every buffer, including the aliases of in-place reuse."""
    slots: list[Slot] = field(default_factory=list)
    """The slots, in the order of their first steps."""
    results: list[CallResult] = field(default_factory=list)
    """The results of calls and regions."""
    donated: list[LiveInterval] = field(default_factory=list)
    """The memory of donated inputs, which the caller holds until their last use."""
    reused: list[tuple[str, str]] = field(default_factory=list)
    """Values written in place to a call's result or a donated input, each with the name of that."""


def slot_requests(
    steps: Sequence[Step],
    placements: Mapping[str, Placement],
    outputs: tuple[Output, ...],
    kernels: Mapping[str, Kernel],
    tiled: Container[str],
    donated: Iterable[str] = (),
    may_share: MayShare = always_shares,
) -> SlotRequests:
    """Return the slots of values whose placement is :data:`UNPLACED`, and the results of calls.

    ``tiled`` has the kinds of devices on which the threads of a block compute a tile in common; ``donated`` are the
    inputs whose memory is free after their last use, and ``may_share`` says which values may share memory.
    """
    return _Finder(steps, placements, outputs, kernels, tiled, donated, may_share).run()


def step_results(step: Step) -> tuple[str, ...]:
    """Return the results of a call or region, which the plan frees after their last use; frozen results are not
    freed."""
    if isinstance(step, CallStep):
        return tuple(name for name in step.results if name is not None)
    return step.results if isinstance(step, RegionStep) and step.kind != "frozen" else ()


_SlotShape = tuple[Size, Device, int]
"""Bytes, device and bytes per element, which in-place reuse requires to be equal."""


class _Finder:
    """Assign the values of a sequence of steps to slots, in the order of the steps."""

    def __init__(
        self,
        steps: Sequence[Step],
        placements: Mapping[str, Placement],
        outputs: tuple[Output, ...],
        kernels: Mapping[str, Kernel],
        tiled: Container[str],
        donated: Iterable[str],
        may_share: MayShare,
    ) -> None:
        self.steps = steps
        self.kernels = kernels
        self.tiled = tiled
        self.may_share = may_share
        self.reuse_by_kernel: dict[str, InPlaceReuse] = {}
        self.by_shape: dict[int, dict[_SlotShape, list[str]]] = {}
        self.found = SlotRequests(dict(placements))
        self.escaping_roots = escaping(outputs, placements)
        pairs = [output for output in outputs if isinstance(output, ComplexRef)]
        self.complex_roots = escaping(tuple(pairs), placements)
        self.last = last_uses(steps, placements)
        self.last_used_at: dict[int, list[str]] = {}
        for name, position in self.last.items():
            self.last_used_at.setdefault(position, []).append(name)
        self.slot_of: dict[str, Slot] = {}
        self.given = tuple(donated)
        own = (name for name in self.given if self.found.placements[name].type.layout.offset == 0)
        self.donated = frozenset(own)
        self.reusable = set(self.donated)
        self.taken: set[str] = set()

    def run(self) -> SlotRequests:
        """Return the slots and the results of calls."""
        for position, step in enumerate(self.steps):
            self._note_reusable(step)
            if isinstance(step, Launch):
                for name in dict.fromkeys(memory_root(buffer, self._placements) for buffer in step.buffers):
                    if name not in self.slot_of and self._placements[name].storage == UNPLACED:
                        self._assign_slot(name, step, position)
        self._mark_host_visible()
        self._collect_results()
        self._collect_donated()
        return self.found

    @property
    def _placements(self) -> dict[str, Placement]:
        return self.found.placements

    def _note_reusable(self, step: Step) -> None:
        """Note the results of a step that a kernel may reuse in place."""
        for name in new_results(step):
            placement = self._placements[name]
            if placement.base is None and placement.type.layout.offset == 0:
                self.reusable.add(name)

    def _assign_slot(self, name: str, step: Launch, position: int) -> None:
        """Assign memory to a value that the launch at ``position`` is the first to access."""
        placement = self._placements[name]
        nbytes, escapes = placement.aligned_nbytes, name in self.escaping_roots
        alone = not self.may_share(name)
        reused_input = None if alone else self._reusable_input(name, nbytes, escapes, step, position)
        if reused_input is None:
            slot = Slot(
                values=[name], nbytes=nbytes, device=placement.type.device, first=position,
                last=self.last[name], escapes=escapes, alone=alone,
            )  # fmt: skip
            self.found.slots.append(slot)
            self.slot_of[name] = slot
            return
        self.taken.add(reused_input)
        if reused_input in self.slot_of:
            slot = self.slot_of[name] = self.slot_of[reused_input]
            slot.values.append(name)
            slot.last, slot.escapes = self.last[name], escapes
        else:
            self._placements[name] = replace(placement, storage=None, base=reused_input)
            self.found.reused.append((name, reused_input))
            if not escapes:
                self.reusable.add(name)

    def _reusable_input(
        self, name: str, nbytes: Size, escapes: bool, step: Launch, position: int
    ) -> str | None:
        """Return an input with its last use here whose memory the kernel can reuse for ``name``; else None."""
        placement = self._placements[name]
        shape = (nbytes, placement.type.device, placement.type.dtype.itemsize)
        fits = self._suits_caller if escapes else self._is_free
        fitting = [other for other in self._last_used_by_shape(position).get(shape, ()) if fits(other, name)]
        if not fitting:
            return None
        if step.kernel not in self.reuse_by_kernel:
            threads = placement.type.device.kind in self.tiled
            self.reuse_by_kernel[step.kernel] = InPlaceReuse(self.kernels[step.kernel], threads=threads)
        roots = [memory_root(buffer, self._placements) for buffer in step.buffers]
        allows = self.reuse_by_kernel[step.kernel].allows
        return next((other for other in fitting if allows(roots, other, name)), None)

    def _last_used_by_shape(self, position: int) -> dict[_SlotShape, list[str]]:
        """Return the values with their last use at a step, by bytes, device and element size.

        Values that escape are left out.
        """
        if position not in self.by_shape:
            found: dict[_SlotShape, list[str]] = {}
            for other in self.last_used_at.get(position, ()):
                placement = self._placements.get(other)
                if placement is not None and other not in self.escaping_roots:
                    type_ = placement.type
                    shape = (placement.aligned_nbytes, type_.device, type_.dtype.itemsize)
                    found.setdefault(shape, []).append(other)
            self.by_shape[position] = found
        return self.by_shape[position]

    def _is_free(self, other: str, name: str) -> bool:
        """Return True for memory that no other value reuses already.

        A slot and a donated input have all their aligned bytes. A call's result ends with its last element.
        """
        if other in self.taken:
            return False
        if other in self.slot_of or other in self.donated:
            return True
        same = self._placements[other].nbytes == self._placements[name].nbytes
        return same and other in self.reusable

    def _suits_caller(self, other: str, name: str) -> bool:
        """Return True for memory that may become the result ``name``, which the caller receives.

        It has exactly the size of the result. Refused are a donated input of another type, and a call's result for a
        complex tensor, which is allocated as one.
        """
        result = self._placements[name]
        if other in self.taken:
            return False
        if other in self.donated:
            return self._placements[other].type == result.type
        if result.type.layout.offset != 0:
            return False
        if other in self.slot_of:
            users = self.slot_of[other].values
        elif other in self.reusable and name not in self.complex_roots:
            users = list(alias_path(other, self._placements))
            if users[-1] in self.donated:
                return False
        else:
            return False
        nbytes = result.nbytes
        return all(self._placements[value].nbytes == nbytes for value in users)

    def _mark_host_visible(self) -> None:
        """Mark the slots that steps other than launches access."""
        for step in self.steps:
            for name in () if isinstance(step, Launch) else touched_by(step):
                slot = self.slot_of.get(memory_root(name, self._placements))
                if slot is not None:
                    slot.host_visible = True

    def _collect_results(self) -> None:
        """Add the results of calls that do not alias an argument."""
        last = last_uses(self.steps, self._placements)
        escaped = {memory_root(name, self._placements) for name in self.escaping_roots}
        for position, step in enumerate(self.steps):
            for name in step_results(step):
                placement = self._placements[name]
                if placement.base is None:
                    self.found.results.append(
                        CallResult(
                            name=name,
                            nbytes=placement.nbytes,
                            first=position,
                            last=last[name],
                            escapes=name in escaped,
                        )
                    )

    def _collect_donated(self) -> None:
        """Add the memory of donated inputs, until the last use of it by them or by values that reuse it."""
        last = last_uses(self.steps, self._placements)
        escaped = {memory_root(name, self._placements) for name in self.escaping_roots}
        self.found.donated += [
            LiveInterval(
                nbytes=self.found.placements[name].nbytes, first=0, last=last[name], escapes=name in escaped
            )
            for name in self.given
            if name in last
        ]
