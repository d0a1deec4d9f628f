"""Attention of few rows in C++: lanes are the elements of a head, and the scores of a row are contiguous."""

from __future__ import annotations

from litz_codegen_cpp.emit.attention.writer import FIRST_KEY, KEYS, AttentionWriter
from litz_codegen_cpp.emit.bodies.body import ExpressionEmitter
from litz_codegen_cpp.emit.bodies.index import LANES
from litz_codegen_cpp.emit.loops.phases import vector_loop
from litz_ir.dtypes import f32
from litz_ir.loops import Axis
from litz_ir.plan import AttentionDot, BlockedAttention
from litz_ir.scalar import Expr, Load
from litz_ir.symbols import Range, Size, add, coefficient, free_symbols, mul, substitute, symbol


class FewRowsWriter(AttentionWriter):
    """Writes attention of fewer rows than a vector has lanes, which is bound by reading keys and values."""

    most_keys = 32
    """The most keys of a block: with their values they stay in the first-level cache."""

    def __init__(self, body: ExpressionEmitter, form: BlockedAttention) -> None:
        super().__init__(body, form)
        context, name = self.context, form.queries.name
        if name not in context.axis_names:  # a single row, which has no axis
            context.axis_names[name], context.ranges[name] = context.names.fresh("row"), Range(0, 0)
        body.headers.add("attention_few")

    def _score_offset(self, key: Size, row: Size) -> Size:
        return add(mul(row, KEYS), key)

    def _rows_of(self, number: int) -> str:
        return f"attention.queries{number}"

    def _lay_out_rows(self, number: int, count: str) -> None:
        """Write nothing: rows are multiplied as they are."""

    def _sums_of(self, number: int) -> str:
        return f"attention.sums{number}"

    def _lay_out_sums(self, number: int, count: str) -> None:
        """Write nothing: sums are by rows already."""

    # --- blocks of keys -----------------------------------------------------------------------------------------

    def _copied(self) -> dict[str, tuple[Axis, Expr]]:
        """Return the arrays that are copied: those of keys and values that are no rows of f32 in memory."""
        copied = super()._copied()
        return {name: each for name, each in copied.items() if self._row_stride(*each) is None}

    def _row_stride(self, axis: Axis, value: Expr) -> Size | None:
        """Return the elements from one key to the next where each key is contiguous in memory as f32."""
        if not isinstance(value, Load) or value.dtype != f32:
            return None
        (offset,) = value.index
        stride = coefficient(offset, self.keys.name)
        if stride is None or coefficient(offset, axis.name) != 1 or axis.name in free_symbols(stride):
            return None
        return None if self.keys.name in free_symbols(stride) else stride

    def _rows_of_keys(self, name: str) -> tuple[str, str]:
        """Return the first key of a block in memory or in an array, and the elements from one to the next."""
        axis, value = super()._copied()[name]
        stride = self._row_stride(axis, value)
        if stride is None:
            return self._pointer(name), str(axis.size)
        assert isinstance(value, Load), "it has a stride"
        start = substitute(value.index[0], {axis.name: 0, self.keys.name: symbol(FIRST_KEY)})
        pointer = self.context.buffers[value.buffer].pointer
        return f"{pointer} + {self.body.scalar(start).bracketed()}", self.body.scalar(stride).text

    def _dots_of_block(self, number: int, dot: AttentionDot, count: str) -> None:
        keys, stride = self._rows_of_keys(f"attention.keys{number}")
        scores, queries = (self._pointer(f"attention.{name}{number}") for name in ("scores", "queries"))
        function = f"attention_few_scores<{self.form.block}, {dot.axis[1]}>"
        self._call(function, scores, keys, stride, queries, count)

    def _sums_of_block(self, count: str) -> None:
        values, stride = self._rows_of_keys(self.values[0])
        scores, sums = self._pointer("attention.scores0"), self._pointer("attention.sums0")
        state = [self._pointer(f"attention.{name}") for name in ("greatest", "total", "factors")]
        sizes = f"<{self.form.block}, {self.columns}>"
        weights = ", ".join((scores, count, values, stride, *state))
        self.context.scopes.line(f"if (!attention_few_weights{sizes}({weights})) continue;")
        self._call(f"attention_few_sums{sizes}", sums, values, stride, scores, count, state[-1])

    def _weights_of_block(self, own: Size, keys: tuple[str, str], rows: tuple[str, str]) -> None:
        """Write a loop over the rows, and in it one over the keys, that replaces dots by weights."""
        weights = self._weights_at(own)
        if not weights:
            return
        with self._loop(self.form.queries, *rows):
            with vector_loop(self.body, self.keys, *keys, LANES, 1, keys[1]):
                self._store_weights(own, weights)
