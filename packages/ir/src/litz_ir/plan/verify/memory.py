"""The invariants of memory that several buffers use: nothing is overwritten before its last use, or past its end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from litz_ir.loops.nodes import references
from litz_ir.plan.buffer_uses import memory_root, touched_by, written_by
from litz_ir.plan.horizontal_fusion import invocations_by_buffer
from litz_ir.plan.program import CallStep, Launch, Plan, RegionStep
from litz_ir.scalar.verify import ErrorLocation
from litz_ir.symbols.polynomials import add
from litz_ir.symbols.proofs import Predicate, Prover
from litz_ir.symbols.term import Size


@dataclass(slots=True)
class _PlacedBuffer:
    """A buffer in a storage, and the steps during which its memory is in use."""

    name: str
    storage: str
    begin: Size
    """First byte in the storage."""
    end: Size
    """Byte after the last one in the storage."""
    first: int
    """First step that touches the buffer, or one that shares its memory."""
    last: int
    """Last such step; the number of steps if it is an output of the plan."""


def check_storage_overlap(plan: Plan) -> None:
    """No two buffers occupy a byte of a storage at the same step, except in a launch that overwrites one with
    the other.

    Such buffers begin at the same byte, and in a horizontally fused kernel one invocation touches both. Outputs
    are in use to the end. Buffers whose offsets or sizes are symbolic overlap with all others.
    """
    fused = _FusedLaunches(plan)
    for storage, buffers in _buffers_by_storage(plan).items():
        live: list[_PlacedBuffer] = []
        for buffer in sorted(buffers, key=lambda each: each.first):
            live = [each for each in live if each.last >= buffer.first]
            for other in live:
                reused = other.last == buffer.first and other.begin == buffer.begin
                reused = reused and not fused.in_different_invocations(buffer, other)
                if _overlap(other, buffer) and not reused:
                    ErrorLocation("plan", buffer.name).fail(
                        "overlap",
                        f"%{buffer.name} overwrites %{other.name}, which is live, in {storage} at step {buffer.first}",
                    )
            live.append(buffer)


def check_reused_memory(plan: Plan, prover: Prover) -> None:
    """A buffer that a launch writes in the memory of a donated input or of a step's result ends within that memory.

    Memory of other inputs belongs to tensors that may be larger: a program may write past the end of a view.
    """
    placements, kernels = dict(plan.buffers), {kernel.name: kernel for kernel in plan.kernels}
    available = {name: placements[name].aligned_nbytes for name in plan.donated if name in placements}
    for step in plan.steps:
        if isinstance(step, CallStep | RegionStep):
            available |= {name: placements[name].nbytes for name in step.results if name is not None}
        elif isinstance(step, Launch):
            for name in written_by(step, kernels):
                owner = memory_root(name, placements)
                end, nbytes = placements[name].nbytes, available.get(owner)
                if nbytes is not None and prover.prove(Predicate("lt", nbytes, end)) is True:
                    ErrorLocation("plan", name).fail(
                        "reused-memory",
                        f"%{name} ends at byte {end} of the memory of %{owner}, which has {nbytes}",
                    )


class _FusedLaunches:
    """Invocations of horizontally fused kernels that touch each buffer."""

    def __init__(self, plan: Plan) -> None:
        self._steps = plan.steps
        self._placements = dict(plan.buffers)
        self._kernels = {kernel.name: kernel for kernel in plan.kernels if kernel.subkernels}

    def in_different_invocations(self, one: _PlacedBuffer, other: _PlacedBuffer) -> bool:
        """True if different invocations of the first launch that touches ``one`` touch it and ``other``."""
        step = self._steps[one.first] if one.first < len(self._steps) else None
        if not isinstance(step, Launch) or step.kernel not in self._kernels:
            return False
        memory = [memory_root(name, self._placements) for name in step.buffers]
        loops = invocations_by_buffer(self._kernels[step.kernel], memory)
        return len(loops[one.name] | loops[other.name]) > 1


def _buffers_by_storage(plan: Plan) -> dict[str, list[_PlacedBuffer]]:
    """The buffers that steps touch, by storage."""
    placements = dict(plan.buffers)
    found: dict[str, _PlacedBuffer] = {}
    for name, position in _uses(plan):
        owner = memory_root(name, placements)
        placement = placements.get(owner)
        if placement is None or placement.storage is None:
            continue
        if owner not in found:
            end = add(placement.offset, placement.nbytes)
            found[owner] = _PlacedBuffer(owner, placement.storage, placement.offset, end, position, position)
        found[owner].last = position
    storages: dict[str, list[_PlacedBuffer]] = {}
    for buffer in found.values():
        storages.setdefault(buffer.storage, []).append(buffer)
    return storages


def _uses(plan: Plan) -> Iterator[tuple[str, int]]:
    """Yield the buffers that each step touches, then those that the plan returns, each with its step."""
    for position, step in enumerate(plan.steps):
        for name in touched_by(step):
            yield name, position
    for name in references(plan.outputs):
        yield name, len(plan.steps)


def _overlap(a: _PlacedBuffer, b: _PlacedBuffer) -> bool:
    match a.begin, a.end, b.begin, b.end:
        case int(start), int(end), int(other_start), int(other_end):
            return max(start, other_start) < min(end, other_end)
    return True
