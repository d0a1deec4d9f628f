"""Constants and operations, as Triton spells them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from litz_codegen_triton.emit.bodies.tile_shape import TileShape, typed
from litz_codegen_triton.emit.bodies.value_cache import ValueCache
from litz_codegen_triton.emit.indexing.index import NARROW, IndexTerms, fits_narrow
from litz_codegen_triton.emit.source import casts
from litz_codegen_triton.emit.source.ops_table import (
    APPROXIMATE,
    ONE_PLUS_ERF,
    Form,
    Spelling,
    spelling,
    triton_type,
)
from litz_codegen_triton.emit.source.quotients import quotient_spelling
from litz_codegen_triton.emit.source.text import EmittedValue
from litz_ir.dtypes import DType, b1, bf16, f32, i32, i64
from litz_ir.scalar import OPS, Const, Expr, Index, Op, build, const
from litz_ir.symbols import Size, add, mul


class OperationEmitter:
    """Writes the constants and operations of one kernel. ``values`` writes operands and returns their values."""

    def __init__(
        self,
        form: Form,
        tile: TileShape,
        index: IndexTerms,
        cache: ValueCache,
        values: Callable[[Sequence[Expr]], list[EmittedValue]],
    ) -> None:
        self.form = form
        self.tile = tile
        self.index = index
        self.writer = index.writer
        self._cache = cache
        self._values = values

    def constant(self, expr: Const) -> EmittedValue:
        """Write a constant: a bare literal where Triton types it right, else a scalar tensor."""
        register = triton_type(expr.dtype)
        if expr.dtype.is_float and expr.value == 0 and math.copysign(1.0, expr.value) < 0:
            bits = int(register.removeprefix("tl.float"))
            # Triton's constants that compare equal to zero are +0.0.
            text = f"tl.full([], {1 << (bits - 1)}, tl.uint{bits}).to({register}, bitcast=True)"
            return self.writer.define("constant", text, frozenset(), 0)
        text, plain = _literal(expr.value, expr.dtype)
        if plain:
            return EmittedValue(text, literal=True)
        return self.writer.define("constant", f"tl.full([], {text}, {register})", frozenset(), 0)

    def operation(self, expr: Op) -> EmittedValue:
        """Write an operation, by its row of the operations table unless it is a conversion."""
        if expr.name in ("cast", "bitcast"):
            return self._conversion(expr)
        narrow = self._narrow_compare(expr) or self._narrow_sum(expr)
        if narrow is not None:
            return narrow
        error_function = self._plus_one(expr)
        if error_function is not None:
            return self._spelt(error_function, ONE_PLUS_ERF)
        dtype = expr.dtype if OPS[expr.name].rule == "random" else expr.args[-1].dtype
        return self._spelt(expr, quotient_spelling(expr) or spelling(expr.name, dtype))

    def before_rounding(self, conversion: Op) -> EmittedValue:
        """Return the operand of a conversion, by an approximation where the conversion rounds away its error."""
        (source,) = conversion.args
        row = self._approximation(conversion)
        if row is None:
            return self._values([source])[0]
        assert isinstance(source, Op)
        found = self._cache.known_approximation(source)
        if found is None:
            found = self._cache.remember_approximation(source, self._spelt(source, row))
        return found

    def operands(self, expr: Op) -> tuple[Expr, ...]:
        """Return the expressions whose values an operation is written with.

        They are those of its operand for a conversion that rounds away the error of an approximation, and for the sum
        of 1 and an error function.
        """
        operand: Expr | None = self._plus_one(expr)
        if operand is None and self._approximation(expr) is not None:
            (operand,) = expr.args
        return operand.args if isinstance(operand, Op) else expr.args

    def _spelt(self, expr: Op, row: Spelling) -> EmittedValue:
        """Write an operation by a row of the operations table."""
        rule = OPS[expr.name].rule
        args = self._values(expr.args)
        tensors = (
            row.wants_tensors or all(arg.literal for arg in args) or (rule == "compare" and args[0].literal)
        )
        texts = [
            typed(arg, own.dtype) if tensors else _parenthesised(arg.text)
            for arg, own in zip(args, expr.args)
        ]
        if self.form == "interpreted" and "litz_" in row.text:
            texts = [self._broadcast(text, arg, args) for text, arg in zip(texts, args)]
        text = row.in_form(self.form).format(*texts)
        if expr.dtype.is_low_precision and not row.exact:
            text = casts.round_to(f"({text})", expr.dtype, self.form)
        if self.form == "interpreted" and rule in ("compare", "test") and not any(arg.dims for arg in args):
            # The interpreter gives a comparison of scalars the dtype of its operands; tl.where makes it a bool.
            text = f"tl.where({text}, 1, 0) != 0"
        return self.writer.derive(expr.name, text, args)

    def _broadcast(self, text: str, arg: EmittedValue, args: Sequence[EmittedValue]) -> str:
        """Return the text of a function's scalar argument as a tile where another argument is one."""
        dims = frozenset().union(*(other.dims for other in args))
        return self.tile.broadcast(text, dims) if dims and not arg.dims else text

    def _conversion(self, expr: Op) -> EmittedValue:
        """Write a cast or bitcast; one that changes nothing is its operand."""
        (source,) = expr.args
        value = self.before_rounding(expr)
        convert = casts.cast if expr.name == "cast" else casts.bitcast
        text = typed(value, source.dtype)
        if isinstance(source, Const) and source.dtype.is_low_precision and expr.name == "cast":
            text = self._rounded_literal(source)
        text = convert(text, source.dtype, expr.dtype, self.form)
        if text == value.text:
            return value
        return self.writer.derive(f"to_{expr.dtype.name}", text, (value,))

    def _rounded_literal(self, source: Const) -> str:
        """Return a literal of a low-precision float as a value of its dtype, which the literal itself need not be."""
        known = build.cast(source, f32)
        if isinstance(known, Const):
            return typed(self.constant(known), f32)
        return casts.round_to(typed(self.constant(source), source.dtype), source.dtype, self.form)

    def _approximation(self, expr: Op) -> Spelling | None:
        """Return the approximate spelling of a conversion's operand, for an f32 operation that is rounded to bf16."""
        if expr.name != "cast" or expr.dtype != bf16:
            return None
        source = expr.args[0]
        if not isinstance(source, Op) or source.dtype != f32 or self._cache.known(source) is not None:
            return None
        return quotient_spelling(source) or APPROXIMATE.get(source.name)

    def _plus_one(self, expr: Op) -> Op | None:
        """Return the error function over ``f32`` that an operation adds to 1, unless its value is known."""
        if expr.name == "add" and expr.dtype == f32:
            for number, other in (expr.args, expr.args[::-1]):
                if isinstance(other, Op) and other.name == "erf" and number == const(1.0, f32):
                    return other if self._cache.known(other) is None else None
        return None

    def _narrow_compare(self, expr: Op) -> EmittedValue | None:
        """Write a comparison of indices in 32 bits, where they fit, at half the cost of 64 bits; else ``None``."""
        if OPS[expr.name].rule != "compare" or not self.index.narrow:
            return None
        terms: list[Size] = []
        for arg in expr.args:
            if isinstance(arg, Index):
                terms.append(arg.term)
            elif isinstance(arg, Const) and arg.dtype == i64 and abs(arg.value) <= NARROW:
                terms.append(int(arg.value))
        if len(terms) != 2 or all(isinstance(term, int) for term in terms):
            return None
        if isinstance(terms[0], int):
            return None
        operands = [self.index.unit(term) for term in terms]
        text = spelling(expr.name, i64).text.format(*(operand.text for operand in operands))
        return self.writer.derive(expr.name, text, operands)

    def _narrow_sum(self, expr: Op) -> EmittedValue | None:
        """Write a sum or difference of indices as one index, whose arithmetic has 32 bits where they fit; else
        ``None``."""
        if expr.name not in ("add", "sub") or not self.index.narrow:
            return None
        first, second = expr.args
        if not (isinstance(first, Index) and isinstance(second, Index)):
            return None
        term = add(first.term, second.term if expr.name == "add" else mul(second.term, -1))
        return self._values([Index(term)])[0] if fits_narrow([term], self.index.ranges) else None


def _parenthesised(text: str) -> str:
    """Return the text in parentheses if it begins with a minus sign."""
    return f"({text})" if text.startswith("-") else text


def _literal(value: int | float | bool, dtype: DType) -> tuple[str, bool]:
    """Return a constant's text, and whether Triton gives the bare literal the right type."""
    if dtype == b1:
        return str(bool(value)), False
    if dtype.is_integer:
        return str(int(value)), dtype == i32
    number = float(value)
    if math.isnan(number):
        text = 'float("nan")'
    elif math.isinf(number):
        text = 'float("inf")' if number > 0 else 'float("-inf")'
    else:
        text = repr(number)
    # Triton types a literal outside the range of normal f32 values as f64.
    normal = number == 0 or not math.isfinite(number) or 2.0**-126 <= abs(number) <= 3.4028234663852886e38
    return text, triton_type(dtype) == "tl.float32" and normal
