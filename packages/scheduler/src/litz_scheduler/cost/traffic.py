"""Bytes that values occupy and that loops move."""

from __future__ import annotations

from collections.abc import Iterable

from litz_ir.loops.nodes import Axis, TensorType
from litz_ir.symbols.table import SymbolTable
from litz_ir.symbols.term import Size, mul, product


def type_bytes(type_: TensorType) -> Size:
    """Bytes of a dense buffer of that type."""
    return mul(product(type_.shape), type_.dtype.itemsize)


def points(axes: Iterable[Axis]) -> Size:
    """The number of points that axes span."""
    return product(axis.size for axis in axes)


def estimate(size: Size, symbols: SymbolTable) -> int:
    """A size as a number: exact when static, from hints otherwise. It steers cost, never legality."""
    return size if isinstance(size, int) else symbols.hint(size)
