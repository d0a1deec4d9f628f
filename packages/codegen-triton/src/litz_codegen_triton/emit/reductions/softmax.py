"""Sums of exponentials relative to a maximum: the maximum of a tile is reduced first, so that no states are merged.

A loop over tiles has a state for every group of elements that one thread has: their maximum comes first, and the sum
so far is rescaled once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from litz_codegen_triton.emit.bodies.store import PendingStore
from litz_codegen_triton.emit.reductions.combiners import initial_state
from litz_codegen_triton.emit.reductions.reduction import ReductionEmitter
from litz_codegen_triton.emit.source.text import EmittedValue
from litz_ir.dtypes import f32


class SoftmaxEmitter(ReductionEmitter):
    """Writer of an ``online_softmax`` or a ``softmax_sum``."""

    def begin(self, exact: bool) -> None:
        self._accumulate_in(self.all_dims, self.groups.count if self._flushes else 1)

    def step(self) -> list[PendingStore]:
        count = self.groups.count
        if count == 1 or not self._flushes:
            return super().step()
        writer, last, neighbours = self.body.writer, self._axis, self.groups.neighbours
        score, _ = initial_state(self.body, self.spec)
        tile = self._named(self.tile(score, 0), "tile")
        *others, length = self.body.tile.text(self.all_dims)[1:-1].split(", ")
        parts = [f"{length} // {count}", str(count)] if neighbours else [str(count), f"{length} // {count}"]
        axis, position = (last + 1, [":", "None"]) if neighbours else (last, ["None", ":"])
        text = f"tl.reshape({tile.text}, [{', '.join([*others, *parts])}])"
        groups = writer.define("groups", text, tile.dims, writer.depth).text
        top, total = (value.text for value in self.accumulators)
        text = f"litz_max({top}, tl.reduce({groups}, {axis}, litz_max))"
        largest = writer.define("largest", text, tile.dims, writer.depth).text
        base = writer.define("base", f"litz_finite_or_zero({largest})", tile.dims, writer.depth).text
        weights = f"litz_exp_flushed({groups} - {base}[{', '.join([':'] * last + position)}])"
        writer.line(f"{total} = {total} * litz_exp_flushed({top} - {base}) + tl.sum({weights}, {axis})")
        writer.line(f"{top} = {largest}")
        return []

    @property
    def _flushes(self) -> bool:
        """True where exponentials may be flushed to zero: relative to the maximum a sum is 1 or more, to which nothing
        that is flushed adds a bit. Weights of values are not flushed."""
        return len(self.spec.dtypes) == 2 and self.spec.dtypes[0] == f32

    def end(self) -> Sequence[EmittedValue]:
        top, *sums = (value.text for value in self.accumulators)
        return self._relative_to(top, lambda weight: [f"{each} * {weight}" for each in sums])

    def reduce_row(self, points: EmittedValue) -> Sequence[EmittedValue]:
        state = initial_state(self.body, self.spec)
        top = self._named(self.tile(state[0], 0), "tile").text
        values = [self._named(self.tile(value, k), "tile").text for k, value in enumerate(state) if k > 1]
        return self._relative_to(top, lambda weight: [weight, *(f"{weight} * {value}" for value in values)])

    def one_point(self) -> Sequence[EmittedValue]:
        state = super().one_point()
        if len(state) == 2:
            return state
        # A score of minus infinity has weight 0.
        top, _, value = state
        weight = f"tl.exp({top.text} - litz_finite_or_zero({top.text}))"
        total = self.body.writer.define("total", weight, top.dims, top.depth)
        depth = max(top.depth, value.depth)
        text = f"{total.text} * {value.text}"
        return [top, total, self.body.writer.define("weighted", text, top.dims | value.dims, depth)]

    def _relative_to(self, top: str, summands: Callable[[str], Sequence[str]]) -> Sequence[EmittedValue]:
        """Write the maximum of ``top``, and the sums of ``summands`` of the exponentials relative to it."""
        maximum = self._define("maximum", f"tl.reduce({top}, {self._axis}, litz_max)")
        exp = "litz_exp_flushed" if self._flushes else "tl.exp"
        weight = f"{exp}({top} - litz_finite_or_zero({maximum.text}))"
        totals = [self._define("total", f"tl.sum({each}, {self._axis})") for each in summands(weight)]
        return maximum, *totals
