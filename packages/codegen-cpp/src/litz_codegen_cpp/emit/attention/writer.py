"""Attention in C++: blocks of queries by blocks of keys, whose scores never leave the first-level cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from litz_codegen_cpp.emit.bodies.body import ExpressionEmitter
from litz_codegen_cpp.emit.bodies.index import LANES
from litz_codegen_cpp.emit.loops.phases import positive, step_text, vector_loop
from litz_codegen_cpp.emit.source.context import BufferPointer
from litz_ir.dtypes import f32
from litz_ir.loops import Axis
from litz_ir.plan import FIRST_QUERY, AttentionDot, BlockedAttention, Store
from litz_ir.scalar import Checked, Expr, Load, Masked, Scalar, indirects, substitute_expr, transform, walk
from litz_ir.symbols import Range, Size, add, cdiv, extent, free_symbols, mul, product, symbol

KEYS = 64
"""The most keys of a block."""

FIRST_KEY = "attention.key"
"""The symbol of the first key of a block."""
_ROWS, _QUERIES, _KEYS, _VALUES, _SCORES, _SUMS = (
    f"attention.{name}" for name in ("rows", "queries", "keys", "values", "scores", "sums")
)
"""Scratch arrays, each with a number: a block of rows or results; for each dot its rows by lanes, and its block of
keys; for each sum a block of values, and the sums; dots of a block, which become weights."""
_GREATEST, _TOTAL, _FACTORS, _OF_ROWS = (
    f"attention.{name}" for name in ("greatest", "total", "factors", "of_rows")
)
"""Scratch arrays with an element for each row: the maximum, the total weight, how much earlier sums shrink; and with a
number, parts of weights that are the same for all keys."""


def _scalars(root: Expr) -> list[Scalar]:
    return [each for each in walk(root) if isinstance(each, Scalar)]


def _is_scratch(buffer: str) -> bool:
    """Return True for a scratch array of attention; no buffer has such a name."""
    return buffer.startswith("attention.")


def _expressions_of_rows(weights: Sequence[Expr], rows: str, keys: frozenset[str]) -> tuple[Expr, ...]:
    """Return parts of weights that read memory for each row, and the same for all keys, whatever conditions hold."""
    found: dict[Expr, None] = {}
    stack, visited = list(weights), set[Expr]()
    while stack:
        node = stack.pop()
        if node in visited:
            continue
        visited.add(node)
        alone = node.dtype == f32 and rows in node.free_symbols and not node.free_symbols & keys
        inside = list(walk(node))
        if alone and any(isinstance(each, Load) for each in inside):
            if not any(isinstance(each, Scalar) and _is_scratch(each.name) for each in inside):
                found[node] = None
                continue
        stack += [node.cond] if isinstance(node, Masked) else node.children
    return tuple(found)


def _reads_along(root: Expr, axis: str) -> bool:
    """Return True where evaluation reads other memory along an axis than scores, or may report a fault."""
    for node in walk(root):
        atoms = list(indirects(node))
        if isinstance(node, Checked) or any(each.check == "raised" for each in atoms):
            return True
        read = isinstance(node, Load) and not _is_scratch(node.buffer) and axis in node.free_symbols
        if read or any(axis in each.value.free_symbols for each in atoms):
            return True
    return False


class AttentionWriter:
    """Writes the loops of one thread over blocks of rows, of which ``begin`` and ``end`` are the first and last."""

    def __init__(self, body: ExpressionEmitter, form: BlockedAttention) -> None:
        self.body = body
        self.context = body.context
        self.form = form
        self.keys = form.summed[-1]
        self.block = min(KEYS, self.keys.size) if isinstance(self.keys.size, int) else KEYS
        assert isinstance(form.columns.size, int), "the form has so"
        self.columns = form.columns.size
        self.values = tuple(self._key_of(number) for number in range(len(form.sums)))
        keys = frozenset(axis.name for axis in form.summed)
        self.of_rows = _expressions_of_rows([each.weight for each in form.sums], form.queries.name, keys)
        body.headers.add("attention")
        context = self.context
        for name, width in (each.axis for each in form.dots):
            context.axis_names.setdefault(name, context.names.exact(name))
            context.ranges[name] = extent(width)
        for axis in (*form.batch, form.queries):  # the kernel has no axis of a single row, or of shared ones
            if axis.name not in context.axis_names:
                context.axis_names[axis.name] = context.names.fresh("row")
                context.ranges[axis.name] = extent(axis.size)
        context.ranges.update({FIRST_QUERY: Range(0, None), FIRST_KEY: Range(0, None)})

    def _key_of(self, number: int) -> str:
        """Return the array of the values of a sum: that of a dot's keys where they are the same elements."""
        value, columns = self.form.sums[number].value, self.form.columns
        for position, each in enumerate(self.form.dots):
            name, width = each.axis
            if width == columns.size and substitute_expr(each.key, {name: symbol(columns.name)}) == value:
                return f"{_KEYS}{position}"
        return f"{_VALUES}{number}"

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
        sizes = self._scratch_sizes()
        for name, size in sizes.items():
            pointer = self.context.names.fresh(name.partition(".")[2])
            self.context.scopes.line(f"alignas(64) float {pointer}[{size}];")
            self.context.buffers[name] = BufferPointer(pointer, f32)
        self.context.written |= sizes.keys()

    def _scratch_sizes(self) -> dict[str, int]:
        """Return the elements of each scratch array."""
        form, block = self.form, self.form.block
        widths = [each.axis[1] for each in form.dots]
        sizes = {f"{_ROWS}{number}": block * self.columns for number in range(len(form.sums))}
        sizes[f"{_ROWS}0"] = block * max(self.columns, *widths)
        for number, width in enumerate(widths):
            sizes |= {f"{_QUERIES}{number}": width * block, f"{_KEYS}{number}": self.block * width}
        for number, values in enumerate(self.values):
            sizes[f"{_SUMS}{number}"] = self.columns * block
            sizes.setdefault(values, self.block * self.columns)
        for number in range(max(len(widths), len(form.sums))):
            sizes[f"{_SCORES}{number}"] = KEYS * block
        sizes |= {f"{_OF_ROWS}{number}": block for number in range(len(self.of_rows))}
        if form.softmax is not None:
            sizes |= dict.fromkeys((_GREATEST, _TOTAL, _FACTORS), block)
        return sizes

    def _pointer(self, name: str) -> str:
        return self.context.buffers[name].pointer

    def _call(self, function: str, *arguments: str) -> None:
        """Write a call and forget what was read of the scratch arrays, which it may change."""
        self.context.scopes.line(f"{function}({', '.join(arguments)});")
        self.context.scopes.forget(frozenset(self._scratch()))

    def _scratch(self) -> Iterator[str]:
        return (name for name in self.context.buffers if _is_scratch(name))

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
        form, block, columns = self.form, self.form.block, self.columns
        own = self._own_row()
        for number, dot in enumerate(form.dots):
            rows, (name, width) = self._rows_of(number), dot.axis
            with self._storing(rows), self._loop(form.queries, first, stop):
                self._tile_row(rows, mul(own, width), Axis(name, width), dot.row)
            self._lay_out_rows(number, f"{stop} - {first}")
        for number, part in enumerate(self.of_rows):
            # Those of rows beyond the last one are multiplied and forgotten.
            self._call("attention_clear", self._pointer(f"{_OF_ROWS}{number}"), str(block))
            with self._storing(f"{_OF_ROWS}{number}"):
                with vector_loop(self.body, form.queries, first, stop, LANES, 1, stop):
                    self.body.memory.store(f"{_OF_ROWS}{number}", own, self.body.value(part))
        for number in range(len(form.sums)):
            self._call("attention_clear", self._pointer(f"{_SUMS}{number}"), str(block * columns))
        if form.softmax is not None:
            self._call("attention_start", self._pointer(_GREATEST), self._pointer(_TOTAL), str(block))
        with ExitStack() as stack:
            for axis in form.summed[:-1]:
                stack.enter_context(self._loop(axis, "0", self.body.scalar(axis.size).bracketed()))
            if form.seen is not None:
                self.context.scopes.line(f"if (!({self.body.value(form.seen).registers[0]})) continue;")
            self._blocks_of_keys(first, stop)
        for number in range(len(form.sums)):
            self._lay_out_sums(number, f"{stop} - {first}")
        self._results(first, stop)

    # --- layout of blocks ---------------------------------------------------------------------------------------

    def _own_row(self) -> Size:
        """Return the position of a row in its block."""
        return add(symbol(self.form.queries.name), mul(symbol(FIRST_QUERY), -1))

    def _score_offset(self, key: Size, row: Size) -> Size:
        """Return the place of the score of a key and a row, by their positions in their blocks."""
        return add(mul(key, self.form.block), row)

    def _rows_of(self, number: int) -> str:
        """Return the array that the rows of a dot are copied into."""
        return f"{_ROWS}0"

    def _lay_out_rows(self, number: int, count: str) -> None:
        """Write the transposition of rows to lanes."""
        rows, queries = self._pointer(f"{_ROWS}0"), self._pointer(f"{_QUERIES}{number}")
        width = self.form.dots[number].axis[1]
        self._call(f"attention_queries<{self.form.block}, {width}>", queries, rows, count)

    def _sums_of(self, number: int) -> str:
        """Return the array that has the sums by rows in the end."""
        return f"{_ROWS}{number}"

    def _lay_out_sums(self, number: int, count: str) -> None:
        """Write the transposition of sums to rows."""
        rows, sums = (self._pointer(f"{name}{number}") for name in (_ROWS, _SUMS))
        columns = str(self.columns)
        self._call("transpose_tile", rows, columns, sums, str(self.form.block), columns, count)

    # --- blocks of keys -----------------------------------------------------------------------------------------

    def _blocks_of_keys(self, first: str, stop: str) -> None:
        """Write the loop over blocks of keys."""
        context, form = self.context, self.form
        key, end, count = (context.names.fresh(name) for name in ("key", "key_end", "keys"))
        size = self.body.scalar(form.count).bracketed()
        with context.scopes.block(
            f"for (int64_t {key} = 0; {key} < {size}; {key} += {self.block}) {{"
        ) as scope:
            scope.axes[FIRST_KEY] = key
            scope.conditional = True
            context.scopes.line(f"const int64_t {end} = minimum<int64_t>({size}, {key} + {self.block});")
            context.scopes.line(f"const int64_t {count} = {end} - {key};")
            own = add(symbol(self.keys.name), mul(symbol(FIRST_KEY), -1))
            copied = self._copied()
            if copied:
                with self._storing(*copied), self._loop(self.keys, key, end):
                    for name, (axis, value) in copied.items():
                        assert isinstance(axis.size, int), "widths are known"
                        self._tile_row(name, mul(own, axis.size), axis, value)
            for number, dot in enumerate(form.dots):
                self._dots_of_block(number, dot, count)
            arrays = [f"{_SCORES}{number}" for number in range(max(len(form.dots), len(form.sums)))]
            with self._storing(*arrays):
                self._weights_of_block(own, (key, end), (first, stop))
            self._sums_of_block(count)

    def _copied(self) -> dict[str, tuple[Axis, Expr]]:
        """Return the arrays that keys and values of a block are copied into, with the axis and value of an element."""
        form = self.form
        values = {name: (form.columns, each.value) for name, each in zip(self.values, form.sums)}
        keys = {f"{_KEYS}{number}": (Axis(*each.axis), each.key) for number, each in enumerate(form.dots)}
        return keys | values | keys  # in this order, and of equal ones the keys

    def _dots_of_block(self, number: int, dot: AttentionDot, count: str) -> None:
        scores, keys, queries = (self._pointer(f"{name}{number}") for name in (_SCORES, _KEYS, _QUERIES))
        function = f"attention_scores<{self.form.block}, {dot.axis[1]}>"
        self._call(function, scores, keys, queries, count)

    def _sums_of_block(self, count: str) -> None:
        """Add the values of a block of keys by their weights."""
        form = self.form
        arguments: tuple[str, ...] = ()
        if form.softmax is not None:
            arrays = (self._pointer(name) for name in (f"{_SCORES}0", _GREATEST, _TOTAL, _FACTORS))
            scores, greatest, total, factors = arrays
            values = f"{self._pointer(self.values[0])}, {count} * {self.columns}"
            weights = f"({scores}, {count}, {values}, {greatest}, {total}, {factors})"
            self.context.scopes.line(f"if (!attention_weights<{form.block}>{weights}) continue;")
            arguments = (factors,)
        for number, array in enumerate(self.values):
            sums, weights = (self._pointer(f"{name}{number}") for name in (_SUMS, _SCORES))
            self._call(
                f"attention_sums<{form.block}, {self.columns}>", sums, self._pointer(array), weights, count,
                *arguments,
            )  # fmt: skip

    def _tile_row(self, name: str, offset: Size, axis: Axis, value: Expr) -> None:
        """Write a loop that stores a row of values along ``axis``."""
        size = axis.size
        assert isinstance(size, int), "widths are known"
        end = None if size % self.context.lanes == 0 else str(size)
        with vector_loop(self.body, axis, "0", str(size), LANES, 1, end):
            self.body.memory.store(name, add(offset, symbol(axis.name)), self.body.value(value))

    def _weights_at(self, key: Size) -> list[Expr]:
        """Return the weights of a key, of the scores in memory; empty where these are the weights."""
        at, row = self._score_offset(key, self._own_row()), self._own_row()
        known: dict[Expr, Expr] = {
            part: Load(f"{_OF_ROWS}{number}", (row,), f32) for number, part in enumerate(self.of_rows)
        }
        for number, each in enumerate(self.form.dots):
            known[each.result] = Load(f"{_SCORES}{number}", (at,), f32)
        weights = [transform(each.weight, lambda node: known.get(node, node)) for each in self.form.sums]
        return [] if weights == [Load(f"{_SCORES}0", (at,), f32)] else weights

    def _store_weights(self, key: Size, weights: Sequence[Expr]) -> None:
        at = self._score_offset(key, self._own_row())
        for number, each in enumerate([self.body.value(weight) for weight in weights]):
            self.body.memory.store(f"{_SCORES}{number}", at, each)

    def _weights_of_block(self, own: Size, keys: tuple[str, str], rows: tuple[str, str]) -> None:
        """Write a loop over the keys, and in it one over the rows, that replaces dots by weights."""
        weights, queries, (first, stop) = self._weights_at(own), self.form.queries, rows
        if not weights:
            return
        # Weights of rows beyond the last one are computed too, unless that would read memory.
        partial = any(_reads_along(each, queries.name) for each in weights)
        end = stop if partial else f"{first} + {self.form.block}"
        registers = 1 if partial else max(1, min(4, self.form.block // self.context.lanes))
        masked = stop if partial else None
        with self._loop(self.keys, *keys):
            with vector_loop(self.body, queries, first, end, step_text(registers), registers, masked):
                self._store_weights(own, weights)

    # --- results ----------------------------------------------------------------------------------------------

    def _results(self, first: str, stop: str) -> None:
        """Write the statements of each row: those of single elements in a loop over elements."""
        scopes, form, own = self.context.scopes, self.form, self.context.axis_names[self.form.queries.name]
        with self._storing(*self._scratch()), self._loop(form.queries, first, stop):
            row = f"{own} - {first}"
            for name, array in zip(form.softmax or (), (_GREATEST, _TOTAL)):
                value = self.context.define("result", f"{self._pointer(array)}[{row}]", f32, scopes.top)
                scopes.remember(("scalar", name), value)
            alone = [each for each in form.stores if not self._by_column(each)]
            for each in alone:
                self.body.memory.store(each.buffer, each.offset, self.body.to_store(each.value))
            if len(alone) == len(form.stores):
                return
            end = None if self.columns % self.context.lanes == 0 else str(self.columns)
            column = self.context.axis_names[form.columns.name]
            with vector_loop(self.body, form.columns, "0", str(self.columns), LANES, 1, end):
                for number, sum_ in enumerate(form.sums):
                    rows = self._pointer(self._sums_of(number))
                    at = f"{rows} + ({row}) * {self.columns} + {column}"
                    text = f"load({at})" if end is None else f"load_partial({at}, {self.columns} - {column})"
                    value = self.context.define("result", (text,), f32, scopes.top, varying=True)
                    scopes.remember(("scalar", sum_.result), value)
                for each in form.stores:
                    if each not in alone:
                        self.body.memory.store(each.buffer, each.offset, self.body.to_store(each.value))

    def _by_column(self, store: Store) -> bool:
        """Return True for a statement that differs between the elements of a row."""
        names = {each.name for each in _scalars(store.value)}
        column = self.form.columns.name
        varies = column in store.value.free_symbols | free_symbols(store.offset)
        return varies or any(each.result in names for each in self.form.sums)

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
