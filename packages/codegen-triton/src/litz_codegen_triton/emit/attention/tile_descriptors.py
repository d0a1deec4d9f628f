"""Tiles of K and V that tensor descriptors load: rows of a matrix in memory, of which the loop multiplies a block.

With a descriptor the Tensor Memory Accelerator (TMA) copies the tile, and no thread holds an address of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from litz_codegen_triton.capabilities import NVIDIA
from litz_codegen_triton.emit.bodies.body import TileEmitter
from litz_codegen_triton.emit.indexing.coordinates import TileIndices
from litz_codegen_triton.emit.loops.fused_attention import MIN_TILE_SIZE
from litz_codegen_triton.emit.loops.tiles import InnerLoop, next_power_of_two
from litz_codegen_triton.emit.source import casts
from litz_codegen_triton.emit.source.text import EmittedValue
from litz_ir.plan import Kernel
from litz_ir.scalar import Expr, Load
from litz_ir.symbols import Range, Size, add, bounds, coefficient, mul, product, substitute, summands
from litz_ir.symbols.term import Term

_ITEM_BYTES = 2
"""Bytes of an element of an operand that tensor cores multiply as it is in memory."""


@dataclass(frozen=True, slots=True)
class SummedMatrix:
    """A matrix in memory whose rows are summed points, and the part of a row's number that the loop varies."""

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
    """Points of a row, which are contiguous."""


def summed_matrix(
    kernel: Kernel,
    operand: Expr,
    *,
    row: str,
    rows: int,
    column: str,
    columns: int,
    serial: str,
    ranges: Mapping[str, Range],
) -> SummedMatrix | None:
    """Return the matrix of an operand over the indices ``row`` and ``column``; ``None`` where TMA cannot load it.

    The index ``row`` has ``rows`` points, and ``serial`` is the index of the loop around them. TMA cannot load an
    operand that is computed, masked or written by the kernel, whose columns are not contiguous, or that is not aligned.
    """
    if not isinstance(operand, Load) or operand.dtype.itemsize != _ITEM_BYTES:
        return None
    if any(each.name == operand.buffer and each.access != "in" for each in kernel.parameters):
        return None
    (offset,) = operand.index
    stride = coefficient(offset, row)
    if coefficient(offset, column) != 1 or not isinstance(stride, int) or stride < columns:
        return None
    rest = substitute(offset, {row: 0, column: 0})
    base, first_row = _divided(rest, stride, serial)
    aligned = NVIDIA.descriptor_alignment // _ITEM_BYTES
    if base is None or first_row is None or stride % aligned or _is_unaligned(base, aligned):
        return None
    last = bounds(first_row, ranges).high
    return (
        None if last is None else SummedMatrix(operand.buffer, base, stride, first_row, last + rows, columns)
    )


def _divided(offset: Size, stride: int, serial: str) -> tuple[Size | None, Size | None]:
    """Divide an offset into a part that does not depend on ``serial`` and a number of rows that does."""
    base: Size = 0
    row: Size = 0
    for factors, scale in summands(offset):
        monomial = product(factors)
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


class DescribedTiles:
    """Writes tiles of K and V that are loaded through tensor descriptors, for a schedule that has them.

    Its owner sets ``start``: the first summed point of the tile in its block, as text.
    """

    def __init__(
        self, body: TileEmitter, coordinates: TileIndices, inner: InnerLoop, serial_index: str
    ) -> None:
        self.body = body
        self.coordinates = coordinates
        self.inner = inner
        self.serial_index = serial_index
        self.start = "0"
        self.made: dict[SummedMatrix, str] = {}

    def load(self, base: str, operand: Expr, row: str, column: str, columns: Size) -> EmittedValue | None:
        """Load a tile of K or V over all dimensions of the body, transposed where its rows are not the first one.

        Rows are indexed by ``row``; ``columns`` is 0 where one tile does not have them all. ``None`` where the schedule
        has no descriptors or the operand's memory does not allow one.
        """
        body, size = self.body, self.inner.size
        if not self.coordinates.tiles.summed_descriptors or not body.index.narrow:
            return None
        if not (isinstance(columns, int) and isinstance(size, int) and columns):
            return None
        matrix = summed_matrix(
            self.coordinates.kernel, operand, row=row, rows=size, column=column, columns=columns,
            serial=self.serial_index, ranges=self.coordinates.ranges,
        )  # fmt: skip
        if matrix is None or (size % self.inner.block and matrix.first_row != 0):
            # Points past the last one have to be past the last row, where a tile is filled with zeros.
            return None
        text = f"{self._descriptor(matrix)}.load([{self._row(matrix)}, 0])"
        dtype = body.setting.parameters[matrix.buffer].dtype
        text = casts.decode(text, dtype, body.form) if body.form == "interpreted" else text
        letters = body.tile.letters
        text = text if letters[0] == "r" else f"tl.trans({text})"
        return body.writer.define(base, text, frozenset(letters), body.writer.depth)

    def _row(self, matrix: SummedMatrix) -> str:
        """Return the first row of the tile as text."""
        row = self.body.index.value(matrix.first_row).text
        return self.start if row == "0" else row if self.start == "0" else f"{row} + {self.start}"

    def _descriptor(self, matrix: SummedMatrix) -> str:
        """Make the descriptor of a matrix before the first loop, the same for all loops; return its name."""
        body, key = self.body, replace(matrix, first_row=0)
        if key not in self.made:
            first = body.index.value(matrix.base)
            memory = body.setting.pointers[matrix.buffer] + ("" if first.text == "0" else f" + {first.text}")
            sizes = f"[{matrix.row_count}, {matrix.columns}], [{matrix.stride}, 1]"
            width = max(MIN_TILE_SIZE, next_power_of_two(matrix.columns))
            text = f"tl.make_tensor_descriptor({memory}, {sizes}, [RBLOCK, {width}])"
            self.made[key] = body.writer.define(f"{matrix.buffer}_tiles", text, frozenset(), first.depth).text
        return self.made[key]
