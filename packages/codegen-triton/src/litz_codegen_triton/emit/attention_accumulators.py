"""What the loop over a chain's tiles does with them: sums of products, by a softmax or not, sums of rows, stores."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from math import copysign

from litz_codegen_triton.emit import casts
from litz_codegen_triton.emit.body import TileEmitter
from litz_codegen_triton.emit.combiners import converted
from litz_codegen_triton.emit.operand import operand_tile
from litz_codegen_triton.emit.powers import LOG2_E, is_moderate, times_log2_e
from litz_codegen_triton.emit.store import prepare, store
from litz_codegen_triton.emit.text import EmittedValue
from litz_ir.dtypes import f32
from litz_ir.plan import Accumulate, Store
from litz_ir.scalar import Const, Expr, Op


class WeightedSum:
    """A sum of products, which are told ``precision`` besides their operands. Making one writes the accumulator."""

    def __init__(self, body: TileEmitter, statement: Accumulate, precision: str) -> None:
        self.body = body
        self.precision = precision
        self.statement = statement
        self.value = statement.values[1]
        every = frozenset("yx")
        zeros = f"tl.full({body.shape(every)}, 0.0, tl.float32)"
        self.total = body.writer.define(f"{statement.results[-1][0]}_acc", zeros, every, 0)

    def probabilities(self) -> EmittedValue:
        """The left factor's tile."""
        return operand_tile(self.body, "left", self.statement.values[0])

    def step(self, left: EmittedValue, right: EmittedValue) -> None:
        """Write what a tile adds."""
        operands = f"{left.text}, {right.text}, {self.total.text}{self.precision}"
        self.body.writer.line(f"{self.total.text} = tl.dot({operands})")

    def end(self) -> None:
        """Define the results, after the loop."""
        self._result(0, self.total)

    def _result(self, number: int, value: EmittedValue) -> None:
        name, dtype = self.statement.results[number]
        self.body.scalars[name] = (converted(self.body, value, f32, dtype), dtype)


class ScoreSum:
    """A sum of what a left factor is. Making one writes the accumulator."""

    def __init__(self, body: TileEmitter, statement: Accumulate) -> None:
        self.body = body
        self.statement = statement
        zeros = f"tl.full([{dict(body.setting.dims)['y']}], 0.0, tl.float32)"
        self.total = body.writer.define(f"{statement.results[-1][0]}_acc", zeros, frozenset("y"), 0)

    def step(self, body: TileEmitter) -> None:
        """Write what a tile adds."""
        tile = operand_tile(body, "left", self.statement.values[0])
        body.writer.line(f"{self.total.text} += tl.sum({tile.text}, 1)")

    def end(self) -> None:
        """Define the result, after the loop."""
        ((name, dtype),) = self.statement.results
        total = self.body.writer.define("total", f"{self.total.text}[:, None]", frozenset("y"), 0)
        self.body.scalars[name] = (converted(self.body, total, f32, dtype), dtype)


class ScoreStore:
    """A store of what a left factor is. What adds nothing anywhere is not added there."""

    def __init__(self, body: TileEmitter, statement: Store) -> None:
        self.body = body
        self.statement = statement
        self.where, value = _wanted(statement)
        self.store = replace(statement, value=value)

    def step(self, body: TileEmitter) -> None:
        """Write the store of a tile."""
        write = prepare(body, self.store)
        every = frozenset(letter for letter, _ in body.setting.dims)
        with ExitStack() as stack:
            for condition in self.where:
                stack.enter_context(body.under(condition, body.value(condition)))
            store(body, write, every)

    def end(self) -> None:
        """Nothing is left to do after the loop."""


def _wanted(statement: Store) -> tuple[tuple[Expr, ...], Expr]:
    """The conditions under which a store changes what is there, and what it stores then. Only negative zero changes no
    number that it is added to."""
    conditions, value = [], statement.value
    while statement.mode == "add":
        match value:
            case Op(name="where", args=(condition, body, Const(value=0.0) as other)) if (
                copysign(1, other.value) < 0
            ):
                conditions.append(condition)
                value = body
            case _:
                break
    return tuple(conditions), value


class OnlineSoftmax(WeightedSum):
    """A sum weighed by a softmax whose maximum rises on the way. Scores are taken for logarithms to base 2 of weights
    where none is so large that the factor that makes them such would matter."""

    def __init__(self, body: TileEmitter, statement: Accumulate, precision: str) -> None:
        super().__init__(body, statement, precision)
        score = statement.values[0]
        self.binary = is_moderate(score)
        self.score = times_log2_e(score) if self.binary else score
        shape, rows = f"[{dict(body.setting.dims)['y']}]", frozenset("y")
        self.top = body.writer.define("top", f'tl.full({shape}, float("-inf"), tl.float32)', rows, 0)
        self.weights = body.writer.define("weights", f"tl.full({shape}, 0.0, tl.float32)", rows, 0)

    def probabilities(self) -> EmittedValue:
        """The tile of scores, minus infinity where there is no point."""
        body, every = self.body, frozenset("yr")
        value = body.value(self.score)
        text, tail = body.typed(value, self.score.dtype), body.masks.tails.get("r")
        if tail is not None:
            text = f'tl.where({tail.text}, {text}, float("-inf"))'
        elif value.dims != every:
            text = f"tl.broadcast_to({text}, {body.shape(every)})"
        if text.isidentifier():
            return EmittedValue(text, every, value.depth)
        return body.writer.define("score", text, every, body.writer.depth)

    def step(self, left: EmittedValue, right: EmittedValue) -> None:
        """Write what a tile adds, and what becomes of the sums that were relative to another maximum."""
        top, weights, total = self.top.text, self.weights.text, self.total.text
        highest = f"tl.reduce({left.text}, 1, litz_max)"
        peak = self._row("peak", f"litz_max({top}, {highest})")
        base = self._row("base", f"litz_finite_or_zero({peak})")
        power = "tl.exp2" if self.binary else "tl.exp"
        weight = self._line("weight", f"{power}({left.text} - {base}[:, None])")
        scale = self._row("scale", f"{power}({top} - {base})")
        rounded = weight
        if self.value.dtype.is_low_precision:
            convert = casts.encode if self.body.form == "compiled" else casts.round_to
            rounded = self._line("rounded", convert(weight, self.value.dtype, self.body.form))
        operands = f"{rounded}, {right.text}, {total} * {scale}[:, None]{self.precision}"
        self.body.writer.line(f"{total} = tl.dot({operands})")
        self.body.writer.line(f"{weights} = {weights} * {scale} + tl.sum({weight}, 1)")
        self.body.writer.line(f"{top} = {peak}")

    def _row(self, base: str, text: str) -> str:
        return self._define(base, text, "y")

    def _line(self, base: str, text: str) -> str:
        return self._define(base, text, "yr")

    def _define(self, base: str, text: str, dims: str) -> str:
        writer = self.body.writer
        return writer.define(base, text, frozenset(dims), writer.depth).text

    def end(self) -> None:
        """Define the results, after the loop."""
        define, rows = self.body.writer.define, frozenset("y")
        unit = f" * {1 / LOG2_E!r}" if self.binary else ""
        self._result(0, define("maximum", f"{self.top.text}[:, None]{unit}", rows, 0))
        self._result(1, define("total", f"{self.weights.text}[:, None]", rows, 0))
        self._result(2, self.total)
