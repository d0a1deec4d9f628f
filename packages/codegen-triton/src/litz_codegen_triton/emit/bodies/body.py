"""Emission of scalar expressions over a tile: their order, masked expressions, checks and indirect indices."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Protocol

from litz_codegen_triton.emit.bodies.memory import MemoryEmitter
from litz_codegen_triton.emit.bodies.operations import OperationEmitter
from litz_codegen_triton.emit.bodies.settings import EmitSettings
from litz_codegen_triton.emit.bodies.tile_shape import Dims, TileShape, typed
from litz_codegen_triton.emit.bodies.value_cache import ValueCache
from litz_codegen_triton.emit.indexing.index import IndexTerms
from litz_codegen_triton.emit.indexing.mask import Masks
from litz_codegen_triton.emit.source import casts
from litz_codegen_triton.emit.source.ops_table import triton_type
from litz_codegen_triton.emit.source.tensor_descriptors import TensorDescriptor
from litz_codegen_triton.emit.source.text import CodeWriter, EmittedValue
from litz_ir.dtypes import DType, f32, i32, i64
from litz_ir.errors import CodegenError
from litz_ir.faults import FAULTS, Fault
from litz_ir.scalar import (
    Checked,
    Const,
    Expr,
    Index,
    Indirect,
    Load,
    Masked,
    NestedReduction,
    Op,
    Param,
    Scalar,
    nested_reductions,
    substitute_expr,
)
from litz_ir.symbols import Size, bounds, symbol


class RowSumWriter(Protocol):
    """Writer of sums over rows that the thread blocks of a cluster divide."""

    def write(self, summands: Sequence[str], dtype: DType, iteration: str, depth: int) -> list[EmittedValue]:
        """Write sums over one row, in the scope at ``depth``, and return their values, one for each of ``summands``.

        ``summands`` are tiles as text, of this thread block's columns; all have ``dtype``, of 4 or 8 bytes. Each is
        summed, and the sums of all thread blocks are added. ``iteration`` is the text of the number of the iteration of
        the loop at that depth, from 0 on: it selects the buffer.
        """

    def begin(self) -> list[str]:
        """Return the lines at the start of the kernel, once all sums are written."""


class TileEmitter:
    """Writes the expressions of one kernel over tiles that have the dimensions ``dims`` at first, each once.

    Its parts are used by themselves: ``index`` writes index terms, ``masks`` has the masks of accesses, ``tile`` the
    dimensions, ``memory`` writes loads, ``operations`` writes constants and operations, ``cache`` has the values that
    were written. Its owner sets ``scalars`` (results of earlier phases and symbols, by name), ``params`` (arguments of
    a combiner's function), and ``row`` (letter, index and size of a dimension of which a tile has all points; nested
    reductions of that size are sums along it). Where a cluster divides that dimension it sets ``row_sums``, the
    ``nested`` reductions of the phase that are in no other one, and the ``iteration`` of its loop with the loop's
    depth. It collects ``functions`` (sources by name) and ``asserts`` (whether indices are checked). ``descriptors``
    has the tensor descriptors that launches make, by the name of the argument; ``None`` for a function that has no
    such arguments.
    """

    def __init__(self, setting: EmitSettings, dims: Dims) -> None:
        self.setting = setting
        self.form = setting.form
        self.writer = CodeWriter()
        self.masks = Masks(self.writer, [letter for letter, _ in dims])
        self.index = IndexTerms(self.masks, setting.ranges, setting.narrow, self._indirect)
        self.tile = TileShape(dims, self.masks, self.index)
        self.cache = ValueCache(self.masks)
        self.memory = MemoryEmitter(setting, self.tile, self.index)
        self.operations = OperationEmitter(self.form, self.tile, self.index, self.cache, self.values)
        self.scalars: dict[str, tuple[EmittedValue, DType]] = {}
        self.params: tuple[EmittedValue, ...] = ()
        self.row: tuple[str, str, Size] | None = None
        self.row_sums: RowSumWriter | None = None
        self.nested: tuple[NestedReduction, ...] = ()
        self.iteration = ("0", 0)
        self.functions: dict[str, str] = {}
        self.asserts = False
        self.descriptors: dict[str, TensorDescriptor] | None = None

    def value(self, expr: Expr) -> EmittedValue:
        """Write an expression and return its value.

        Raises ``CodegenError`` for a scalar that nothing defines, and for an expression that Triton cannot have.
        """
        return self.values([expr])[0]

    def values(self, exprs: Sequence[Expr]) -> list[EmittedValue]:
        """Write expressions and return their values; the operations of all precede the other expressions."""
        for expr in exprs:
            self._write_operations(expr)
        return [self._visit(expr) for expr in exprs]

    def _write_operations(self, root: Expr) -> None:
        """Write operands before their users by a stack, since long expressions would exceed the recursion limit."""
        stack: list[tuple[Expr, bool]] = [(root, False)]
        while stack:
            expr, ready = stack.pop()
            if ready:
                self._visit(expr)
            elif isinstance(expr, (Op, Masked)) and self.cache.known(expr) is None:
                children = self.operations.operands(expr) if isinstance(expr, Op) else (expr.cond,)
                stack.append((expr, True))
                stack.extend((child, False) for child in reversed(children))

    def _visit(self, expr: Expr) -> EmittedValue:
        """Return the value of an expression, which is written unless it is known."""
        found = self.cache.known(expr)
        return self.cache.remember(expr, self._write(expr)) if found is None else found

    def _write(self, expr: Expr) -> EmittedValue:
        """Write an expression, by its kind."""
        match expr:
            case Const():
                return self.operations.constant(expr)
            case Op():
                return self.operations.operation(expr)
            case Load():
                return self.memory.load(expr)
            case Index():
                return self._index(expr)
            case Scalar():
                return self._scalar(expr)
            case Param():
                return self.params[expr.position]
            case Masked():
                return self._masked(expr)
            case Checked():
                return self._checked(expr)
            case NestedReduction():
                return self._nested_reduction(expr)
        raise CodegenError(f"a Triton kernel cannot contain {type(expr).__name__}", node=repr(expr))

    def _index(self, expr: Index) -> EmittedValue:
        """Write an index term as a value, which has 64 bits."""
        value = self.index.unit(expr.term)
        text = f"tl.full([], {value.text}, tl.int64)" if value.literal else f"{value.text}.to(tl.int64)"
        return self.writer.define("index", text, value.dims, value.depth)

    def _scalar(self, expr: Scalar) -> EmittedValue:
        """Return a symbol or a result of an earlier phase, in the dtype of the expression."""
        found = self.scalars.get(expr.name)
        if found is None:
            raise CodegenError(
                f"the kernel reads {expr.name!r}, which no earlier phase defines", node=repr(expr)
            )
        value, dtype = found
        text = casts.cast(value.text, dtype, expr.dtype, self.form)
        return value if text == value.text else self.writer.derive(expr.name, text, (value,))

    def _masked(self, expr: Masked) -> EmittedValue:
        """Write ``body`` under the mask of its condition, and select ``other`` where it does not hold."""
        cond = self._visit(expr.cond)
        other = self.value(expr.other)
        body = expr.body
        with self.memory.under(expr.cond, cond):
            filled = other.literal and _fills_masked_load(expr.other) and self.cache.known(body) is None
            if filled and isinstance(body, Load) and self.memory.is_masked_by(expr.cond, body):
                return self.memory.load(body, other.text)
            value = self.value(body)
        text = f"tl.where({cond.text}, {_operand(value, expr.dtype)}, {_operand(other, expr.dtype)})"
        return self.writer.derive("masked", text, (cond, value, other))

    def _indirect(self, atom: Indirect) -> EmittedValue:
        """Write an index that is loaded: wrapped, checked or clamped, in the type of indices."""
        key: Hashable = (atom, self.masks.conditions)
        found = self.writer.known(key)
        if found is not None:
            return found
        derive, value = self.writer.derive, self.value(atom.value)
        size = self.index.unit(atom.size)
        text = typed(value, atom.value.dtype)
        # The index is compared with the size in 64 bits, which hold both.
        if atom.value.dtype != i64:
            value = derive("index", f"{text}.to(tl.int64)", (value,))
            text = value.text
        if atom.wrap:
            value = derive("index", f"tl.where({text} < 0, {text} + {size.text}, {text})", (value, size))
            text = value.text
        if atom.check == "raised":
            inside = derive("inside", f"({text} >= 0) & ({text} < {size.text})", (value, size))
            self._assert(inside, FAULTS[atom.fault])
        if atom.check != "assumed":
            text = f"tl.minimum(tl.maximum({text}, 0), {size.text} - 1)"
        if self.index.narrow:
            text = f"{text}.to(tl.int32)"
        if text != value.text:
            value = derive("index", text, (value, size))
        return self.writer.remember(key, value)

    def _nested_reduction(self, expr: NestedReduction) -> EmittedValue:
        """Write a nested reduction: as a sum of a tile along its row, or as serial loops."""
        if self.row is not None and [size for _, size in expr.axes] == [self.row[2]]:
            if self.row_sums is not None:
                return self._sums_of_cluster(expr, self.row_sums)
            return self._sum_of_row(expr, *self.row[:2])
        writer, depth, load_depth = self.writer, self.writer.depth, self.memory.load_depth
        for name, size in expr.axes:
            variable = writer.names.fresh(name)
            writer.open(f"for {variable} in range(0, {self.index.unit(size).text}):")
            self.index.symbols[name] = EmittedValue(variable, frozenset(), writer.depth)
            least = bounds(size, self.setting.ranges).low
            if least is None or least < 1:
                self.memory.load_depth = writer.depth
        value = self.value(expr.body)
        text = typed(value, expr.dtype)
        shape = self.tile.text(value.dims) if value.dims else "[]"
        zeros = f"tl.full({shape}, 0.0, {triton_type(expr.dtype)})"
        total = writer.define("nested", zeros, value.dims, depth)
        writer.line(f"{total.text} = {total.text} + {text}")
        for name, _ in expr.axes:
            writer.close()
            del self.index.symbols[name]
        self.memory.load_depth = load_depth
        return total

    def _sum_of_row(self, expr: NestedReduction, letter: str, index: str) -> EmittedValue:
        """Write a nested reduction over the points of a dimension as the sum of a tile along it."""
        text, dims, depth = self._along_row(expr, letter, index)
        letters = self.tile.letters
        kept = ", ".join("None" if each == letter else ":" for each in letters)
        subscript = f"[{kept}]" if len(letters) > 1 else ""
        text = f"tl.sum({text}, {letters.index(letter)}){subscript}"
        return self.writer.define("nested", text, dims - {letter}, depth)

    def _sums_of_cluster(self, expr: NestedReduction, row_sums: RowSumWriter) -> EmittedValue:
        """Write a nested reduction over a row that a cluster divides, and others of the phase that are computed in the
        same loop, which are exchanged with it."""
        assert self.row is not None
        letter, index, size = self.row
        own = self._along_row(expr, letter, index)
        found = [(expr, own)]
        for other in self.nested:
            if other == expr or self.masks.conditions or [each for _, each in other.axes] != [size]:
                continue
            if (
                other.dtype != expr.dtype
                or self.cache.known(other) is not None
                or nested_reductions(other.body)
            ):
                continue
            along = self._along_row(other, letter, index)
            if along[2] == own[2]:
                found.append((other, along))
        depth = own[2]
        iteration = self.iteration[0] if depth >= self.iteration[1] > 0 else "0"
        summands = [text for _, (text, _, _) in found]
        totals = row_sums.write(summands, expr.dtype, iteration, depth)
        for (other, _), total in zip(found, totals, strict=True):
            self.cache.remember(other, total)
        return totals[0]

    def _along_row(self, expr: NestedReduction, letter: str, index: str) -> tuple[str, frozenset[str], int]:
        """Write the body of a nested reduction over the points of a tile along a dimension; return its text, its
        dimensions and its depth."""
        ((name, _),) = expr.axes
        value = self.value(substitute_expr(expr.body, {name: symbol(index)}))
        text, dims, tail = typed(value, expr.dtype), value.dims | {letter}, self.masks.tails.get(letter)
        if tail is not None:
            text, dims = f"tl.where({tail.text}, {text}, 0.0)", dims | tail.dims
        if dims != value.dims:
            text = self.tile.broadcast(text, dims)
        return text, dims, max(value.depth, tail.depth if tail else 0)

    def _checked(self, expr: Checked) -> EmittedValue:
        """Write the assertion of a checked expression, and return the value of its body."""
        self._assert(self._visit(expr.cond), FAULTS[expr.fault])
        return self.value(expr.body)

    def _assert(self, holds: EmittedValue, fault: Fault) -> None:
        """Write a device assertion that fails with a fault's message, for points inside the mask."""
        mask = self.masks.access_mask(holds.dims)
        depth = max(holds.depth, mask.depth if mask else 0)
        condition = holds.text if mask is None else f"{holds.text} | ({mask.text} == 0)"
        self.writer.line(f'tl.device_assert({condition}, "fault {fault.code}: {fault.message}")', depth)
        self.asserts = True


def _fills_masked_load(other: Expr) -> bool:
    """Return whether a float literal has one value in memory and in registers: any wide one, and zero."""
    if not other.dtype.is_float:
        return False
    return other.dtype.bits >= 32 or other == Const(0.0, other.dtype)


def _operand(value: EmittedValue, dtype: DType) -> str:
    """Return the text of an operand of ``tl.where``, as a tensor where a literal would have another dtype."""
    return value.text if not value.literal or dtype in (f32, i32) else typed(value, dtype)
