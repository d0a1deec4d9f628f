"""Byte ranges of the memory passed to a host program that launches may access."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from litz.host.program import Segment
from litz_ir.loops import TensorType, span
from litz_ir.plan import Kernel
from litz_ir.symbols import Size, Symbol, free_symbols, mul, substitute, symbol
from litz_ir.target import ByteRange


def extents(segment: Segment, kernels: Mapping[str, Kernel]) -> Iterator[list[ByteRange | None]]:
    """Yield, for each launch of a segment, the byte ranges of its buffers.

    ``None`` for buffers that the program allocates, and for those whose length the launch does not receive as a
    symbol.
    """
    for (name, _, which), types in zip(segment.launches, segment.given, strict=True):
        passed = [segment.symbols[k] for k in which]
        pairs = zip(passed, kernels[name].symbols, strict=True)
        known = {term.name: symbol(info.name) for term, info in pairs if isinstance(term, Symbol)}
        yield [None if each is None else _extent(each, known) for each in types]


def _extent(type_: TensorType, known: Mapping[str, Size]) -> ByteRange | None:
    """Return the byte range of a tensor of this type over the kernel's symbols."""
    if 0 in type_.shape:
        return 0, 0
    elements = type_.layout.offset, span(type_.shape, type_.layout)
    low, high = (mul(each, type_.dtype.itemsize) for each in elements)
    if not free_symbols(low) | free_symbols(high) <= known.keys():
        return None
    return substitute(low, known), substitute(high, known)
