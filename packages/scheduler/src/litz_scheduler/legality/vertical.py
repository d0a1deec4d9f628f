"""Reads inside a group: when a member may read what another one computes or overwrites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from litz_ir.scalar.expr import loads
from litz_scheduler.draft import Seen


def phase_for(newcomer: Seen, defined: Mapping[str, Seen]) -> int | None:
    """The first phase in which all that the newcomer reads of the group is at hand, or ``None`` when it reads another
    point of something that the group computes. ``defined`` gives who defines a value of the group."""
    phase = 0
    for load in loads(*newcomer.bodies):
        producer = defined.get(load.buffer)
        if producer is None:
            continue
        if load.index != producer.index or _reads_inside(producer, newcomer):
            return None
        phase = max(phase, producer.phase + (1 if producer.reduces else 0))
    return phase


def _reads_inside(producer: Seen, newcomer: Seen) -> bool:
    """An outer value would need an inner one: there is no single point to read."""
    return producer.inner and not producer.reduces and not newcomer.inner


def keeps_versions(members: Sequence[Seen], roots: Mapping[str, str]) -> bool:
    """True when members that overwrite a value in place disturb no member that reads it.

    The others must read it at the very point that is overwritten. What is not stored is computed again by each later
    phase that wants it, so no phase after the store may want anything that is computed from the overwritten value.
    ``roots`` tells which values share memory. Members come after those that they read.
    """
    written = {v.replaces: seen for seen in members for v in seen.operation.results if v.replaces is not None}
    if not written:
        return True
    defined = {value.name for seen in members for value in seen.operation.results}
    if any(name in defined for name in written):
        return False
    return all(_undisturbed(name, writer, members, defined, roots) for name, writer in written.items())


def _undisturbed(
    target: str, writer: Seen, members: Sequence[Seen], defined: set[str], roots: Mapping[str, str]
) -> bool:
    memory, stored = roots.get(target, target), (writer.phase, writer.inner)
    computed_from: set[str] = set()
    for seen in members:
        wants = False
        for load in loads(*seen.bodies):
            if load.buffer == target and load.index != writer.index:
                return False
            if load.buffer not in defined and load.buffer != target and roots.get(load.buffer) == memory:
                return False
            wants = wants or load.buffer == target or load.buffer in computed_from
        if wants and (seen.phase, seen.inner) > stored:
            return False
        if wants and not seen.reduces:
            computed_from.update(value.name for value in seen.operation.results)
    return True
