"""Traits of a kernel that decide its tile sizes: extents, contiguous axes, nested reductions and register pressure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from litz_codegen_triton.emit.indexing.statements import can_flatten, targets_of, values_of
from litz_codegen_triton.emit.loops.tiles import MAX_UNROLLED
from litz_codegen_triton.schedule.register_pressure import dtype_words, point_words
from litz_ir.loops import SORT, Axis
from litz_ir.plan import Accumulate, Kernel, Phase, ScanStore, Statement, Store
from litz_ir.scalar import OPS, Op, indirects_in, loads, nested_reductions, walk
from litz_ir.symbols import Size, SymbolTable, coefficient, free_symbols, product

_NEIGHBOURS = 4
"""Elements between those that neighbouring outer points read, up to which a warp reads few cache lines."""

_RELATIVE = frozenset({"online_softmax", "softmax_sum"})
"""Kinds of reductions whose points are relative to a maximum, which tiles share."""


def sorts(kernel: Kernel) -> bool:
    """True for a kernel that sorts rows, which have to stay in registers."""
    statements = (each for phase in kernel.phases for each in phase.statements)
    return any(isinstance(each, ScanStore) and each.combiner == SORT for each in statements)


@dataclass(frozen=True)
class _Access:
    """A distinct load or store."""

    itemsize: int
    """Bytes of an element."""

    offset: Size
    """Offset in elements."""


class KernelTraits:
    """Traits of one kernel, with symbols at their hints."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.known = SymbolTable(kernel.symbols)
        self.flat = can_flatten(kernel)
        self.outer = tuple(kernel.outer) + (kernel.phases[0].axes if self.flat else ())
        """Outer axes; for a pointwise kernel of one phase, all axes."""
        self.phases: tuple[tuple[Axis, ...], ...] = (
            ((),) if self.flat else tuple(p.axes for p in kernel.phases)
        )
        """Axes of each phase's own."""
        self.accesses = tuple(_accesses(kernel))
        self.words = point_words(kernel)
        """Registers that the values of one point need."""

    def extent(self, axes: Sequence[Axis]) -> int:
        """Return the hinted number of points of axes."""
        return self.known.hint(product(axis.size for axis in axes))

    @property
    def statements(self) -> Iterator[Statement]:
        """All statements, in order."""
        return (each for phase in self.kernel.phases for each in phase.statements)

    def compute_cost(self) -> int:
        """Return the cost of the most expensive statement at a point, in additions."""
        bodies = (values_of(each) for each in self.statements)
        return max(
            (sum(OPS[node.name].cost for node in walk(*body) if isinstance(node, Op)) for body in bodies),
            default=0,
        )

    def has_nested_reductions(self) -> bool:
        """True where a loop body contains a reduction."""
        return any(nested_reductions(*values_of(each)) for each in self.statements)

    def summed_row(self) -> Axis | None:
        """Return the last outer axis where nested reductions are sums over all of its points, in a kernel that sums
        along other axes too; else ``None``."""
        nested = nested_reductions(*(value for each in self.statements for value in values_of(each)))
        if not self.outer or not any(self.phases) or not nested:
            return None
        row = self.outer[-1]
        same = all([size for _, size in each.axes] == [row.size] for each in nested)
        return row if same and isinstance(row.size, int) else None

    def accumulated_values(self) -> int:
        """Return the accumulators of an element of a tile, over all reductions."""
        accumulated = [each for each in self.statements if isinstance(each, Accumulate)]
        return sum(each.combiner.components for each in accumulated)

    def sums_exponentials(self) -> bool:
        """True where a reduction sums exponentials relative to a maximum that it finds."""
        return any(
            isinstance(each, Accumulate) and getattr(each.combiner, "name", "") == "online_softmax"
            for each in self.statements
        )

    def reduces_pairs(self) -> bool:
        """True where a reduction combines several values of each element, such as a value and its index."""
        return any(isinstance(each, Accumulate) and len(each.values) > 1 for each in self.statements)

    def has_multiword_scan(self) -> bool:
        """True where a scan needs more than one 32-bit register for a value of an element."""
        scans = (each for each in self.statements if isinstance(each, ScanStore))
        return any(dtype_words(value.dtype) > 1 for each in scans for value in each.values)

    def live_rows(self) -> int:
        """Return an upper bound on the rows that a persistent kernel holds at a time."""
        inner = self._inner_names()
        return len({access.offset for access in self.accesses if free_symbols(access.offset) & inner})

    def _loads_of_rows(self) -> list[int]:
        """Return the bytes of an element of each load that varies both with the row and along it."""
        inner, outer = self._inner_names(), {axis.name for axis in self.outer}
        found = {
            (load.buffer, load.index[0]): load.dtype.itemsize
            for each in self.statements
            for load in loads(*values_of(each))
        }
        names = ((free_symbols(offset), nbytes) for (_, offset), nbytes in found.items())
        return [nbytes for each, nbytes in names if each & inner and (each & outer or not outer)]

    def loaded_rows(self) -> int:
        """Return the number of rows that are loaded for each outer point, at least 1."""
        return max(1, len(self._loads_of_rows()))

    def row_bytes(self) -> int:
        """Return the bytes that are loaded for each point of a row, at least those of the largest element if there are
        none."""
        return sum(self._loads_of_rows()) or self.max_itemsize()

    def row_itemsize(self) -> int:
        """Return the bytes of the largest element that is loaded along a row, or accessed if there are none."""
        return max(self._loads_of_rows(), default=0) or self.max_itemsize()

    def stores_rows(self) -> bool:
        """True where a phase both accumulates and stores an element for each of its points."""
        return any(
            phase.axes
            and any(isinstance(each, Accumulate) for each in phase.statements)
            and any(isinstance(each, Store) for each in phase.statements)
            for phase in self.kernel.phases
        )

    def is_contiguous_along_outer(self) -> bool:
        """True where more bytes are accessed with unit stride along the outer axes than along inner ones, as in a
        reduction of columns."""
        traffic = self.unit_stride_bytes()
        inner = self._inner_names()
        along_inner = sum(nbytes for name, nbytes in traffic.items() if name in inner)
        along_outer = sum(
            nbytes
            for name, nbytes in traffic.items()
            if name not in inner and any(free_symbols(a.offset) & inner for a in self.accesses)
        )
        return along_outer > along_inner

    def reduces_windows(self) -> bool:
        """True where each thread can reduce the few points of its own outer points: neighbouring outer points read
        neighbouring elements, as in pooling and sums of a few columns."""
        reducing = [phase for phase in self.kernel.phases if phase.axes]
        if self.flat or len(reducing) != 1 or self.has_nested_reductions():
            return False
        (phase,) = reducing
        simple = all(
            isinstance(each, Accumulate) and getattr(each.combiner, "name", "") not in _RELATIVE
            for each in phase.statements
        )
        size = product(axis.size for axis in phase.axes)
        if not simple or not isinstance(size, int) or not 1 < size <= MAX_UNROLLED:
            return False
        inner = {axis.name for axis in phase.axes}
        found = {load for each in phase.statements for load in loads(*values_of(each))}
        varying = [load.index[0] for load in found if free_symbols(load.index[0]) & inner]
        return bool(varying) and all(self._are_neighbours(offset, phase.axes) for offset in varying)

    def _are_neighbours(self, offset: Size, inner: Sequence[Axis]) -> bool:
        """True where outer points that follow one another read elements within a few, other than rows that follow one
        another, which tiles read in whole cache lines."""
        strides = [coefficient(offset, axis.name) for axis in self.outer if axis.size != 1]
        step = min((abs(each) for each in strides if isinstance(each, int) and each), default=0)
        is_row = len(inner) == 1 and coefficient(offset, inner[0].name) == 1
        return 0 < step <= _NEIGHBOURS and not (is_row and step >= self.extent(inner))

    def unit_stride_bytes(self) -> Counter[str]:
        """Return for each axis the bytes of the accesses that have unit stride along it."""
        axes = [*self.outer, *(axis for phase in self.phases for axis in phase)]
        traffic: Counter[str] = Counter()
        for access in self.accesses:
            names = free_symbols(access.offset)
            moving = [axis for axis in axes if axis.name in names]
            for axis in moving:
                if coefficient(access.offset, axis.name) == 1:
                    traffic[axis.name] += access.itemsize * self.extent(moving)
        return traffic

    def gathers(self) -> bool:
        """True where an access has an indirect index."""
        return any(indirects_in(access.offset) for access in self.accesses)

    def is_transposed(self, first: Axis, second: Axis) -> bool:
        """True where an access has unit stride along ``second`` and another stride along ``first``."""
        return any(
            coefficient(access.offset, second.name) == 1
            and coefficient(access.offset, first.name) not in (0, 1)
            for access in self.accesses
        )

    def has_costly_rows(self, last: Axis, vector: int, block: int) -> bool:
        """True for a map that a thread block should compute of one row alone, ``last`` being the axis along it.

        A row of ``block`` elements or more that is no multiple of a thread's ``vector`` begins in the middle of some
        thread's elements, so that each element of a flat map loads what its row has of its own. Where that is more
        accesses than those along rows, a tile of one row has fewer, though none of them is a vector. Rows of an unknown
        number of elements begin anywhere, and each element would be divided by that number to find its row.
        """
        used = [free_symbols(each.offset) for each in self.accesses]
        along = sum(last.name in each for each in used)
        of_rows = sum(bool(each) and last.name not in each for each in used)
        if self.extent([last]) < block:
            return False
        if isinstance(last.size, int):
            return last.size % vector != 0 and along < of_rows
        return of_rows > 0

    def has_short_rows(self, last: Axis, least: int, block: int) -> bool:
        """True for a map whose rows, along the axis ``last``, are short and have values of their own.

        A tile of ``block`` elements has several of them, whole and without padding. A row has a static number of
        elements, at least ``least``. It has a value of its own where an access varies with the row but not along it.
        """
        if not isinstance(last.size, int) or not least <= last.size < block or block % last.size:
            return False
        stores = [each for each in self.statements if isinstance(each, Store)]
        if self.has_nested_reductions() or any(each.mode != "set" for each in stores):
            return False
        used = [free_symbols(each.offset) for each in self.accesses]
        return any(names and last.name not in names for names in used)

    def itemsize_across(self, axes: Sequence[Axis], along: Sequence[Axis]) -> int:
        """Return the bytes of the smallest element that is accessed with unit stride along one of ``axes`` and another
        stride along one of ``along``; 0 where there is none."""

        def strides(access: _Access, among: Sequence[Axis]) -> list[Size | None]:
            names = free_symbols(access.offset)
            return [coefficient(access.offset, axis.name) for axis in among if axis.name in names]

        found = [
            access.itemsize
            for access in self.accesses
            if 1 in strides(access, axes) and any(each not in (0, 1) for each in strides(access, along))
        ]
        return min(found, default=0)

    def max_itemsize(self, along: Sequence[Axis] = ()) -> int:
        """Return the bytes of the largest element that is accessed, if possible only of accesses that vary ``along``
        axes: others are one element for all of a thread."""
        names = {axis.name for axis in along}
        varying = [each.itemsize for each in self.accesses if free_symbols(each.offset) & names]
        return max(varying or (each.itemsize for each in self.accesses), default=4)

    def _inner_names(self) -> set[str]:
        return {axis.name for axes in self.phases for axis in axes}


def _accesses(kernel: Kernel) -> Iterator[_Access]:
    """Yield every distinct load and store."""
    found: dict[_Access, None] = {}
    for phase in kernel.phases:
        for buffer, offset in _buffer_offsets(phase):
            found[_Access(kernel.parameter(buffer).dtype.itemsize, offset)] = None
    yield from found


def _buffer_offsets(phase: Phase) -> Iterator[tuple[str, Size]]:
    for statement in phase.statements:
        for load in loads(*values_of(statement)):
            yield load.buffer, load.index[0]
        yield from targets_of(statement)
