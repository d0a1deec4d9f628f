"""What may be asked of the scheduler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from litz_ir.scalar import HEAVY

Lanes = Literal["best", "inner", "outer", "none"]
Precision = Literal["ieee", "tf32"]
ChannelsLastMode = Literal["propagate", "cpu", "eager"]


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """What the cost model weighs by. With what stands here it decides by sizes and capabilities; the ends of a range
    force a decision one way, which tells what another choice would have cost. Results differ by the order of a sum at
    the most.

    What has memory: ``inline_cost`` is the dearest body (in adds, see the scalar operation table) that is computed
    again for each of several readers; ``inline_loads`` the most elements such a body may read.

    What is one kernel: ``fuse`` off leaves one operation per kernel, which is slow and good for finding a fault.
    ``siblings`` is how many recent readers of a buffer are tried as partners of another reader; loops that move more
    than ``sibling_bytes`` join them only for a good part of that. ``min_parallel_points`` is how many outer points
    must be left to each thread or processor where a join would take some away. On a GPU maps over the same points
    become one kernel whatever they share, where each moves less than ``foreach_bytes``, and small reductions do.
    Where a launch can run kernels side by side, those that move ``horizontal_fusion_bytes`` at the most do that
    instead, whatever points they are over, and those that are alike but for their sizes do up to
    ``isomorphic_fusion_bytes``; 0 lets none. ``horizontal_fusion_peak`` is by how many bytes they may raise the peak:
    what small results take that no longer lie over one another. An allocator takes memory from a GPU by as much, or
    more, at a time.

    Inside a kernel with several phases: a value that costs ``scratch_cost`` or more is kept in scratch memory for later
    phases; a stored one that costs more than ``reload_cost`` is read back by them. The others are computed again.

    How a kernel runs: ``order_loops`` off leaves its axes in the order of the operations; ``lanes`` names the axis
    along which they run, where there is one of that kind; ``unroll`` says how many registers go side by side, where 1
    leaves the number to the code generator. ``serial_bytes`` is the traffic below which a kernel stays on one thread;
    ``cpu_split_bytes`` the least that one of the parts of a reduction reads, ``gpu_split_bytes`` the same on a GPU,
    where a launch takes as long as reading that. A GPU reads rows from ``long_row`` elements on piece by piece, and
    so columns from ``tall_column`` elements on, of which a program takes several. ``max_cluster_size`` is how many
    programs share a row or column at the most; 1 lets none. ``lookback`` is how many points of a long row a program
    of a GPU scans that goes on from what programs before it found, a power of two: 8192 is what registers hold. 0
    lets none: a long scan is divided into steps, which read it twice.

    What a library runs: ``linear_flops`` is the size, in operations, from which a product of f32 matrices is better
    run by the host's ``linear`` than by ATen's own routine; 0 where it is not, or the host has none.
    ``prepack_convolutions`` is true where the host has ``convolution`` and ``prepack_convolution``.
    ``generated_matmuls`` are the products of matrices, convolutions and attention that are loops on a GPU, fused with
    what surrounds them: names of operations or of their nodes, or ``all``. ``matmul_precision`` is ``tf32`` where the
    factors of those of f32 may be rounded to TF32 first, ``convolution_precision`` where a GPU's library does that in
    convolutions. ``channels_last`` are laid out in channels-last where a ``vote`` says so, on a ``cpu`` alone, since
    its prices for GPUs have not been timed, or all as ``eager`` has them. ``pad_leading_dimension``: on a GPU the
    rows of matrices that loops make for products begin at multiples of 128 bytes. It is off until it has been
    measured: libraries read such rows better, loops over them may not.
    """

    inline_cost: int = 4
    inline_loads: int = 1
    fuse: bool = True
    siblings: int = 4
    sibling_bytes: int = 64 << 10
    min_parallel_points: int = 2
    foreach_bytes: int = 64 << 20
    horizontal_fusion_bytes: int = 1 << 20
    isomorphic_fusion_bytes: int = 16 << 20
    horizontal_fusion_peak: int = 1 << 20
    scratch_cost: int = HEAVY
    reload_cost: int = 4
    order_loops: bool = True
    lanes: Lanes = "best"
    unroll: int = 1
    serial_bytes: int = 64 << 10
    cpu_split_bytes: int = 16 << 10
    gpu_split_bytes: int = 64 << 10
    long_row: int = 16384
    tall_column: int = 256
    max_cluster_size: int = 8
    lookback: int = 0
    linear_flops: int = 0
    prepack_convolutions: bool = False
    generated_matmuls: frozenset[str] = frozenset()
    matmul_precision: Precision = "ieee"
    convolution_precision: Precision = "ieee"
    channels_last: ChannelsLastMode = "cpu"
    pad_leading_dimension: bool = False

    def generates(self, *names: str) -> bool:
        """True where an operation of these names is asked to be loops: ``generated_matmuls`` has one, or says all."""
        return not self.generated_matmuls.isdisjoint(("all", *names))
