"""Scalar expressions over a tile: loads, operations, masked parts, indirect indices."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from litz_codegen_triton.emit import casts
from litz_codegen_triton.emit.index import NARROW, IndexTerms
from litz_codegen_triton.emit.mask import Masks
from litz_codegen_triton.emit.ops_table import APPROXIMATE, Form, Spelling, spelling, triton_type
from litz_codegen_triton.emit.text import CodeWriter, EmittedValue
from litz_codegen_triton.emit.vector_accesses import MemoryAccess
from litz_ir.dtypes import DType, b1, bf16, f32, i32, i64
from litz_ir.errors import CodegenError
from litz_ir.faults import FAULTS, Fault
from litz_ir.plan import Parameter
from litz_ir.scalar import (
    OPS,
    Checked,
    Const,
    Expr,
    Index,
    Indirect,
    Load,
    Masked,
    NestedReduction,
    Op,
    Param,
    Scalar,
    indirects_in,
    loads,
)
from litz_ir.symbols import Range, Size, Term, bounds


@dataclass(frozen=True, slots=True)
class EmitSettings:
    """What is fixed for a kernel.

    The form it is written in, its parameters and what their pointers are called, the buffers that it reads, the ranges
    of symbols, whether 32-bit indices do, and the tile dimensions (letter, block name) from slowest to fastest.
    """

    form: Form
    parameters: Mapping[str, Parameter]
    pointers: Mapping[str, str]
    read: frozenset[str]
    ranges: Mapping[str, Range]
    narrow: bool
    dims: tuple[tuple[str, str], ...]


class TileEmitter:
    """Writes expressions and stores for one kernel, computing each value once."""

    def __init__(self, setting: EmitSettings) -> None:
        self.setting = setting
        self.form = setting.form
        self.writer = CodeWriter()
        self.masks = Masks(self.writer, [letter for letter, _ in setting.dims])
        self.index = IndexTerms(self.masks, setting.ranges, setting.narrow, self._indirect)
        self.scalars: dict[str, tuple[EmittedValue, DType]] = {}
        self.params: tuple[EmittedValue, ...] = ()
        self.functions: dict[str, str] = {}
        self.stored: set[str] = set()
        self.loaded: Counter[str] = Counter()
        self.accesses: list[MemoryAccess] = []
        self.conditions: tuple[Expr, ...] = ()
        self.reading: dict[Expr, bool] = {}
        self.asserts = False
        self.eviction: Mapping[str, str] = {}
        # Loads that would be hoisted out of a loop over no point stay inside it.
        self.load_depth = 0

    # --- shapes ---

    def shape(self, dims: frozenset[str]) -> str:
        """The shape of a tile that varies along ``dims``."""
        return f"[{', '.join(block if letter in dims else '1' for letter, block in self.setting.dims)}]"

    def spread(self, value: EmittedValue, dims: frozenset[str]) -> str:
        """The text of ``value`` broadcast to a tile that varies along ``dims``."""
        if dims <= value.dims or not dims:
            return value.text
        if value.literal:
            return f"tl.full({self.shape(dims)}, {value.text}, {self.index.type})"
        return f"tl.broadcast_to({value.text}, {self.shape(dims | value.dims)})"

    def typed(self, value: EmittedValue, dtype: DType) -> str:
        """The text of a value as a tensor, even where it is a literal."""
        return f"tl.full([], {value.text}, {triton_type(dtype)})" if value.literal else value.text

    # --- expressions ---

    def value(self, expr: Expr) -> EmittedValue:
        """Write what an expression needs and return its value. Raises ``CodegenError``."""
        self._prepare(expr)
        return self._visit(expr)

    def _prepare(self, root: Expr) -> None:
        """Write operands before what uses them, so that long chains do not become deep recursion."""
        stack: list[tuple[Expr, bool]] = [(root, False)]
        while stack:
            expr, ready = stack.pop()
            if ready:
                self._visit(expr)
            elif isinstance(expr, (Op, Masked)) and self._known(expr) is None:
                children = expr.args if isinstance(expr, Op) else (expr.cond,)
                if isinstance(expr, Op) and self._brief(expr) is not None:
                    (rounded,) = expr.args
                    assert isinstance(rounded, Op)
                    children = rounded.args
                stack.append((expr, True))
                stack.extend((child, False) for child in reversed(children))

    def _key(self, expr: Expr, conditions: tuple[EmittedValue, ...]) -> Hashable:
        # Under a condition, what was read there is good for nothing outside.
        return (expr, conditions) if conditions and self._reads(expr) else expr

    def _reads(self, expr: Expr) -> bool:
        """True for an expression that reads a buffer."""
        found = self.reading.get(expr)
        if found is None:
            found = self.reading[expr] = bool(loads(expr))
        return found

    def _known(self, expr: Expr) -> EmittedValue | None:
        """What an expression's value is known as, here or under fewer conditions."""
        conditions = self.masks.conditions
        for count in range(len(conditions) if self._reads(expr) else 0, -1, -1):
            found = self.writer.known(self._key(expr, conditions[:count]))
            if found is not None:
                return found
        return None

    def _visit(self, expr: Expr) -> EmittedValue:
        found = self._known(expr)
        if found is None:
            key = self._key(expr, self.masks.conditions)
            found = self.writer.remember(key, self._write(expr))
        return found

    def _write(self, expr: Expr) -> EmittedValue:
        match expr:
            case Const():
                return self._const(expr)
            case Index():
                value = self.index.unit(expr.term)
                text = (
                    f"tl.full([], {value.text}, tl.int64)" if value.literal else f"{value.text}.to(tl.int64)"
                )
                return self.writer.define("index", text, value.dims, value.depth)
            case Scalar():
                return self._scalar(expr)
            case Param():
                return self.params[expr.position]
            case Load():
                return self._load(expr)
            case Masked():
                return self._masked(expr)
            case Checked():
                return self._checked(expr)
            case NestedReduction():
                return self._fold(expr)
            case Op():
                return self._op(expr)
        raise CodegenError(f"cannot write {type(expr).__name__} in a Triton kernel", node=repr(expr))

    def _const(self, expr: Const) -> EmittedValue:
        text, plain = _literal(expr.value, expr.dtype)
        if plain:
            return EmittedValue(text, literal=True)
        return self.writer.define(
            "constant", f"tl.full([], {text}, {triton_type(expr.dtype)})", frozenset(), 0
        )

    def _scalar(self, expr: Scalar) -> EmittedValue:
        found = self.scalars.get(expr.name)
        if found is None:
            raise CodegenError(
                f"the kernel reads {expr.name!r}, which nothing before it defines", node=repr(expr)
            )
        value, dtype = found
        text = casts.cast(value.text, dtype, expr.dtype, self.form)
        return value if text == value.text else self._define(expr.name, text, (value,))

    def _load(self, expr: Load, other: str = "") -> EmittedValue:
        raw = self.stored_element(expr, other)
        dtype = self.setting.parameters[expr.buffer].dtype
        return self.writer.define(expr.buffer, casts.decode(raw.text, dtype, self.form), raw.dims, raw.depth)

    def stored_element(self, expr: Load, other: str = "", as_type: str = "") -> EmittedValue:
        """The text that reads an element as it is in memory, ``other`` where its tile has no point; ``as_type`` is the
        Triton type that its bits are taken for, if not that of the pointer."""
        parameter = self.setting.parameters[expr.buffer]
        offset = self.index.value(expr.index[0])
        dims = offset.dims | self.masks.condition_dims
        mask = self.masks.access_mask(dims)
        mutable = parameter.access != "in"
        depth = max(offset.depth, 0 if mask is None else mask.depth, self.load_depth)
        if mutable:
            depth = self.writer.depth
            self._settle(expr.buffer)
        self.loaded[expr.buffer] += 1
        self.accesses.append(MemoryAccess("load", expr.buffer, expr.index[0], dims, self.conditions))
        base = self.setting.pointers[expr.buffer]
        if as_type:
            base += f".to(tl.pointer_type({as_type}), bitcast=True)"
        pointer = f"{base} + {self.spread(offset, dims)}"
        more = "" if mask is None else f", mask={mask.text}" + (f", other={other}" if other else "")
        if "r" in dims and expr.buffer in self.eviction:
            more += f', eviction_policy="{self.eviction[expr.buffer]}"'
        return EmittedValue(f"tl.load({pointer}{more})", dims, depth)

    @contextmanager
    def over(self, dims: tuple[tuple[str, str], ...]) -> Iterator[None]:
        """Write what follows over tiles of other dimensions. One that both have must be at the same place in both."""
        outside = self.setting
        self._set_dims(replace(outside, dims=dims))
        try:
            yield
        finally:
            self._set_dims(outside)

    def _set_dims(self, setting: EmitSettings) -> None:
        self.setting = setting
        self.masks.order = tuple(letter for letter, _ in setting.dims)

    def _settle(self, buffer: str) -> None:
        """Wait for what other threads of the program stored to ``buffer``."""
        if buffer in self.stored:
            self.barrier()

    def barrier(self) -> None:
        """Let every thread of the program reach this point before any goes on."""
        self.writer.line("tl.debug_barrier()")
        self.stored.clear()
        self.loaded.clear()

    def _masked(self, expr: Masked) -> EmittedValue:
        cond = self._visit(expr.cond)
        other = self.value(expr.other)
        body = expr.body
        with self.under(expr.cond, cond):
            filled = (
                isinstance(body, Load) and other.literal and body.dtype.is_float and body.dtype.bits >= 32
            )
            if filled and self._known(body) is None:
                assert isinstance(body, Load)
                return self._load(body, other.text)
            value = self.value(body)
        text = (
            f"tl.where({cond.text}, {self._operand(value, expr.dtype)}, {self._operand(other, expr.dtype)})"
        )
        parts = (cond, value, other)
        return self._define("masked", text, parts)

    @contextmanager
    def under(self, condition: Expr, value: EmittedValue) -> Iterator[None]:
        """Write what follows as wanted only where a condition, whose value this is, holds."""
        outside = self.conditions
        self.conditions = (*outside, condition)
        with self.masks.under(value):
            yield
        self.conditions = outside

    def _operand(self, value: EmittedValue, dtype: DType) -> str:
        return value.text if not value.literal or dtype in (f32, i32) else self.typed(value, dtype)

    def _define(self, base: str, text: str, parts: Sequence[EmittedValue]) -> EmittedValue:
        dims = frozenset().union(*(part.dims for part in parts))
        return self.writer.define(base, text, dims, max((part.depth for part in parts), default=0))

    def _op(self, expr: Op) -> EmittedValue:
        if expr.name in ("cast", "bitcast"):
            return self._conversion(expr)
        narrow = self._narrow_compare(expr)
        if narrow is not None:
            return narrow
        dtype = expr.dtype if OPS[expr.name].rule == "random" else expr.args[-1].dtype
        return self._spelt(expr, spelling(expr.name, dtype))

    def _spelt(self, expr: Op, row: Spelling) -> EmittedValue:
        rule = OPS[expr.name].rule
        args = [self._visit(arg) for arg in expr.args]
        tensors = (
            row.wants_tensors or all(arg.literal for arg in args) or (rule == "compare" and args[0].literal)
        )
        texts = [
            self.typed(arg, own.dtype) if tensors else _parenthesised(arg.text)
            for arg, own in zip(args, expr.args)
        ]
        if self.form == "interpreted" and "litz_" in row.text:
            texts = [self._alike(text, arg, args) for text, arg in zip(texts, args)]
        text = row.in_form(self.form).format(*texts)
        if expr.dtype.is_low_precision and not row.exact:
            text = casts.round_to(f"({text})", expr.dtype, self.form)
        if self.form == "interpreted" and rule in ("compare", "test") and not any(arg.dims for arg in args):
            # The interpreter takes a compared scalar for one of the type that was compared, until it meets a choice.
            text = f"tl.where({text}, 1, 0) != 0"
        return self._define(expr.name, text, args)

    def _alike(self, text: str, arg: EmittedValue, args: Sequence[EmittedValue]) -> str:
        """An argument of a function, as a tile where another one is: inside the function it may be compared."""
        dims = frozenset().union(*(other.dims for other in args))
        return f"tl.broadcast_to({text}, {self.shape(dims)})" if dims and not arg.dims else text

    def _conversion(self, expr: Op) -> EmittedValue:
        (source,) = expr.args
        value = self.before_rounding(expr)
        convert = casts.cast if expr.name == "cast" else casts.bitcast
        text = convert(self.typed(value, source.dtype), source.dtype, expr.dtype, self.form)
        if text == value.text:
            return value
        return self._define(f"to_{expr.dtype.name}", text, (value,))

    def before_rounding(self, conversion: Op) -> EmittedValue:
        """The value that a conversion converts, good enough for its result."""
        (source,) = conversion.args
        row = self._brief(conversion)
        if row is None:
            return self.value(source)
        assert isinstance(source, Op)
        key = (source, self.masks.conditions if self._reads(source) else (), "brief")
        found = self.writer.known(key)
        if found is None:
            for arg in source.args:
                self._prepare(arg)
            found = self.writer.remember(key, self._spelt(source, row))
        return found

    def _brief(self, conversion: Op) -> Spelling | None:
        """How the operand of a conversion is spelt where the conversion rounds so much that a short way will do."""
        source = conversion.args[0]
        if conversion.name != "cast" or conversion.dtype != bf16 or source.dtype != f32:
            return None
        if not isinstance(source, Op) or self._known(source) is not None:
            return None
        return APPROXIMATE.get(source.name)

    def _narrow_compare(self, expr: Op) -> EmittedValue | None:
        """A comparison of indices, written in the type of indices: 64 bits would double its cost."""
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
        parts = [self.index.unit(term) for term in terms]
        return self._define(
            expr.name, spelling(expr.name, i64).text.format(*(part.text for part in parts)), parts
        )

    def _indirect(self, atom: Indirect) -> EmittedValue:
        key: Hashable = (atom, self.masks.conditions)
        found = self.writer.known(key)
        if found is not None:
            return found
        value = self.value(atom.value)
        size = self.index.unit(atom.size)
        text = self.typed(value, atom.value.dtype)
        # Sizes are compared where both sides are known to fit.
        if atom.value.dtype != i64:
            value = self._define("index", f"{text}.to(tl.int64)", (value,))
            text = value.text
        if atom.wrap:
            value = self._define(
                "index", f"tl.where({text} < 0, {text} + {size.text}, {text})", (value, size)
            )
            text = value.text
        if atom.check == "raised":
            inside = self._define("inside", f"({text} >= 0) & ({text} < {size.text})", (value, size))
            self._assert(inside, FAULTS[atom.fault])
        if atom.check != "assumed":
            text = f"tl.minimum(tl.maximum({text}, 0), {size.text} - 1)"
        if self.index.narrow:
            text = f"{text}.to(tl.int32)"
        if text != value.text:
            value = self._define("index", text, (value, size))
        return self.writer.remember(key, value)

    def _fold(self, expr: NestedReduction) -> EmittedValue:
        """A sum, point after point."""
        writer, depth, load_depth = self.writer, self.writer.depth, self.load_depth
        for name, size in expr.axes:
            here = writer.names.fresh(name)
            writer.open(f"for {here} in range(0, {self.index.unit(size).text}):")
            self.index.symbols[name] = EmittedValue(here, frozenset(), writer.depth)
            least = bounds(size, self.setting.ranges).low
            if least is None or least < 1:
                self.load_depth = writer.depth
        value = self.value(expr.body)
        text = self.typed(value, expr.dtype)
        zeros = f"tl.full({self.shape(value.dims) if value.dims else '[]'}, 0.0, {triton_type(expr.dtype)})"
        total = writer.define("fold", zeros, value.dims, depth)
        writer.line(f"{total.text} = {total.text} + {text}")
        for name, _ in expr.axes:
            writer.close()
            del self.index.symbols[name]
        self.load_depth = load_depth
        return total

    def _checked(self, expr: Checked) -> EmittedValue:
        self._assert(self._visit(expr.cond), FAULTS[expr.fault])
        return self.value(expr.body)

    def _assert(self, holds: EmittedValue, fault: Fault) -> None:
        mask = self.masks.access_mask(holds.dims)
        depth = max(holds.depth, mask.depth if mask else 0)
        condition = holds.text if mask is None else f"{holds.text} | ({mask.text} == 0)"
        self.writer.line(f'tl.device_assert({condition}, "fault {fault.code}: {fault.message}")', depth)
        self.asserts = True

    def forget(self, buffer: str) -> None:
        """Drop what was computed from a buffer that has been overwritten."""
        for scope in self.writer.scopes:
            for key in list(scope.memo):
                expr = key[0] if isinstance(key, tuple) else key
                if _reads(expr, buffer):
                    del scope.memo[key]


def _reads(key: object, buffer: str) -> bool:
    if isinstance(key, Expr):
        return any(load.buffer == buffer for load in loads(key))
    return isinstance(key, Term) and any(_reads(atom.value, buffer) for atom in indirects_in(key))


def _parenthesised(text: str) -> str:
    return f"({text})" if text.startswith("-") else text


def _literal(value: int | float | bool, dtype: DType) -> tuple[str, bool]:
    """A constant's text, and whether Triton gives it the right type where it stands beside nothing but literals."""
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
    # Triton takes a literal that no normal f32 is near for an f64.
    normal = number == 0 or not math.isfinite(number) or 2.0**-126 <= abs(number) <= 3.4028234663852886e38
    return text, triton_type(dtype) == "tl.float32" and normal
