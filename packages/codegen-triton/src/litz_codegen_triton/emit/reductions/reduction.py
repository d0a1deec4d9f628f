"""Emission of reductions: over a persistent tile or in a loop of tiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from litz_codegen_triton.emit.bodies.body import TileEmitter
from litz_codegen_triton.emit.bodies.store import PendingStore
from litz_codegen_triton.emit.bodies.tile_shape import typed
from litz_codegen_triton.emit.reductions.combiners import (
    combiner_results,
    combiner_spec,
    converted,
    initial_state,
    keep_dims,
    last_column,
)
from litz_codegen_triton.emit.source.ops_table import triton_type
from litz_codegen_triton.emit.source.text import EmittedValue
from litz_ir.loops import NamedCombiner, UserCombiner
from litz_ir.plan import Accumulate


class ReductionEmitter:
    """Writer of one ``Accumulate``.

    ``all_dims`` are the dimensions of the phase's tile, ``r`` among them. ``function`` names the function of a
    user-given combiner; it is empty for others. A *state* is the tuple of values that the combiner accumulates.
    """

    def __init__(
        self, body: TileEmitter, statement: Accumulate, all_dims: frozenset[str], function: str
    ) -> None:
        self.body = body
        self.statement = statement
        self.combiner = statement.combiner
        dtypes = [dtype for _, dtype in statement.results]
        if isinstance(self.combiner, NamedCombiner) and self.combiner.name in (
            "argmin",
            "argmax",
            "any",
            "all",
        ):
            dtypes = [expr.dtype for expr in statement.values]
        self.spec = combiner_spec(self.combiner, dtypes, function)
        self.all_dims = all_dims
        self.accumulators: tuple[EmittedValue, ...] = ()
        self.equal_counts = False

    @property
    def _name(self) -> str:
        return self.statement.results[0][0]

    def _is(self, kind: str) -> bool:
        return isinstance(self.combiner, NamedCombiner) and self.combiner.name == kind

    @property
    def _is_softmax(self) -> bool:
        """True for sums of exponentials relative to the maximum."""
        return self._is("online_softmax") or self._is("softmax_sum")

    @property
    def _axis(self) -> int:
        return len(self.body.tile.dims) - 1

    def tile(self, value: EmittedValue, component: int) -> EmittedValue:
        """Broadcast a component of the state to the whole tile, with the identity at points that do not exist."""
        body, dtype = self.body, self.spec.dtypes[component]
        identity = self.spec.identity[component]
        if value.literal and value.text == identity:
            text = f"tl.full({body.tile.text(self.all_dims)}, {identity}, {triton_type(dtype)})"
            return EmittedValue(text, self.all_dims, value.depth)
        text, dims, depth = typed(value, dtype), value.dims, value.depth
        tail = body.masks.tails.get("r")
        if tail is not None:
            text, dims, depth = (
                f"tl.where({tail.text}, {text}, {identity})",
                dims | tail.dims,
                max(depth, tail.depth),
            )
        if dims != self.all_dims:
            text = body.tile.broadcast(text, self.all_dims)
        return EmittedValue(text, self.all_dims, max(depth, body.writer.depth))

    def tiles(self) -> tuple[EmittedValue, ...]:
        """Write the state of each point of the current tile, each component as a variable."""
        state = initial_state(self.body, self.combiner, self.spec, self.statement.values)
        return tuple(self._named(self.tile(value, k), "tile") for k, value in enumerate(state))

    def _named(self, value: EmittedValue, base: str) -> EmittedValue:
        if value.text.isidentifier():
            return value
        return self.body.writer.define(base, value.text, value.dims, value.depth)

    @property
    def _ordered(self) -> bool:
        """True for a user-given combiner, which may not be commutative."""
        return isinstance(self.combiner, UserCombiner)

    def begin(self, exact: bool) -> None:
        """Write the accumulators, before a loop; ``exact`` says that all of its tiles are full."""
        body = self.body
        self.equal_counts = exact and self._is("welford")
        dims = self.all_dims - {"r"} if self._ordered else self.all_dims
        shape = body.tile.text(dims) if dims else "[]"
        self.accumulators = tuple(
            body.writer.define(
                f"{self._name}_acc", f"tl.full({shape}, {identity}, {triton_type(dtype)})", dims, body.writer.depth
            )
            for dtype, identity in zip(self.spec.dtypes, self.spec.identity)
        )  # fmt: skip
        if self.equal_counts:
            # All accumulators of the tile have the same count.
            zero = f"tl.full([], 0.0, {triton_type(self.spec.dtypes[2])})"
            count = body.writer.define("count", zero, frozenset(), body.writer.depth)
            self.accumulators = (*self.accumulators[:2], count)

    def step(self) -> list[PendingStore]:
        """Merge one tile into the accumulators, inside a loop; returns no stores."""
        names = [value.text for value in self.accumulators]
        if self.equal_counts:
            self._welford_step(*names)
            return []
        tiles = [value.text for value in (self._in_order() if self._ordered else self.tiles())]
        if self.spec.step:
            merged = self.spec.step.format(names[0], tiles[0])
        else:
            merged = f"{self.spec.function}({', '.join(names + tiles)})"
        self.body.writer.line(f"{', '.join(names)} = {merged}")
        return []

    def end(self) -> Sequence[EmittedValue]:
        """Reduce the accumulators, after a loop, and return the state."""
        if self._is_softmax:
            top, *sums = (value.text for value in self.accumulators)
            return self._softmax(top, lambda weight: [f"{each} * {weight}" for each in sums])
        if self._is("welford"):
            return self._merged(*self.accumulators)
        if self._ordered:
            return self.accumulators
        return self._reduced([value.text for value in self.accumulators])

    def reduce_row(self, points: EmittedValue) -> Sequence[EmittedValue]:
        """Reduce a persistent tile, of which ``points`` points exist, and return the state."""
        if self._is_softmax:
            state = initial_state(self.body, self.combiner, self.spec, self.statement.values)
            top = self._named(self.tile(state[0], 0), "tile").text
            values = [self._named(self.tile(value, k), "tile").text for k, value in enumerate(state) if k > 1]
            return self._softmax(top, lambda weight: [weight, *(f"{weight} * {value}" for value in values)])
        if self._is("welford"):
            return self._two_pass_variance(points)
        if self._ordered:
            return self._in_order()
        return self._reduced([value.text for value in self.tiles()])

    def empty(self) -> None:
        """Define the results of a reduction over no point."""
        depth = self.body.writer.depth
        self.finish(
            [
                self.body.writer.define(
                    "empty", f"tl.full([], {identity}, {triton_type(dtype)})", frozenset(), depth
                )
                for dtype, identity in zip(self.spec.dtypes, self.spec.identity)
            ]
        )

    def single(self) -> None:
        """Define the results of a reduction over one point."""
        state = initial_state(self.body, self.combiner, self.spec, self.statement.values)
        values = [
            self._named(replace(value, text=typed(value, dtype), literal=False), "single")
            for value, dtype in zip(state, self.spec.dtypes)
        ]
        if self._is("softmax_sum"):
            # A score of minus infinity has weight 0.
            top, _, value = values
            weight = f"tl.exp({top.text} - litz_finite_or_zero({top.text}))"
            total = self.body.writer.define("total", weight, top.dims, top.depth)
            depth = max(top.depth, value.depth)
            text = f"{total.text} * {value.text}"
            values = [top, total, self.body.writer.define("weighted", text, top.dims | value.dims, depth)]
        self.finish(values)

    def _reduced(self, tiles: Sequence[str]) -> list[EmittedValue]:
        """Reduce the components of a tile along ``r``."""
        if self.spec.whole:
            return [self._define(self._name, self.spec.whole.format(tiles[0], axis=self._axis))]
        if len(tiles) == 1:
            return [self._define(self._name, f"tl.reduce({tiles[0]}, {self._axis}, {self.spec.function})")]
        names = [self.body.writer.names.fresh("reduced") for _ in tiles]
        call = f"tl.reduce(({', '.join(tiles)}), {self._axis}, {self.spec.function})"
        self.body.writer.line(f"{', '.join(names)} = {call}")
        return [self._define(f"{self._name}_{k}", name) for k, name in enumerate(names)]

    def _in_order(self) -> list[EmittedValue]:
        """Reduce a tile in the order of its points, by a scan: ``tl.reduce`` may swap operands."""
        tiles = [value.text for value in self.tiles()]
        names = [self.body.writer.names.fresh("scanned") for _ in tiles]
        operands = tiles[0] if len(tiles) == 1 else f"({', '.join(tiles)})"
        call = f"tl.associative_scan({operands}, {self._axis}, {self.spec.function})"
        self.body.writer.line(f"{', '.join(names)} = {call}")
        dims, depth = self.all_dims - {"r"}, self.body.writer.depth
        return [
            self.body.writer.define("reduced", last_column(self.body, name, dtype), dims, depth)
            for name, dtype in zip(names, self.spec.dtypes)
        ]

    def _define(self, base: str, text: str) -> EmittedValue:
        """Define a variable for a reduced tile, of size 1 along ``r``."""
        return self.body.writer.define(
            base, keep_dims(self.body, text), self.all_dims - {"r"}, self.body.writer.depth
        )

    def _softmax(self, top: str, summands: Callable[[str], Sequence[str]]) -> Sequence[EmittedValue]:
        """Write the maximum of ``top``, and the sums of ``summands`` of the exponentials relative to it."""
        maximum = self._define("maximum", f"tl.reduce({top}, {self._axis}, litz_max)")
        weight = f"tl.exp({top} - litz_finite_or_zero({maximum.text}))"
        totals = [self._define("total", f"tl.sum({each}, {self._axis})") for each in summands(weight)]
        return maximum, *totals

    def _two_pass_variance(self, points: EmittedValue) -> Sequence[EmittedValue]:
        """Write the mean of a row in registers, then the squared deviations: more accurate and cheaper than merging."""
        body, dtype = self.body, self.spec.dtypes[0]
        (value, *_) = initial_state(body, self.combiner, self.spec, self.statement.values)
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

    def _welford_step(self, mean: str, squares: str, count: str) -> None:
        """Write one step of Welford's algorithm for accumulators of equal counts, with one division for all of them."""
        value = self._named(
            self.tile(initial_state(self.body, self.combiner, self.spec, self.statement.values)[0], 0), "tile"
        )
        self.body.writer.line(f"{count} = {count} + 1.0")
        weight = f"1.0 / {count}"
        self.body.writer.line(
            f"{mean}, {squares} = litz_welford_step({mean}, {squares}, {value.text}, {weight})"
        )

    def _merged(
        self, means: EmittedValue, squares: EmittedValue, counts: EmittedValue
    ) -> Sequence[EmittedValue]:
        """Merge Welford's states of a tile along ``r``: the weighted mean of means, and squared deviations from it."""
        counted = self.tile(counts, 2).text
        count = self._define("count", f"tl.sum({counted}, {self._axis})")
        total = self._define("total", f"tl.sum({means.text} * {counts.text}, {self._axis})")
        divisor = count.text if self.equal_counts else _at_least_one(count.text)
        mean = self.body.writer.define("mean", f"{total.text} / {divisor}", total.dims, total.depth)
        delta = self.body.writer.define("delta", f"{means.text} - {mean.text}", self.all_dims, total.depth)
        spread = f"{squares.text} + {delta.text} * {delta.text} * {counts.text}"
        return mean, self._define("squares", f"tl.sum({spread}, {self._axis})"), count

    def finish(self, state: Sequence[EmittedValue]) -> None:
        """Define the results of the reduction from its final state."""
        done = combiner_results(self.body, self.combiner, state, self.spec)
        for (name, dtype), (value, source) in zip(self.statement.results, done):
            self.body.scalars[name] = (converted(self.body, value, source, dtype), dtype)


def _at_least_one(count: str) -> str:
    """Return the divisor of a mean: a thread block without points has mean 0, with weight 0 in a merge."""
    return f"tl.maximum({count}, 1.0)"
