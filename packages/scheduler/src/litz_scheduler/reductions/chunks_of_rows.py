"""Chunks of the rows of a matrix, each summed by a thread block or by a cluster of them.

A wave is the thread blocks, or the clusters, that the GPU runs at a time.
"""

from __future__ import annotations

from math import prod

from litz_ir.loops import TensorType
from litz_ir.target import Capabilities
from litz_scheduler.analysis.cost import next_power_of_two
from litz_scheduler.analysis.cost_model import CTAS_PER_SM

_ELEMENTS_OF_SM = 8192
"""Elements of the rows that an SM has at a time, in ``CTAS_PER_SM`` thread blocks or fewer."""

_FULL_WAVE = 0.9
"""Share of the thread blocks, or clusters, of all waves that have a chunk where the waves count as full."""

_MIN_CLUSTERED_SHARE = 0.7
"""Least share of the clusters of all waves that have a chunk. With a smaller one two kernels are no slower."""

_MAX_CLUSTERED_WAVES = 5
"""Most waves of clusters."""

_CLUSTER_SMS = 16
"""SMs of a GPC, within which a cluster is placed. Some have fewer, so that about one GPC less counts; clusters of two
fit anywhere. On an H200 the gradient of an RMS norm of 65,536 elements in bf16 takes 313 us in 16 clusters of 8, 263 in
32 and 245 in 64, as if 14 ran at a time."""

_MIN_ROWS = 16
"""Fewest rows of a chunk: each chunk stores a sum for every column, which another kernel reads."""


def points_of(value: TensorType) -> int:
    """Return the number of elements of a value, -1 where it is symbolic."""
    static = [size for size in value.shape if isinstance(size, int)]
    return prod(static) if len(static) == len(value.shape) else -1


def chunks_of_rows(rows: int, length: int, machine: Capabilities, cluster: int = 1) -> int:
    """Return the number of equal chunks of rows that thread blocks of a GPU sum; 0 where too few SMs would have one.

    It is the smallest divisor of ``rows`` that fills its waves, else the one that fills the largest share of them. A
    chunk has ``_MIN_ROWS`` at least. With a ``cluster`` of more than one thread block, which divides each row, an SM
    has one thread block at a time, and a chunk at least twice as many rows.
    """
    sm_count = machine.model.sm_count
    wave = sm_count * max(1, min(CTAS_PER_SM, _ELEMENTS_OF_SM // next_power_of_two(length)))
    limit = min(rows // _MIN_ROWS, CTAS_PER_SM * wave)
    if cluster > 1:
        group = min(_CLUSTER_SMS, sm_count)
        wave = max(1, sm_count // group - 1) * (group // cluster) if cluster > 2 else sm_count // 2
        limit = min(rows // (2 * _MIN_ROWS), _MAX_CLUSTERED_WAVES * wave)
    divisors = [count for count in range(1, limit + 1) if rows % count == 0]
    full = [count for count in divisors if count >= _FULL_WAVE * wave * -(-count // wave)]
    largest = max(divisors, key=lambda count: count / (wave * -(-count // wave)), default=0)
    chunks = full[0] if full else largest
    least = _FULL_WAVE * sm_count if cluster == 1 else _MIN_CLUSTERED_SHARE * wave * -(-chunks // wave)
    return chunks if chunks >= least else 0
