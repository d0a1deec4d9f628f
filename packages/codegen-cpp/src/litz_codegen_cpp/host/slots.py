"""Memory of a host program: storages and results that live at different times share a slot of the workspace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from litz_ir.loops import Ref
from litz_ir.plan import Allocate, CallStep, Free, Plan, RegionStep, memory_root
from litz_ir.symbols import Size


@dataclass(frozen=True, slots=True)
class Owned:
    """Memory that a plan allocates: a storage, or the result of a call or region."""

    name: str
    """Name of the storage or result."""
    nbytes: Size
    """Bytes that it takes."""


@dataclass(slots=True)
class Slot:
    """A part of the workspace that several owners use, one after another."""

    owners: list[Owned] = field(default_factory=list)
    """The owners in order of use."""
    typical: int = 0
    """Typical bytes of the largest owner."""


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of every owner of a plan."""

    slots: tuple[Slot, ...]
    """The slots, in the order in which they lie in the workspace."""
    slot_of: Mapping[str, int]
    """Position of the slot of each owner that is in the workspace."""
    output_of: Mapping[str, int]
    """Position of the output whose memory an owner is."""


def plan_memory(plan: Plan, elsewhere: Iterable[str] = ()) -> Memory:
    """Return slots for the owners of a plan, except those whose memory is an output or ``elsewhere``.

    An owner takes the free slot that is nearest in size for the symbols' hints, so that no sizes are compared when the
    program runs.
    """
    kept = frozenset(elsewhere)
    outputs = {name: at for name, at in direct_outputs(plan).items() if name not in kept}
    placed_elsewhere = {*kept, *outputs}
    allocated = Counter(step.storage for step in plan.steps if isinstance(step, Allocate))
    slots: list[Slot] = []
    slot_of: dict[str, int] = {}
    free: list[int] = []
    for step in plan.steps:
        for owned in _begins(plan, step):
            if owned.name in placed_elsewhere or owned.name in slot_of:
                continue
            typical = plan.symbols.hint(owned.nbytes)
            chosen = min(free, key=lambda k: _misfit(slots[k].typical, typical), default=len(slots))
            if chosen == len(slots):
                slots.append(Slot())
            else:
                free.remove(chosen)
            slots[chosen].owners.append(owned)
            slots[chosen].typical = max(slots[chosen].typical, typical)
            slot_of[owned.name] = chosen
        # A storage has one slot, so one that is allocated again keeps it meanwhile.
        if isinstance(step, Free) and step.name in slot_of and allocated[step.name] < 2:
            free.append(slot_of[step.name])
    return Memory(tuple(slots), slot_of, outputs)


def _misfit(slot: int, wanted: int) -> tuple[bool, int]:
    """Return the order in which slots are tried: those that are large enough first, then the smallest difference."""
    return (slot < wanted, abs(slot - wanted))


def _begins(plan: Plan, step: object) -> Iterable[Owned]:
    """Return the owners that a step creates."""
    placements = dict(plan.buffers)
    match step:
        case Allocate():
            storage = next(each for each in plan.storages if each.name == step.storage)
            return (Owned(storage.name, storage.nbytes),)
        case CallStep() | RegionStep():
            names = [name for name in step.results if name is not None and placements[name].base is None]
            return tuple(Owned(name, plan.placement(name).nbytes) for name in names)
    return ()


def direct_outputs(plan: Plan) -> dict[str, int]:
    """Return the owners that can be the caller's memory of an output: all their buffers take the output's bytes.

    Other outputs are copied when the program ends.
    """
    placements = dict(plan.buffers)
    given = {each.name for each in (*plan.inputs, *plan.constants)}
    users: dict[str, list[str]] = {}
    for name, _ in plan.buffers:
        root = memory_root(name, placements)
        storage = placements[root].storage if root in placements else None
        users.setdefault(storage or root, []).append(name)
    found: dict[str, int] = {}
    for position, output in enumerate(plan.outputs):
        if not isinstance(output, Ref) or output.name not in placements:
            continue
        root = memory_root(output.name, placements)
        owner = placements[root].storage or root
        if root in given or owner in found or placements[output.name].type.layout.offset != 0:
            continue
        nbytes = plan.placement(output.name).nbytes
        if all(placements[n].offset == 0 and placements[n].nbytes == nbytes for n in users[owner]):
            found[owner] = position
    return found
