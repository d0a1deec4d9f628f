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

    The others must read it at the very point that is overwritten, and nothing may be computed after the store, since
    what is not stored is computed again by each later phase. ``roots`` tells which values share memory.
    """
    written = {v.replaces: seen for seen in members for v in seen.operation.results if v.replaces is not None}
    if not written:
        return True
    defined = {value.name for seen in members for value in seen.operation.results}
    if any(name in defined for name in written):
        return False
    last = max((seen.phase, seen.inner) for seen in members)
    if any((seen.phase, seen.inner) != last for seen in written.values()):
        return False
    memory = {roots.get(name, name) for name in written}
    for seen in members:
        for load in loads(*seen.bodies):
            target = written.get(load.buffer)
            if target is not None and load.index != target.index:
                return False
            if (
                target is None
                and load.buffer not in defined
                and roots.get(load.buffer, load.buffer) in memory
            ):
                return False
    return True
