"""Schedules: the mapping of a kernel's axes onto a machine, one dataclass for each form of kernel.

The scheduler writes a form of a CPU's kernels. For a GPU it writes a :class:`TileRequest`, and passes of the target
put one of the other forms in its place, with every number decided, before code is emitted. Schedules name axes; sizes
stay in the kernel.

A form is declared here alone: its text, its serial forms and the checks of its numbers follow from the types of its
fields, in their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Final, Literal, get_args, get_origin, get_type_hints

from litz_ir.errors import CodegenError


@dataclass(frozen=True, slots=True)
class AtLeast:
    """Least value of a number, which the verifier of kernels checks."""

    value: int
    """The least value."""


Positive = Annotated[int, AtLeast(1)]
"""A number of at least one."""
NonNegative = Annotated[int, AtLeast(0)]
"""A number of at least zero."""
BUFFER: Final = "buffer"
"""Mark of the type :data:`BufferName`, by which the text form writes ``%`` before a name; other names are those of
axes."""
BufferName = Annotated[str, BUFFER]
"""The name of a buffer."""


@dataclass(frozen=True, slots=True)
class CpuLoops:
    """A kernel as loops over threads, vector lanes and registers of a CPU."""

    parallel: tuple[str, ...] = ()
    """Leading outer axes, flattened, whose points are divided among threads."""

    vector: str | None = None
    """Axis along the lanes of a vector register: an inner axis, or the last outer one.

    With an outer axis every phase runs for ``lanes`` outer points at once. With the axis of a scan the scan may combine
    points in any grouping. ``None`` for scalar loops.
    """

    lanes: NonNegative = 0
    """Elements of a vector register; 0 leaves the number to the code generator."""

    unroll: Positive = 1
    """Vector registers computed together; 1 leaves the number to the code generator."""

    grain: Positive = 1
    """Fewest parallel points that are worth a thread."""


AttentionLanes = Literal["rows", "columns"]
"""Points of an attention that are along the lanes of a CPU's vector registers: rows, or the elements of a value."""


@dataclass(frozen=True, slots=True)
class CpuAttention:
    """Weighted sums of values over keys, in blocks of rows and keys whose scores stay in a CPU's first-level cache.

    :func:`litz_ir.plan.attention_of` returns what such a kernel computes.
    """

    columns: str
    """Outer axis of the elements of a value."""

    block: Positive
    """Rows of a block: keys and values are the same for all of them."""

    rows: str | None = None
    """Outer axis of the rows: queries, or keys in the gradients of keys and values. ``None`` for single rows, each of
    which has keys of its own, with lanes along columns."""

    lanes: AttentionLanes = "rows"
    """Points along the lanes of a vector register. They are ``columns`` only where one block has all rows of a
    softmax."""


@dataclass(frozen=True, slots=True)
class CpuTiledSum:
    """The sum of a convolution or matmul over a prepacked weight, in tiles of pixels and output channels; the kernel's
    other phases run over the points of each tile.

    :func:`litz_ir.plan.tiled_sum_of` returns what such a kernel sums.
    """

    columns: Positive
    """Output channels of a panel, the unit in which the weight is prepacked."""

    grain: Positive = 1
    """Fewest outer points that are worth a thread."""


@dataclass(frozen=True, slots=True)
class TileRequest:
    """Constraints on a GPU kernel that its target has not scheduled yet; the target decides the rest.

    Without ``blocks`` the target chooses tile sizes, warps and stages. With them, an axis that is left out has
    one point in a tile. Two named outer axes are two dimensions of the tile, the second the faster one; a
    single one is the faster end of a dimension into which all outer axes are flattened. The dimensions of a
    matmul or attention are its rows, columns and summed points, each flattened.
    """

    cluster: Positive = 1
    """Thread blocks that reduce each outer point together; 1 for a reduction within a thread block."""

    segment: NonNegative = 0
    """Points of a scanned row for each thread block of a decoupled look-back scan, a power of two.

    0 for a scan within a thread block.
    """

    blocks: tuple[tuple[str, int], ...] = ()
    """Points of a tile along axes, powers of two."""

    warps: Positive = 4
    """Warps of a thread block; read only where ``blocks`` are given."""

    stages: NonNegative = 0
    """Software pipelining stages of the innermost loop; 0 leaves the number to the target."""

    grid: NonNegative = 0
    """Most thread blocks of a persistent matmul, each of which loops over tiles; 0 for one thread block per tile."""

    descriptors: bool = False
    """True if a matmul reads its operands through tensor descriptors (TMA), where their memory allows it."""

    row_cluster: Positive = 1
    """Thread blocks of a cluster among which the last outer axis is divided; 1 for no cluster. Nested reductions along
    that axis are summed among them."""


@dataclass(frozen=True, slots=True)
class Tile:
    """One dimension of a thread block's tile: axes flattened in row-major order, the last one the fastest."""

    axes: tuple[str, ...]
    """Axes of the dimension, the slowest first; none for a dimension of one point."""

    block: int = 1
    """Points of the tile along the dimension, a power of two; with 1 its index is a scalar."""


@dataclass(frozen=True, slots=True)
class InnerTile:
    """The cover of a phase's own axes by one thread block."""

    axes: tuple[str, ...]
    """Axes that the tile covers, flattened."""

    block: int
    """Points of the tile, a power of two."""

    persistent: bool = False
    """True if the tile covers all points at once, in registers between phases; False for a loop over tiles."""

    serial: tuple[str, ...] = ()
    """Axes that a loop around the tile visits point by point."""

    evict_first: tuple[BufferName, ...] = ()
    """Buffers whose rows a loop over tiles loads for the last time: the L2 cache may evict them first."""

    evict_last: tuple[BufferName, ...] = ()
    """Buffers whose rows a later phase loads again: the L2 cache should evict them last."""


@dataclass(frozen=True, slots=True)
class TileLoops:
    """A kernel whose thread blocks each run its phases in order over a tile of outer points."""

    outer: tuple[Tile, ...]
    """Dimensions of the tile of outer points, at most three, the slowest first.

    All axes of a kernel whose phase is pointwise are outer ones.
    """

    inner: tuple[InnerTile | None, ...]
    """Cover of each phase's own axes; ``None`` for a phase of one point."""

    warps: Positive
    """Warps of a thread block."""

    stages: Positive = 1
    """Software pipelining stages of loops that only accumulate."""

    cluster: Positive = 1
    """Thread blocks of a cluster, which reduce one tile of outer points together."""

    row_cluster: Positive = 1
    """Thread blocks of a cluster, each of which has one of the tiles along the last dimension; 1 for no cluster. Nested
    reductions along it are summed among them."""

    prefetch: tuple[int, ...] = ()
    """Numbers of phases whose loads are issued first, as far as registers allow: those of pointwise phases before
    anything is computed, those of a loop's next tile before the current one is."""

    index_bits: int = 64
    """Bits of index arithmetic: 32 where all indices are known to fit, else 64."""


Operand = Literal["left", "right"]
"""An operand of a matmul: the left one (A) of rows by summed points, or the right one (B) of summed points by
columns.
"""


@dataclass(frozen=True, slots=True)
class Matmul:
    """A contraction whose tiles are computed by tensor cores or fused multiply-adds."""

    batch: tuple[str, ...]
    """Outer axes that both operands have; a tile has one point of them."""

    rows: Tile
    """Outer axes of the left operand alone (M)."""

    columns: Tile
    """Outer axes of the right operand alone (N)."""

    summed: Tile
    """Axes that are summed over (K)."""

    warps: Positive
    """Warps of a thread block."""

    stages: Positive
    """Software pipelining stages: tiles of both operands in flight."""

    grid: NonNegative = 0
    """Most thread blocks of a persistent kernel, each of which loops over tiles; 0 for one thread block per tile."""

    descriptors: tuple[Operand, ...] = ()
    """Operands that are read through tensor descriptors of their memory."""

    prefetch: tuple[int, ...] = ()
    """Numbers of pointwise phases whose loads are issued before the kernel computes, as far as registers allow."""

    group: Positive = 1
    """Rows of tiles in a group of the launch order: tiles run down the columns of a group; 1 for row-major order."""

    index_bits: int = 64
    """Bits of index arithmetic: 32 where all indices are known to fit, else 64."""


LaunchOrder = Literal["batch", "first_rows", "last_rows"]
"""The order in which the thread blocks of an attention start: batch point after batch point, or tile of rows after tile
of rows, from the first or from the last, each of all batch points."""


@dataclass(frozen=True, slots=True)
class Attention:
    """Sums whose summand contains a matmul, multiplied by another operand: fused (flash) attention and its
    gradients.
    """

    batch: tuple[str, ...]
    """Outer axes that all operands have; a thread block has one point of them."""

    rows: Tile
    """Outer axes of the inner matmul's left operand: queries in the forward direction."""

    columns: Tile
    """Outer axes of the operand that the scores are multiplied by, such as the head dimension of V; empty
    without one.
    """

    summed: InnerTile
    """Axes that are summed over: keys in the forward direction."""

    warps: Positive
    """Warps of a thread block."""

    stages: Positive
    """Software pipelining stages of the loop over the summed axes."""

    prefetch: tuple[int, ...] = ()
    """Numbers of pointwise phases whose loads are issued before the kernel computes, as far as registers allow."""

    order: LaunchOrder = "batch"
    """Order of thread blocks. Where rows differ in how many points they sum, those with most should start first."""

    descriptors: bool = False
    """True where tiles of the operands that vary along the summed axes are read through tensor descriptors, as far as
    their memory allows it."""

    index_bits: int = 64
    """Bits of index arithmetic: 32 where all indices are known to fit, else 64."""


@dataclass(frozen=True, slots=True)
class LookbackScan:
    """A decoupled look-back scan (Merrill and Garland, 2016).

    Each thread block scans one segment of a row and combines it with the results of the segments before it.
    """

    segment: Positive
    """Points of a row for each thread block, a power of two."""

    warps: Positive
    """Warps of a thread block."""

    index_bits: int = 64
    """Bits of index arithmetic: 32 where all indices are known to fit, else 64."""


@dataclass(frozen=True, slots=True)
class Foreach:
    """A launch of independent subkernels, each with :class:`TileLoops` of its own."""

    warps: Positive
    """Warps of a thread block, the same for all subkernels."""

    index_bits: int = 64
    """Bits of index arithmetic: 32 where all indices are known to fit, else 64."""


GpuSchedule = TileLoops | Matmul | Attention | LookbackScan | Foreach
"""Forms that a GPU target decides on; code is emitted for these alone."""

CpuSchedule = CpuLoops | CpuAttention | CpuTiledSum
"""Forms of a CPU."""

Schedule = CpuSchedule | TileRequest | GpuSchedule
"""The schedule of a kernel in any form."""


@cache
def least_values(form: type) -> Mapping[str, int]:
    """Return the least value of each field of a form that has one."""
    hints = get_type_hints(form, include_extras=True)
    bounded = {name: get_args(hint)[1:] for name, hint in hints.items() if get_origin(hint) is Annotated}
    return {
        name: mark.value for name, marks in bounded.items() for mark in marks if isinstance(mark, AtLeast)
    }


def cluster_size(schedule: Schedule) -> int:
    """Thread blocks that reduce each outer point together."""
    return schedule.cluster if isinstance(schedule, TileRequest | TileLoops) else 1


def launched_cluster(schedule: Schedule) -> int:
    """Thread blocks of a cluster that a kernel is launched in; 1 for a launch without clusters."""
    if isinstance(schedule, TileRequest | TileLoops):
        return max(schedule.cluster, schedule.row_cluster)
    return 1


def scan_segment(schedule: Schedule) -> int:
    """Points of a scanned row that a thread block of a look-back scan has; 0 for other forms."""
    return schedule.segment if isinstance(schedule, TileRequest | LookbackScan) else 0


def cpu_loops(schedule: Schedule) -> CpuLoops:
    """The schedule as one of a CPU; raises ``CodegenError`` if it has another form."""
    if isinstance(schedule, CpuLoops):
        return schedule
    raise CodegenError(
        f"a CPU kernel has a schedule of the form {type(schedule).__name__}",
        hint="schedule the graph for the capabilities of the target that emits it",
    )
