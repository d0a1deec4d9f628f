"""The elements of a row's tile that one thread has, whose values a reduction can combine before it merges states."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from litz_codegen_triton.capabilities import NVIDIA
from litz_codegen_triton.emit.indexing.coordinates import TileIndices
from litz_codegen_triton.emit.indexing.statements import values_of
from litz_codegen_triton.emit.indexing.vector_accesses import aligned_elements
from litz_codegen_triton.emit.loops.tiles import InnerLoop
from litz_ir.scalar import loads
from litz_ir.symbols import coefficient


@dataclass(frozen=True, slots=True)
class ElementGroups:
    """Groups of elements along ``r``, each of which one thread has."""

    count: int = 1
    """Elements of a group, a power of two."""
    neighbours: bool = True
    """True for elements that follow one another, False for those at the same position in equal parts of a tile."""


def element_groups(coordinates: TileIndices, number: int, inner: InnerLoop) -> ElementGroups:
    """Return the groups of a loop over tiles of rows; of one element where rows are not contiguous.

    A thread has the neighbours of one access. Where addresses allow one element an access, neighbouring threads have
    neighbouring elements.
    """
    tiles, name = coordinates.tiles, coordinates.indices[f"r{number}"]
    found = set(loads(*(value for each in coordinates.phases[number] for value in values_of(each))))
    rows = [load for load in found if coefficient(load.index[0], name) != 0]
    if not rows or any(coefficient(load.index[0], name) != 1 for load in rows):
        return ElementGroups()
    outer = prod(dim.block for dim in tiles.outer)
    points = inner.block * outer // (tiles.warps * NVIDIA.warp_size)
    widths = {aligned_elements(load.index[0], name, load.dtype.itemsize, coordinates.kernel) for load in rows}
    if min(widths) > 1:
        return ElementGroups(max(1, min(*widths, points, inner.block)))
    return ElementGroups(max(1, points), neighbours=False) if len(widths) == outer == 1 else ElementGroups()
