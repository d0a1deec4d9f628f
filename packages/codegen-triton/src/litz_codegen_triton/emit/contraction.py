"""Sums of products of two factors that share no other axis than those summed over: what tensor cores compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from litz_ir.dtypes import DType, bf16, f16, f32
from litz_ir.loops.nodes import Axis, Kind
from litz_ir.plan.kernel import Accumulate, Kernel, Statement, Store
from litz_ir.scalar.build import const
from litz_ir.scalar.expr import Const, Expr, Masked, Op, Scalar, folds, walk
from litz_ir.scalar.ops_table import MULTIPLICATIONS
from litz_ir.symbols.table import SymbolTable
from litz_ir.symbols.term import coefficient, product

LEAST: Mapping[DType, int] = MappingProxyType({bf16: 2, f16: 2, f32: 16})
"""What factors may be made of, and the rows, columns and summed points from which tiles of them are multiplied: tensor
cores gain even where most of a tile is empty, f32 has none that are exact."""


@dataclass(frozen=True, slots=True)
class Contraction:
    """``sum over the phase's axes of left * right`` for every point of ``batch``, ``rows`` and ``columns``, which are
    the kernel's outer axes: ``left`` varies along ``batch`` and ``rows``, ``right`` along ``batch`` and ``columns``.
    ``swapped`` says that the left factor stands on the right in the sum's value; ``dtype`` is what both are
    multiplied in, ``tf32`` that factors of f32 may be rounded first."""

    phase: int
    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    swapped: bool
    dtype: DType
    tf32: bool

    def factors(self, statement: Accumulate) -> tuple[Expr, Expr]:
        """The left and the right factor of its statement, or of that over other indices; each in ``dtype``."""
        left, right = _factors(statement)
        return (right, left) if self.swapped else (left, right)


def contraction(kernel: Kernel, known: SymbolTable) -> Contraction | None:
    """The contraction that a kernel computes and whose result its other phases use point by point, if it is one."""
    inner = [number for number, phase in enumerate(kernel.phases) if phase.axes]
    if len(inner) != 1 or not all(is_point(s) for p in kernel.phases if not p.axes for s in p.statements):
        return None
    (number,) = inner
    statement = _product(kernel.phases[number].statements)
    if statement is None or not by_index_alone(kernel, statement):
        return None
    left, right = _factors(statement)
    named = [factor.free_symbols for factor in (left, right)]
    own = [tuple(axis for axis in kernel.outer if axis.name in a - b) for a, b in (named, named[::-1])]
    batch = tuple(axis for axis in kernel.outer if axis not in own[0] + own[1])
    sizes = (*own, kernel.phases[number].axes)
    if any(known.hint(product(axis.size for axis in axes)) < LEAST[left.dtype] for axes in sizes):
        return None
    swapped = any(axis.name in _fastest(kernel) for axis in own[0])
    rows, columns = own[::-1] if swapped else own
    tf32 = isinstance(statement.values[0], Op) and statement.values[0].name == "mul_tf32"
    return Contraction(number, batch, rows, columns, swapped, left.dtype, tf32)


def is_point(statement: Statement) -> bool:
    """True for what happens to a tile of results as it happens to each of them."""
    return isinstance(statement, Store) and statement.mode == "set"


def _product(statements: Sequence[Statement]) -> Accumulate | None:
    """The only statement of a phase, where it is a sum of products that ``LEAST`` lists."""
    (statement, *others) = statements
    if others or not isinstance(statement, Accumulate) or statement.combiner != Kind("sum"):
        return None
    if folds(*statement.values):
        return None
    value = statement.values[0]
    return (
        statement if isinstance(value, Op) and value.name in MULTIPLICATIONS and value.dtype == f32 else None
    )


def by_index_alone(kernel: Kernel, statement: Accumulate) -> bool:
    """True where the value reads nothing that earlier phases left behind."""
    symbols = {info.name for info in kernel.symbols}
    return all(not isinstance(node, Scalar) or node.name in symbols for node in walk(*statement.values))


def _factors(statement: Accumulate) -> tuple[Expr, Expr]:
    """The two factors: as narrow floats where both are such and were only widened, else in ``f32``."""
    (value,) = statement.values
    assert isinstance(value, Op)
    return multiplied(*value.args)


def multiplied(left: Expr, right: Expr) -> tuple[Expr, Expr]:
    """Two factors as they are multiplied: as narrow floats of one dtype where both are such and were only widened."""
    narrow = narrowed(left), narrowed(right)
    if narrow[0] is not None and narrow[1] is not None and narrow[0].dtype == narrow[1].dtype:
        return narrow[0], narrow[1]
    return left, right


def narrowed(expr: Expr) -> Expr | None:
    """The narrow float that an expression has widened, here and there put in the place of zero."""
    match expr:
        case Op(name="cast", args=(source,)) if source.dtype in (bf16, f16):
            return source
        case Masked(other=Const() as other) if other.value == 0:
            body = narrowed(expr.body)
            return None if body is None else Masked(expr.cond, body, const(0.0, body.dtype))
    return None


def _fastest(kernel: Kernel) -> frozenset[str]:
    """The outer axes along which a result's neighbours are neighbours in memory."""
    stores = (s for phase in kernel.phases for s in phase.statements if isinstance(s, Store))
    offsets = [store.offset for store in stores]
    return frozenset(a.name for a in kernel.outer if any(coefficient(o, a.name) == 1 for o in offsets))
