"""Loads of tiles, and barriers between the loads and stores of a thread block."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from litz_codegen_triton.emit.bodies.settings import EmitSettings
from litz_codegen_triton.emit.bodies.tile_shape import TileShape
from litz_codegen_triton.emit.indexing.conditions import is_met_elsewhere
from litz_codegen_triton.emit.indexing.index import IndexTerms
from litz_codegen_triton.emit.indexing.vector_accesses import MemoryAccess
from litz_codegen_triton.emit.source import casts
from litz_codegen_triton.emit.source.text import EmittedValue
from litz_ir.scalar import Expr, Load
from litz_ir.symbols import Size


class MemoryEmitter:
    """Writes the loads of one kernel, and keeps account of its accesses.

    Its owner sets ``eviction`` (the ``eviction_policy`` of loads by buffer) and ``load_depth`` (the least loop depth of
    loads: that of a loop which may have no iteration, out of which a load must not be hoisted). ``accesses`` lists
    the loads and stores that were written; ``loaded`` counts loads by buffer, and ``stored`` has the buffers that were
    stored to, both since the last barrier.
    """

    def __init__(self, setting: EmitSettings, tile: TileShape, index: IndexTerms) -> None:
        self.setting = setting
        self.tile = tile
        self.index = index
        self.masks = index.masks
        self.writer = index.writer
        self.eviction: Mapping[str, str] = {}
        self.load_depth = 0
        self.accesses: list[MemoryAccess] = []
        self.loaded: Counter[str] = Counter()
        self.stored: set[str] = set()
        self._conditions: tuple[tuple[Expr, EmittedValue], ...] = ()

    def load(self, expr: Load, other: str = "") -> EmittedValue:
        """Write a load, converted to its representation in registers. ``other`` is the value of masked points."""
        raw = self.stored_element(expr, other)
        dtype = self.setting.parameters[expr.buffer].dtype
        return self.writer.define(
            expr.buffer, casts.decode(raw.text, dtype, self.setting.form), raw.dims, raw.depth
        )

    def stored_element(self, expr: Load, other: str = "", as_type: str = "") -> EmittedValue:
        """Return the text of a load in the representation of memory.

        ``other`` is the value of masked points. ``as_type`` is the Triton type as which memory is read, if not that of
        the pointer.
        """
        offset = self.index.value(expr.index[0])
        conditions = self._needed_conditions(expr.index[0])
        needed = [value for _, value in conditions]
        dims = offset.dims.union(*(value.dims for value in needed))
        mask = self.masks.mask_under(needed, dims)
        depth = max(offset.depth, 0 if mask is None else mask.depth, self.load_depth)
        if self.setting.parameters[expr.buffer].access != "in":
            depth = self.writer.depth
            if expr.buffer in self.stored:
                self.barrier()
        self.loaded[expr.buffer] += 1
        self.accesses.append(
            MemoryAccess("load", expr.buffer, expr.index[0], dims, tuple(cond for cond, _ in conditions))
        )
        base = self.setting.pointers[expr.buffer]
        if as_type:
            base += f".to(tl.pointer_type({as_type}), bitcast=True)"
        pointer = f"{base} + {self.tile.spread(offset, dims)}"
        options = "" if mask is None else f", mask={mask.text}" + (f", other={other}" if other else "")
        if "r" in dims and expr.buffer in self.eviction:
            options += f', eviction_policy="{self.eviction[expr.buffer]}"'
        return EmittedValue(f"tl.load({pointer}{options})", dims, depth)

    @contextmanager
    def under(self, condition: Expr, value: EmittedValue) -> Iterator[None]:
        """Mask accesses that are written meanwhile by ``condition``, of which ``value`` is the value."""
        outside = self._conditions
        self._conditions = (*outside, (condition, value))
        with self.masks.under(value):
            yield
        self._conditions = outside

    def is_masked_by(self, condition: Expr, load: Load) -> bool:
        """Return True for a load that does not read where one of the conditions in force does not hold."""
        return any(needed == condition for needed, _ in self._needed_conditions(load.index[0]))

    def _needed_conditions(self, offset: Size) -> list[tuple[Expr, EmittedValue]]:
        """Return the conditions that a load at an offset has to be masked by, and their values."""
        conditions = dict.fromkeys(condition for condition, _ in self._conditions)
        ranges = self.index.ranges

        def is_needed(condition: Expr) -> bool:
            others = [each for each in conditions if each != condition]
            return not is_met_elsewhere(condition, offset, others, ranges)

        return [(condition, value) for condition, value in self._conditions if is_needed(condition)]

    def barrier(self) -> None:
        """Write a barrier of all threads of the CTA."""
        self.writer.line("tl.debug_barrier()")
        self.stored.clear()
        self.loaded.clear()
