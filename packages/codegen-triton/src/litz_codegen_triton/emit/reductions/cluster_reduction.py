"""Cross-CTA reduction: the CTAs of a cluster reduce chunks of the same rows and merge their states.

The CTAs of rows send their states to one another through distributed shared memory; those of several columns write them
to the workspace and wait at a cluster barrier, and so do all CTAs in the interpreter. Each CTA merges all states in the
same order, so that all of them have bitwise equal results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count

from litz_codegen_triton.emit.bodies.body import TileEmitter
from litz_codegen_triton.emit.bodies.tile_shape import typed
from litz_codegen_triton.emit.indexing.coordinates import TileIndices
from litz_codegen_triton.emit.loops.tiles import InnerLoop
from litz_codegen_triton.emit.reductions.reduction import ReductionEmitter
from litz_codegen_triton.emit.reductions.shared_states import SharedStates, can_send
from litz_codegen_triton.emit.source.ops_table import triton_type
from litz_codegen_triton.emit.source.text import EmittedValue
from litz_ir.dtypes import DType
from litz_ir.plan import WORD_BYTES, workspace_of
from litz_ir.symbols import Size, add, mul, product, symbol

BARRIER_LIMIT = "until"
"""Argument of the interpreted form, whose CTAs run one after the other: the cluster barrier at which they stop."""


class ClusterReduction:
    """Writes the reductions of a kernel across the CTAs of a cluster; those of one CTA where ``cluster_size`` is 1.

    ``barriers`` counts the cluster barriers written so far.
    """

    def __init__(self, body: TileEmitter, coordinates: TileIndices) -> None:
        self.body = body
        self.cluster_size = coordinates.tiles.cluster_size
        self.barriers = 0
        self._chunk = coordinates.indices.get("partition", "")
        self._outer: Size = 0
        for dim in coordinates.tiles.outer:
            self._outer = add(mul(self._outer, dim.size), symbol(coordinates.indices[dim.letter]))
        self._points = product(axis.size for axis in coordinates.kernel.outer)
        self._scratch = workspace_of(coordinates.kernel)
        self._components = count()
        self._pending: list[tuple[ReductionEmitter, Sequence[EmittedValue]]] = []
        self._sender = SharedStates(body, coordinates.kernel.name, self.cluster_size)

    # --- the points of a CTA ---

    def index(self, inner: InnerLoop, span: EmittedValue) -> EmittedValue:
        """Return the index along a row; ``span`` is the index along the CTA's chunk, from 0."""
        if self.cluster_size == 1:
            return span
        writer, key = self.body.writer, ("chunk", inner.block, inner.size)
        text = f"{self._first(inner)} + {span.text}"
        return writer.known(key) or writer.remember(key, writer.define("rindex", text, span.dims, 0))

    def points(self, inner: InnerLoop) -> EmittedValue:
        """Return the number of points of a row in the CTA's chunk, for a persistent tile; 0 past the end of the row."""
        if self.cluster_size == 1 or inner.even:
            return EmittedValue(str(inner.points_per_cta), literal=True)
        writer, key = self.body.writer, ("points", inner.size)
        text = f"tl.maximum(tl.minimum({inner.size} - {self._first(inner)}, {inner.points_per_cta}), 0)"
        return writer.known(key) or writer.remember(key, writer.define("points", text, frozenset(), 0))

    def limits(self, inner: InnerLoop) -> tuple[str, str]:
        """Return the begin and the end of the CTA's chunk, for a loop over its tiles."""
        unit = self.body.index.unit
        if self.cluster_size == 1:
            return "0", unit(inner.size).text
        writer, key = self.body.writer, ("limits", inner.block, inner.size)
        first = writer.known((*key, "first")) or writer.remember(
            (*key, "first"), writer.define("first", self._first(inner), frozenset(), 0)
        )
        text = f"{first.text} + {unit(inner.points_per_cta).text}"
        text = text if inner.even else f"tl.minimum({text}, {unit(inner.size).text})"
        end = writer.known(key) or writer.remember(key, writer.define("end", text, frozenset(), 0))
        return first.text, end.text

    def _first(self, inner: InnerLoop) -> str:
        """Return the first point of the CTA's chunk."""
        unit = self.body.index.unit
        return f"{unit(symbol(self._chunk)).text} * {unit(inner.points_per_cta).text}"

    @contextmanager
    def by_one(self) -> Iterator[None]:
        """Make what is written meanwhile run in the first CTA of the cluster alone."""
        if self.cluster_size > 1:
            self.body.writer.open(f"if {self.body.index.unit(symbol(self._chunk)).text} == 0:")
        yield
        if self.cluster_size > 1:
            self.body.writer.close()

    # --- merging states ---

    def add(self, reduction: ReductionEmitter, state: Sequence[EmittedValue]) -> None:
        """Define a reduction's results from the CTA's state: at once for one CTA, else in the next ``finish``."""
        if self.cluster_size == 1:
            reduction.finish(state)
        else:
            self._pending.append((reduction, state))

    def finish(self) -> None:
        """Merge the states of all CTAs for each pending reduction, behind one barrier, and define its results."""
        if not self._pending:
            return
        pending, self._pending = self._pending, []
        if all(map(self._is_whole, pending)):
            self._finish_rows(pending)
            return
        numbers = [[next(self._components) for _ in state] for _, state in pending]
        for (reduction, state), own in zip(pending, numbers):
            for value, number, dtype in zip(state, own, reduction.spec.dtypes):
                self._write(value, number, dtype)
        self._barrier()
        for (reduction, _), own in zip(pending, numbers):
            reduction.finish(self._merged(reduction, own))

    def begin(self) -> list[str]:
        """Return the lines that come first in the kernel, once all phases are written."""
        return self._sender.begin()

    def _is_whole(self, pending: tuple[ReductionEmitter, Sequence[EmittedValue]]) -> bool:
        """True for a state of one point, whose merge does not depend on the order of the CTAs."""
        reduction, state = pending
        alone = not any(value.dims for value in state)
        return alone and reduction.can_reduce_states and can_send(reduction.spec.dtypes)

    def _finish_rows(self, pending: Sequence[tuple[ReductionEmitter, Sequence[EmittedValue]]]) -> None:
        """Merge the states of rows as vectors, with one element for each CTA, and define the results."""
        own = [
            pair for reduction, state in pending for pair in zip(state, reduction.spec.dtypes, strict=True)
        ]
        if self.body.form == "compiled":
            self.barriers += 1
            vectors = iter(self._sender.send(own))
        else:
            vectors = iter(self._by_workspace(own))
        for reduction, state in pending:
            reduction.finish(reduction.reduce_states([next(vectors) for _ in state]))

    def _by_workspace(self, states: Sequence[tuple[EmittedValue, DType]]) -> list[EmittedValue]:
        """Write the components of this CTA's state to the workspace, and load those of all CTAs as vectors."""
        numbers = [next(self._components) for _ in states]
        for (value, dtype), number in zip(states, numbers, strict=True):
            self._write(value, number, dtype)
        self._barrier()
        writer, unit = self.body.writer, self.body.index.unit
        span = f"tl.arange(0, {self.cluster_size}) * {unit(self._points).text}"
        found = []
        for (_, dtype), number in zip(states, numbers, strict=True):
            pointer, _ = self._pointer(number, dtype, 0)
            found.append(
                writer.define("states", f"tl.load({pointer.text} + {span})", frozenset("r"), writer.depth)
            )
        return found

    def _write(self, value: EmittedValue, number: int, dtype: DType) -> None:
        """Store a component of this CTA's state."""
        pointer, mask = self._pointer(number, dtype, symbol(self._chunk))
        self.body.writer.line(f"tl.store({pointer.text}, {typed(value, dtype)}{mask})")

    def _barrier(self) -> None:
        """Write a cluster barrier; the interpreted form returns at the one that its last argument names."""
        writer = self.body.writer
        self.barriers += 1
        if self.body.form == "compiled":
            writer.line("litz_meet()")
        else:
            writer.line(f"if {BARRIER_LIMIT} == {self.barriers}:")
            writer.line("    return")

    def _merged(self, reduction: ReductionEmitter, numbers: Sequence[int]) -> list[EmittedValue]:
        """Load the states of all CTAs and merge them in the order of their chunks."""
        dtypes, writer = reduction.spec.dtypes, self.body.writer
        merged, *others = [
            [self._read(number, dtype, chunk) for number, dtype in zip(numbers, dtypes)]
            for chunk in range(self.cluster_size)
        ]
        for state in others:
            names = [writer.names.fresh("merged") for _ in state]
            operands = ", ".join(value.text for value in (*merged, *state))
            writer.line(f"{', '.join(names)} = {reduction.spec.function}({operands})")
            merged = [EmittedValue(name, value.dims, value.depth) for name, value in zip(names, state)]
        return merged

    def _read(self, number: int, dtype: DType, chunk: int) -> EmittedValue:
        """Load a component of the state of a chunk's CTA."""
        pointer, mask = self._pointer(number, dtype, chunk)
        writer = self.body.writer
        return writer.define("state", f"tl.load({pointer.text}{mask})", pointer.dims, writer.depth)

    def _pointer(self, number: int, dtype: DType, chunk: Size) -> tuple[EmittedValue, str]:
        """Return pointers to component ``number`` of the state of a chunk's CTA, and the mask of outer points."""
        assert self._scratch is not None
        row = mul(number * self.cluster_size * (WORD_BYTES // dtype.itemsize), self._points)
        offset = self.body.index.value(add(add(row, mul(chunk, self._points)), self._outer))
        scratch = self.body.setting.pointers[self._scratch.name]
        mask = self.body.masks.access_mask(offset.dims)
        text = f"{scratch}.to(tl.pointer_type({triton_type(dtype)}), bitcast=True) + {offset.text}"
        return EmittedValue(text, offset.dims), "" if mask is None else f", mask={mask.text}"
