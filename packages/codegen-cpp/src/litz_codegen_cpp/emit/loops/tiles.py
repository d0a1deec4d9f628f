"""Tiles over two axes: accesses that are contiguous along another axis than the lanes, through transposed copies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from litz_codegen_cpp.emit.bodies.body import ExpressionEmitter
from litz_codegen_cpp.emit.bodies.index import LANES
from litz_codegen_cpp.emit.bodies.traversal import always_evaluated
from litz_codegen_cpp.emit.loops.phases import step_text
from litz_codegen_cpp.emit.source.context import TransposedTile
from litz_codegen_cpp.emit.source.spelling import memory_type
from litz_ir.dtypes import DType
from litz_ir.loops import Axis
from litz_ir.plan import Kernel, Store
from litz_ir.scalar import Load, indirects_in, loads
from litz_ir.symbols import Size, coefficient, free_symbols, substitute, symbol

LINE_BYTES = 64
"""Bytes of a cache line."""

_MOST_TILES = 8
"""Transposed accesses that have copies, which share the first-level cache; the others are read lane by lane."""

FIRST_ROW = "tile.first"
"""The symbol of the first row of a tile."""


@dataclass(frozen=True, slots=True)
class TransposedAccess:
    """A load or store that is contiguous along the last but one outer axis and strided along the last."""

    buffer: str
    """The parameter."""
    offset: Size
    """The element offset."""
    stride: Size
    """Elements from lane to lane."""
    dtype: DType
    """The dtype of the elements, an integer for low-precision floats that are only moved."""
    stored: bool
    """True for a store."""


def transposed_accesses(kernel: Kernel) -> tuple[TransposedAccess, ...]:
    """Return the transposed accesses of a pointwise kernel, whose last outer axis is that of the lanes.

    Such a kernel touches each cache line once per element unless both axes advance together. A buffer that is written
    is left out where it is read too, and so are loads that are evaluated under a condition alone.
    """
    if len(kernel.outer) < 2 or any(phase.axes for phase in kernel.phases):
        return ()
    stores = [s for phase in kernel.phases for s in phase.statements if isinstance(s, Store)]
    if len(stores) != sum(len(phase.statements) for phase in kernel.phases):
        return ()
    read = {load.buffer for load in loads(*(store.value for store in stores))}
    written = [store.buffer for store in stores]
    found: dict[tuple[str, Size], TransposedAccess] = {}
    for node in always_evaluated(tuple(store.value for store in stores)):
        if isinstance(node, Load) and node.buffer not in written:
            _add(found, kernel, node.buffer, node.index[0], node.dtype, stored=False)
    for store in stores:
        if store.mode == "set" and store.buffer not in read and written.count(store.buffer) == 1:
            _add(found, kernel, store.buffer, store.offset, store.value.dtype, stored=True)
    return tuple(found.values())[:_MOST_TILES]


def _add(
    found: dict[tuple[str, Size], TransposedAccess],
    kernel: Kernel,
    buffer: str,
    offset: Size,
    dtype: DType,
    *,
    stored: bool,
) -> None:
    """Add an access where it is transposed."""
    rows, lanes = kernel.outer[-2].name, kernel.outer[-1].name
    stride = coefficient(offset, lanes)
    scratch = {array.name for array in kernel.scratch}
    if buffer in scratch or coefficient(offset, rows) != 1 or stride in (0, 1, None):
        return
    assert stride is not None
    if not {rows, lanes} & free_symbols(stride) and not any(True for _ in indirects_in(offset)):
        found.setdefault((buffer, offset), TransposedAccess(buffer, offset, stride, dtype, stored))


def tile_rows(accesses: Sequence[TransposedAccess]) -> int:
    """Return the rows of a tile: so many that each access fills a cache line."""
    return LINE_BYTES // min(4, *(access.dtype.itemsize for access in accesses))


class TransposedTiles:
    """Copies of the tiles of a kernel, one array for each transposed access."""

    def __init__(self, body: ExpressionEmitter, registers: int) -> None:
        self.body = body
        self.context = body.context
        self.registers = registers
        self.accesses = transposed_accesses(body.context.kernel)
        self.first = symbol(FIRST_ROW)

    def declare(self, axis: Axis, rows: int, low: str) -> None:
        """Declare the arrays; ``low`` is the first row of a tile, defined in the innermost scope."""
        context = self.context
        context.scopes.stack[-1].axes[FIRST_ROW] = low
        context.ranges[FIRST_ROW] = context.ranges[axis.name]
        for access in self.accesses:
            name = context.names.fresh(f"{access.buffer}_tile")
            kind = memory_type(access.dtype)
            # Lanes after the last point are computed, too: their values are defined, and not stored.
            line = f"alignas(64) {kind} {name}[{rows} * {self.registers} * {LANES}] = {{}};"
            context.scopes.line(line, 0)
            row = f"({context.axis_names[axis.name]} - {low})"
            context.tiles[access.buffer, access.offset] = TransposedTile(
                name, access.dtype, self.registers, row
            )
        if self.accesses:
            self.body.headers.add("transpose")

    @contextmanager
    def copied(self, axis: Axis, low: str, high: str) -> Iterator[None]:
        """Fill the copies of what the loop over a tile's rows loads; after it, copy out what it stored."""
        for access in self.accesses:
            if not access.stored:
                tile, pitch, address, stride, runs = self._operands(access, axis)
                self.context.scopes.line(
                    f"transpose_tile({tile}, {pitch}, {address}, {stride}, {runs}, {high} - {low});"
                )
        yield
        for access in self.accesses:
            if access.stored:
                tile, pitch, address, stride, runs = self._operands(access, axis)
                self.context.scopes.line(
                    f"transpose_tile({address}, {stride}, {tile}, {pitch}, {high} - {low}, {runs});"
                )

    def _operands(self, access: TransposedAccess, axis: Axis) -> tuple[str, str, str, str, str]:
        """Return a copy and its pitch, the first element of the tile, its stride, and the number of lanes, as text."""
        context = self.context
        tile = context.tiles[access.buffer, access.offset].pointer
        start = self.body.scalar(substitute(access.offset, {axis.name: self.first})).text
        kind = memory_type(access.dtype)
        const = "" if access.stored else "const "
        address = f"({const}{kind}*){context.buffers[access.buffer].pointer} + {start}"
        count = step_text(context.registers).strip("()")
        lanes = context.scopes.active
        runs = count if lanes is None else f"minimum<int64_t>({lanes.count}, {count})"
        stride = self.body.scalar(access.stride).bracketed()
        return tile, step_text(self.registers).strip("()"), address, stride, runs
