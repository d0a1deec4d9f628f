"""Sums of products of two factors that share no other axis than those summed over: what tensor cores compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from litz_ir.dtypes import DType, bf16, f8e4m3fn, f8e5m2, f16, f32, i8, i32, u8
from litz_ir.loops import Axis, Kind
from litz_ir.plan import Accumulate, Kernel, Statement, Store
from litz_ir.scalar import Const, Expr, Masked, Op, Scalar, cast, const, folds, product_factors, walk
from litz_ir.symbols import SymbolTable, bounds, coefficient, product

LEAST: Mapping[DType, int] = MappingProxyType({bf16: 2, f16: 2, f8e4m3fn: 2, f8e5m2: 2, i8: 2, f32: 16})
"""What factors may be made of, and the rows, columns and summed points from which tiles of them are multiplied: tensor
cores gain even where most of a tile is empty, f32 has none that are exact."""

MOST_BYTES = 1 << 17
"""The products of numbers of 8 bits from which on their sum may not fit 32."""

F8 = frozenset({f8e4m3fn, f8e5m2})

WIDENED: Mapping[DType, frozenset[DType]] = MappingProxyType(
    {bf16: frozenset({bf16, i8, u8}) | F8, f16: frozenset({f16, i8, u8}) | F8}
)
"""What a narrow float holds exactly: factors of such dtypes are multiplied as that float, whose products f32 holds."""


@dataclass(frozen=True, slots=True)
class Contraction:
    """``sum over the phase's axes of left * right`` for every point of ``batch``, ``rows`` and ``columns``, which are
    the kernel's outer axes: ``left`` varies along ``batch`` and ``rows``, ``right`` along ``batch`` and ``columns``.
    ``swapped`` says that the left factor stands on the right in the sum's value; ``dtype`` is what the left one is
    multiplied in, ``total`` what products are summed in, ``multiply`` the operation that makes them."""

    phase: int
    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    swapped: bool
    dtype: DType
    total: DType
    multiply: str

    def factors(self, statement: Accumulate) -> tuple[Expr, Expr]:
        """The left and the right factor of its statement, or of that over other indices, as they are multiplied."""
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
    if left.dtype == i8 and not _fits(kernel.phases[number].axes, known):
        return None
    swapped = any(axis.name in _fastest(kernel) for axis in own[0])
    rows, columns = own[::-1] if swapped else own
    value = statement.values[0]
    assert isinstance(value, Op)
    dtype = (right if swapped else left).dtype
    return Contraction(number, batch, rows, columns, swapped, dtype, value.dtype, value.name)


def _fits(summed: Sequence[Axis], known: SymbolTable) -> bool:
    """True where sums of products of numbers of 8 bits stay within 32: tensor cores do not wrap around."""
    most = bounds(product(axis.size for axis in summed), known.ranges()).high
    return most is not None and most < MOST_BYTES


def is_point(statement: Statement) -> bool:
    """True for what happens to a tile of results as it happens to each of them."""
    return isinstance(statement, Store) and statement.mode == "set"


def _product(statements: Sequence[Statement]) -> Accumulate | None:
    """The only statement of a phase, where it is a sum of products that ``LEAST`` lists."""
    (statement, *others) = statements
    if others or not isinstance(statement, Accumulate) or statement.combiner != Kind("sum"):
        return None
    (value,) = statement.values
    return None if folds(value) or product_factors(value) is None else statement


def by_index_alone(kernel: Kernel, statement: Accumulate) -> bool:
    """True where the value reads nothing that earlier phases left behind."""
    symbols = {info.name for info in kernel.symbols}
    return all(not isinstance(node, Scalar) or node.name in symbols for node in walk(*statement.values))


def _factors(statement: Accumulate) -> tuple[Expr, Expr]:
    """The two factors as they are multiplied."""
    (value,) = statement.values
    assert isinstance(value, Op)
    left, right = value.args
    return multiplied(left, right, value.name)


def multiplied(left: Expr, right: Expr, multiply: str = "mul") -> tuple[Expr, Expr]:
    """Two factors as an operation multiplies them: as the numbers of 8 bits that they are where the machine's own
    products of such are asked for; as narrow floats of one dtype where that holds both exactly; else as they are."""
    a, b = unwidened(left), unwidened(right)
    if a is None or b is None:
        return left, right
    if left.dtype == i32 or (multiply.startswith("mul_f8") and F8 >= {a.dtype, b.dtype}):
        return a, b
    for dtype, held in WIDENED.items():
        if held >= {a.dtype, b.dtype}:
            return cast(a, dtype), cast(b, dtype)
    return left, right


def unwidened(expr: Expr) -> Expr | None:
    """What an expression has widened, here and there put in the place of zero."""
    match expr:
        case Op(name="cast", args=(source,)):
            return source
        case Masked(other=Const() as other) if other.value == 0:
            body = unwidened(expr.body)
            return None if body is None else Masked(expr.cond, body, const(0.0, body.dtype))
    return None


def narrowed(expr: Expr) -> Expr | None:
    """The narrow float that an expression has widened, here and there put in the place of zero."""
    found = unwidened(expr)
    return found if found is not None and found.dtype in (bf16, f16) else None


def _fastest(kernel: Kernel) -> frozenset[str]:
    """The outer axes along which a result's neighbours are neighbours in memory."""
    stores = (s for phase in kernel.phases for s in phase.statements if isinstance(s, Store))
    offsets = [store.offset for store in stores]
    return frozenset(a.name for a in kernel.outer if any(coefficient(o, a.name) == 1 for o in offsets))
