"""Statements of the fused attention loop: PV with or without online softmax, row sums of P, stores of P.

Each class writes its accumulators before the loop when it is made, its part of an iteration by ``step``, and its
results after the loop by ``end``.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from math import copysign

from litz_codegen_triton.emit.bodies.body import TileEmitter
from litz_codegen_triton.emit.bodies.store import prepare, store
from litz_codegen_triton.emit.bodies.tile_shape import typed
from litz_codegen_triton.emit.matmul.operand import operand_tile
from litz_codegen_triton.emit.reductions.combiners import converted
from litz_codegen_triton.emit.source import casts
from litz_codegen_triton.emit.source.powers import LOG2_E, is_moderate, times_log2_e, without_scale
from litz_codegen_triton.emit.source.text import EmittedValue
from litz_ir.dtypes import f32
from litz_ir.plan import Accumulate, Store
from litz_ir.scalar import Const, Expr, Op


class WeightedSum:
    """The sum of P times V over the keys; ``precision`` is text after the arguments of ``tl.dot``."""

    def __init__(self, body: TileEmitter, statement: Accumulate, precision: str) -> None:
        self.body = body
        self.precision = precision
        self.statement = statement
        self.weighted = statement.values[1].dtype
        every = frozenset("yx")
        zeros = f"tl.full({body.tile.text(every)}, 0.0, tl.float32)"
        self.total = body.writer.define(f"{statement.results[-1][0]}_acc", zeros, every, 0)

    def probabilities(self, p: Expr) -> EmittedValue:
        """Return the tile of P of a block of keys."""
        return operand_tile(self.body, "p", p)

    def step(self, p: EmittedValue, v: EmittedValue) -> None:
        """Write the addition of PV of a block of keys."""
        operands = f"{p.text}, {v.text}, {self.total.text}{self.precision}"
        self.body.writer.line(f"{self.total.text} = tl.dot({operands})")

    def end(self) -> None:
        """Define the results after the loop."""
        self._result(0, self.total)

    def _result(self, number: int, value: EmittedValue) -> None:
        """Define the result of that number, in its own dtype."""
        name, dtype = self.statement.results[number]
        self.body.scalars[name] = (converted(self.body, value, f32, dtype), dtype)


class ScoreSum:
    """The sum of P along a row."""

    def __init__(self, body: TileEmitter, statement: Accumulate) -> None:
        self.body = body
        self.statement = statement
        zeros = f"tl.full([{dict(body.tile.dims)['y']}], 0.0, tl.float32)"
        self.total = body.writer.define(f"{statement.results[-1][0]}_acc", zeros, frozenset("y"), 0)

    def step(self, body: TileEmitter, p: Expr) -> None:
        """Write the addition of the row sums of a block of keys."""
        tile = operand_tile(body, "p", p)
        body.writer.line(f"{self.total.text} += tl.sum({tile.text}, 1)")

    def end(self) -> None:
        """Define the result after the loop."""
        ((name, dtype),) = self.statement.results
        total = self.body.writer.define("total", f"{self.total.text}[:, None]", frozenset("y"), 0)
        self.body.scalars[name] = (converted(self.body, total, f32, dtype), dtype)


class ScoreStore:
    """A store of P at every point. An atomic addition is masked where its value is known to be -0.0."""

    def __init__(self, statement: Store) -> None:
        self.statement = statement

    def step(self, body: TileEmitter, p: Expr) -> None:
        """Write the store of a block of keys."""
        conditions, value = _effective(replace(self.statement, value=p))
        write = prepare(body, replace(self.statement, value=value))
        every = frozenset(body.tile.letters)
        with ExitStack() as stack:
            for condition in conditions:
                stack.enter_context(body.memory.under(condition, body.value(condition)))
            store(body, write, every)

    def end(self) -> None:
        """Do nothing: a store has no result."""


def _effective(statement: Store) -> tuple[tuple[Expr, ...], Expr]:
    """Return the conditions under which a store changes memory, and the value that it stores there.

    Addition of -0.0 changes no number; addition of +0.0 changes -0.0.
    """
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
    """The sum of V weighted by the softmax of scores, with a running maximum and sum of weights (online softmax).

    Scores are multiplied by log2(e) and exponentiated with ``exp2`` where they are moderate (see ``powers``). A
    constant scale multiplies the maximum of a row, and each score as it is subtracted from it: one instruction.
    """

    def __init__(self, body: TileEmitter, statement: Accumulate, precision: str) -> None:
        super().__init__(body, statement, precision)
        score = statement.values[0]
        self.binary = is_moderate(score)
        _, scale = self._scaled(score)
        self.times_scale = "" if scale == 1.0 else f" * {scale!r}"
        shape, rows = f"[{dict(body.tile.dims)['y']}]", frozenset("y")
        self.top = body.writer.define("top", f'tl.full({shape}, float("-inf"), tl.float32)', rows, 0)
        self.weights = body.writer.define("weights", f"tl.full({shape}, 0.0, tl.float32)", rows, 0)

    def probabilities(self, p: Expr) -> EmittedValue:
        """Return the tile of scores without their scale, minus infinity past the last key."""
        body, every = self.body, frozenset("yr")
        score, _ = self._scaled(p)
        value = body.value(score)
        text, tail = typed(value, score.dtype), body.masks.tails.get("r")
        if tail is not None:
            text = f'tl.where({tail.text}, {text}, float("-inf"))'
        elif value.dims != every:
            text = body.tile.broadcast(text, every)
        if text.isidentifier():
            return EmittedValue(text, every, value.depth)
        return body.writer.define("score", text, every, body.writer.depth)

    def _scaled(self, score: Expr) -> tuple[Expr, float]:
        """Return scores without their scale, and the scale, in the units in which they are exponentiated."""
        return without_scale(times_log2_e(score) if self.binary else score)

    def step(self, p: EmittedValue, v: EmittedValue) -> None:
        """Write the addition of a block of keys with scores ``p``, and rescale the sums to the new maximum."""
        top, weights, total = self.top.text, self.weights.text, self.total.text
        highest = f"tl.reduce({p.text}, 1, litz_max)"
        peak = self._row("peak", f"litz_max({top}, {highest}{self.times_scale})")
        base = self._row("base", f"litz_finite_or_zero({peak})")
        power = "tl.exp2" if self.binary else "tl.exp"
        weight = self._tile("weight", f"{power}({p.text}{self.times_scale} - {base}[:, None])")
        scale = self._row("scale", f"{power}({top} - {base})")
        rounded = weight
        if self.weighted.is_low_precision:
            convert = casts.encode if self.body.form == "compiled" else casts.round_to
            rounded = self._tile("rounded", convert(weight, self.weighted, self.body.form))
        operands = f"{rounded}, {v.text}, {total} * {scale}[:, None]{self.precision}"
        self.body.writer.line(f"{total} = tl.dot({operands})")
        self.body.writer.line(f"{weights} = {weights} * {scale} + tl.sum({weight}, 1)")
        self.body.writer.line(f"{top} = {peak}")

    def _row(self, base: str, text: str) -> str:
        """Define a value per row."""
        return self._define(base, text, "y")

    def _tile(self, base: str, text: str) -> str:
        """Define a value per row and key."""
        return self._define(base, text, "yr")

    def _define(self, base: str, text: str, dims: str) -> str:
        """Define a variable inside the loop, and return its name."""
        writer = self.body.writer
        return writer.define(base, text, frozenset(dims), writer.depth).text

    def end(self) -> None:
        """Define the results after the loop: maximum in natural units, sum of weights, weighted sum."""
        define, rows = self.body.writer.define, frozenset("y")
        unit = f" * {1 / LOG2_E!r}" if self.binary else ""
        self._result(0, define("maximum", f"{self.top.text}[:, None]{unit}", rows, 0))
        self._result(1, define("total", f"{self.weights.text}[:, None]", rows, 0))
        self._result(2, self.total)
