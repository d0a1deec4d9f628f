"""Emission of scalar expressions over a tile: loads, operations, masked expressions, indirect indices."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from litz_codegen_triton.emit.indexing.index import NARROW, IndexTerms
from litz_codegen_triton.emit.indexing.mask import Masks
from litz_codegen_triton.emit.indexing.vector_accesses import MemoryAccess
from litz_codegen_triton.emit.source import casts
from litz_codegen_triton.emit.source.ops_table import APPROXIMATE, Form, Spelling, spelling, triton_type
from litz_codegen_triton.emit.source.text import CodeWriter, EmittedValue
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
    """Settings that hold for a whole kernel, but for ``dims``, which ``TileEmitter.over`` replaces."""

    form: Form
    """The form of the kernel: for Triton's compiler, or for its interpreter."""
    parameters: Mapping[str, Parameter]
    """The buffer parameters by name."""
    pointers: Mapping[str, str]
    """The variable that points to each buffer."""
    read: frozenset[str]
    """The buffers that the kernel reads."""
    ranges: Mapping[str, Range]
    """The range of each index and symbol."""
    narrow: bool
    """True where all index arithmetic fits 32 bits."""
    dims: tuple[tuple[str, str], ...]
    """The dimensions of a tile, slowest first: a letter, and its block as text, such as ``("x", "XBLOCK")``."""


class TileEmitter:
    """Writes the expressions of one kernel, each once (common subexpression elimination).

    Its owner sets ``scalars`` (results of earlier phases and symbols, by name), ``params`` (arguments of a combiner's
    function), ``eviction`` (``eviction_policy`` of loads by buffer) and ``load_depth`` (the least loop depth of loads).
    It collects ``functions`` (sources by name), ``accesses`` and ``asserts`` (whether indices are checked).
    """

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
        # Set in loops that may have no iteration, out of which a load must not be hoisted.
        self.load_depth = 0

    # --- shapes ---

    def shape(self, dims: frozenset[str]) -> str:
        """Return the shape of a tile that varies along ``dims``, as text."""
        return f"[{', '.join(block if letter in dims else '1' for letter, block in self.setting.dims)}]"

    def spread(self, value: EmittedValue, dims: frozenset[str]) -> str:
        """Return the text of ``value`` broadcast to a tile that varies along ``dims``."""
        if dims <= value.dims or not dims:
            return value.text
        if value.literal:
            return f"tl.full({self.shape(dims)}, {value.text}, {self.index.type})"
        return f"tl.broadcast_to({value.text}, {self.shape(dims | value.dims)})"

    def typed(self, value: EmittedValue, dtype: DType) -> str:
        """Return the text of a value as a tensor, also where it is a literal."""
        return f"tl.full([], {value.text}, {triton_type(dtype)})" if value.literal else value.text

    # --- expressions ---

    def value(self, expr: Expr) -> EmittedValue:
        """Write an expression and return its value.

        Raises ``CodegenError`` for a scalar that nothing defines, and for an expression that Triton cannot have.
        """
        self._prepare(expr)
        return self._visit(expr)

    def _prepare(self, root: Expr) -> None:
        """Write operands before their users by a stack, since long expressions would exceed the recursion limit."""
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
        """Return the key under which an expression's value is remembered."""
        # A value that was loaded under a condition is valid under that condition alone.
        return (expr, conditions) if conditions and self._reads(expr) else expr

    def _reads(self, expr: Expr) -> bool:
        """True for an expression that loads from a buffer."""
        found = self.reading.get(expr)
        if found is None:
            found = self.reading[expr] = bool(loads(expr))
        return found

    def _known(self, expr: Expr) -> EmittedValue | None:
        """Return the value of an expression that has been written under these conditions or under fewer."""
        conditions = self.masks.conditions
        for count in range(len(conditions) if self._reads(expr) else 0, -1, -1):
            found = self.writer.known(self._key(expr, conditions[:count]))
            if found is not None:
                return found
        return None

    def _visit(self, expr: Expr) -> EmittedValue:
        """Return the value of an expression, which is written unless it is known."""
        found = self._known(expr)
        if found is None:
            key = self._key(expr, self.masks.conditions)
            found = self.writer.remember(key, self._write(expr))
        return found

    def _write(self, expr: Expr) -> EmittedValue:
        """Write an expression, by its kind."""
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
                return self._nested_reduction(expr)
            case Op():
                return self._op(expr)
        raise CodegenError(f"a Triton kernel cannot contain {type(expr).__name__}", node=repr(expr))

    def _const(self, expr: Const) -> EmittedValue:
        """Write a constant: a bare literal where Triton types it right, else a scalar tensor."""
        text, plain = _literal(expr.value, expr.dtype)
        if plain:
            return EmittedValue(text, literal=True)
        return self.writer.define(
            "constant", f"tl.full([], {text}, {triton_type(expr.dtype)})", frozenset(), 0
        )

    def _scalar(self, expr: Scalar) -> EmittedValue:
        """Return a symbol or a result of an earlier phase, in the dtype of the expression."""
        found = self.scalars.get(expr.name)
        if found is None:
            raise CodegenError(
                f"the kernel reads {expr.name!r}, which no earlier phase defines", node=repr(expr)
            )
        value, dtype = found
        text = casts.cast(value.text, dtype, expr.dtype, self.form)
        return value if text == value.text else self._define(expr.name, text, (value,))

    def _load(self, expr: Load, other: str = "") -> EmittedValue:
        """Write a load, converted to its representation in registers."""
        raw = self.stored_element(expr, other)
        dtype = self.setting.parameters[expr.buffer].dtype
        return self.writer.define(expr.buffer, casts.decode(raw.text, dtype, self.form), raw.dims, raw.depth)

    def stored_element(self, expr: Load, other: str = "", as_type: str = "") -> EmittedValue:
        """Return the text of a load in the representation of memory.

        ``other`` is the value of masked points. ``as_type`` is the Triton type as which memory is read, if not that of
        the pointer.
        """
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
        options = "" if mask is None else f", mask={mask.text}" + (f", other={other}" if other else "")
        if "r" in dims and expr.buffer in self.eviction:
            options += f', eviction_policy="{self.eviction[expr.buffer]}"'
        return EmittedValue(f"tl.load({pointer}{options})", dims, depth)

    @contextmanager
    def over(self, dims: tuple[tuple[str, str], ...]) -> Iterator[None]:
        """Set the dimensions of the tiles written meanwhile. Those that stay must keep their position."""
        outside = self.setting
        self._set_dims(replace(outside, dims=dims))
        try:
            yield
        finally:
            self._set_dims(outside)

    def _set_dims(self, setting: EmitSettings) -> None:
        """Replace the settings and the order of dimensions in masks."""
        self.setting = setting
        self.masks.order = tuple(letter for letter, _ in setting.dims)

    def _settle(self, buffer: str) -> None:
        """Wait for stores of other threads of the CTA to ``buffer``."""
        if buffer in self.stored:
            self.barrier()

    def barrier(self) -> None:
        """Write a barrier of all threads of the CTA."""
        self.writer.line("tl.debug_barrier()")
        self.stored.clear()
        self.loaded.clear()

    def _masked(self, expr: Masked) -> EmittedValue:
        """Write ``body`` under the mask of its condition, and select ``other`` where it does not hold."""
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
        return self._define("masked", text, (cond, value, other))

    @contextmanager
    def under(self, condition: Expr, value: EmittedValue) -> Iterator[None]:
        """Mask accesses that are written meanwhile by ``condition``, of which ``value`` is the value."""
        outside = self.conditions
        self.conditions = (*outside, condition)
        with self.masks.under(value):
            yield
        self.conditions = outside

    def _operand(self, value: EmittedValue, dtype: DType) -> str:
        """Return the text of an operand of ``tl.where``, as a tensor where a literal would have another dtype."""
        return value.text if not value.literal or dtype in (f32, i32) else self.typed(value, dtype)

    def _define(self, base: str, text: str, operands: Sequence[EmittedValue]) -> EmittedValue:
        """Define a variable with the dimensions and the depth of its operands."""
        dims = frozenset().union(*(operand.dims for operand in operands))
        return self.writer.define(base, text, dims, max((operand.depth for operand in operands), default=0))

    def _op(self, expr: Op) -> EmittedValue:
        """Write an operation."""
        if expr.name in ("cast", "bitcast"):
            return self._conversion(expr)
        narrow = self._narrow_compare(expr)
        if narrow is not None:
            return narrow
        dtype = expr.dtype if OPS[expr.name].rule == "random" else expr.args[-1].dtype
        return self._spelt(expr, spelling(expr.name, dtype))

    def _spelt(self, expr: Op, row: Spelling) -> EmittedValue:
        """Write an operation by a row of the operations table."""
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
            texts = [self._broadcast(text, arg, args) for text, arg in zip(texts, args)]
        text = row.in_form(self.form).format(*texts)
        if expr.dtype.is_low_precision and not row.exact:
            text = casts.round_to(f"({text})", expr.dtype, self.form)
        if self.form == "interpreted" and rule in ("compare", "test") and not any(arg.dims for arg in args):
            # The interpreter gives a comparison of scalars the dtype of its operands; tl.where makes it a bool.
            text = f"tl.where({text}, 1, 0) != 0"
        return self._define(expr.name, text, args)

    def _broadcast(self, text: str, arg: EmittedValue, args: Sequence[EmittedValue]) -> str:
        """Return the text of a function's scalar argument as a tile where another argument is one."""
        dims = frozenset().union(*(other.dims for other in args))
        return f"tl.broadcast_to({text}, {self.shape(dims)})" if dims and not arg.dims else text

    def _conversion(self, expr: Op) -> EmittedValue:
        """Write a cast or bitcast; one that changes nothing is its operand."""
        (source,) = expr.args
        value = self.before_rounding(expr)
        convert = casts.cast if expr.name == "cast" else casts.bitcast
        text = convert(self.typed(value, source.dtype), source.dtype, expr.dtype, self.form)
        if text == value.text:
            return value
        return self._define(f"to_{expr.dtype.name}", text, (value,))

    def before_rounding(self, conversion: Op) -> EmittedValue:
        """Return the operand of a conversion, by an approximation where the conversion rounds away its error."""
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
        """Return the approximate spelling of a conversion's operand, for an f32 operation that is rounded to bf16."""
        source = conversion.args[0]
        if conversion.name != "cast" or conversion.dtype != bf16 or source.dtype != f32:
            return None
        if not isinstance(source, Op) or self._known(source) is not None:
            return None
        return APPROXIMATE.get(source.name)

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
        return self._define(expr.name, text, operands)

    def _indirect(self, atom: Indirect) -> EmittedValue:
        """Write an index that is loaded: wrapped, checked or clamped, in the type of indices."""
        key: Hashable = (atom, self.masks.conditions)
        found = self.writer.known(key)
        if found is not None:
            return found
        value = self.value(atom.value)
        size = self.index.unit(atom.size)
        text = self.typed(value, atom.value.dtype)
        # The index is compared with the size in 64 bits, which hold both.
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

    def _nested_reduction(self, expr: NestedReduction) -> EmittedValue:
        """Write a nested reduction as serial loops."""
        writer, depth, load_depth = self.writer, self.writer.depth, self.load_depth
        for name, size in expr.axes:
            variable = writer.names.fresh(name)
            writer.open(f"for {variable} in range(0, {self.index.unit(size).text}):")
            self.index.symbols[name] = EmittedValue(variable, frozenset(), writer.depth)
            least = bounds(size, self.setting.ranges).low
            if least is None or least < 1:
                self.load_depth = writer.depth
        value = self.value(expr.body)
        text = self.typed(value, expr.dtype)
        zeros = f"tl.full({self.shape(value.dims) if value.dims else '[]'}, 0.0, {triton_type(expr.dtype)})"
        total = writer.define("nested", zeros, value.dims, depth)
        writer.line(f"{total.text} = {total.text} + {text}")
        for name, _ in expr.axes:
            writer.close()
            del self.index.symbols[name]
        self.load_depth = load_depth
        return total

    def _checked(self, expr: Checked) -> EmittedValue:
        """Write the assertion of a checked expression, and return the value of its body."""
        self._assert(self._visit(expr.cond), FAULTS[expr.fault])
        return self.value(expr.body)

    def _assert(self, holds: EmittedValue, fault: Fault) -> None:
        """Write a device assertion that fails with a fault's message, for points inside the mask."""
        mask = self.masks.access_mask(holds.dims)
        depth = max(holds.depth, mask.depth if mask else 0)
        condition = holds.text if mask is None else f"{holds.text} | ({mask.text} == 0)"
        self.writer.line(f'tl.device_assert({condition}, "fault {fault.code}: {fault.message}")', depth)
        self.asserts = True

    def forget(self, buffer: str) -> None:
        """Forget values that were loaded from a buffer, which has been overwritten since."""
        for scope in self.writer.scopes:
            for key in list(scope.memo):
                expr = key[0] if isinstance(key, tuple) else key
                if _reads(expr, buffer):
                    del scope.memo[key]


def _reads(key: object, buffer: str) -> bool:
    """True for the key of a value that was loaded from a buffer."""
    if isinstance(key, Expr):
        return any(load.buffer == buffer for load in loads(key))
    return isinstance(key, Term) and any(_reads(atom.value, buffer) for atom in indirects_in(key))


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
