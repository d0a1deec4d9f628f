"""What of its buffers a kernel touches: between which elements, and how many bytes it has to move."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from litz_ir.plan.cluster import workspace_words
from litz_ir.plan.horizontal_fusion import invocation_symbols, invocations_of
from litz_ir.plan.kernel import Accumulate, Kernel, ScanStore, Statement, Store
from litz_ir.scalar.expr import Expr, indirects_in, loads, nested_reductions
from litz_ir.symbols.ranges import Range, bounds, extent
from litz_ir.symbols.term import Size, evaluate, free_symbols


@dataclass(frozen=True, slots=True)
class AccessRange:
    """A kernel touches no element of a buffer below ``low`` or above ``high`` (``None``: nothing is known); ``read``
    and ``written`` are bytes, each element counted once."""

    low: int | None
    high: int | None
    read: int
    written: int


def access_ranges(kernel: Kernel, symbols: Mapping[str, int | float]) -> dict[str, AccessRange]:
    """What a kernel touches of each of its parameters, its symbols having these values.

    What is read under a condition counts as read wherever the kernel runs, so that ``read`` may be too much.
    """
    if kernel.subkernels:
        return _together(kernel, symbols)
    sizes = {name: int(value) for name, value in symbols.items() if not isinstance(value, float)}
    ranges = {name: Range(value, value) for name, value in sizes.items()}
    points: dict[str, int] = {}
    for axis in (*kernel.outer, *(axis for phase in kernel.phases for axis in phase.axes)):
        points[axis.name] = max(points.get(axis.name, 0), evaluate(axis.size, sizes))
    for fold in nested_reductions(
        *(value for phase in kernel.phases for s in phase.statements for value in _values(s))
    ):
        points |= {name: evaluate(size, sizes) for name, size in fold.axes}
    ranges |= {name: extent(size) for name, size in points.items()}
    read, written = _accesses(kernel)
    found = {}
    for parameter in kernel.parameters:
        if parameter.access == "workspace":
            # What programs tell one another stays in caches.
            found[parameter.name] = AccessRange(0, evaluate(workspace_words(kernel), sizes) - 1, 0, 0)
            continue
        seen = [bounds(each, ranges) for each in (*read[parameter.name], *written[parameter.name])]
        lows = [each.low for each in seen if each.low is not None]
        highs = [each.high for each in seen if each.high is not None]
        low = min(lows, default=0) if len(lows) == len(seen) else None
        high = max(highs, default=-1) if len(highs) == len(seen) else None
        most = None if low is None or high is None else (high - low + 1) * parameter.dtype.itemsize
        counts = [
            sum(_points(offset, points) for offset in offsets) * parameter.dtype.itemsize
            for offsets in (read[parameter.name], written[parameter.name])
        ]
        found[parameter.name] = AccessRange(
            low, high, *(count if most is None else min(count, most) for count in counts)
        )
    return found


def _together(kernel: Kernel, symbols: Mapping[str, int | float]) -> dict[str, AccessRange]:
    """What the loops of a pack touch: what several of them read counts once."""
    found: dict[str, AccessRange] = {}
    for part, binding in invocations_of(kernel):
        own = access_ranges(part, invocation_symbols(part, binding, symbols))
        for parameter, name in zip(part.parameters, binding.buffers, strict=True):
            known, more = found.get(name), own[parameter.name]
            found[name] = more if known is None else _hull(known, more)
    return found


def _hull(one: AccessRange, other: AccessRange) -> AccessRange:
    low = None if one.low is None or other.low is None else min(one.low, other.low)
    high = None if one.high is None or other.high is None else max(one.high, other.high)
    return AccessRange(low, high, max(one.read, other.read), max(one.written, other.written))


def _accesses(kernel: Kernel) -> tuple[dict[str, dict[Size, None]], dict[str, dict[Size, None]]]:
    """By buffer, the offsets that are read and those that are written, each once."""
    names = [parameter.name for parameter in kernel.parameters] + [local.name for local in kernel.scratch]
    read: dict[str, dict[Size, None]] = {name: {} for name in names}
    written: dict[str, dict[Size, None]] = {name: {} for name in names}
    for statement in (statement for phase in kernel.phases for statement in phase.statements):
        held = (atom.value for _, offset in _targets(statement) for atom in indirects_in(offset))
        for load in loads(*_values(statement), *held):
            read[load.buffer][load.index[0]] = None
        for buffer, offset in _targets(statement):
            written[buffer][offset] = None
            if isinstance(statement, Store) and statement.mode != "set":
                read[buffer][offset] = None
    return read, written


def _values(statement: Statement) -> tuple[Expr, ...]:
    return (statement.value,) if isinstance(statement, Store) else statement.values


def _targets(statement: Statement) -> Iterator[tuple[str, Size]]:
    match statement:
        case Store():
            yield statement.buffer, statement.offset
        case ScanStore():
            yield from statement.targets
        case Accumulate():
            return


def _points(offset: Size, sizes: Mapping[str, int]) -> int:
    """How many elements an access has at most: one for each point of the axes that it depends on."""
    count = 1
    for name in free_symbols(offset):
        count *= sizes.get(name, 1)
    return count
