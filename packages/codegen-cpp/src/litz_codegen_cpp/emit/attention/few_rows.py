"""Attention of few rows in C++: lanes are the elements of a head, and the scores of a row are contiguous."""

from __future__ import annotations

from dataclasses import dataclass

from litz_codegen_cpp.emit.attention.writer import FIRST_KEY, KEYS, AttentionWriter
from litz_codegen_cpp.emit.bodies.body import ExpressionEmitter
from litz_codegen_cpp.emit.bodies.index import LANES
from litz_codegen_cpp.emit.loops.phases import vector_loop
from litz_ir.dtypes import bf16, f16, f32
from litz_ir.loops import Axis
from litz_ir.plan import AttentionDot, BlockedAttention
from litz_ir.scalar import Expr, Load, Op
from litz_ir.symbols import Size, add, coefficient, mul, substitute, symbol

_READ = (f32, bf16, f16)
"""Dtypes of keys and values that are read in place."""


@dataclass(frozen=True, slots=True)
class _InPlace:
    """Keys or values whose elements are adjacent in memory."""

    buffer: str
    """The buffer."""
    first: Size
    """The place of the first element of a block."""
    stride: Size
    """The elements from a key to the next."""


class FewRowsWriter(AttentionWriter):
    """Writes attention of at most 32 rows in one block, which is bound by reading keys and values."""

    def __init__(self, body: ExpressionEmitter, form: BlockedAttention) -> None:
        super().__init__(body, form)
        body.headers.add("attention_few")
        self.in_place = {
            name: found
            for name, (axis, value) in super()._copied().items()
            if (found := self._found_in_place(axis, value)) is not None
        }

    def _found_in_place(self, axis: Axis, value: Expr) -> _InPlace | None:
        """Return the place of keys or values that are elements of a buffer, adjacent along ``axis``."""
        load = value.args[0] if isinstance(value, Op) and value.name == "cast" else value
        if not isinstance(load, Load) or load.dtype not in _READ or load.buffer in self.context.written:
            return None
        if self.context.buffers[load.buffer].dtype != load.dtype:
            return None
        (offset,) = load.index
        stride = coefficient(offset, self.keys.name)
        if stride is None or coefficient(offset, axis.name) != 1:
            return None
        first = substitute(offset, {self.keys.name: symbol(FIRST_KEY), axis.name: 0})
        return _InPlace(load.buffer, first, stride)

    def _scratch_sizes(self) -> dict[str, int]:
        return {name: size for name, size in super()._scratch_sizes().items() if name not in self.in_place}

    def _copied(self) -> dict[str, tuple[Axis, Expr]]:
        return {name: each for name, each in super()._copied().items() if name not in self.in_place}

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

    def _rows_of_keys(self, name: str, width: int) -> tuple[str, str]:
        """Return the first key or value of a block, and the elements from one to the next."""
        found = self.in_place.get(name)
        if found is None:
            return self._pointer(name), str(width)
        first, stride = self.body.scalar(found.first), self.body.scalar(found.stride)
        return f"{self._pointer(found.buffer)} + {first.bracketed()}", stride.text

    def _dots_of_block(self, number: int, dot: AttentionDot, count: str) -> None:
        keys, stride = self._rows_of_keys(f"attention.keys{number}", dot.axis[1])
        scores, queries = (self._pointer(f"attention.{name}{number}") for name in ("scores", "queries"))
        function = f"attention_few_scores<{self.form.block}, {dot.axis[1]}>"
        self._call(function, scores, keys, stride, queries, count)

    def _sums_of_block(self, count: str) -> None:
        values, stride = self._rows_of_keys(self.values[0], self.columns)
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
