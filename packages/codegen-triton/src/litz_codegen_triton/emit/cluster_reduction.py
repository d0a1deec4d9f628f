"""Programs that share outer points: which points each of them has, and how they tell one another what they combined.

They run at the same time, as a cluster. Each writes its state to scratch, all meet, and each reads the states of all
and merges them in the same order, so that all of them have the same results to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count

from litz_codegen_triton.emit.body import TileEmitter
from litz_codegen_triton.emit.coordinates import TileIndices
from litz_codegen_triton.emit.ops_table import triton_type
from litz_codegen_triton.emit.reduction import ReductionEmitter
from litz_codegen_triton.emit.text import EmittedValue
from litz_codegen_triton.emit.tiles import InnerLoop
from litz_ir.dtypes import DType
from litz_ir.plan import WORD_BYTES, workspace_of
from litz_ir.symbols import Size, add, mul, product, symbol

BARRIER_LIMIT = "until"
"""An argument of the interpreted form, whose programs run one after the other: the meeting at which they stop."""


class ClusterReduction:
    """Where the programs of one kernel meet, ``barriers`` times; nowhere where they share nothing."""

    def __init__(self, body: TileEmitter, coordinates: TileIndices) -> None:
        self.body = body
        self.cluster_size = coordinates.tiles.cluster_size
        self.barriers = 0
        self._place = coordinates.indices.get("piece", "")
        self._outer: Size = 0
        for dim in coordinates.tiles.outer:
            self._outer = add(mul(self._outer, dim.size), symbol(coordinates.indices[dim.letter]))
        self._points = product(axis.size for axis in coordinates.kernel.outer)
        self._scratch = workspace_of(coordinates.kernel)
        self._components = count()
        self._found: list[tuple[ReductionEmitter, Sequence[EmittedValue]]] = []

    # --- the points of a program ---

    def index(self, inner: InnerLoop, span: EmittedValue) -> EmittedValue:
        """The index of a row's points, of which ``span`` counts those of the program from 0."""
        if self.cluster_size == 1:
            return span
        writer, key = self.body.writer, ("piece", inner.block, inner.size)
        text = f"{self._first(inner)} + {span.text}"
        return writer.known(key) or writer.remember(key, writer.define("rindex", text, span.dims, 0))

    def points(self, inner: InnerLoop) -> EmittedValue:
        """How many points of a row the program has, 0 where the others have them all; it has them all at once."""
        if self.cluster_size == 1 or inner.even:
            return EmittedValue(str(inner.points_per_cta), literal=True)
        writer, key = self.body.writer, ("points", inner.size)
        text = f"tl.maximum(tl.minimum({inner.size} - {self._first(inner)}, {inner.points_per_cta}), 0)"
        return writer.known(key) or writer.remember(key, writer.define("points", text, frozenset(), 0))

    def limits(self, inner: InnerLoop) -> tuple[str, str]:
        """The first point that the program takes in a loop, and the one after the last."""
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
        unit = self.body.index.unit
        return f"{unit(symbol(self._place)).text} * {unit(inner.points_per_cta).text}"

    @contextmanager
    def by_one(self) -> Iterator[None]:
        """Write what follows as done by one of the programs that share a tile."""
        if self.cluster_size > 1:
            self.body.writer.open(f"if {self.body.index.unit(symbol(self._place)).text} == 0:")
        yield
        if self.cluster_size > 1:
            self.body.writer.close()

    # --- what they combined ---

    def add(self, reduction: ReductionEmitter, state: Sequence[EmittedValue]) -> None:
        """Define a reduction's results by the state that the program's points come to; where there are other programs
        with points, at the end of the phase."""
        if self.cluster_size == 1:
            reduction.finish(state)
        else:
            self._found.append((reduction, state))

    def finish(self) -> None:
        """Write what merges the states of all programs, for each reduction since the last time; define its results."""
        if not self._found:
            return
        found, self._found = self._found, []
        numbers = [[next(self._components) for _ in state] for _, state in found]
        for (reduction, state), own in zip(found, numbers):
            for value, number, dtype in zip(state, own, reduction.spec.dtypes):
                self._write(value, number, dtype)
        self._meet()
        for (reduction, _), own in zip(found, numbers):
            reduction.finish(self._merged(reduction, own))

    def _write(self, value: EmittedValue, number: int, dtype: DType) -> None:
        place, mask = self._at(number, dtype, symbol(self._place))
        self.body.writer.line(f"tl.store({place.text}, {self.body.typed(value, dtype)}{mask})")

    def _meet(self) -> None:
        writer = self.body.writer
        self.barriers += 1
        if self.body.form == "compiled":
            writer.line("litz_meet()")
        else:
            writer.line(f"if {BARRIER_LIMIT} == {self.barriers}:")
            writer.line("    return")

    def _merged(self, reduction: ReductionEmitter, numbers: Sequence[int]) -> list[EmittedValue]:
        dtypes, writer = reduction.spec.dtypes, self.body.writer
        merged, *others = [
            [self._read(number, dtype, piece) for number, dtype in zip(numbers, dtypes)]
            for piece in range(self.cluster_size)
        ]
        for state in others:
            names = [writer.names.fresh("merged") for _ in state]
            operands = ", ".join(value.text for value in (*merged, *state))
            writer.line(f"{', '.join(names)} = {reduction.spec.function}({operands})")
            merged = [EmittedValue(name, value.dims, value.depth) for name, value in zip(names, state)]
        return merged

    def _read(self, number: int, dtype: DType, piece: int) -> EmittedValue:
        place, mask = self._at(number, dtype, piece)
        writer = self.body.writer
        return writer.define("part", f"tl.load({place.text}{mask})", place.dims, writer.depth)

    def _at(self, number: int, dtype: DType, piece: Size) -> tuple[EmittedValue, str]:
        """Where a component of a program's state is, and the mask of the outer points that have one."""
        assert self._scratch is not None
        row = mul(number * self.cluster_size * (WORD_BYTES // dtype.itemsize), self._points)
        offset = self.body.index.value(add(add(row, mul(piece, self._points)), self._outer))
        scratch = self.body.setting.pointers[self._scratch.name]
        mask = self.body.masks.access_mask(offset.dims)
        text = f"{scratch}.to(tl.pointer_type({triton_type(dtype)}), bitcast=True) + {offset.text}"
        return EmittedValue(text, offset.dims), "" if mask is None else f", mask={mask.text}"
