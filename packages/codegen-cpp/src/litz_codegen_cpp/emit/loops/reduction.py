"""Accumulators: C++ variables that an ``Accumulate`` statement declares, updates in its loops and reads after them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from litz_codegen_cpp.emit.bodies.bf16_pairs import PairEmitter, are_adjacent, multiplies_bf16
from litz_codegen_cpp.emit.bodies.body import ExpressionEmitter
from litz_codegen_cpp.emit.source.scopes import CppValue
from litz_codegen_cpp.emit.source.spelling import register_type, vector_type
from litz_ir.dtypes import DType, b1, compute_dtype, f32, f64, i64
from litz_ir.errors import CodegenError
from litz_ir.loops import Combiner, NamedCombiner, UserCombiner
from litz_ir.scalar import Expr, Op, Param


@dataclass(frozen=True, slots=True)
class StateClass:
    """A class template of ``accumulate.h`` that accumulates one kind of reduction."""

    name: str
    """Name of the class."""
    of_bools: str = ""
    """Name of the class that accumulates bools, if it is another one."""
    counts_bools: bool = False
    """True if bools are accumulated in ``i64``."""
    widens_scans: bool = False
    """True if scans of floats accumulate in ``f64``, as eager's do."""
    settles: bool = False
    """True if long sums of floats are divided into blocks."""
    header: str = "accumulate"
    """Header that defines the class."""
    collapsed: str = ""
    """Last template argument if the lanes are collapsed in the end."""
    scan: str = ""
    """Name of the operation of ``scan.h`` that scans lanes; empty if there is none."""
    scan_of_bools: str = ""
    """The same for bools, if it is another one."""


STATE_CLASSES: Mapping[str, StateClass] = MappingProxyType(
    {
        "sum": StateClass("sum_state", counts_bools=True, widens_scans=True, settles=True, scan="scan_sum"),
        "prod": StateClass("prod_state", counts_bools=True, widens_scans=True, scan="scan_prod"),
        "min": StateClass("min_state", of_bools="all_state", scan="scan_min", scan_of_bools="scan_all"),
        "max": StateClass("max_state", of_bools="any_state", scan="scan_max", scan_of_bools="scan_any"),
        "any": StateClass("any_state", scan="scan_any"),
        "all": StateClass("all_state", scan="scan_all"),
        "xor": StateClass("xor_state", scan="scan_xor"),
        "argmin": StateClass("argmin_state"),
        "argmax": StateClass("argmax_state"),
        "welford": StateClass("welford_state", widens_scans=True),
        "online_softmax": StateClass("online_softmax_state", header="online_softmax", collapsed="true"),
    }
)
"""The classes by kind; a kind without one is accumulated by its definition."""


def products_of(value: Expr) -> tuple[tuple[Expr, Expr], ...] | None:
    """Return the factors of the products of f32 whose sum a value is; ``None`` for any other value."""
    match value:
        case Op(name="mul", dtype=dtype, args=(x, y)) if dtype == f32:
            return ((x, y),)
        case Op(name="add", args=(left, right)):
            first, second = products_of(left), products_of(right)
            return None if first is None or second is None else (*first, *second)
    return None


class Accumulator(Protocol):
    """A running combination in C++ variables. One that ``settles`` is used in loops divided into blocks."""

    settles: bool

    def declare(self) -> None:
        """Declare variables with the identity, at the innermost scope."""

    def add(self, values: tuple[Expr, ...]) -> None:
        """Combine one more element (per lane)."""

    def settle(self) -> None:
        """End a block of a long sum."""

    def results(self, dtypes: tuple[DType, ...]) -> list[CppValue]:
        """Return the results so far; lanes along a reduced axis are combined."""


def accumulator(
    body: ExpressionEmitter,
    combiner: Combiner,
    values: tuple[Expr, ...],
    *,
    registers: int,
    across: bool,
    along: bool,
    scan: bool = False,
    fused: bool = False,
) -> Accumulator:
    """Return the accumulator of a statement, in ``registers`` registers.

    With ``across`` lanes are different outer points; with ``along`` they are elements of one reduction; with neither
    there are scalars. A ``scan`` sums in double, as eager does. Sums that are ``fused`` add products of f32 without
    rounding them first, as matmuls of libraries do.
    """
    if isinstance(combiner, UserCombiner):
        return _BodyAccumulator(body, combiner, registers, across)
    return _NamedAccumulator(body, combiner, values, registers, across, along, scan, fused)


class _NamedAccumulator:
    """A state class of ``accumulate.h``, one object per register."""

    def __init__(
        self,
        body: ExpressionEmitter,
        combiner: NamedCombiner,
        values: tuple[Expr, ...],
        registers: int,
        across: bool,
        along: bool,
        scan: bool,
        fused: bool,
    ) -> None:
        row = STATE_CLASSES.get(combiner.name)
        if row is None:
            raise CodegenError(f"no C++ form for the combiner {combiner.name!r}", hint="see the capabilities")
        self.body = body
        self.name = combiner.name
        self.kind = combiner.kind
        self.row = row
        self.registers = registers
        self.across, self.along = across, along
        products = products_of(values[0]) if fused and along else None
        self.fused = products is not None
        self.pairs = PairEmitter(body) if products and multiplies_bf16(products) else None
        if products and self.pairs and not are_adjacent(products) and registers % 2 == 0:
            self.registers = registers // 2
        self.dtype = state_dtype(combiner, row, tuple(value.dtype for value in values), scan)
        self.operands = (self.dtype, *(i64 for _ in values[1:]))
        self.state = row.of_bools if row.of_bools and self.dtype == b1 else row.name
        self.settles = row.settles and self.dtype.is_float
        self.names: list[str] = []
        body.headers.add(row.header)

    @property
    def _is_vector(self) -> bool:
        return self.across or self.along

    def declare(self) -> None:
        context = self.body.context
        spell = vector_type if self._is_vector else register_type
        arguments = [spell(dtype) for dtype in self.operands]
        if self.along and self.row.collapsed:
            arguments.append(self.row.collapsed)
        self.names = [context.names.fresh(self.name) for _ in range(self.registers)]
        context.scopes.line(f"{self.state}<{', '.join(arguments)}> {', '.join(self.names)};")

    def add(self, values: tuple[Expr, ...]) -> None:
        context = self.body.context
        lanes = context.scopes.active if self.along else None
        if self.fused and lanes is None:
            products = products_of(values[0]) or ()
            if self.pairs and (are_adjacent(products) or context.registers % 2 == 0):
                self.pairs.add(self.names, products)
                return
            for factors in products:
                self._add_product(*factors)
            return
        found = [self.body.value(value) for value in values]
        operands = [self.body.converted(v, d) for v, d in zip(found, self.operands)]
        if self._is_vector:
            operands = [context.spread(operand) for operand in operands]
        for number in range(context.registers if self._is_vector else 1):
            texts = [operand.register(number) for operand in operands]
            if lanes is not None:
                texts.append(lanes.mask(number))
            context.scopes.line(f"{self.names[number]}.add({', '.join(texts)});")

    def _add_product(self, x: Expr, y: Expr) -> None:
        """Combine a product per lane, which is not rounded before."""
        context = self.body.context
        left, right = (context.spread(self.body.value(factor)) for factor in (x, y))
        for number in range(context.registers):
            context.scopes.line(
                f"{self.names[number]}.add_product({left.register(number)}, {right.register(number)});"
            )

    def settle(self) -> None:
        for name in self.names if self.settles else ():
            self.body.context.scopes.line(f"{name}.settle();")

    def results(self, dtypes: tuple[DType, ...]) -> list[CppValue]:
        context = self.body.context
        names = self.names
        if self.along:
            first = names[0]
            for other in names[1:]:
                context.scopes.line(f"{first}.merge({other});")
            whole = context.names.fresh(f"{self.name}_all")
            context.scopes.line(f"const auto {whole} = collapse({first});")
            names = [whole]
        sources = self.kind.definition(self.operands).dtypes
        values = []
        for number, (source, dtype) in enumerate(zip(sources, dtypes)):
            getter = f"result{number or ''}()"
            if source == b1 and self.along:
                texts = tuple(f"{name}.{getter} != 0" for name in names)
            else:
                texts = tuple(f"{name}.{getter}" for name in names)
            value = context.define(self.name, texts, source, context.scopes.top, varying=self.across)
            values.append(self.body.converted(value, dtype))
        return values


def state_dtype(combiner: NamedCombiner, row: StateClass, values: tuple[DType, ...], scan: bool) -> DType:
    """Return the dtype in which a combiner accumulates values."""
    if row.counts_bools and values[0].is_bool:
        return i64
    if scan and row.widens_scans and values[0].is_float:
        return f64
    return compute_dtype(combiner.kind.definition(values).dtypes[0])


class _BodyAccumulator:
    """A user-given combiner, applied in order: one variable per value of its state and register."""

    settles = False

    def __init__(self, body: ExpressionEmitter, combiner: UserCombiner, registers: int, across: bool) -> None:
        self.body = body
        self.combiner = combiner
        self.registers = registers
        self.across = across
        self.names: list[tuple[str, ...]] = []

    def declare(self) -> None:
        context = self.body.context
        for identity in self.combiner.identity:
            value = self.body.value(identity)
            kind = register_type(identity.dtype)
            if self.across:
                value, kind = context.spread(value), vector_type(identity.dtype)
            names = tuple(context.names.fresh("running") for _ in range(self.registers))
            for number, name in enumerate(names):
                context.scopes.line(f"{kind} {name} = {value.register(number)};")
            self.names.append(names)

    def add(self, values: tuple[Expr, ...]) -> None:
        context = self.body.context
        new = [self.body.value(value) for value in values]
        with context.scopes.under(context.scopes.active, conditional=False):
            self._bind(new)
            found = [self.body.value(expr) for expr in self.combiner.body]
            if self.across:
                found = [context.spread(value) for value in found]
            for names, value in zip(self.names, found):
                for number, name in enumerate(names):
                    context.scopes.line(f"{name} = {value.register(number)};")

    def _bind(self, new: list[CppValue]) -> None:
        """Define the combiner's parameters as copies, since the variables change one after another."""
        context = self.body.context
        top = context.scopes.top
        for position, (names, identity) in enumerate(zip(self.names, self.combiner.identity)):
            before = context.define("before", names, identity.dtype, top, varying=self.across)
            context.scopes.remember(Param(position, identity.dtype), before)
        for position, value in enumerate(new, len(new)):
            copy = CppValue(value.registers, value.dtype, top, value.varying, value.reads)
            context.scopes.remember(Param(position, value.dtype), copy)

    def settle(self) -> None:
        """Do nothing, since elements are combined in order."""

    def results(self, dtypes: tuple[DType, ...]) -> list[CppValue]:
        context = self.body.context
        top = context.scopes.top
        with context.scopes.under(context.scopes.active, conditional=False):
            inner = context.scopes.top
            for position, (names, identity) in enumerate(zip(self.names, self.combiner.identity)):
                value = context.define("combined", names, identity.dtype, inner, varying=self.across)
                context.scopes.remember(Param(position, identity.dtype), value)
            found = [self.body.converted(self.body.value(e), d) for e, d in zip(self.combiner.finish, dtypes)]
        return [value.within(top) for value in found]
