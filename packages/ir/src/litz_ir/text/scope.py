"""Dtypes known in a scope, which a body's text need not state: those of buffers, scalars and combiner parameters.

Printer and parser build the same scopes from the same declarations. A dtype that a scope does not have is a suffix:
``%x[i0]:f32``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from litz_ir.dtypes import DType, b1, f32, f64, i64
from litz_ir.errors import DTypeError
from litz_ir.loops.nodes import HostScalar, Input, LoopGraph, Operation, ScalarInput, Value
from litz_ir.scalar.build import result_dtype
from litz_ir.scalar.ops_table import OPS
from litz_ir.symbols.table import SymbolInfo, SymbolKind

_SYMBOL_DTYPES: dict[SymbolKind, DType] = {"int": i64, "float": f64, "bool": b1}
"""The dtype in which a body reads a symbol of each kind."""

INFIX: dict[str, tuple[str, int]] = {
    "eq": ("==", 1),
    "ne": ("!=", 1),
    "lt": ("<", 1),
    "le": ("<=", 1),
    "gt": (">", 1),
    "ge": (">=", 1),
    "bit_or": ("|", 2),
    "bit_and": ("&", 3),
    "add": ("+", 4),
    "sub": ("-", 4),
    "mul": ("*", 5),
    "div": ("/", 5),
}
"""Operations written between their operands: sign and binding strength. All but comparisons associate to the left."""

COMPARE = 1
"""Binding strength of comparisons, the weakest."""
UNARY = 6
"""Binding strength of the unary minus."""


@dataclass(slots=True)
class DTypeScope:
    """Dtypes of buffers and scalars by name, and of combiner parameters by position."""

    buffers: dict[str, DType] = field(default_factory=dict)
    """Dtypes of buffers by name."""
    scalars: dict[str, DType] = field(default_factory=dict)
    """Dtypes of scalars by name."""
    parameters: tuple[DType, ...] = ()
    """Dtypes of combiner parameters by position."""

    def combining(self, dtypes: tuple[DType, ...]) -> DTypeScope:
        """The scope of a combiner's body over tuples of these dtypes: accumulated values first, then new ones."""
        return DTypeScope(self.buffers, self.scalars, dtypes + dtypes)

    def declare(self, items: Iterable[Input]) -> None:
        """Add inputs or constants."""
        for item in items:
            if isinstance(item, Value):
                self.buffers[item.name] = item.type.dtype
            elif isinstance(item, ScalarInput):
                self.scalars[item.symbol or item.name] = _SYMBOL_DTYPES[item.kind]

    def define(self, operation: Operation) -> None:
        """Add the results of an operation."""
        self.declare(operation.results)
        if isinstance(operation, HostScalar):
            self.scalars[operation.symbol] = operation.body.dtype

    def declare_symbols(self, infos: Iterable[SymbolInfo]) -> None:
        """Add symbols."""
        self.scalars.update((info.name, _SYMBOL_DTYPES[info.kind]) for info in infos)

    def parameter(self, position: int) -> DType | None:
        """The dtype of a combiner's parameter, if known."""
        return self.parameters[position] if 0 <= position < len(self.parameters) else None


def graph_scope(graph: LoopGraph) -> DTypeScope:
    """The scope of bodies that may read any buffer of a graph."""
    scope = DTypeScope()
    scope.declare_symbols(graph.symbols)
    scope.declare((*graph.inputs, *graph.constants))
    for operation in graph.operations:
        scope.define(operation)
    return scope


def literal_dtype(value: int | float) -> DType:
    """The default dtype of a literal."""
    return f32 if isinstance(value, float) else i64


def operation_dtype(name: str, args: tuple[DType, ...], requested: DType | None) -> DType | None:
    """The dtype of an operation over arguments of these dtypes; None if the table has no such operation."""
    row = OPS.get(name)
    if row is None or len(args) != row.arity:
        return None
    try:
        return result_dtype(row, args, requested)
    except DTypeError:
        return None


def names_dtype(name: str) -> bool:
    """True for operations whose last argument in the text is their result's dtype."""
    row = OPS.get(name)
    return row is not None and row.rule in ("bitcast", "random")


def first_operand(name: str) -> int:
    """Position of the first argument whose dtype the later ones have: 1 after a condition, else 0."""
    return 1 if name in ("where", "masked") else 0
