"""A chain tile by tile: the products that folds are, the left factor around them, its product with the right one, if it
has one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from litz_codegen_triton.emit.attention_accumulators import OnlineSoftmax, ScoreStore, ScoreSum, WeightedSum
from litz_codegen_triton.emit.body import TileEmitter
from litz_codegen_triton.emit.coordinates import TileIndices, unflattened
from litz_codegen_triton.emit.fused_attention import (
    MIN_TILE_SIZE,
    SOFTMAX,
    Conditions,
    FusedAttention,
    conditions,
    p_operand_of,
    qk_operands,
    v_operand_of,
)
from litz_codegen_triton.emit.one_dimensional import one_dimensional_terms
from litz_codegen_triton.emit.operand import operand_tile, tile_range
from litz_codegen_triton.emit.powers import in_powers_of_two
from litz_codegen_triton.emit.text import EmittedValue
from litz_codegen_triton.emit.tiles import InnerLoop, next_power_of_two
from litz_ir.dtypes import DType, f32
from litz_ir.loops import Axis
from litz_ir.plan import Accumulate, Store
from litz_ir.scalar import Expr, NestedReduction, substitute_expr
from litz_ir.symbols import Size, bounds, product, symbol

SUBSCRIPTS = ("[None, :]", "[:, None]")
"""How an index lies in a tile: along its second dimension, and along its first."""


class AttentionEmitter:
    """Writes the phase of a chain.

    The body's tiles are of rows by columns (``y``, ``x``). Left factors are over rows by summed points (``y``, ``r``),
    right ones over summed points by columns (``r``, ``x``); of a fold the near factor is over rows by its own points
    (``y``, ``e``), the far one over these by summed points (``e``, ``r``). Both ``r`` and ``e`` have two indices, since
    they are the second dimension of one tile and the first one of another, and ``y`` and ``r`` one more for what is
    written over one dimension.
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
        self.block_offset = names[f"s{found.phase}"]
        self.inner_index = coordinates.index("line", inner.size).name
        rows = {names["y"]: names["rows"]} | ({names["place"]: names["places"]} if found.row_block else {})
        self.alone: Mapping[str, Mapping[str, str]] = {"y": rows, "r": {self.summed[0]: self.inner_index}}
        self.statements: Sequence[Accumulate | Store] = ()
        self.rights: dict[Expr, EmittedValue] = {}
        self.tails: tuple[EmittedValue, ...] = ()
        self.points: dict[int, tuple[EmittedValue, EmittedValue]] = {}

    def write(self, statements: Sequence[Accumulate | Store], stages: int) -> None:
        """Write the loop and define the results; ``stages`` tiles of factors are on their way at a time."""
        body, writer = self.body, self.body.writer
        statements = self.statements = [_in_powers_of_two(each) for each in statements]
        lefts = [p_operand_of(statement) for statement in statements]
        places = conditions(
            (*lefts, *(right for right in map(v_operand_of, statements) if right is not None))
        )
        assert places is not None, "a fold of a chain is in a place where its product can be computed"
        nears = [self._near(fold) for fold in places]
        made = [self._made(statement) for statement in statements]
        spans = [tile_range(body, "rspan", "RBLOCK", along) for along in (*SUBSCRIPTS, "")]
        offset, length = writer.names.fresh("roffset"), self._length()
        writer.open(f"for {offset} in tl.range(0, {length}, RBLOCK, num_stages={stages}):")
        least = bounds(self.inner.size, body.setting.ranges).low
        body.load_depth = 0 if least is not None and least > 0 else writer.depth
        self._move(offset, spans)
        for (fold, under), near in zip(places.items(), nears):
            self._fold(fold, under, near)
        known = {letter: frozenset(names) for letter, names in self.alone.items()}
        for expr, letter in one_dimensional_terms(lefts, known).items():
            self._line(expr, letter)
        for each in made:
            self._step(each)
        body.load_depth = 0
        writer.close()
        for each in made:
            each.end()

    def _made(self, statement: Accumulate | Store) -> WeightedSum | ScoreSum | ScoreStore:
        """What the loop does with a statement's tiles."""
        if isinstance(statement, Store):
            return ScoreStore(self.body, statement)
        right = v_operand_of(statement)
        if right is None:
            return ScoreSum(self.body, statement)
        kind = OnlineSoftmax if statement.combiner == SOFTMAX else WeightedSum
        return kind(self.body, statement, self._precision(right.dtype))

    def _step(self, each: WeightedSum | ScoreSum | ScoreStore) -> None:
        with self._over("y", "r"):
            if not isinstance(each, WeightedSum):
                each.step(self.body)
                return
            left = each.probabilities()
        each.step(left, self._right(each.value))

    # --- the summed points of a tile ---

    def _length(self) -> str:
        """How many points the loop goes over."""
        body, count = self.body, self.coordinates.count
        sizes = [*(axis.size for axis in self.inner.serial), self.inner.size]
        if count is None:
            return body.index.unit(product(sizes)).text
        value = body.value(count)
        assert not value.dims, "all rows of a tile have one guard"
        number = f"{body.typed(value, count.dtype)}.to({body.index.type})"
        known = f"tl.minimum({number}, {body.index.unit(sizes[0]).text})"
        each = body.index.unit(product(sizes[1:])).text
        return body.writer.define("length", f"{known} * {each}", frozenset(), 0).text

    def _move(self, offset: str, spans: Sequence[EmittedValue]) -> None:
        """Move the indices of the summed points on to the tile at ``offset``, and the masks of those that exist."""
        body, inner, depth = self.body, self.inner, self.body.writer.depth
        start = f"{offset} + "
        size = body.index.unit(inner.size).text
        if inner.serial:
            place = body.writer.define("rplace", f"{offset} // {size}", frozenset(), depth)
            body.index.symbols[self.block_offset] = place
            start = "" if inner.size == inner.block else f"{offset} % {size} + "
        tails = []
        for name, each in zip((*self.summed, self.inner_index), spans):
            index = each
            if start:
                index = body.writer.define("rindex", start + each.text, each.dims, depth)
            body.index.symbols[name] = index
            if not (isinstance(inner.size, int) and inner.size % inner.block == 0):
                tails.append(body.writer.define("rmask", f"{index.text} < {size}", index.dims, depth))
        self.tails = tuple(tails)

    @contextmanager
    def _over(self, *letters: str, points: int = 0) -> Iterator[None]:
        """Write what follows over a tile of these dimensions; ``points`` are those of the fold that has ``e``."""
        blocks = {"e": str(_depth(points)), "r": "RBLOCK", **dict(self.body.setting.dims)}
        tails, outside = self.body.masks.tails, dict(self.body.masks.tails)
        # Along its second dimension an index has its first name, and alone it has its third.
        if "r" in letters and self.tails:
            tails["r"] = self.tails[2 if len(letters) == 1 else letters.index("r") == 0]
        if letters == ("y",) and "y" in tails:
            rows = self.body.index.symbols[self.coordinates.indices["rows"]]
            size = self.body.index.unit(self.coordinates.tiles.outer[-2].size).text
            tails["y"] = self.body.writer.define("ymask", f"{rows.text} < {size}", rows.dims, 0)
        if "e" in letters and _depth(points) != points:
            index = self._along(points)[letters.index("e") == 0]
            tails["e"] = self.body.writer.define("emask", f"{index.text} < {points}", index.dims, 0)
        with self.body.over(tuple((letter, blocks[letter]) for letter in letters)):
            yield
        tails.clear()
        tails.update(outside)

    # --- factors ---

    def _precision(self, dtype: DType) -> str:
        """What a product of factors of a dtype is told besides them."""
        return f', input_precision="{self.found.precision}"' if dtype == f32 else ""

    def _along(self, points: int) -> tuple[EmittedValue, EmittedValue]:
        """The points of a fold of so many, along the second dimension of a tile and along the first one."""
        if points not in self.points:
            first, second = (
                tile_range(self.body, "espan", str(_depth(points)), along) for along in SUBSCRIPTS
            )
            self.points[points] = (first, second)
        return self.points[points]

    def _of_fold(self, factor: Expr, fold: NestedReduction, side: int) -> Expr:
        """A factor of a fold over the index of its points in its tile."""
        points = _points(fold)
        index = self.coordinates.index(f"e{points}_{side}", points)
        self.body.index.symbols[index.name] = self._along(points)[side]
        return substitute_expr(factor, unflattened(index, [Axis(*axis) for axis in fold.axes]))

    def _factors(self, fold: NestedReduction) -> tuple[Expr, Expr]:
        found = qk_operands(fold, frozenset((self.summed[0], self.block_offset)))
        assert found is not None, "a fold of a chain is a product"
        return found

    def _near(self, fold: NestedReduction) -> EmittedValue:
        """The near factor's tile: what it is for all summed points."""
        near, _ = self._factors(fold)
        with self._over("y", "e", points=_points(fold)):
            return operand_tile(self.body, "near", self._of_fold(near, fold, 0))

    def _fold(self, fold: NestedReduction, under: Conditions, near: EmittedValue) -> None:
        """Write a fold's tile, for the bodies that hold it to find."""
        body, depth = self.body, self.body.writer.depth
        each, far = self._factors(fold)
        text = f"tl.dot({near.text}, {self._far(fold, far, under)}{self._precision(each.dtype)})"
        body.writer.remember(fold, body.writer.define("fold", text, frozenset("yr"), depth))

    def _line(self, expr: Expr, letter: str) -> None:
        """Write what knows one dimension alone, for the bodies that hold it to find."""
        body, along = self.body, SUBSCRIPTS[letter == "y"]
        moved = substitute_expr(expr, {name: symbol(other) for name, other in self.alone[letter].items()})
        with self._over(letter):
            value = body.value(moved)
        if value.dims:
            line = body.writer.define(value.text, f"{value.text}{along}", value.dims, value.depth)
            body.writer.remember(expr, line)

    def _far(self, fold: NestedReduction, far: Expr, under: Conditions) -> str:
        """The far factor's tile: one that is a right factor too is read once."""
        body = self.body
        columns, _ = self._columns()
        same = substitute_expr(far, unflattened(columns, [Axis(*axis) for axis in fold.axes]))
        if not under and self._columns()[1] == _points(fold):
            for statement in self.statements:
                if v_operand_of(statement) == same:
                    return f"tl.trans({self._right(same).text})"
        with self._over("e", "r", points=_points(fold)), ExitStack() as stack:
            for condition in under:
                stack.enter_context(body.under(condition, body.value(condition)))
            return operand_tile(body, "far", self._of_fold(far, fold, 1)).text

    def _columns(self) -> tuple[Size, Size]:
        """The index of the columns, and their number where one program has them all."""
        dim = self.coordinates.tiles.outer[-1]
        return symbol(self.coordinates.indices["x"]), dim.size if dim.block_count == 1 else 0

    def _right(self, factor: Expr) -> EmittedValue:
        """A right factor's tile."""
        if factor not in self.rights:
            moved = substitute_expr(factor, {self.summed[0]: symbol(self.summed[1])})
            with self._over("r", "x"):
                self.rights[factor] = operand_tile(self.body, "right", moved)
        return self.rights[factor]


def _in_powers_of_two(statement: Accumulate | Store) -> Accumulate | Store:
    left = in_powers_of_two(p_operand_of(statement))
    if isinstance(statement, Store):
        return replace(statement, value=left)
    return replace(statement, values=(left, *statement.values[1:]))


def _points(fold: NestedReduction) -> int:
    size = product(size for _, size in fold.axes)
    assert isinstance(size, int), "a tile has all points of a fold"
    return size


def _depth(points: int) -> int:
    """The length of the dimension of a tile that has so many points."""
    return max(MIN_TILE_SIZE, next_power_of_two(points))
