"""What a tile is: the nouns that the choice of tiles and the writing of kernels share."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from litz_codegen_triton.emit.chain import Chain
from litz_codegen_triton.emit.contraction import Contraction
from litz_ir.loops import Axis
from litz_ir.symbols import Size, cdiv, mul, product

WARP = 32
"""The threads of a warp."""

PIECE_STEP = 16
"""Pieces of a row begin at multiples of so many elements, and so where an access of 16 bytes may."""


@dataclass(frozen=True, slots=True)
class Dim:
    """Outer axes flattened into one dimension of the tile, row-major; ``block`` 1 means one point per program, which
    makes its index a scalar."""

    letter: str
    axes: tuple[Axis, ...]
    block: int

    @property
    def size(self) -> Size:
        return product(axis.size for axis in self.axes)

    @property
    def programs(self) -> Size:
        """How many programs lie side by side along it."""
        return self.size if self.block == 1 else cdiv(self.size, self.block)


@dataclass(frozen=True, slots=True)
class Inner:
    """How a phase's own axes are covered: ``serial`` ones by a loop over single points, ``axes`` (flattened) by a tile
    of ``block``, at once when ``persistent``, else in a loop. ``pieces`` programs have one piece of ``axes`` each."""

    serial: tuple[Axis, ...]
    axes: tuple[Axis, ...]
    block: int
    persistent: bool
    pieces: int = 1

    @property
    def size(self) -> Size:
        return product(axis.size for axis in self.axes)

    @property
    def piece(self) -> Size:
        """The points of a program: the last ones have fewer where that is not a part of ``size``."""
        if self.pieces == 1:
            return self.size
        whole = PIECE_STEP if self.persistent else self.block
        return mul(cdiv(cdiv(self.size, self.pieces), whole), whole)

    @property
    def even(self) -> bool:
        """True where all programs have as many points."""
        return self.size == mul(self.piece, self.pieces)


@dataclass(frozen=True, slots=True)
class Tiling:
    """``outer`` from slowest to fastest; one entry of ``inner`` per phase (``None``: the phase is one point).

    ``contraction`` or ``chain`` is the one that the kernel computes by products of tiles, if it does: then ``y`` and
    ``x`` are its rows and columns. ``stages`` says how many tiles are on their way at a time: of its factors, or of
    what a loop that only accumulates reads. The summed axes that a chain's ``Inner`` has as serial ones are one point
    for each tile of the others. ``shared`` programs have each tile of outer points together.
    ``relay`` is how many points of a scanned row each of the programs has that go on from one another, 0 elsewhere.
    A contraction's tiles are taken in turn by ``most`` programs at most, where that is not 0; ``descriptors`` says that
    its factors are read by descriptors where they can be.
    """

    outer: tuple[Dim, ...]
    inner: tuple[Inner | None, ...]
    warps: int
    contraction: Contraction | None = None
    stages: int = 1
    chain: Chain | None = None
    shared: int = 1
    relay: int = 0
    most: int = 0
    descriptors: bool = False

    @property
    def multiplied(self) -> bool:
        """True where the kernel multiplies tiles."""
        return self.contraction is not None or self.chain is not None

    @property
    def each(self) -> int:
        """How many outer points of a tile a thread has, rounded up."""
        return -(-prod(dim.block for dim in self.outer) // (WARP * self.warps))

    @property
    def programs(self) -> Size:
        """How many programs a launch has; 0 when an outer axis is empty."""
        count = mul(self.ahead, self.turns)
        return min(count, self.most) if self.most and isinstance(count, int) else count

    @property
    def turns(self) -> Size:
        """How many tiles of outer points there are."""
        return product(dim.programs for dim in self.outer)

    @property
    def ahead(self) -> Size:
        """How many programs have parts of one tile of outer points."""
        if not self.relay:
            return self.shared
        (inner,) = self.inner
        assert inner is not None, "a relay runs along an axis"
        return cdiv(inner.size, self.relay)


def next_power_of_two(number: int) -> int:
    """The smallest power of two that is not below ``number``; 1 for what is below 1."""
    return 1 << max(0, number - 1).bit_length()
