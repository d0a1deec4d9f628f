"""Horizontal fusion of launches: independent kernels become subkernels of one foreach kernel on a GPU.

A fused launch keeps the buffers of all its subkernels live at once. Kernels that would raise the modelled peak memory
too far stay separate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from litz_ir.fused import Decision
from litz_ir.passes import PassContext
from litz_ir.plan import Kernel, written_by
from litz_scheduler import reasons
from litz_scheduler.build_plan.forms import UnplacedPlan
from litz_scheduler.build_plan.fusion_limits import FusionLimit, early_buffer_limits, live_buffer_limits
from litz_scheduler.build_plan.horizontal_fusion import HorizontalFuser, HorizontallyFused
from litz_scheduler.build_plan.scheduling import scheduling
from litz_scheduler.memory.planner import MemoryPlan
from litz_scheduler.options import SchedulerOptions

_MAX_ROUNDS = 2
"""Attempts to stay below the peak by excluding the largest early buffers. After them every kernel of the launches
that exceed it is excluded."""


@dataclass(frozen=True, slots=True)
class FuseLaunches:
    """Fuse independent launches where this raises the modelled peak by at most ``horizontal_fusion_peak`` bytes."""

    options: SchedulerOptions
    name: str = "fuse-launches"
    ulp: int = 0

    def apply(self, data: UnplacedPlan, context: PassContext) -> UnplacedPlan:
        """Return the plan with foreach kernels and its memory plan, or the given plan where nothing fuses."""
        symbols = data.fused.graph.symbols
        fuser = HorizontalFuser(
            data.kernels, data.placements, symbols, context.machine, self.options, scheduling(context).names
        )
        made = fuser.of(data.steps)
        if not made.kernels:
            return data
        return _Fusion(data, fuser, self.options.horizontal_fusion_peak, context).run(made)


class _Fusion:
    """Search for the foreach kernels whose peak exceeds that of separate launches by at most ``extra`` bytes."""

    def __init__(self, data: UnplacedPlan, fuser: HorizontalFuser, extra: int, context: PassContext) -> None:
        self._data = data
        self._fuser = fuser
        self._separate = data.modelled()
        self._max_peak = self._separate.peak + extra
        self._context = context

    def run(self, made: HorizontallyFused) -> UnplacedPlan:
        """Fuse all launches if the peak allows it, else exclude kernels until it does.

        First come the kernels with the largest early buffers, then all kernels of the launches that exceed the peak.
        Small kernels over equal points may have the peak that they would have as one kernel, and are the only ones
        fused where excluding others does not help.
        """
        memory = self._placed(made)
        if memory.peak <= self._max_peak:
            return self._fused(made, memory, {})
        everything = range(len(self._data.steps))
        merged = self._fuser.of(self._data.steps, {position: position for position in everything})
        least = self._placed(merged) if merged.kernels else self._separate
        self._max_peak = max(self._max_peak, least.peak)
        excluded: dict[int, FusionLimit] = {}
        for number in range(_MAX_ROUNDS + 1):
            if memory.peak <= self._max_peak:
                return self._fused(made, memory, excluded)
            found = self._early(made, memory) if number < _MAX_ROUNDS else {}
            for position, each in (found or live_buffer_limits(made, memory, self._max_peak)).items():
                # A kernel that exceeds the peak in a second launch is excluded from all launches.
                excluded[position] = replace(each, before_position=position) if position in excluded else each
            limits = {position: each.before_position for position, each in excluded.items()}
            made = self._fuser.of(self._data.steps, limits)
            memory = self._placed(made)
        if memory.peak <= self._max_peak:
            return self._fused(made, memory, excluded)
        note = f"peak without foreach kernels: {least.peak} B"
        name = self._data.fused.graph.name
        self._context.decide(Decision("plan", name, "leave", reasons.REFUSE_PEAK, memory.peak, note))
        return self._fused(merged, least, {})

    def _kernels(self, made: HorizontallyFused) -> dict[str, Kernel]:
        """Return all kernels by name, those of fused launches included."""
        return {**self._data.kernels, **made.kernels}

    def _placed(self, made: HorizontallyFused) -> MemoryPlan:
        """Return the memory plan of the fused steps."""
        return self._data.placed(made.steps, self._kernels(made))

    def _early(self, made: HorizontallyFused, memory: MemoryPlan) -> dict[int, FusionLimit]:
        """Return the limits for the largest early buffers."""
        data = self._data
        symbols = data.fused.graph.symbols
        return early_buffer_limits(
            data.steps, made, memory, data.kernels, data.placements, symbols, self._max_peak
        )

    def _fused(
        self, made: HorizontallyFused, memory: MemoryPlan, excluded: Mapping[int, FusionLimit]
    ) -> UnplacedPlan:
        """Return the plan with these foreach kernels, and record the decisions."""
        for position, each in sorted(excluded.items()):
            self._context.decide(self._refusal(position, each))
        for decision in made.decisions:
            self._context.decide(decision)
        return replace(self._data, kernels=self._kernels(made), steps=made.steps, groups=(), memory=memory)

    def _refusal(self, position: int, excluded: FusionLimit) -> Decision:
        """Return the decision to exclude a launch from all foreach kernels, or from those before a position."""
        note = f"{excluded.live_bytes} B live when fused, {self._separate.peak} B as separate launches"
        if excluded.before_position != position:
            note = f"next to {self._written(excluded.before_position)}: {note}"
        return Decision("plan", self._written(position), "leave", reasons.REFUSE_PEAK, excluded.nbytes, note)

    def _written(self, position: int) -> str:
        """Return the name of the first value that a launch writes."""
        return written_by(self._data.steps[position], self._data.kernels)[0]
