"""Cost model: cost of bodies, size of buffers in bytes, and estimates of symbolic sizes."""

from __future__ import annotations

from collections.abc import Iterable

from litz_ir.loops import Axis, TensorType
from litz_ir.scalar import OPS, Expr, Load, Op, walk
from litz_ir.symbols import Size, SymbolTable, mul, product


def body_cost(*bodies: Expr) -> int:
    """Return the cost of bodies at one point, in adds; common subexpressions count once."""
    return sum(OPS[node.name].cost for node in walk(*bodies) if isinstance(node, Op))


def body_size(*bodies: Expr) -> int:
    """Return the number of distinct nodes of bodies."""
    return sum(1 for _ in walk(*bodies))


def load_count(*bodies: Expr) -> int:
    """Return the number of distinct elements that bodies load at one point."""
    return sum(1 for node in walk(*bodies) if isinstance(node, Load))


def type_bytes(type_: TensorType) -> Size:
    """Return the size of a dense buffer of a type, in bytes."""
    return mul(product(type_.shape), type_.dtype.itemsize)


def static_size(type_: TensorType) -> int:
    """Return the number of elements of a tensor of known sizes."""
    found = product(type_.shape)
    assert isinstance(found, int), "a tensor of known sizes"
    return found


def static_bytes(type_: TensorType) -> int:
    """Return the size of a tensor of known sizes, in bytes."""
    return static_size(type_) * type_.dtype.itemsize


def next_power_of_two(size: int) -> int:
    """Return the least power of two that is not below a size."""
    return 1 << max(0, size - 1).bit_length()


def points(axes: Iterable[Axis]) -> Size:
    """Return the number of points of axes."""
    return product(axis.size for axis in axes)


def estimate(size: Size, symbols: SymbolTable) -> int:
    """Return a size as an integer: exact when static, from hints otherwise. For costs, never for legality."""
    return size if isinstance(size, int) else symbols.hint(size)
