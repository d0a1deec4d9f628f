"""Tiles along the summed points that are loaded through tensor descriptors: rows of K and V, and values of points.

A launch makes descriptors of whole buffers where it can; otherwise each thread block makes those of its matrices.

With a descriptor the Tensor Memory Accelerator (TMA) copies the tile to shared memory, and threads compute no addresses
of it. They read values of points from there in the layout of scores, in which each value is read many times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from litz_codegen_triton.capabilities import NVIDIA
from litz_codegen_triton.emit.bodies.body import TileEmitter
from litz_codegen_triton.emit.indexing.coordinates import TileIndices
from litz_codegen_triton.emit.loops.fused_attention import MIN_TILE_SIZE
from litz_codegen_triton.emit.loops.tiles import InnerLoop, next_power_of_two
from litz_codegen_triton.emit.source import casts
from litz_codegen_triton.emit.source.ops_table import pointer_type
from litz_codegen_triton.emit.source.tensor_descriptors import TensorDescriptor
from litz_codegen_triton.emit.source.text import EmittedValue
from litz_ir.dtypes import f32, i32, i64
from litz_ir.plan import Kernel
from litz_ir.scalar import Expr, Load, Masked
from litz_ir.symbols import Range, Size, Term, add, bounds, coefficient, mul, product, substitute, summands

_ITEM_BYTES = 2
"""Bytes of an element of an operand that tensor cores multiply as it is in memory."""

_VALUES = frozenset({f32, i32, i64})
"""Dtypes of values of points that descriptors load."""


@dataclass(frozen=True, slots=True)
class SummedMatrix:
    """A matrix in memory whose rows are summed points, or a vector of them."""

    buffer: str
    """The buffer that holds it."""
    base: Size
    """The offset of its first element in the buffer, the same in the whole loop."""
    stride: int
    """The stride of its rows, in elements."""
    first_row: Size
    """The row at which the block of the loop starts; a tile starts at a point of the block."""
    row_count: int
    """Rows up to which tiles may be read; a row past them reads as zeros."""
    columns: int
    """Points of a row, which are contiguous; 0 for a vector."""


@dataclass(frozen=True, slots=True)
class SummedPoints:
    """The summed points of a loop."""

    count: int
    """Points of a block."""
    serial: str
    """The index of the loop around blocks."""
    ranges: Mapping[str, Range]
    """The range of each index."""


def summed_matrix(
    kernel: Kernel, operand: Load, points: SummedPoints, row: str, column: str = "", columns: int = 0
) -> SummedMatrix | None:
    """Return the matrix of a load over ``row``, the index of a point, and ``column``; a vector without a ``column``.

    ``None`` where TMA cannot load it: the kernel writes it, it is not contiguous along its columns or as a vector, or
    it is not aligned.
    """
    if any(each.name == operand.buffer and each.access != "in" for each in kernel.parameters):
        return None
    (offset,) = operand.index
    stride = coefficient(offset, row)
    contiguous = coefficient(offset, column) == 1 if columns else stride == 1
    if not contiguous or not isinstance(stride, int) or stride < max(1, columns):
        return None
    rest = substitute(offset, {row: 0, column: 0} if columns else {row: 0})
    base, first_row = _divided(rest, stride, points.serial)
    aligned = NVIDIA.descriptor_alignment // operand.dtype.itemsize
    if base is None or first_row is None or (columns and stride % aligned) or _is_unaligned(base, aligned):
        return None
    last = bounds(first_row, points.ranges).high
    if last is None:
        return None
    return SummedMatrix(operand.buffer, base, stride, first_row, last + points.count, columns)


def _divided(offset: Size, stride: int, serial: str) -> tuple[Size | None, Size | None]:
    """Divide an offset into elements that do not depend on ``serial`` and rows that do; ``None`` for both where what
    depends on it is no number of rows."""
    base: Size = 0
    row: Size = 0
    for symbols, scale in summands(offset):
        monomial = product(symbols)
        if isinstance(monomial, Term) and serial in monomial.free_symbols:
            if scale % stride:
                return None, None
            row = add(row, mul(monomial, scale // stride))
        else:
            base = add(base, mul(monomial, scale))
    return base, row


def _is_unaligned(offset: Size, aligned: int) -> bool:
    """True where an offset is not known to be a multiple of ``aligned``."""
    return any(scale % aligned for _, scale in summands(offset))


def _position(offset: Size, stride: int) -> tuple[Size, Size]:
    """Divide the offset of a matrix into the row and the column where it starts, in rows of ``stride`` elements."""
    row: Size = 0
    column: Size = 0
    for symbols, scale in summands(offset):
        monomial = product(symbols)
        rows, rest = divmod(scale, stride)
        if symbols and rest:
            column = add(column, mul(monomial, scale))
        else:
            row, column = add(row, mul(monomial, rows)), add(column, rest)
    return row, column


class DescribedTiles:
    """Writes tiles along the summed points that are loaded through tensor descriptors, for a schedule that has them.

    Its owner sets ``start``: the first summed point of the tile in its block, as text.
    """

    def __init__(
        self, body: TileEmitter, coordinates: TileIndices, inner: InnerLoop, serial_index: str
    ) -> None:
        self.body = body
        self.coordinates = coordinates
        self.block = inner.block
        self.start = "0"
        self.made: dict[SummedMatrix, str] = {}
        self.points: SummedPoints | None = None
        allowed = coordinates.tiles.summed_descriptors and inner.block <= NVIDIA.max_descriptor_block
        if allowed and body.index.narrow and isinstance(inner.size, int):
            self.points = SummedPoints(inner.size, serial_index, coordinates.ranges)

    def tile(self, base: str, operand: Expr, row: str, column: str, columns: Size) -> EmittedValue | None:
        """Load a tile of K or V over all dimensions of the body, transposed where its rows are not the first one.

        Rows are indexed by ``row``; ``columns`` is 0 where one tile does not have them all. ``None`` where the schedule
        has no descriptors or the operand's memory does not allow one.
        """
        if not isinstance(operand, Load) or operand.dtype.itemsize != _ITEM_BYTES:
            return None
        if not isinstance(columns, int) or not columns:
            return None
        text = self._load(operand, row, column, columns)
        if text is None:
            return None
        letters = self.body.tile.letters
        text = text if letters[0] == "r" else f"tl.trans({text})"
        return self.body.writer.define(base, text, frozenset(letters), self.body.writer.depth)

    def vectors(self, expr: Expr, row: str) -> None:
        """Load the values of points that an expression reads outside of masks, and remember them."""
        for load in _unmasked(expr):
            if load.dtype in _VALUES and self.body.writer.known(load) is None:
                text = self._load(load, row)
                if text is not None:
                    writer = self.body.writer
                    value = writer.define(load.buffer, text, frozenset("r"), writer.depth)
                    writer.remember(load, value)

    def _load(self, operand: Load, row: str, column: str = "", columns: int = 0) -> str | None:
        """Return the load of a tile through a descriptor as text; ``None`` where there is none."""
        points, body = self.points, self.body
        if points is None:
            return None
        matrix = summed_matrix(self.coordinates.kernel, operand, points, row, column, columns)
        if matrix is None or (points.count % self.block and matrix.first_row != 0):
            # Points past the last one have to be past the last row, where a tile is filled with zeros.
            return None
        base, first = body.index.value(matrix.base), body.index.value(matrix.first_row)
        if base.dims | first.dims or base.depth:
            return None
        rows, column = [first.text, self.start], "0"
        found = self._in_buffer(matrix)
        if found is None:
            name = self._kernel_descriptor(matrix, base.text)
        else:
            of_row, of_column, described = found
            name = self._launch_descriptor(matrix.buffer, described)
            rows.insert(0, body.index.value(of_row).text)
            column = body.index.value(of_column).text
        start = " + ".join(each for each in rows if each != "0") or "0"
        text = f"{name}.load([{start}{f', {column}' if columns else ''}])"
        dtype = body.setting.parameters[matrix.buffer].dtype
        return casts.decode(text, dtype, body.form) if body.form == "interpreted" else text

    def _in_buffer(self, matrix: SummedMatrix) -> tuple[Size, Size, TensorDescriptor] | None:
        """Return the row and the column of its buffer at which a matrix starts, and the buffer's descriptor.

        ``None`` where the buffer is no matrix of rows with that stride, or where a tile may leave its matrix: zeros are
        read only past the end of the buffer.
        """
        points, body = self.points, self.body
        if points is None or body.descriptors is None or not points.count or points.count % self.block:
            return None
        row, column = _position(matrix.base, matrix.stride)
        of_row, of_column = (bounds(each, points.ranges) for each in (row, column))
        if of_row.low is None or of_row.high is None or of_column.low is None or of_column.high is None:
            return None
        width = max(MIN_TILE_SIZE, next_power_of_two(matrix.columns)) if matrix.columns else 0
        if min(of_row.low, of_column.low) < 0 or of_column.high + matrix.columns > max(1, matrix.stride):
            return None
        if of_column.high and width != matrix.columns:
            return None
        names = list(body.setting.parameters)
        dtype = pointer_type(body.setting.parameters[matrix.buffer].dtype, body.form)
        at, count = names.index(matrix.buffer), of_row.high + matrix.row_count
        if not matrix.columns:
            return row, column, TensorDescriptor(at, dtype, (count,), (1,), (self.block,))
        shape = count, matrix.stride if of_column.high else matrix.columns
        return row, column, TensorDescriptor(at, dtype, shape, (matrix.stride, 1), (self.block, width))

    def _launch_descriptor(self, buffer: str, described: TensorDescriptor) -> str:
        """Return the name of a descriptor that the launch makes, an argument of the kernel.

        In the interpreted form, which has no such arguments, the kernel makes it at its start.
        """
        given = self.body.descriptors
        assert given is not None, "checked before"
        known = next((name for name, each in given.items() if each == described), None)
        if known is None:
            writer, base = self.body.writer, f"{buffer}_tiles"
            if self.body.form == "interpreted":
                parts = [list(described.shape), list(described.strides), list(described.block)]
                text = ", ".join([self.body.setting.pointers[buffer], *map(str, parts)])
                known = writer.define(base, f"tl.make_tensor_descriptor({text})", frozenset(), 0).text
            else:
                known = writer.names.fresh(base)
            given[known] = described
        return known

    def _kernel_descriptor(self, matrix: SummedMatrix, base: str) -> str:
        """Make the descriptor of a matrix at offset ``base`` before the first loop, for all loops; return its name."""
        body, key = self.body, replace(matrix, first_row=0)
        if key not in self.made:
            memory = body.setting.pointers[matrix.buffer] + ("" if base == "0" else f" + {base}")
            shape, strides, block = f"[{matrix.row_count}]", "[1]", "[RBLOCK]"
            if matrix.columns:
                width = max(MIN_TILE_SIZE, next_power_of_two(matrix.columns))
                shape = f"[{matrix.row_count}, {matrix.columns}]"
                strides, block = f"[{matrix.stride}, 1]", f"[RBLOCK, {width}]"
            text = f"tl.make_tensor_descriptor({memory}, {shape}, {strides}, {block})"
            self.made[key] = body.writer.define(f"{matrix.buffer}_tiles", text, frozenset(), 0).text
        return self.made[key]


def _unmasked(expr: Expr) -> Iterator[Load]:
    """Yield the loads in an expression that are not in the body of a masked one, nor in an index; each once."""
    stack: list[Expr] = [expr]
    visited: set[Expr] = set()
    while stack:
        node = stack.pop()
        if node in visited:
            continue
        visited.add(node)
        if isinstance(node, Load):
            yield node
        else:
            stack += (node.cond, node.other) if isinstance(node, Masked) else node.children
