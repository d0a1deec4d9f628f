"""Reads within a group: conditions under which a member may read values that another one computes or overwrites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from litz_ir.loops import Axis, Scatter
from litz_ir.symbols import free_symbols
from litz_scheduler.analysis.fusion_candidate import ScheduledNode, position_in_row


def phase_for(
    new_node: ScheduledNode,
    defined: Mapping[str, ScheduledNode],
    inner: Sequence[Axis],
    *,
    rows: bool = False,
) -> int | None:
    """Return the first phase in which all values that a new member reads of the group are computed.

    Returns ``None`` when it reads such a value at another point than the one computed, or what a scatter of the group
    combines. Of the results of a scan it may
    read any of the same outer point, and with ``rows`` of any other contiguous row too. ``defined`` gives the member
    that defines each value of the group, ``inner`` the inner axes of the group.
    """
    own = new_node.operation
    if isinstance(own, Scatter) and own.base in defined:
        return None
    phase = 0
    for load in new_node.loads:
        producer = defined.get(load.buffer)
        if producer is None:
            continue
        if isinstance(producer.operation, Scatter):
            return None
        written = producer.element(load.buffer)
        elsewhere = load.index != written
        if elsewhere and not producer.scans and not (rows and _is_row(producer, load.buffer, inner)):
            return None
        if (elsewhere or producer.scans) and position_in_row(written, load.index, inner) is None:
            return None
        if _reads_inside(producer, new_node):
            return None
        phase = max(phase, producer.phase + (1 if producer.ends_phase or elsewhere else 0))
    return phase


def _is_row(producer: ScheduledNode, name: str, inner: Sequence[Axis]) -> bool:
    """Return True for a pointwise result that is contiguous along the inner axes."""
    if not producer.inner or producer.ends_phase:
        return False
    value = next(value for value in producer.operation.results if value.name == name)
    names = {axis.name for axis in inner}
    along = zip(producer.element(name), value.type.layout.strides, strict=True)
    return all(stride == 1 for term, stride in along if names & free_symbols(term))


def rows_read(members: Sequence[ScheduledNode]) -> dict[str, ScheduledNode]:
    """Return the pointwise values that a member reads at another point than the one computed, with their producers."""
    defined = {value.name: node for node in members for value in node.operation.results}
    return {
        load.buffer: defined[load.buffer]
        for node in members
        for load in node.loads
        if load.buffer in defined
        and not defined[load.buffer].ends_phase
        and load.index != defined[load.buffer].element(load.buffer)
    }


def _reads_inside(producer: ScheduledNode, new_node: ScheduledNode) -> bool:
    """Return True for a read of a value at points of the inner axes by a member over outer axes alone.

    The reader runs once for many points of the value, so it has no single one to read.
    """
    return producer.inner and not producer.reduces and not new_node.inner


def preserves_versions(members: Sequence[ScheduledNode], roots: Mapping[str, str]) -> bool:
    """Return True when members that overwrite a buffer in place do not change what other members read of it.

    The others must read it at the point that is overwritten. Values that are not stored are recomputed in each later
    phase that reads them, so no phase after the store may read a value computed from the overwritten one. ``roots``
    gives the memory root of values that share memory. Members come after those that they read.
    """
    writers = {v.replaces: node for node in members for v in node.operation.results if v.replaces is not None}
    if not writers:
        return True
    defined = {value.name for node in members for value in node.operation.results}
    if any(name in defined for name in writers):
        return False
    memory = {roots.get(name, name) for name in writers}
    # For each value computed from an overwritten one: the loop position of the first such store.
    overwritten_at: dict[str, tuple[int, bool]] = {}
    for node in members:
        first: tuple[int, bool] | None = None
        for load in node.loads:
            writer = writers.get(load.buffer)
            if writer is None and load.buffer not in defined and roots.get(load.buffer) in memory:
                return False
            if writer is not None and load.index != writer.index:
                return False
            stored = overwritten_at.get(load.buffer) if writer is None else writer.loop_position
            if stored is not None:
                first = stored if first is None else min(first, stored)
        if first is None:
            continue
        if node.loop_position > first:
            return False
        if not node.ends_phase:
            overwritten_at.update((value.name, first) for value in node.operation.results)
    return True
