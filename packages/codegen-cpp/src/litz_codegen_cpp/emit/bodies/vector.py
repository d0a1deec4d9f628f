"""Loads and stores in C++: contiguous, strided or gathered along the lanes, and masked."""

from __future__ import annotations

from litz_codegen_cpp.emit.bodies.lane_index import LaneIndices
from litz_codegen_cpp.emit.source.context import BufferPointer, Context, TransposedTile, spread
from litz_codegen_cpp.emit.source.prefetch import LINE, distance
from litz_codegen_cpp.emit.source.scopes import ActiveLanes, CppValue
from litz_codegen_cpp.emit.source.spelling import literal, memory_type
from litz_ir.dtypes import DType, bf16
from litz_ir.errors import CodegenError
from litz_ir.loops import ScatterMode
from litz_ir.scalar import Load
from litz_ir.symbols import Size, add, coefficient, free_symbols

_COMBINE = {"add": "{0} + {1}", "mul": "{0} * {1}", "min": "minimum({0}, {1})", "max": "maximum({0}, {1})"}


class MemoryEmitter:
    """Emits loads and stores."""

    def __init__(self, context: Context, indices: LaneIndices) -> None:
        self.context = context
        self.indices = indices

    # --- loads ----------------------------------------------------------------------------------------------

    def load(self, expr: Load) -> CppValue:
        """Return the loaded value, in the outermost scope that knows its address and in which reading is allowed."""
        context = self.context
        buffer = self._buffer(expr.buffer, expr.dtype)
        if len(expr.index) != 1:
            raise CodegenError(
                f"load of {expr.buffer} has {len(expr.index)} indices, a kernel's has one", node=context.kernel.name,
                hint="linearise indices with the buffer's layout",
            )  # fmt: skip
        offset = expr.index[0]
        min_level = max(context.scopes.conditional_level, self._earliest(expr.buffer))
        reads = frozenset((expr.buffer,)) if expr.buffer in context.written else frozenset[str]()
        if buffer.laned:
            return self._load_laned(buffer, expr, min_level, reads)
        if self.indices.varies(offset):
            return self._load_lanes(buffer, expr, min_level, reads)
        index = self.indices.scalar(offset)
        text = f"load_scalar({_at(buffer.pointer, index.text)})"
        level = max(index.scope_level, min_level)
        lanes = context.scopes.active
        if lanes is not None and lanes.masks:
            any_lane = " | ".join(lanes.masks)
            text = f"any_true({any_lane}) ? {text} : {literal(0, expr.dtype)}"
        return context.define(expr.buffer, text, expr.dtype, level, reads=reads | index.reads)

    def _earliest(self, name: str) -> int:
        """Return the level of the outermost scope to which a load of the buffer may be hoisted.

        A load does not pass a store to the buffer.
        """
        context = self.context
        if name in context.storing:
            return context.scopes.top
        return context.point if name in context.written else 0

    def _load_laned(
        self, buffer: BufferPointer, expr: Load, min_level: int, reads: frozenset[str]
    ) -> CppValue:
        """Return an element of scratch for the lanes of all registers."""
        context = self.context
        if self.indices.varies(expr.index[0]):
            raise CodegenError(
                f"scratch array {expr.buffer} is indexed by the vector axis", node=context.kernel.name
            )
        index = self.indices.scalar(expr.index[0])
        lanes = context.scopes.active
        texts = []
        for number in range(context.registers):
            address = self._laned_address(buffer, index.bracketed(), number)
            masked = lanes is not None and lanes.masks
            texts.append(
                f"load_masked({address}, {lanes.mask(number)})" if lanes and masked else f"load({address})"
            )
        level = max(index.scope_level, min_level, context.point)
        return context.define(
            expr.buffer, tuple(texts), expr.dtype, level, varying=True, reads=reads | index.reads
        )

    def _laned_address(self, buffer: BufferPointer, offset: str, number: int) -> str:
        """Return the address of an element of scratch, for one register."""
        registers = self.context.registers
        step = "LITZ_LANES" if registers == 1 else f"({registers} * LITZ_LANES)"
        shift = f" + {number} * LITZ_LANES" if number else ""
        return f"{buffer.pointer} + {offset} * {step}{shift}"

    def _load_lanes(
        self, buffer: BufferPointer, expr: Load, min_level: int, reads: frozenset[str]
    ) -> CppValue:
        """Return elements that differ between lanes."""
        context, offset = self.context, expr.index[0]
        tile = context.tiles.get((expr.buffer, offset))
        if tile is not None:
            rows = tuple(f"load({_row(tile, expr.dtype, number)})" for number in range(context.registers))
            return context.define(expr.buffer, rows, expr.dtype, context.scopes.top, varying=True)
        lanes = context.scopes.active
        stride = self.indices.lane_stride(offset)
        level, texts = min_level, []
        if self._in_pairs(buffer, offset):
            for number in range(0, context.registers, 2):
                index = self.indices.scalar(self.indices.shifted(offset, number))
                level, reads = max(level, index.scope_level), reads | index.reads
                texts.append(f"load_pair({_at(buffer.pointer, index.text)})")
                self._prefetch(expr.buffer, expr.dtype, offset, number)
            return context.define_pairs(expr.buffer, texts, expr.dtype, level, reads)
        if stride is None and (run := self.indices.run_of(offset)):
            for number in range(context.registers):
                first, last, every = self.indices.lane_ends(offset, number)
                level = max(level, first.scope_level, last.scope_level, every.scope_level)
                texts.append(
                    _load_run(run, (buffer.pointer, first.text, last.text), every.text, lanes, number)
                )
        elif stride is None:
            at = self.indices.per_lane(offset, self.indices.fits_int32(offset))
            level, reads = max(level, at.scope_level), reads | at.reads
            texts = [
                _gather(buffer.pointer, at.register(number), lanes, number)
                for number in range(context.registers)
            ]
        else:
            for number in range(context.registers):
                index = self.indices.scalar(self.indices.shifted(offset, number))
                level, reads = max(level, index.scope_level), reads | index.reads
                address = _at(buffer.pointer, index.text)
                if stride == 1:
                    suffix, arguments = _form(address, lanes, number)
                    texts.append(f"load{suffix}({arguments})")
                    self._prefetch(expr.buffer, expr.dtype, offset, number)
                elif stride == -1 and lanes is None:
                    texts.append(f"load_reversed({address})")
                elif stride == 0 and (lanes is None or not lanes.masks):
                    texts.append(spread(f"load_scalar({address})", expr.dtype))
                else:
                    step = self.indices.scalar(stride)
                    level = max(level, step.scope_level)
                    texts.append(_load_strided(address, step.text, lanes, number))
        return context.define(expr.buffer, tuple(texts), expr.dtype, level, varying=True, reads=reads)

    def load_pairs(self, expr: Load, function: str, number: int, stride: int) -> CppValue | None:
        """Return two registers of elements, from register ``number`` on, as pairs of bf16 numbers by a function for
        this stride between lanes; None where they are not so in memory."""
        context, offset = self.context, expr.index[0]
        buffer = self._buffer(expr.buffer, expr.dtype)
        plain = not buffer.laned and context.scopes.active is None and buffer.dtype == bf16
        if (
            not plain
            or (expr.buffer, offset) in context.tiles
            or self.indices.lane_stride(offset, 2) != stride
        ):
            return None
        index = self.indices.scalar(self.indices.shifted(offset, number))
        level = max(context.scopes.conditional_level, self._earliest(expr.buffer), index.scope_level)
        reads = frozenset((expr.buffer,)) if expr.buffer in context.written else frozenset[str]()
        text = f"{function}({_at(buffer.pointer, index.text)})"
        value = context.define_as("bf16_pairs", expr.buffer, text, level, reads | index.reads)
        self._prefetch(expr.buffer, expr.dtype, offset, number)
        return value

    def _prefetch(self, name: str, dtype: DType, offset: Size, number: int) -> None:
        """Prefetch what a later point of a register tile loads, for the first register of a cache line.

        A tile reads a few rows of a matrix, which end before the CPU prefetches much of them by itself. Where it waits
        for memory, the next tile is prefetched in the order of memory, which the CPU then does by itself too.
        """
        context = self.context
        if not context.streamed & free_symbols(offset) or context.scopes.active is not None:
            return
        stream, before = context.streams.get(name), number * context.lanes
        rows = stream.ahead if stream else coefficient(offset, context.kernel.outer[-1].name)
        ordered = stream and stream.in_order(offset, context.registers * context.lanes)
        ahead = distance(rows, dtype.itemsize, whole=True) if ordered else None
        if ordered and ahead is not None:
            offset, before = add(ordered[0], before), ordered[1] + before
        else:
            offset, ahead = self.indices.shifted(offset, number), distance(rows, dtype.itemsize, whole=False)
        if before * dtype.itemsize % LINE == 0:
            index, pointer = self.indices.scalar(offset).text, self._buffer(name, dtype).pointer
            context.scopes.line(f"prefetch_stream({_at(pointer, index)}, {ahead});")

    def _in_pairs(self, buffer: BufferPointer, offset: Size) -> bool:
        """Return True where bf16 elements are loaded or stored two contiguous registers at a time."""
        return buffer.dtype == bf16 and self.context.pairs and self.indices.lane_stride(offset, 2) == 1

    # --- stores ---------------------------------------------------------------------------------------------

    def store(self, name: str, offset: Size, value: CppValue, mode: ScatterMode = "set") -> None:
        """Write a value at the innermost scope, or combine it with the element there."""
        context = self.context
        buffer = self._buffer(name, value.dtype)
        if buffer.laned:
            self._store_laned(buffer, offset, value, mode)
        elif context.vector is None or not (value.varying or self.indices.varies(offset) or mode != "set"):
            index = self.indices.scalar(offset)
            self._store_scalar(buffer, index.text, value.registers[0], mode)
        else:
            self._store_lanes(name, buffer, offset, context.spread(value), mode)
        context.scopes.forget(frozenset((name,)))

    def _store_scalar(self, buffer: BufferPointer, offset: str, value: str, mode: ScatterMode) -> None:
        address = _at(buffer.pointer, offset)
        if mode != "set":
            value = _combine(mode, f"load_scalar({address})", value)
        self.context.scopes.line(f"store_scalar({address}, {value});")

    def _store_laned(self, buffer: BufferPointer, offset: Size, value: CppValue, mode: ScatterMode) -> None:
        index = self.indices.scalar(offset)
        spread = self.context.spread(value)
        for number in range(self.context.registers):
            address = self._laned_address(buffer, index.bracketed(), number)
            text = spread.register(number)
            if mode != "set":
                text = _combine(mode, f"load({address})", text)
            self.context.scopes.line(f"store({address}, {text});")

    def _store_lanes(
        self, buffer_name: str, buffer: BufferPointer, offset: Size, value: CppValue, mode: ScatterMode
    ) -> None:
        context = self.context
        tile = context.tiles.get((buffer_name, offset))
        if tile is not None:
            for number in range(context.registers):
                context.scopes.line(f"store({_row(tile, value.dtype, number)}, {value.register(number)});")
            return
        lanes = context.scopes.active
        stride = self.indices.lane_stride(offset)
        if mode == "set" and self._in_pairs(buffer, offset):
            self._store_pairs(buffer, offset, value)
            return
        at = None if stride is not None else self.indices.per_lane(offset, self.indices.fits_int32(offset))
        for number in range(context.registers):
            text = value.register(number)
            if at is not None:
                self._scatter(buffer, at.register(number), text, mode, lanes)
                continue
            index = self.indices.scalar(self.indices.shifted(offset, number))
            address = _at(buffer.pointer, index.text)
            if stride == 1:
                suffix, arguments = _form(address, lanes, number)
                if mode != "set":
                    text = _combine(mode, f"load{suffix}({arguments})", text)
                context.scopes.line(f"store{suffix}({arguments}, {text});")
                continue
            assert stride is not None
            if stride == -1 and mode == "set" and lanes is None:
                context.scopes.line(f"store_reversed({address}, {text});")
                continue
            step = self.indices.scalar(stride).text
            if mode == "set":
                form, count = (
                    ("store_strided", "") if lanes is None else ("store_strided_partial", f"{lanes.count}, ")
                )
                context.scopes.line(f"{form}({address}, {step}, {count}{text});")
            else:
                steps = f"iota<int64_t>(0) * broadcast<int64_t>({step})"
                self._scatter(BufferPointer(f"({address})", buffer.dtype), steps, text, mode, lanes)

    def _store_pairs(self, buffer: BufferPointer, offset: Size, value: CppValue) -> None:
        """Store two registers at once, which the CPU converts to bf16 by one instruction."""
        for number in range(0, self.context.registers, 2):
            address = _at(buffer.pointer, self.indices.scalar(self.indices.shifted(offset, number)).text)
            pair = f"{value.register(number)}, {value.register(number + 1)}"
            self.context.scopes.line(f"store_pair({address}, {pair});")

    def _scatter(
        self, buffer: BufferPointer, at: str, value: str, mode: ScatterMode, lanes: ActiveLanes | None
    ) -> None:
        """Store lane by lane in order, since two lanes may have one address. No store runs under a mask."""
        line = self.context.scopes.line
        if mode == "set":
            form, count = ("scatter", "") if lanes is None else ("scatter_partial", f"{lanes.count}, ")
            line(f"{form}({buffer.pointer}, {at}, {count}{value});")
            return
        limit = "LITZ_LANES" if lanes is None else f"minimum<int64_t>({lanes.count}, LITZ_LANES)"
        name, indices = self.context.names.fresh("lane"), self.context.names.fresh("at")
        address = f"{buffer.pointer} + lane({indices}, {name})"
        combined = _combine(mode, f"load_scalar({address})", f"lane({value}, {name})")
        line(f"const auto {indices} = {at};")
        line(f"for (int {name} = 0; {name} < {limit}; ++{name}) {{")
        line(f"  store_scalar({address}, {combined});")
        line("}")

    def _buffer(self, name: str, dtype: DType) -> BufferPointer:
        """Return the buffer as one of ``dtype``, which is an integer for low-precision floats that are only moved."""
        found = self.context.buffers.get(name)
        if found is None:
            raise CodegenError(
                f"kernel uses {name!r}, which is neither a parameter nor a scratch array",
                node=self.context.kernel.name,
            )
        if found.dtype.is_low_precision and dtype.kind == "uint":
            return BufferPointer(f"(({memory_type(dtype)}*){found.pointer})", dtype, found.laned)
        return found


def _row(tile: TransposedTile, dtype: DType, number: int) -> str:
    """Return the address of one register of a row of a tile, of elements of a dtype of the same size."""
    pointer = tile.pointer if dtype == tile.dtype else f"({memory_type(dtype)}*){tile.pointer}"
    shift = f" + {number} * LITZ_LANES" if number else ""
    return f"{pointer} + {tile.row} * {tile.pitch} * LITZ_LANES{shift}"


def _at(pointer: str, offset: str) -> str:
    return pointer if offset == "0" else f"{pointer} + {offset}"


def _form(address: str, lanes: ActiveLanes | None, number: int) -> tuple[str, str]:
    """Return the suffix and leading arguments of the function for contiguous elements under these lanes."""
    if lanes is None:
        return "", address
    return (
        ("_masked", f"{address}, {lanes.mask(number)}")
        if lanes.masks
        else ("_partial", f"{address}, {lanes.count}")
    )


def _gather(pointer: str, at: str, lanes: ActiveLanes | None, number: int) -> str:
    if lanes is None:
        return f"gather({pointer}, {at})"
    if lanes.masks:
        return f"gather_masked({pointer}, {at}, {lanes.mask(number)})"
    return f"gather_partial({pointer}, {at}, {lanes.count})"


def _load_run(
    kind: str, arguments: tuple[str, ...], every: str, lanes: ActiveLanes | None, number: int
) -> str:
    """Return the load of lanes that are mostly a run of one ``kind``; ``every`` gives all of their indices."""
    if lanes is not None:
        suffix, limit = ("_masked", lanes.mask(number)) if lanes.masks else ("_partial", str(lanes.count))
        kind, arguments = f"{kind}{suffix}", (*arguments, limit)
    return f"load_{kind}({', '.join(arguments)}, [&]() __attribute__((always_inline)) {{ return {every}; }})"


def _load_strided(address: str, step: str, lanes: ActiveLanes | None, number: int) -> str:
    if lanes is None:
        return f"load_strided({address}, {step})"
    if lanes.masks:
        return (
            f"gather_masked({address}, iota<int64_t>(0) * broadcast<int64_t>({step}), {lanes.mask(number)})"
        )
    return f"load_strided_partial({address}, {step}, {lanes.count})"


def _combine(mode: ScatterMode, old: str, new: str) -> str:
    return _COMBINE[mode].format(old, new)
