"""The loop of a fused attention kernel over blocks of keys: QK^T, P, and PV if there is a V."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial

from litz_codegen_triton.emit.attention.accumulators import OnlineSoftmax, ScoreStore, ScoreSum, WeightedSum
from litz_codegen_triton.emit.attention.tile_descriptors import DescribedTiles
from litz_codegen_triton.emit.bodies.body import TileEmitter
from litz_codegen_triton.emit.bodies.tile_shape import typed
from litz_codegen_triton.emit.indexing.coordinates import TileIndices, unflattened
from litz_codegen_triton.emit.indexing.one_dimensional import one_dimensional_terms
from litz_codegen_triton.emit.loops.fused_attention import (
    MIN_TILE_SIZE,
    SOFTMAX,
    FusedAttention,
    p_operand_of,
    qk_operands,
    simplified,
    v_operand_of,
)
from litz_codegen_triton.emit.loops.loop_bounds import assuming, loads_less, of_a_part
from litz_codegen_triton.emit.loops.tiles import InnerLoop, next_power_of_two
from litz_codegen_triton.emit.matmul.operand import operand_tile, tile_range
from litz_codegen_triton.emit.source.powers import in_powers_of_two, with_reciprocals
from litz_codegen_triton.emit.source.text import EmittedValue
from litz_ir.dtypes import DType, f32
from litz_ir.loops import Axis
from litz_ir.plan import Accumulate, Store
from litz_ir.scalar import (
    Conditions,
    Expr,
    NestedReduction,
    conditions_of_nested_reductions,
    substitute_expr,
)
from litz_ir.symbols import Size, bounds, product, symbol

_SUBSCRIPTS = ("[None, :]", "[:, None]")
"""Subscripts that put a one-dimensional index along the second and along the first dimension of a tile."""


@dataclass(frozen=True, slots=True)
class _LoopRange:
    """Points of the loop, and what its statements are there."""

    count: Expr | None
    """Points of the first summed axis up to its end; ``None`` for all."""
    statements: Sequence[Accumulate | Store]
    """Statements, simplified for these points."""


class AttentionEmitter:
    """Writes the phase of a fused attention kernel.

    Dimensions of tiles are the rows ``y``, the columns ``x``, the summed points ``r`` and the points ``e`` of a nested
    reduction. The output is (``y``, ``x``), P is (``y``, ``r``), V is (``r``, ``x``), Q is (``y``, ``e``) and K is
    (``e``, ``r``). ``r`` and ``e`` have two indices each, since they are the second dimension of one tile and the first
    of another; ``y`` and ``r`` have a third, one-dimensional one for values that vary along that dimension alone.
    """

    def __init__(
        self, body: TileEmitter, coordinates: TileIndices, found: FusedAttention, inner: InnerLoop
    ) -> None:
        self.body = body
        self.coordinates = coordinates
        self.found = found
        self.inner = inner
        names = coordinates.indices
        self.summed = coordinates.summed
        self.serial_index = names[f"s{found.phase}"]
        self.vector_index = coordinates.index("keys", inner.size).name
        rows = {names["y"]: names["rows"]}
        if found.row_block:
            rows[names["qrow"]] = names["qrows"]
        self.one_dimensional: Mapping[str, Mapping[str, str]] = {
            "y": rows,
            "r": {self.summed[0]: self.vector_index},
        }
        self.statements: Sequence[Accumulate | Store] = ()
        self.q_tiles: dict[Expr, EmittedValue] = {}
        self.v_tiles: dict[Expr, EmittedValue] = {}
        self.tails: tuple[EmittedValue, ...] = ()
        self.described = DescribedTiles(body, coordinates, inner, self.serial_index)
        self.nested_ranges: dict[int, tuple[EmittedValue, EmittedValue]] = {}
        self.masked: tuple[Expr, str] | None = None
        """The condition of blocks that need the mask, and as text."""

    def write(self, statements: Sequence[Accumulate | Store], stages: int) -> None:
        """Write the loop and define the results; ``stages`` is ``num_stages`` of the loop."""
        statements = [_in_powers_of_two(each) for each in statements]
        ranges = self._ranges(statements)
        for each in ranges:
            for nested in self._nested(each.statements):
                self._q_tile(nested)
        writers = [self._writer(statement) for statement in statements]
        spans = [tile_range(self.body, "rspan", "RBLOCK", along) for along in (*_SUBSCRIPTS, "")]
        start = "0"
        for each in ranges:
            stop = self._length(each.count)
            self._loop(each.statements, writers, spans, f"{start}, {stop}, RBLOCK, num_stages={stages}")
            start = stop
        for statement_writer in writers:
            statement_writer.end()

    def _ranges(self, statements: Sequence[Accumulate | Store]) -> list[_LoopRange]:
        """Return the loops: over the points before a division and those after it, or over all points.

        A softmax that loads as much in both parts is one loop, since a second one costs more than comparisons.
        """
        whole = _LoopRange(self.coordinates.loop_bound, statements)
        if self.coordinates.division is None:
            return [whole]
        condition, count = self.coordinates.division
        scores = [*map(p_operand_of, statements)]
        if self._is_softmax(statements) and not loads_less(scores, condition):
            if any(of_a_part(each, condition, True) != of_a_part(each, condition, False) for each in scores):
                self.masked = condition, self._length(count)
            return [whole]

        def where(holds: bool) -> list[Accumulate | Store]:
            return [
                simplified(each, partial(assuming, condition=condition, holds=holds)) for each in statements
            ]

        return [_LoopRange(count, where(True)), replace(whole, statements=where(False))]

    @staticmethod
    def _is_softmax(statements: Sequence[Accumulate | Store]) -> bool:
        return any(isinstance(each, Accumulate) and each.combiner == SOFTMAX for each in statements)

    def _nested(self, statements: Sequence[Accumulate | Store]) -> Mapping[NestedReduction, Conditions]:
        """Return the nested reductions of statements, with the conditions under which they are evaluated."""
        v_operands = (v for v in map(v_operand_of, statements) if v is not None)
        found = conditions_of_nested_reductions(*map(p_operand_of, statements), *v_operands)
        assert found is not None, "the matcher takes nested reductions with one set of conditions each"
        return found

    def _loop(
        self,
        statements: Sequence[Accumulate | Store],
        writers: Sequence[WeightedSum | ScoreSum | ScoreStore],
        spans: Sequence[EmittedValue],
        steps: str,
    ) -> None:
        """Write the loop over the blocks of summed points that ``steps`` ranges over, for its statements."""
        body, writer = self.body, self.body.writer
        self.statements, self.v_tiles = statements, {}
        offset = writer.names.fresh("roffset")
        q_tiles = {nested: self._q_tile(nested) for nested in self._nested(statements)}
        writer.open(f"for {offset} in tl.range({steps}):")
        least = bounds(self.inner.size, body.setting.ranges).low
        body.memory.load_depth = 0 if least is not None and least > 0 else writer.depth
        self._move(offset, spans)
        for nested, under in self._nested(statements).items():
            self._nested_reduction(nested, under, q_tiles[nested])
        known = {letter: frozenset(names) for letter, names in self.one_dimensional.items()}
        for expr, letter in one_dimensional_terms([*map(p_operand_of, statements)], known).items():
            self._vector(expr, letter)
        for statement_writer, statement in zip(writers, statements, strict=True):
            self._step(statement_writer, statement, offset)
        body.memory.load_depth = 0
        writer.close()

    def _writer(self, statement: Accumulate | Store) -> WeightedSum | ScoreSum | ScoreStore:
        """Return the writer of a statement; making it writes the accumulators."""
        if isinstance(statement, Store):
            return ScoreStore(statement)
        v = v_operand_of(statement)
        if v is None:
            return ScoreSum(self.body, statement)
        kind = OnlineSoftmax if statement.combiner == SOFTMAX else WeightedSum
        return kind(self.body, statement, self._precision(v.dtype))

    def _step(
        self, writer: WeightedSum | ScoreSum | ScoreStore, statement: Accumulate | Store, offset: str
    ) -> None:
        """Write a statement's part of the iteration at ``offset``."""
        with self._over("y", "r"):
            if not isinstance(writer, WeightedSum):
                writer.step(self.body, p_operand_of(statement))
                return
            p = self._probabilities(writer, p_operand_of(statement), offset)
        v = v_operand_of(statement)
        assert v is not None, "a weighted sum has a V"
        writer.step(p, self._v_tile(v))

    def _probabilities(self, sums: WeightedSum, p: Expr, offset: str) -> EmittedValue:
        """Write P of a block, which asks the mask only in blocks that need it."""
        if self.masked is None:
            return sums.probabilities(p)
        writer, (condition, length) = self.body.writer, self.masked
        every = sums.probabilities(of_a_part(p, condition, False))
        shown = writer.define("shown", every.text, every.dims, writer.depth)
        with writer.condition(f"if {offset} < {length}:"):
            hidden = sums.probabilities(of_a_part(p, condition, True))
            writer.line(f"{shown.text} = {hidden.text}")
        return shown

    # --- the summed points of a tile ---

    def _length(self, count: Expr | None) -> str:
        """Return the number of points up to ``count`` ones of the first summed axis, or of all points."""
        body = self.body
        sizes = [*(axis.size for axis in self.inner.serial), self.inner.size]
        if count is None:
            return body.index.unit(product(sizes)).text
        value = body.value(count)
        assert not value.dims, "all rows of a tile have the same loop bound"
        number = f"{typed(value, count.dtype)}.to({body.index.type})"
        known = f"tl.minimum({number}, {body.index.unit(sizes[0]).text})"
        each = body.index.unit(product(sizes[1:])).text
        return body.writer.define("length", f"{known} * {each}", frozenset(), 0).text

    def _move(self, offset: str, spans: Sequence[EmittedValue]) -> None:
        """Define the indices of the summed points for the tile at ``offset``, and the masks of its tail."""
        body, inner, depth = self.body, self.inner, self.body.writer.depth
        start = f"{offset} + "
        size = body.index.unit(inner.size).text
        if inner.serial:
            serial = body.writer.define("rserial", f"{offset} // {size}", frozenset(), depth)
            body.index.symbols[self.serial_index] = serial
            start = "" if inner.size == inner.block else f"{offset} % {size} + "
        self.described.start = start.removesuffix(" + ") or "0"
        tails = []
        for name, each in zip((*self.summed, self.vector_index), spans):
            index = each
            if start:
                index = body.writer.define("rindex", start + each.text, each.dims, depth)
            body.index.symbols[name] = index
            if not (isinstance(inner.size, int) and inner.size % inner.block == 0):
                tails.append(body.writer.define("rmask", f"{index.text} < {size}", index.dims, depth))
        self.tails = tuple(tails)

    @contextmanager
    def _over(self, *letters: str, points: int = 0) -> Iterator[None]:
        """Set the dimensions and masks of the tiles written meanwhile; ``points`` is the size of ``e``."""
        blocks = {"e": str(_tile_size(points)), "r": "RBLOCK", **dict(self.body.tile.dims)}
        tails, outside = self.body.masks.tails, dict(self.body.masks.tails)
        # Of the three masks of r the first is for tiles with r second, the next with r first, the last with r alone.
        if "r" in letters and self.tails:
            tails["r"] = self.tails[2 if len(letters) == 1 else letters.index("r") == 0]
        if letters == ("y",) and "y" in tails:
            rows = self.body.index.symbols[self.coordinates.indices["rows"]]
            size = self.body.index.unit(self.coordinates.tiles.outer[-2].size).text
            tails["y"] = self.body.writer.define("ymask", f"{rows.text} < {size}", rows.dims, 0)
        if "e" in letters and _tile_size(points) != points:
            index = self._nested_range(points)[letters.index("e") == 0]
            tails["e"] = self.body.writer.define("emask", f"{index.text} < {points}", index.dims, 0)
        with self.body.tile.over(tuple((letter, blocks[letter]) for letter in letters)):
            yield
        tails.clear()
        tails.update(outside)

    # --- operands ---

    def _precision(self, dtype: DType) -> str:
        """Return the argument of ``tl.dot`` that sets the precision of operands of a dtype; empty for the default."""
        return f', input_precision="{self.found.precision}"' if dtype == f32 else ""

    def _nested_range(self, points: int) -> tuple[EmittedValue, EmittedValue]:
        """Return the index of ``e`` along the second dimension of a tile, and along the first."""
        if points not in self.nested_ranges:
            second, first = (
                tile_range(self.body, "espan", str(_tile_size(points)), along) for along in _SUBSCRIPTS
            )
            self.nested_ranges[points] = (second, first)
        return self.nested_ranges[points]

    def _over_tile(self, operand: Expr, nested: NestedReduction, number: int) -> Expr:
        """Rewrite Q (``number`` 0) or K (1) of a nested reduction over the index of ``e`` in its tile."""
        points = _points(nested)
        index = self.coordinates.index(f"e{points}_{number}", points)
        self.body.index.symbols[index.name] = self._nested_range(points)[number]
        return substitute_expr(operand, unflattened(index, [Axis(*axis) for axis in nested.axes]))

    def _qk_operands(self, nested: NestedReduction) -> tuple[Expr, Expr]:
        """Return Q and K of a nested reduction over tile indices."""
        found = qk_operands(nested, frozenset((self.summed[0], self.serial_index)))
        assert found is not None, "the matcher takes nested reductions that are matmuls"
        return found

    def _q_tile(self, nested: NestedReduction) -> EmittedValue:
        """Load Q, which is the same for all summed points."""
        q, _ = self._qk_operands(nested)
        with self._over("y", "e", points=_points(nested)):
            moved = self._over_tile(q, nested, 0)
            if moved not in self.q_tiles:
                self.q_tiles[moved] = operand_tile(self.body, "q", moved)
            return self.q_tiles[moved]

    def _nested_reduction(self, nested: NestedReduction, under: Conditions, q: EmittedValue) -> None:
        """Write QK^T of a block, and remember it as the value of the nested reduction."""
        body, depth = self.body, self.body.writer.depth
        each, k = self._qk_operands(nested)
        text = f"tl.dot({q.text}, {self._k_tile(nested, k, under)}{self._precision(each.dtype)})"
        body.writer.remember(nested, body.writer.define("qk", text, frozenset("yr"), depth))

    def _vector(self, expr: Expr, letter: str) -> None:
        """Write an expression that varies along one dimension as a one-dimensional tile, and remember its value."""
        body, along = self.body, _SUBSCRIPTS[letter == "y"]
        indices = self.one_dimensional[letter].items()
        moved = substitute_expr(expr, {name: symbol(other) for name, other in indices})
        with self._over(letter):
            if letter == "r" and not self._is_softmax(self.statements):
                self.described.vectors(moved, self.vector_index)
            value = body.value(moved)
        if value.dims:
            vector = body.writer.define(value.text, f"{value.text}{along}", value.dims, value.depth)
            body.writer.remember(expr, vector)

    def _k_tile(self, nested: NestedReduction, k: Expr, under: Conditions) -> str:
        """Load K of a block; where K is also the V of a statement, transpose the tile of V instead."""
        body = self.body
        columns, _ = self._columns()
        same = substitute_expr(k, unflattened(columns, [Axis(*axis) for axis in nested.axes]))
        if not under and self._columns()[1] == _points(nested):
            for statement in self.statements:
                if v_operand_of(statement) == same:
                    return f"tl.trans({self._v_tile(same).text})"
        with self._over("e", "r", points=_points(nested)), ExitStack() as stack:
            for condition in under:
                stack.enter_context(body.memory.under(condition, body.value(condition)))
            moved = self._over_tile(k, nested, 1)
            column = self.coordinates.indices[f"e{_points(nested)}_1"]
            tile = self.described.tile("k", moved, self.summed[0], column, _points(nested))
            return (tile or operand_tile(body, "k", moved)).text

    def _columns(self) -> tuple[Size, Size]:
        """Return the index of the columns, and their number where one tile has them all, else 0."""
        dim = self.coordinates.tiles.outer[-1]
        return symbol(self.coordinates.indices["x"]), dim.size if dim.block_count == 1 else 0

    def _v_tile(self, v: Expr) -> EmittedValue:
        """Load V of a block, once for all statements that multiply with it."""
        if v not in self.v_tiles:
            moved = substitute_expr(v, {self.summed[0]: symbol(self.summed[1])})
            column, columns = self.coordinates.indices["x"], self._columns()[1]
            with self._over("r", "x"):
                tile = self.described.tile("v", moved, self.summed[1], column, columns)
                self.v_tiles[v] = tile or operand_tile(self.body, "v", moved)
        return self.v_tiles[v]


def _in_powers_of_two(statement: Accumulate | Store) -> Accumulate | Store:
    """Rewrite ``exp`` in P as ``exp2`` where that is safe, and divisions by constants as multiplications."""
    p = in_powers_of_two(with_reciprocals(p_operand_of(statement)))
    if isinstance(statement, Store):
        return replace(statement, value=p)
    return replace(statement, values=(p, *statement.values[1:]))


def _points(nested: NestedReduction) -> int:
    """Return the number of points of a nested reduction, which is an integer."""
    size = product(size for _, size in nested.axes)
    assert isinstance(size, int), "the matcher takes nested reductions of constant size"
    return size


def _tile_size(points: int) -> int:
    """Return the extent of the dimension of a tile that holds ``points`` points."""
    return max(MIN_TILE_SIZE, next_power_of_two(points))
