"""Ranges of elements that a kernel accesses in each buffer, and the bytes that it moves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from litz_ir.plan.cluster import workspace_words
from litz_ir.plan.horizontal_fusion import invocation_symbols, invocations_of
from litz_ir.plan.kernel import Accumulate, Kernel, ScanStore, Statement, Store
from litz_ir.scalar.expr import indirects_in, loads, nested_reductions
from litz_ir.scalar.node import Expr
from litz_ir.symbols.ranges import Range, bounds, extent
from litz_ir.symbols.term import Size, evaluate, free_symbols


@dataclass(frozen=True, slots=True)
class AccessRange:
    """Elements of a buffer that a kernel may access, and the bytes that it reads and writes there."""

    low: int | None
    """Lowest element accessed; ``None`` if unknown."""
    high: int | None
    """Highest element accessed; ``None`` if unknown."""
    read: int
    """Bytes read, each element counted once; an upper bound."""
    written: int
    """Bytes written, each element counted once; an upper bound."""


def access_ranges(kernel: Kernel, symbols: Mapping[str, int | float]) -> dict[str, AccessRange]:
    """Access range of each parameter of a kernel, for given values of its symbols.

    A load under a condition counts wherever the kernel runs, so ``read`` may exceed the bytes that are read. A
    workspace counts no bytes: thread blocks exchange values through caches.
    """
    if kernel.subkernels:
        return _fused_ranges(kernel, symbols)
    sizes = {name: int(value) for name, value in symbols.items() if not isinstance(value, float)}
    ranges = {name: Range(value, value) for name, value in sizes.items()}
    points: dict[str, int] = {}
    for axis in (*kernel.outer, *(axis for phase in kernel.phases for axis in phase.axes)):
        points[axis.name] = max(points.get(axis.name, 0), evaluate(axis.size, sizes))
    for nested in nested_reductions(
        *(value for phase in kernel.phases for s in phase.statements for value in _values(s))
    ):
        points |= {name: evaluate(size, sizes) for name, size in nested.axes}
    ranges |= {name: extent(size) for name, size in points.items()}
    read, written = _accesses(kernel)
    found = {}
    for parameter in kernel.parameters:
        if parameter.access == "workspace":
            found[parameter.name] = AccessRange(0, evaluate(workspace_words(kernel), sizes) - 1, 0, 0)
            continue
        accessed = [bounds(each, ranges) for each in (*read[parameter.name], *written[parameter.name])]
        lows = [each.low for each in accessed if each.low is not None]
        highs = [each.high for each in accessed if each.high is not None]
        low = min(lows, default=0) if len(lows) == len(accessed) else None
        high = max(highs, default=-1) if len(highs) == len(accessed) else None
        limit = None if low is None or high is None else (high - low + 1) * parameter.dtype.itemsize
        counts = [
            sum(_points(offset, points) for offset in offsets) * parameter.dtype.itemsize
            for offsets in (read[parameter.name], written[parameter.name])
        ]
        found[parameter.name] = AccessRange(
            low, high, *(count if limit is None else min(count, limit) for count in counts)
        )
    return found


def _fused_ranges(kernel: Kernel, symbols: Mapping[str, int | float]) -> dict[str, AccessRange]:
    """Access ranges of a horizontally fused kernel; elements that several invocations read count once."""
    found: dict[str, AccessRange] = {}
    for subkernel, invocation in invocations_of(kernel):
        own = access_ranges(subkernel, invocation_symbols(subkernel, invocation, symbols))
        for parameter, name in zip(subkernel.parameters, invocation.buffers, strict=True):
            known, more = found.get(name), own[parameter.name]
            found[name] = more if known is None else _hull(known, more)
    return found


def _hull(one: AccessRange, other: AccessRange) -> AccessRange:
    low = None if one.low is None or other.low is None else min(one.low, other.low)
    high = None if one.high is None or other.high is None else max(one.high, other.high)
    return AccessRange(low, high, max(one.read, other.read), max(one.written, other.written))


def _accesses(kernel: Kernel) -> tuple[dict[str, dict[Size, None]], dict[str, dict[Size, None]]]:
    """Offsets that are read and offsets that are written, by buffer, each once."""
    names = [parameter.name for parameter in kernel.parameters] + [array.name for array in kernel.scratch]
    read: dict[str, dict[Size, None]] = {name: {} for name in names}
    written: dict[str, dict[Size, None]] = {name: {} for name in names}
    for statement in (statement for phase in kernel.phases for statement in phase.statements):
        index_values = (atom.value for _, offset in _targets(statement) for atom in indirects_in(offset))
        for load in loads(*_values(statement), *index_values):
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
    """Upper bound of the elements that an access touches: the points of the axes that its offset depends on."""
    count = 1
    for name in free_symbols(offset):
        count *= sizes.get(name, 1)
    return count
