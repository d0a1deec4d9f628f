"""Costs, pure functions of sizes: what bodies cost to evaluate, and the bytes that values occupy and loops move."""

from __future__ import annotations

from collections.abc import Iterable

from litz_ir.loops import Axis, TensorType
from litz_ir.scalar import OPS, Expr, Load, Op, walk
from litz_ir.symbols import Size, SymbolTable, mul, product


def body_cost(*bodies: Expr) -> int:
    """The cost of one point, in adds; shared sub-expressions count once."""
    return sum(OPS[node.name].cost for node in walk(*bodies) if isinstance(node, Op))


def body_size(*bodies: Expr) -> int:
    """The number of distinct nodes."""
    return sum(1 for _ in walk(*bodies))


def load_count(*bodies: Expr) -> int:
    """The number of distinct elements that one point reads."""
    return sum(1 for node in walk(*bodies) if isinstance(node, Load))


def type_bytes(type_: TensorType) -> Size:
    """Bytes of a dense buffer of that type."""
    return mul(product(type_.shape), type_.dtype.itemsize)


def points(axes: Iterable[Axis]) -> Size:
    """The number of points that axes span."""
    return product(axis.size for axis in axes)


def estimate(size: Size, symbols: SymbolTable) -> int:
    """A size as a number: exact when static, from hints otherwise. It steers cost, never legality."""
    return size if isinstance(size, int) else symbols.hint(size)
