"""The matmul of a kernel, as its tiles compute it: its orientation, and the dtype that operands are multiplied in."""

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

MIN_TILE: Mapping[DType, int] = MappingProxyType({bf16: 2, f16: 2, f8e4m3fn: 2, f8e5m2: 2, i8: 2, f32: 16})
"""The least M, N and K of which tiles are multiplied, by the operands' dtype: tensor cores gain even where most of a
tile is empty, f32 has none that are exact."""

MAX_INT8_POINTS = 1 << 17
"""The least K of which a sum of products of 8-bit integers may not fit 32 bits."""


@dataclass(frozen=True, slots=True)
class Contraction:
    """The phase of a kernel that is a matmul, whose result has rows and columns.

    Neighbours in a row are neighbours in memory where that can be: the left operand is A, or B where that is
    ``swapped``.
    """

    phase: int
    nest: MatmulNest
    swapped: bool
    dtype: DType
    """The dtype that the left operand is multiplied in."""

    @property
    def batch(self) -> tuple[Axis, ...]:
        """The outer axes of neither operand alone."""
        return self.nest.batch

    @property
    def rows(self) -> tuple[Axis, ...]:
        """The outer axes of the left operand alone."""
        return self.nest.n if self.swapped else self.nest.m

    @property
    def columns(self) -> tuple[Axis, ...]:
        """The outer axes of the right operand alone."""
        return self.nest.m if self.swapped else self.nest.n

    @property
    def accumulator(self) -> DType:
        """The dtype of the sum."""
        return self.nest.accumulator

    @property
    def multiply(self) -> str:
        """The scalar operation that multiplies."""
        return self.nest.multiply

    def operands(self, statement: Accumulate) -> tuple[Expr, Expr]:
        """Return the left and the right operand of its statement, or of that over other indices, as multiplied."""
        (value,) = statement.values
        found = operands(value)
        assert found is not None, "a matmul sums products"
        left, right = as_multiplied(*found, self.multiply)
        return (right, left) if self.swapped else (left, right)


def contraction(kernel: Kernel, known: SymbolTable) -> Contraction | None:
    """Return the matmul that a kernel computes and whose result its other phases use point by point, if it is one."""
    inner = [number for number, phase in enumerate(kernel.phases) if phase.axes]
    if len(inner) != 1 or not all(is_point(s) for p in kernel.phases if not p.axes for s in p.statements):
        return None
    (number,) = inner
    nest = _matmul(kernel, number)
    if nest is None or nest.b is None:
        return None
    a, b = as_multiplied(nest.a, nest.b, nest.multiply)
    if any(
        known.hint(product(axis.size for axis in axes)) < MIN_TILE[a.dtype]
        for axes in (nest.m, nest.n, nest.k)
    ):
        return None
    if a.dtype == i8 and not _fits(nest.k, known):
        return None
    swapped = any(axis.name in _fastest(kernel) for axis in nest.m)
    return Contraction(number, nest, swapped, (b if swapped else a).dtype)


def _matmul(kernel: Kernel, number: int) -> MatmulNest | None:
    """Return the matmul that the only statement of a phase is, if it is one that holds no other reductions."""
    phase = kernel.phases[number]
    (statement, *others) = phase.statements
    if others or not isinstance(statement, Accumulate) or not by_index_alone(kernel, statement):
        return None
    nest = matmul_nest(statement.combiner, statement.values, kernel.outer, phase.axes)
    return None if nest is None or nest.nested or nest.weights != "none" else nest


def _fits(summed: Sequence[Axis], known: SymbolTable) -> bool:
    """True where sums of products of 8-bit integers fit 32 bits: tensor cores do not wrap around."""
    most = bounds(product(axis.size for axis in summed), known.ranges()).high
    return most is not None and most < MAX_INT8_POINTS


def is_point(statement: Statement) -> bool:
    """True for what happens to a tile of results as it happens to each of them."""
    return isinstance(statement, Store) and statement.mode == "set"


def by_index_alone(kernel: Kernel, statement: Accumulate) -> bool:
    """True where the value reads nothing that earlier phases left behind."""
    symbols = {info.name for info in kernel.symbols}
    return all(not isinstance(node, Scalar) or node.name in symbols for node in walk(*statement.values))


def _fastest(kernel: Kernel) -> frozenset[str]:
    """The outer axes along which a result's neighbours are neighbours in memory."""
    stores = (s for phase in kernel.phases for s in phase.statements if isinstance(s, Store))
    offsets = [store.offset for store in stores]
    return frozenset(a.name for a in kernel.outer if any(coefficient(o, a.name) == 1 for o in offsets))
