"""The invariant of storages that several buffers lie in: none is overwritten while it is wanted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from litz_ir.loops.layout import span
from litz_ir.loops.nodes import references
from litz_ir.plan.buffer_uses import memory_root, touched_by
from litz_ir.plan.horizontal_fusion import invocations_by_buffer
from litz_ir.plan.program import Launch, Plan
from litz_ir.scalar.verify import ErrorLocation
from litz_ir.symbols.term import Size, add, mul


@dataclass(slots=True)
class _Tenant:
    """A buffer in a storage, its bytes there, and the first and last step that touch it or what shares its memory."""

    name: str
    storage: str
    begin: Size
    end: Size
    first: int
    last: int


def check_storage_overlap(plan: Plan) -> None:
    """No two buffers have a byte of a storage at the same step, but for a launch that writes one over the other, from
    the same byte on; of a pack it is one loop that touches both. What is returned is wanted to the end. Sizes that are
    not known overlap with everything."""
    packs = _Packs(plan)
    for storage, tenants in _tenants(plan).items():
        present: list[_Tenant] = []
        for tenant in sorted(tenants, key=lambda each: each.first):
            present = [each for each in present if each.last >= tenant.first]
            for other in present:
                over = other.last == tenant.first and other.begin == tenant.begin
                over = over and not packs.apart(tenant, other)
                if _overlap(other, tenant) and not over:
                    ErrorLocation("plan", tenant.name).fail(
                        "overlap",
                        f"%{tenant.name} lies over %{other.name} in {storage} at step {tenant.first}, which is wanted",
                    )
            present.append(tenant)


class _Packs:
    """Which buffers the loops of packs touch."""

    def __init__(self, plan: Plan) -> None:
        self._steps = plan.steps
        self._placements = dict(plan.buffers)
        self._packs = {kernel.name: kernel for kernel in plan.kernels if kernel.subkernels}

    def apart(self, one: _Tenant, other: _Tenant) -> bool:
        """True where different loops of the first launch that touches ``one`` touch it and ``other``."""
        step = self._steps[one.first] if one.first < len(self._steps) else None
        if not isinstance(step, Launch) or step.kernel not in self._packs:
            return False
        memory = [memory_root(name, self._placements) for name in step.buffers]
        loops = invocations_by_buffer(self._packs[step.kernel], memory)
        return len(loops[one.name] | loops[other.name]) > 1


def _tenants(plan: Plan) -> dict[str, list[_Tenant]]:
    """The buffers that steps touch, by their storage."""
    placements = dict(plan.buffers)
    found: dict[str, _Tenant] = {}
    for name, position in _uses(plan):
        owner = memory_root(name, placements)
        placement = placements.get(owner)
        if placement is None or placement.storage is None:
            continue
        if owner not in found:
            nbytes = mul(span(placement.type.shape, placement.type.layout), placement.type.dtype.itemsize)
            end = add(placement.offset, nbytes)
            found[owner] = _Tenant(owner, placement.storage, placement.offset, end, position, position)
        found[owner].last = position
    storages: dict[str, list[_Tenant]] = {}
    for tenant in found.values():
        storages.setdefault(tenant.storage, []).append(tenant)
    return storages


def _uses(plan: Plan) -> Iterator[tuple[str, int]]:
    """What each step touches, then what is returned."""
    for position, step in enumerate(plan.steps):
        for name in touched_by(step):
            yield name, position
    for name in references(plan.outputs):
        yield name, len(plan.steps)


def _overlap(a: _Tenant, b: _Tenant) -> bool:
    match a.begin, a.end, b.begin, b.end:
        case int(start), int(end), int(other_start), int(other_end):
            return max(start, other_start) < min(end, other_end)
    return True
