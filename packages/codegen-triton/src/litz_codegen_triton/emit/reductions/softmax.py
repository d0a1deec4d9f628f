"""Sums of exponentials relative to a maximum: the maximum of a tile is reduced first, so that no states are merged."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from litz_codegen_triton.emit.reductions.combiners import initial_state
from litz_codegen_triton.emit.reductions.reduction import ReductionEmitter
from litz_codegen_triton.emit.source.text import EmittedValue
from litz_ir.dtypes import f32


class SoftmaxEmitter(ReductionEmitter):
    """Writer of an ``online_softmax`` or a ``softmax_sum``."""

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
        # Relative to the maximum a sum is 1 or more, to which nothing that is flushed to zero adds a bit; weights of
        # values are not flushed.
        flushed = len(self.spec.dtypes) == 2 and self.spec.dtypes[0] == f32
        exp = "litz_exp_flushed" if flushed else "tl.exp"
        weight = f"{exp}({top} - litz_finite_or_zero({maximum.text}))"
        totals = [self._define("total", f"tl.sum({each}, {self._axis})") for each in summands(weight)]
        return maximum, *totals
