"""Reads inside a group: when a member may read what another one computes or overwrites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from litz_scheduler.fusion_candidate import ScheduledNode


def phase_for(newcomer: ScheduledNode, defined: Mapping[str, ScheduledNode]) -> int | None:
    """The first phase in which all that the newcomer reads of the group is at hand, or ``None`` when it reads another
    point of something that the group computes. ``defined`` gives who defines a value of the group."""
    phase = 0
    for load in newcomer.loads:
        producer = defined.get(load.buffer)
        if producer is None:
            continue
        if load.index != producer.element(load.buffer) or _reads_inside(producer, newcomer):
            return None
        phase = max(phase, producer.phase + (1 if producer.reduces else 0))
    return phase


def _reads_inside(producer: ScheduledNode, newcomer: ScheduledNode) -> bool:
    """An outer value would need an inner one: there is no single point to read."""
    return producer.inner and not producer.reduces and not newcomer.inner


def preserves_versions(members: Sequence[ScheduledNode], roots: Mapping[str, str]) -> bool:
    """True when members that overwrite a value in place disturb no member that reads it.

    The others must read it at the very point that is overwritten. What is not stored is computed again by each later
    phase that wants it, so no phase after the store may want anything that is computed from the overwritten value.
    ``roots`` tells which values share memory. Members come after those that they read.
    """
    writers = {v.replaces: seen for seen in members for v in seen.operation.results if v.replaces is not None}
    if not writers:
        return True
    defined = {value.name for seen in members for value in seen.operation.results}
    if any(name in defined for name in writers):
        return False
    memory = {roots.get(name, name) for name in writers}
    # For each value that is computed from something overwritten: when the first of that is.
    until: dict[str, tuple[int, bool]] = {}
    for seen in members:
        first: tuple[int, bool] | None = None
        for load in seen.loads:
            writer = writers.get(load.buffer)
            if writer is None and load.buffer not in defined and roots.get(load.buffer) in memory:
                return False
            if writer is not None and load.index != writer.index:
                return False
            stored = until.get(load.buffer) if writer is None else writer.loop_position
            if stored is not None:
                first = stored if first is None else min(first, stored)
        if first is None:
            continue
        if seen.loop_position > first:
            return False
        if not seen.reduces:
            until.update((value.name, first) for value in seen.operation.results)
    return True
