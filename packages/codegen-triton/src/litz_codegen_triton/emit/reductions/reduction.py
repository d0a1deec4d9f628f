"""Emission of reductions: over a persistent tile or in a loop of tiles."""

from __future__ import annotations

from collections.abc import Sequence
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
from litz_codegen_triton.emit.reductions.element_groups import ElementGroups
from litz_codegen_triton.emit.source.ops_table import triton_type
from litz_codegen_triton.emit.source.text import EmittedValue
from litz_ir.loops import UserCombiner
from litz_ir.plan import Accumulate


class ReductionEmitter:
    """Writer of one ``Accumulate``.

    ``all_dims`` are the dimensions of the phase's tile, ``r`` among them. ``function`` names the merge function that
    the kernel defines for the combiner; it is empty for others. A *state* is the tuple of values that the combiner
    accumulates. Its owner sets ``groups``, those of the elements of a tile in a loop.
    """

    def __init__(
        self, body: TileEmitter, statement: Accumulate, all_dims: frozenset[str], function: str
    ) -> None:
        self.body = body
        self.statement = statement
        self.combiner = statement.combiner
        self.spec = combiner_spec(self.combiner, statement.values, function)
        self.all_dims = all_dims
        self.accumulators: tuple[EmittedValue, ...] = ()
        self.groups = ElementGroups()

    @property
    def _name(self) -> str:
        return self.statement.results[0][0]

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
        state = initial_state(self.body, self.spec)
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
        self._accumulate_in(self.all_dims - {"r"} if self._ordered else self.all_dims)

    def _accumulate_in(self, dims: frozenset[str], count: int = 1) -> None:
        """Write accumulators of the dimensions ``dims``, each for ``count`` elements along ``r``, with the identity."""
        body = self.body
        shape = body.tile.text(dims) if dims else "[]"
        if count > 1:
            shape = f"{shape.removesuffix(']')} // {count}]"
        self.accumulators = tuple(
            body.writer.define(
                f"{self._name}_acc", f"tl.full({shape}, {identity}, {triton_type(dtype)})", dims, body.writer.depth
            )
            for dtype, identity in zip(self.spec.dtypes, self.spec.identity)
        )  # fmt: skip

    def step(self) -> list[PendingStore]:
        """Merge one tile into the accumulators, inside a loop; returns no stores."""
        self._merge(self._in_order() if self._ordered else self.tiles())
        return []

    def _merge(self, state: Sequence[EmittedValue]) -> None:
        """Merge a state into the accumulators."""
        names, others = ([value.text for value in each] for each in (self.accumulators, state))
        if self.spec.step:
            merged = self.spec.step.format(names[0], others[0])
        else:
            merged = f"{self.spec.function}({', '.join(names + others)})"
        self.body.writer.line(f"{', '.join(names)} = {merged}")

    def begin_points(self) -> None:
        """Write the accumulators before a loop over points that each thread visits one by one."""
        self._accumulate_in(self.all_dims - {"r"})

    def step_point(self) -> None:
        """Merge one point into the accumulators, inside such a loop."""
        self._merge(self.one_point())

    def end(self) -> Sequence[EmittedValue]:
        """Reduce the accumulators, after a loop, and return the state."""
        if self._ordered:
            return self.accumulators
        return self._reduced([value.text for value in self.accumulators])

    def reduce_row(self, points: EmittedValue) -> Sequence[EmittedValue]:
        """Reduce a persistent tile, of which ``points`` points exist, and return the state."""
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
        self.finish(self.one_point())

    def one_point(self) -> Sequence[EmittedValue]:
        """Write the state of one point, each component as a variable."""
        state = initial_state(self.body, self.spec)
        return [
            self._named(replace(value, text=typed(value, dtype), literal=False), "single")
            for value, dtype in zip(state, self.spec.dtypes)
        ]

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

    @property
    def can_reduce_states(self) -> bool:
        """True where the states of several CTAs may be merged in any order."""
        return not self._ordered

    def reduce_states(self, states: Sequence[EmittedValue]) -> Sequence[EmittedValue]:
        """Merge states that are elements along ``r``, and return the state."""
        return self._reduced([value.text for value in states])

    def _define(self, base: str, text: str) -> EmittedValue:
        """Define a variable for a reduced tile, of size 1 along ``r``."""
        return self.body.writer.define(
            base, keep_dims(self.body, text), self.all_dims - {"r"}, self.body.writer.depth
        )

    def finish(self, state: Sequence[EmittedValue]) -> None:
        """Define the results of the reduction from its final state."""
        done = combiner_results(self.body, self.combiner, state, self.spec)
        for (name, dtype), (value, source) in zip(self.statement.results, done):
            self.body.scalars[name] = (converted(self.body, value, source, dtype), dtype)
