"""Recognition of matmul kernels: which operand is on the left of ``tl.dot``, and in which dtype it multiplies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from litz_ir.contraction import MatmulNest, as_multiplied, matmul_nest, operands
from litz_ir.dtypes import DType, bf16, f8e4m3fn, f8e5m2, f16, f32, i8
from litz_ir.loops import Axis
from litz_ir.plan import Accumulate, Kernel, Statement, Store
from litz_ir.scalar import Expr, Scalar, walk
from litz_ir.symbols import SymbolTable, bounds, coefficient, product

_MIN_TILE: Mapping[DType, int] = MappingProxyType({bf16: 2, f16: 2, f8e4m3fn: 2, f8e5m2: 2, i8: 2, f32: 16})
"""The least M, N and K for which ``tl.dot`` is used, by the operands' dtype.

Tensor cores pay even where most of a tile is padding. Exact f32 has none, so its tiles must be mostly full.
"""

_MAX_INT8_POINTS = 1 << 17
"""The least K for which an int8 matmul may overflow its int32 accumulator: each term is at most 2**14."""


@dataclass(frozen=True, slots=True)
class Contraction:
    """The phase of a kernel that is a matmul, and its orientation.

    The left operand is A, the rows are M and the columns are N; or B, N and M where that makes the columns contiguous
    in the stored result.
    """

    phase: int
    """The number of the phase in its kernel, from 0."""
    nest: MatmulNest
    """The matmul: its operands A and B, and its axes."""
    swapped: bool
    """True where the left operand is B."""
    dtype: DType
    """The dtype in which ``tl.dot`` takes the left operand."""

    @property
    def batch(self) -> tuple[Axis, ...]:
        """The batch axes: outer axes that both operands depend on, or neither."""
        return self.nest.batch

    @property
    def rows(self) -> tuple[Axis, ...]:
        """The outer axes that the left operand alone depends on."""
        return self.nest.n if self.swapped else self.nest.m

    @property
    def columns(self) -> tuple[Axis, ...]:
        """The outer axes that the right operand alone depends on."""
        return self.nest.m if self.swapped else self.nest.n

    @property
    def accumulator(self) -> DType:
        """The dtype of the accumulator."""
        return self.nest.accumulator

    @property
    def multiply(self) -> str:
        """The name of the scalar operation that multiplies, such as ``mul`` or ``mul_tf32``."""
        return self.nest.multiply

    def operands(self, statement: Accumulate) -> tuple[Expr, Expr]:
        """Return the left and the right operand of the matmul's statement, over any indices, as multiplied."""
        (value,) = statement.values
        found = operands(value)
        assert found is not None, "a matmul multiplies two operands"
        a, b = as_multiplied(*found, self.multiply)
        return (b, a) if self.swapped else (a, b)


def contraction(kernel: Kernel, known: SymbolTable) -> Contraction | None:
    """Match a kernel with one reduction phase that is a matmul and whose other phases are pointwise.

    ``known`` has the hints of the kernel's symbols. Returns ``None`` for any other kernel, and for a matmul that is too
    small for tensor cores or whose accumulator could overflow.
    """
    inner = [number for number, phase in enumerate(kernel.phases) if phase.axes]
    if len(inner) != 1 or not all(is_point(s) for p in kernel.phases if not p.axes for s in p.statements):
        return None
    (number,) = inner
    nest = _matmul(kernel, number)
    if nest is None or nest.b is None:
        return None
    a, b = as_multiplied(nest.a, nest.b, nest.multiply)
    if any(
        known.hint(product(axis.size for axis in axes)) < _MIN_TILE[a.dtype]
        for axes in (nest.m, nest.n, nest.k)
    ):
        return None
    if a.dtype == i8 and not _fits(nest.k, known):
        return None
    swapped = any(axis.name in _fastest(kernel) for axis in nest.m)
    return Contraction(number, nest, swapped, (b if swapped else a).dtype)


def _matmul(kernel: Kernel, number: int) -> MatmulNest | None:
    """Return the matmul of a phase with one statement, if it is one without nested reductions or weights."""
    phase = kernel.phases[number]
    (statement, *others) = phase.statements
    if others or not isinstance(statement, Accumulate) or not by_index_alone(kernel, statement):
        return None
    nest = matmul_nest(statement.combiner, statement.values, kernel.outer, phase.axes)
    return None if nest is None or nest.nested or nest.weights != "none" else nest


def _fits(summed: Sequence[Axis], known: SymbolTable) -> bool:
    """True where an int8 matmul fits its int32 accumulator, since tensor cores saturate where eager wraps around."""
    points = bounds(product(axis.size for axis in summed), known.ranges()).high
    return points is not None and points < _MAX_INT8_POINTS


def is_point(statement: Statement) -> bool:
    """True for a statement that a tile of results can run elementwise: a plain store."""
    return isinstance(statement, Store) and statement.mode == "set"


def by_index_alone(kernel: Kernel, statement: Accumulate) -> bool:
    """True where the values read no result of an earlier phase."""
    symbols = {info.name for info in kernel.symbols}
    return all(not isinstance(node, Scalar) or node.name in symbols for node in walk(*statement.values))


def _fastest(kernel: Kernel) -> frozenset[str]:
    """Return the names of the outer axes along which some store is contiguous."""
    stores = (s for phase in kernel.phases for s in phase.statements if isinstance(s, Store))
    offsets = [store.offset for store in stores]
    return frozenset(a.name for a in kernel.outer if any(coefficient(o, a.name) == 1 for o in offsets))
