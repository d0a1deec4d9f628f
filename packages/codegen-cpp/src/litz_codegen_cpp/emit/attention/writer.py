"""Attention in C++: blocks of queries by blocks of keys, whose scores never leave the first-level cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from litz_codegen_cpp.emit.attention.form import FIRST_QUERY, KEYS, PRODUCT, AttentionForm
from litz_codegen_cpp.emit.bodies.body import ExpressionEmitter
from litz_codegen_cpp.emit.bodies.index import LANES
from litz_codegen_cpp.emit.loops.phases import positive, step_text, vector_loop
from litz_codegen_cpp.emit.source.context import BufferPointer
from litz_ir.dtypes import f32
from litz_ir.loops import Axis
from litz_ir.plan import Store
from litz_ir.scalar import Checked, Expr, Load, Scalar, indirects, transform, walk
from litz_ir.symbols import Range, Size, add, cdiv, extent, free_symbols, mul, product, symbol

_FIRST_KEY = "attention.key"
"""The symbol of the first key of a block."""
_ROWS, _QUERIES, _KEYS, _VALUES, _SCORES, _SUMS = (
    f"attention.{name}" for name in ("rows", "queries", "keys", "values", "scores", "sums")
)
"""Scratch arrays: queries and results by rows, queries by lanes, a block of keys and one of values, their scores, and
the sums of values."""
_GREATEST, _TOTAL, _FACTORS = (f"attention.{name}" for name in ("greatest", "total", "factors"))
"""Scratch arrays with an element for each query: the maximum, the total weight, and how much earlier sums shrink."""


def _scalars(root: Expr) -> list[Scalar]:
    return [each for each in walk(root) if isinstance(each, Scalar)]


def _reads_along(root: Expr, axis: str) -> bool:
    """Return True where evaluation reads other memory along an axis than scores, or may report a fault."""
    for node in walk(root):
        atoms = list(indirects(node))
        if isinstance(node, Checked) or any(each.check == "raised" for each in atoms):
            return True
        read = isinstance(node, Load) and node.buffer != _SCORES and axis in node.free_symbols
        if read or any(axis in each.value.free_symbols for each in atoms):
            return True
    return False


class AttentionWriter:
    """Writes the loops of one thread over blocks of queries, of which ``begin`` and ``end`` are the first and last."""

    def __init__(self, body: ExpressionEmitter, form: AttentionForm) -> None:
        self.body = body
        self.context = body.context
        self.form = form
        self.keys = form.summed[-1]
        self.block = min(KEYS, self.keys.size) if isinstance(self.keys.size, int) else KEYS
        assert isinstance(form.columns.size, int), "the form has so"
        self.columns = form.columns.size
        name, self.width = form.width
        self.elements = Axis(name, self.width)
        body.headers.add("attention")
        context = self.context
        context.axis_names.setdefault(name, context.names.exact(name))
        context.ranges.update(
            {name: extent(self.width), FIRST_QUERY: Range(0, None), _FIRST_KEY: Range(0, None)}
        )

    def count(self) -> str:
        """Return the number of blocks of queries, at the innermost scope."""
        blocks = cdiv(self.form.queries.size, self.form.block)
        return self.body.scalar(product((*(axis.size for axis in self.form.batch), blocks))).text

    def grain(self) -> str:
        """Return the least number of blocks for a thread."""
        return "1"

    def write(self) -> None:
        """Write the loop over blocks of queries."""
        context, line = self.context, self.context.scopes.line
        self._arrays()
        item = context.names.fresh("item")
        with context.scopes.block(f"for (int64_t {item} = begin; {item} < end; ++{item}) {{") as scope:
            blocks = self.body.scalar(cdiv(self.form.queries.size, self.form.block)).bracketed()
            first, stop = context.names.fresh("query"), context.names.fresh("stop")
            line(f"const int64_t {first} = {item} % {blocks} * {self.form.block};")
            size = self.body.scalar(self.form.queries.size).text
            line(f"const int64_t {stop} = minimum<int64_t>({size}, {first} + {self.form.block});")
            scope.axes[FIRST_QUERY] = first
            self._decode(f"{item} / {blocks}", self.form.batch)
            context.point = context.scopes.top
            self._block_of_queries(first, stop)

    # --- memory ---------------------------------------------------------------------------------------------

    def _arrays(self) -> None:
        """Declare the scratch arrays, which are known by names that no buffer has."""
        block, longest = self.form.block, max(self.width, self.columns)
        sizes = {
            _ROWS: block * longest, _QUERIES: self.width * block, _KEYS: self.block * self.width,
            _VALUES: self.block * self.columns, _SCORES: self.block * block, _SUMS: self.columns * block,
            _GREATEST: block, _TOTAL: block, _FACTORS: block,
        }  # fmt: skip
        for name, size in sizes.items():
            pointer = self.context.names.fresh(name.partition(".")[2])
            self.context.scopes.line(f"alignas(64) float {pointer}[{size}];")
            self.context.buffers[name] = BufferPointer(pointer, f32)
        self.context.written |= sizes.keys()

    def _pointer(self, name: str) -> str:
        return self.context.buffers[name].pointer

    def _call(self, function: str, *arguments: str) -> None:
        """Write a call and forget what was read of the scratch arrays, which it may change."""
        self.context.scopes.line(f"{function}({', '.join(arguments)});")
        self.context.scopes.forget(frozenset(self._scratch()))

    def _scratch(self) -> Iterator[str]:
        return (name for name in self.context.buffers if name.startswith("attention."))

    # --- one block of queries ---------------------------------------------------------------------------------

    def _decode(self, item: str, axes: Sequence[Axis]) -> None:
        """Define the axes whose row-major position is ``item``."""
        context = self.context
        rest = context.names.fresh("row")
        context.scopes.line(f"int64_t {rest} = {item};")
        for axis in reversed(axes):
            name, size = context.axis_names[axis.name], self.body.scalar(axis.size).bracketed()
            context.scopes.line(f"const int64_t {name} = {rest} % {size};")
            context.scopes.line(f"{rest} /= {size};")
            context.scopes.stack[-1].axes[axis.name] = name

    def _block_of_queries(self, first: str, stop: str) -> None:
        block, width, columns = self.form.block, self.width, self.columns
        rows, queries, sums = (self._pointer(name) for name in (_ROWS, _QUERIES, _SUMS))
        greatest, total, factors = (self._pointer(name) for name in (_GREATEST, _TOTAL, _FACTORS))
        own = add(symbol(self.form.queries.name), mul(symbol(FIRST_QUERY), -1))
        with self._storing(_ROWS), self._loop(self.form.queries, first, stop):
            self._tile_row(_ROWS, mul(own, width), self.elements, self.form.query)
        self._call(f"attention_queries<{block}, {width}>", queries, rows, f"{stop} - {first}")
        self._call("attention_start", greatest, total, sums, str(block), str(columns))
        with ExitStack() as stack:
            for axis in self.form.summed[:-1]:
                stack.enter_context(self._loop(axis, "0", self.body.scalar(axis.size).bracketed()))
            if self.form.seen is not None:
                self.context.scopes.line(f"if (!({self.body.value(self.form.seen).registers[0]})) continue;")
            self._blocks_of_keys(first, stop)
        self._call("transpose_tile", rows, str(columns), sums, str(block), str(columns), f"{stop} - {first}")
        self._results(first, stop, (greatest, total, factors))

    def _blocks_of_keys(self, first: str, stop: str) -> None:
        """Write the loop over blocks of keys."""
        context, form, block = self.context, self.form, self.form.block
        key, end, count = (context.names.fresh(name) for name in ("key", "key_end", "keys"))
        size = self.body.scalar(self.keys.size).bracketed()
        keys, values, scores = (self._pointer(name) for name in (_KEYS, _VALUES, _SCORES))
        with context.scopes.block(
            f"for (int64_t {key} = 0; {key} < {size}; {key} += {self.block}) {{"
        ) as scope:
            scope.axes[_FIRST_KEY] = key
            scope.conditional = True
            context.scopes.line(f"const int64_t {end} = minimum<int64_t>({size}, {key} + {self.block});")
            context.scopes.line(f"const int64_t {count} = {end} - {key};")
            own = add(symbol(self.keys.name), mul(symbol(_FIRST_KEY), -1))
            with self._storing(_KEYS, _VALUES), self._loop(self.keys, key, end):
                self._tile_row(_KEYS, mul(own, self.width), self.elements, form.key)
                self._tile_row(_VALUES, mul(own, self.columns), form.columns, form.value)
            self._call(
                f"attention_scores<{block}, {self.width}>", scores, keys, self._pointer(_QUERIES), count
            )
            with self._storing(_SCORES), self._loop(self.keys, key, end):
                self._scores(own, first, stop)
            greatest, total, factors = (self._pointer(name) for name in (_GREATEST, _TOTAL, _FACTORS))
            weights = f"attention_weights<{block}>({scores}, {count}, {greatest}, {total}, {factors})"
            context.scopes.line(f"if (!{weights}) continue;")
            self._call(
                f"attention_sums<{block}, {self.columns}>",
                self._pointer(_SUMS),
                values,
                scores,
                count,
                factors,
            )

    def _tile_row(self, name: str, offset: Size, axis: Axis, value: Expr) -> None:
        """Write a loop that stores a row of values along ``axis``."""
        size = axis.size
        assert isinstance(size, int), "widths are known"
        end = None if size % self.context.lanes == 0 else str(size)
        with vector_loop(self.body, axis, "0", str(size), LANES, 1, end):
            self.body.memory.store(name, add(offset, symbol(axis.name)), self.body.value(value))

    def _scores(self, key: Size, first: str, stop: str) -> None:
        """Write a loop over the queries of a block that replaces products by scores."""
        queries = self.form.queries
        at = add(mul(key, self.form.block), symbol(queries.name), mul(symbol(FIRST_QUERY), -1))
        score = transform(
            self.form.score, lambda node: Load(_SCORES, (at,), f32) if node == PRODUCT else node
        )
        if score == Load(_SCORES, (at,), f32):
            return
        # Scores of queries beyond the last one are computed too, unless that would read memory.
        partial = _reads_along(score, queries.name)
        end = stop if partial else f"{first} + {self.form.block}"
        registers = 1 if partial else max(1, min(4, self.form.block // self.context.lanes))
        masked = stop if partial else None
        with vector_loop(self.body, queries, first, end, step_text(registers), registers, masked):
            self.body.memory.store(_SCORES, at, self.body.value(score))

    # --- results ----------------------------------------------------------------------------------------------

    def _results(self, first: str, stop: str, arrays: tuple[str, str, str]) -> None:
        """Write the statements of each query: those of single elements in a loop over elements."""
        scopes, form, own = self.context.scopes, self.form, self.context.axis_names[self.form.queries.name]
        greatest, total, _ = arrays
        with self._storing(*self._scratch()), self._loop(form.queries, first, stop):
            row = f"{own} - {first}"
            largest, weight, weighted = form.results
            for name, array in ((largest, greatest), (weight, total)):
                value = self.context.define("result", f"{array}[{row}]", f32, scopes.top)
                scopes.remember(("scalar", name), value)
            alone = [each for each in form.stores if not self._by_column(each)]
            for each in alone:
                self.body.memory.store(each.buffer, each.offset, self.body.to_store(each.value))
            if len(alone) == len(form.stores):
                return
            end = None if self.columns % self.context.lanes == 0 else str(self.columns)
            column = self.context.axis_names[form.columns.name]
            with vector_loop(self.body, form.columns, "0", str(self.columns), LANES, 1, end):
                at = f"{self._pointer(_ROWS)} + ({row}) * {self.columns} + {column}"
                text = f"load({at})" if end is None else f"load_partial({at}, {self.columns} - {column})"
                value = self.context.define("result", (text,), f32, scopes.top, varying=True)
                scopes.remember(("scalar", weighted), value)
                for each in form.stores:
                    if each not in alone:
                        self.body.memory.store(each.buffer, each.offset, self.body.to_store(each.value))

    def _by_column(self, store: Store) -> bool:
        """Return True for a statement that differs between the elements of a row."""
        weighted = self.form.results[2]
        names = {each.name for each in _scalars(store.value)}
        column = self.form.columns.name
        return weighted in names or column in store.value.free_symbols | free_symbols(store.offset)

    # --- loops ------------------------------------------------------------------------------------------------

    @contextmanager
    def _storing(self, *names: str) -> Iterator[None]:
        """Write stores to these scratch arrays, which no load passes."""
        before = self.context.storing
        self.context.storing = frozenset(names)
        yield
        self.context.storing = before

    @contextmanager
    def _loop(self, axis: Axis, first: str, stop: str) -> Iterator[None]:
        """Open a loop over points of an axis."""
        name = self.context.axis_names[axis.name]
        opening = f"for (int64_t {name} = {first}; {name} < {stop}; ++{name}) {{"
        with self.context.scopes.block(opening) as scope:
            scope.axes[axis.name] = name
            scope.conditional = not positive(self.context.ranges, axis.size)
            yield
