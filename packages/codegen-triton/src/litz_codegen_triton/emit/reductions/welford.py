"""Mean and squared deviations: of a row in registers in two passes, in a loop of tiles by Welford's algorithm."""

from __future__ import annotations

from collections.abc import Sequence

from litz_codegen_triton.emit.bodies.body import TileEmitter
from litz_codegen_triton.emit.bodies.store import PendingStore
from litz_codegen_triton.emit.reductions.combiners import initial_state
from litz_codegen_triton.emit.reductions.reduction import ReductionEmitter
from litz_codegen_triton.emit.source.ops_table import triton_type
from litz_codegen_triton.emit.source.text import EmittedValue
from litz_ir.plan import Accumulate


class WelfordEmitter(ReductionEmitter):
    """Writer of a ``welford``.

    All accumulators of a tile have the same count, until those beyond the end of the axis get no more values. So one
    division serves all of them. ``equal_counts`` says that the axis ends with a tile.
    """

    def __init__(
        self, body: TileEmitter, statement: Accumulate, all_dims: frozenset[str], function: str
    ) -> None:
        super().__init__(body, statement, all_dims, function)
        self.equal_counts = False
        self.steps = ""

    def begin(self, exact: bool) -> None:
        super().begin(exact)
        self.equal_counts = exact
        writer, dtype = self.body.writer, triton_type(self.spec.dtypes[2])
        steps = writer.define("count", f"tl.full([], 0.0, {dtype})", frozenset(), writer.depth)
        self.steps, counts = steps.text, steps
        if not exact:
            dims = frozenset("r")
            zeros = f"tl.full({self.body.tile.text(dims)}, 0.0, {dtype})"
            counts = writer.define("counts", zeros, dims, writer.depth)
        self.accumulators = (*self.accumulators[:2], counts)

    def step(self) -> list[PendingStore]:
        """Write one step of Welford's algorithm."""
        mean, squares, counts = (value.text for value in self.accumulators)
        value = self._named(self.tile(initial_state(self.body, self.spec)[0], 0), "tile").text
        writer, tail = self.body.writer, self.body.masks.tails.get("r")
        writer.line(f"{self.steps} = {self.steps} + 1.0")
        function, given = "litz_welford_step", f"{mean}, {squares}, {value}, 1.0 / {self.steps}"
        if tail is not None:
            writer.line(f"{counts} = {counts} + tl.where({tail.text}, 1.0, 0.0)")
            function, given = "litz_welford_step_inside", f"{given}, {tail.text}"
        elif not self.equal_counts:
            writer.line(f"{counts} = {counts} + 1.0")
        writer.line(f"{mean}, {squares} = {function}({given})")
        return []

    def end(self) -> Sequence[EmittedValue]:
        """Merge the states of a tile along ``r``: the weighted mean of means, and squared deviations from it."""
        means, squares, counts = self.accumulators
        counted = self.tile(counts, 2).text
        count = self._define("count", f"tl.sum({counted}, {self._axis})")
        total = self._define("total", f"tl.sum({means.text} * {counts.text}, {self._axis})")
        divisor = count.text if self.equal_counts else _at_least_one(count.text)
        mean = self.body.writer.define("mean", f"{total.text} / {divisor}", total.dims, total.depth)
        delta = self.body.writer.define("delta", f"{means.text} - {mean.text}", self.all_dims, total.depth)
        spread = f"{squares.text} + {delta.text} * {delta.text} * {counts.text}"
        return mean, self._define("squares", f"tl.sum({spread}, {self._axis})"), count

    def reduce_row(self, points: EmittedValue) -> Sequence[EmittedValue]:
        """Write the mean of a row in registers, then the squared deviations: more accurate and cheaper than merging."""
        body, dtype = self.body, self.spec.dtypes[0]
        (value, *_) = initial_state(body, self.spec)
        tile = self._named(self.tile(value, 0), "tile").text
        total = self._define("total", f"tl.sum({tile}, {self._axis})")
        number = f"{points.text}.0" if points.literal else f"{points.text}.to({triton_type(dtype)})"
        divisor = number if points.literal else _at_least_one(number)
        mean = body.writer.define("mean", f"{total.text} / {divisor}", total.dims, total.depth)
        delta = EmittedValue(f"{tile} - {mean.text}", self.all_dims, total.depth)
        masked = self._named(self.tile(delta, 0), "delta").text
        squares = self._define("squares", f"tl.sum({masked} * {masked}, {self._axis})")
        count = f"tl.full([], {number}, {triton_type(dtype)})" if points.literal else number
        return mean, squares, body.writer.define("count", count, frozenset(), total.depth)


def _at_least_one(count: str) -> str:
    """Return the divisor of a mean: a thread block without points has mean 0, with weight 0 in a merge."""
    return f"tl.maximum({count}, 1.0)"
