"""Cost model: the questions that the scheduler asks where two programs compute the same, and the default answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from litz_ir.loops import ContractionCall
from litz_ir.scalar import Expr
from litz_ir.target import Capabilities
from litz_scheduler.analysis.cost import body_cost
from litz_scheduler.options import SchedulerOptions

CTAS_PER_SM = 4
"""The number of CTAs aimed at for each SM."""

MIN_COLUMN_TILE = 32
"""The fewest results that a CTA computes at once where results, not reduced elements, are contiguous in memory."""

_UNALIGNED_COLUMN_TILE, _UNALIGNED_CTAS_PER_SM, _UNALIGNED_SPLITS = 64, 16, 4
"""The same, the CTAs aimed at for each SM, and the fewest splits, where rows start at any address. No cluster reduces
such columns, fewer results would read parts of sectors, and loads of single elements need many threads."""

SLAB = 256 << 10
"""The bytes of columns that one split reads on a CPU, so that they fit in a cache."""

_SPLITS_PER_THREAD = 16
"""The number of splits aimed at for each thread: enough to even out threads of unequal speed."""

_MIN_COMMON_FRACTION = 8
"""Siblings above ``sibling_bytes`` are fused only if the common buffers are at least 1/8 of the bytes that the
operation moves."""


@dataclass(frozen=True, slots=True)
class ReductionWork:
    """A reduction as a cost model sees it; symbolic sizes are at their hints."""

    outer: int
    """Number of results."""
    inner: int
    """Number of elements that are reduced to one result."""
    loaded_bytes: int
    """Bytes loaded for each reduced element."""
    cost_bytes: int
    """Time for each reduced element, in bytes that can be read in it; at least 1."""
    along_outer: bool
    """True where consecutive results, not consecutive reduced elements, are contiguous in memory."""
    aligned: bool = True
    """False where these rows of results do not all start at multiples of 16 bytes."""


@runtime_checkable
class CostModel(Protocol):
    """Answers of a cost model to the scheduler. No answer changes a result beyond the order in which sums accumulate.

    Legality is checked elsewhere: a model is asked only about programs that are all right.
    """

    def is_cheap(self, body: Expr) -> bool:
        """True for a body that one reader may compute as often as it reads the value, instead of loading it."""

    def duplicates(self, body: Expr, loads: int) -> bool:
        """True for a body that each of several readers may compute.

        ``loads`` is the number of elements that its innermost loop loads at one point.
        """

    def fuses_siblings(self, moved: int, common: int) -> bool:
        """True if a loop that moves ``moved`` bytes runs better in one kernel with a loop that reads ``common`` bytes
        of the same buffers, though neither reads what the other computes.
        """

    def uses_scratch(self, bodies: Sequence[Expr]) -> bool:
        """True if a value that a later phase of its kernel reads is kept in scratch memory, false to recompute it."""

    def reads_in_chunks(self, elements: int, *, columns: bool) -> bool:
        """True if a row or column of so many elements does not fit in a GPU's registers, so that each reduction of it
        reads it again.
        """

    def contraction_seconds(self, strategy: str, call: ContractionCall, seconds: float) -> float:
        """Seconds of a way to run a contraction, which the machine's table gives as ``seconds``.

        ``strategy`` is the name of a strategy, or ``call`` for the routine that is called; 0 seconds are given for a
        strategy that is taken without a comparison. What both have in common may be left out of both. Infinity leaves a
        strategy out.
        """

    def splits(self, work: ReductionWork, machine: Capabilities) -> int:
        """The most parts into which a reduction is split to run in parallel; less than 2 leaves it whole."""


@dataclass(frozen=True, slots=True)
class ThresholdCosts:
    """The default cost model: sizes and costs of bodies compared with the thresholds of the options."""

    options: SchedulerOptions = field(default_factory=SchedulerOptions)
    """Thresholds."""

    def is_cheap(self, body: Expr) -> bool:
        return body_cost(body) <= self.options.inline_cost

    def duplicates(self, body: Expr, loads: int) -> bool:
        return self.is_cheap(body) and loads <= self.options.inline_loads

    def fuses_siblings(self, moved: int, common: int) -> bool:
        if self.options.batch_invariant:
            return False  # bytes depend on the size of the batch
        return moved <= self.options.sibling_bytes or _MIN_COMMON_FRACTION * common >= moved

    def uses_scratch(self, bodies: Sequence[Expr]) -> bool:
        return body_cost(*bodies) >= self.options.scratch_cost

    def reads_in_chunks(self, elements: int, *, columns: bool) -> bool:
        return elements > (self.options.tall_column if columns else self.options.long_row)

    def contraction_seconds(self, strategy: str, call: ContractionCall, seconds: float) -> float:
        return seconds

    def splits(self, work: ReductionWork, machine: Capabilities) -> int:
        return self._splits_on_gpu(work, machine) if machine.is_gpu else self._splits_on_cpu(work, machine)

    def _splits_on_cpu(self, work: ReductionWork, machine: Capabilities) -> int:
        """Return the most splits that are worthwhile on the threads of a CPU."""
        if self.options.batch_invariant:
            return 0
        if work.along_outer:
            return work.inner * work.outer * work.loaded_bytes // SLAB
        threads = machine.model.threads
        if threads < 2 or work.outer >= 2 * threads or work.outer == threads:
            return 0
        worthwhile = min(work.inner // 2, work.inner * work.cost_bytes // self.options.cpu_split_bytes)
        return min(_SPLITS_PER_THREAD * threads // max(work.outer, 1), worthwhile)

    def _splits_on_gpu(self, work: ReductionWork, machine: Capabilities) -> int:
        """Return the most splits that are worthwhile on the SMs of a GPU."""
        unaligned = work.along_outer and not work.aligned
        if unaligned and work.outer >= _UNALIGNED_COLUMN_TILE:
            return self._splits_of_unaligned_columns(work, machine)
        tile = MIN_COLUMN_TILE if work.along_outer else 1
        ctas = -(-work.outer // tile)
        limit = 1 if unaligned else min(max_cluster_size(machine, self.options), MAX_SPLIT_CLUSTER)
        if ctas >= 2 * machine.model.sm_count:
            return 0
        if not work.along_outer and 1 < limit and work.inner <= limit * self.options.long_row:
            return 0  # a cluster reduces the row, with a share of it in the registers of each CTA
        # Loads count once whatever is computed from them, so that reductions of one tensor are split equally and fuse.
        nbytes = work.inner * tile * work.loaded_bytes
        worthwhile = min(work.inner // 2, nbytes // self.options.gpu_split_bytes)
        splits = min(CTAS_PER_SM * machine.model.sm_count // max(ctas, 1), worthwhile)
        return 0 if splits <= limit else splits

    def _splits_of_unaligned_columns(self, work: ReductionWork, machine: Capabilities) -> int:
        """Return the same for columns that no cluster reduces."""
        tile, sm_count = _UNALIGNED_COLUMN_TILE, machine.model.sm_count
        ctas = -(-work.outer // tile)
        if ctas >= 2 * sm_count:
            return 0
        worthwhile = work.inner * tile * work.loaded_bytes // self.options.gpu_split_bytes
        splits = min(_UNALIGNED_CTAS_PER_SM * sm_count // ctas, work.inner // 2, worthwhile)
        return splits if splits >= _UNALIGNED_SPLITS else 0


MAX_SPLIT_CLUSTER = 8
"""Most CTAs of a cluster that takes the place of a split reduction: with more, sums of columns are slower."""


def max_cluster_size(capabilities: Capabilities, options: SchedulerOptions) -> int:
    """Return the largest cluster that device and options allow; 1 where CTAs cannot synchronise."""
    return min(capabilities.model.max_cluster_size, options.max_cluster_size)
