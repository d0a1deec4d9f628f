"""The choice of the width of index arithmetic: 32 bits where all indices of a kernel are known to fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

from litz_codegen_triton.emit.indexing.coordinates import TileIndices
from litz_codegen_triton.emit.indexing.grid import subkernel_grids
from litz_codegen_triton.emit.indexing.index import fits_narrow
from litz_codegen_triton.emit.indexing.statements import terms_of
from litz_codegen_triton.emit.loops.dot_kernels import DotKernel
from litz_codegen_triton.emit.loops.tiles import tiling
from litz_ir.plan import (
    Attention,
    Foreach,
    Kernel,
    LookbackScan,
    Matmul,
    TileLoops,
    invocations_of,
    workspace_words,
)
from litz_ir.symbols import Size, add, mul, product

Tiled = TypeVar("Tiled", TileLoops, Matmul, Attention, LookbackScan)


def with_index_width(kernel: Kernel, schedule: Tiled, dot: DotKernel | None = None) -> Tiled:
    """Choose the width of a kernel's indices. ``dot`` has the roles in a kernel that multiplies tiles."""
    scheduled = replace(kernel, schedule=schedule)
    coordinates = TileIndices(scheduled, tiling(scheduled), dot)
    fits = fits_narrow(dict.fromkeys(_terms(coordinates)), coordinates.ranges)
    return replace(schedule, index_bits=32 if fits else 64)


def with_dispatch_width(kernel: Kernel, schedule: Foreach) -> Foreach:
    """Choose the width of the arithmetic by which a foreach kernel, whose subkernels are scheduled, finds them."""
    tilings = [tiling(each.kernel) for each in kernel.subkernels]
    ends: list[Size] = [0]
    for count in subkernel_grids(kernel, tilings):
        ends.append(add(ends[-1], count))
    kinds = {info.name: info.kind for info in kernel.symbols}
    given = (term for _, each in invocations_of(kernel) for term in each.symbols)
    ranges = {info.name: info.range for info in kernel.symbols if info.kind != "float"}
    fits = fits_narrow((*ends, *(each for each in given if kinds.get(str(each)) != "float")), ranges)
    return replace(schedule, index_bits=32 if fits else 64)


def _terms(coordinates: TileIndices) -> Iterator[Size]:
    """Yield the terms that a kernel's index arithmetic evaluates."""
    for statements in coordinates.phases:
        for each in statements:
            yield from terms_of(each)
    # A tile may extend past the last point.
    for dim in coordinates.tiles.outer:
        yield add(dim.size, dim.block)
    for inner in coordinates.tiles.inner:
        if inner is not None:
            yield add(inner.size, inner.block)
            yield add(mul(inner.points_per_cta, inner.cluster_size), inner.block)
            yield product(axis.size for axis in inner.serial)
    yield workspace_words(coordinates.kernel)
