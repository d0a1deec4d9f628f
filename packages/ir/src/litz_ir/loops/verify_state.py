"""The state of a loop graph's verifier."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from litz_ir.dtypes import DType, b1, f64, i64
from litz_ir.loops.nodes import Axis, HostScalar, LoopGraph, TensorType, Value
from litz_ir.scalar.verify import BodyScope, BufferInfo, ErrorLocation, axis_ranges
from litz_ir.symbols.proofs import Predicate, Prover
from litz_ir.symbols.ranges import Range
from litz_ir.symbols.table import SymbolKind, SymbolTable
from litz_ir.symbols.term import Size

SCALAR_DTYPES: dict[SymbolKind, tuple[DType, ...]] = {"int": (i64,), "float": (f64,), "bool": (b1,)}
"""The dtypes in which a body may read a symbol of each kind."""


@dataclass(slots=True)
class VerifierState:
    """Values, symbols and versions known after the operations verified so far."""

    graph: LoopGraph
    """The graph that is verified."""
    table: SymbolTable = field(init=False)
    """Its symbol table."""
    values: dict[str, Value] = field(default_factory=dict)
    """Buffers defined so far."""
    buffers: dict[str, BufferInfo] = field(default_factory=dict)
    """Dtype and shape of each, for bodies."""
    replaced: dict[str, str] = field(default_factory=dict)
    """Overwritten versions, each with the operation that overwrote it."""
    symbols: set[str] = field(default_factory=set)
    """Symbols that have a value."""
    scalars: dict[str, tuple[DType, ...]] = field(default_factory=dict)
    """Dtypes in which bodies may read each symbol."""
    ranges: dict[str, Range] = field(default_factory=dict)
    """Range of each symbol."""
    objects: set[str] = field(default_factory=set)
    """Names of object inputs."""
    prover: Prover = field(init=False)
    """Prover over the symbol table."""

    def __post_init__(self) -> None:
        self.table = self.graph.symbols
        self.prover = Prover(self.table)
        later = {op.symbol for op in self.graph.operations if isinstance(op, HostScalar)}
        self.symbols.update(info.name for info in self.table if info.name not in later)
        self.scalars.update(
            (info.name, SCALAR_DTYPES[info.kind]) for info in self.table if info.name not in later
        )
        self.ranges.update(self.table.ranges())

    def define(self, value: Value) -> None:
        """Make a value known to later operations."""
        self.values[value.name] = value
        self.buffers[value.name] = BufferInfo(value.type.dtype, value.type.shape)

    @property
    def frozen_values(self) -> set[str]:
        """Values that are likely the same in the next call: frozen inputs and constants."""
        return {*self.graph.frozen, *(value.name for value in self.graph.constants)}

    def equal(self, a: Size, b: Size) -> bool:
        """False only if the sizes are known to differ."""
        return a == b or self.prover.prove(Predicate("eq", a, b)) is not False

    def knows(self, name: str) -> bool:
        """True if a buffer or an object input of that name is defined."""
        return name in self.values or name in self.objects

    def type(self, name: str, location: ErrorLocation) -> TensorType:
        """The type of a buffer; fails for an object input."""
        if name not in self.values:
            location.fail("defined-before-use", f"%{name} is used as a buffer, but none is defined before")
        return self.values[name].type

    def equal_shapes(self, a: Iterable[Size], b: Iterable[Size]) -> bool:
        """False only if the shapes are known to differ."""
        left, right = tuple(a), tuple(b)
        return len(left) == len(right) and all(map(self.equal, left, right))

    def body_scope(self, axes: Iterable[Axis] = ()) -> BodyScope:
        """The scope of a body over these axes."""
        sizes = {axis.name: axis.size for axis in axes}
        ranges, exact = axis_ranges(sizes, self.ranges)
        names = frozenset(self.symbols) | sizes.keys()
        return BodyScope(self.buffers, names, {**self.ranges, **ranges}, exact, self.scalars)
