"""Horizontal fusion of launches: independent loops that a GPU runs side by side become subkernels of a foreach kernel.

They may hold little more memory at once than the launches do alone, so loops that would hold too much stay apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from litz_ir.fused import Decision
from litz_ir.passes import PassContext
from litz_ir.plan import Kernel, written_by
from litz_scheduler.build_plan.forms import UnplacedPlan
from litz_scheduler.build_plan.fusion_limits import FusionLimit, early_buffer_limits, live_buffer_limits
from litz_scheduler.build_plan.horizontal_fusion import HorizontalFuser, HorizontallyFused
from litz_scheduler.build_plan.kernel_names import KernelNames
from litz_scheduler.memory.planner import MemoryPlan
from litz_scheduler.options import SchedulerOptions

MAX_ROUNDS = 2
"""How often loops that hold too much at once are taken out of foreach kernels, the largest first, before all are that
run while it is held."""


@dataclass(frozen=True, slots=True)
class FuseLaunches:
    """Make foreach kernels of launches where that adds at most ``horizontal_fusion_peak`` bytes to the modelled peak;
    ``names``
    knows the kernels made before."""

    options: SchedulerOptions
    names: KernelNames
    name: str = "fuse-launches"
    ulp: int = 0

    def apply(self, data: UnplacedPlan, context: PassContext) -> UnplacedPlan:
        """The steps with foreach kernels in place of launches, and their memory; the same where there are none."""
        symbols = data.fused.graph.symbols
        packs = HorizontalFuser(
            data.kernels, data.placements, symbols, context.machine, self.options, self.names
        )
        made = packs.of(data.steps)
        if not made.kernels:
            return data
        return _Fusion(data, packs, self.options.horizontal_fusion_peak, context).run(made)


class _Fusion:
    """Foreach kernels that may hold ``more`` bytes at once than the launches do alone."""

    def __init__(self, data: UnplacedPlan, packs: HorizontalFuser, more: int, context: PassContext) -> None:
        self._data = data
        self._packs = packs
        self._alone = data.modelled()
        self._most = self._alone.peak + more
        self._context = context

    def run(self, made: HorizontallyFused) -> UnplacedPlan:
        """All that can be fused, where that holds little more than the launches alone. Else loops stay apart from what
        they would hold too much beside; small ones over the same points may hold what they would as one kernel, and
        where nothing else helps they are all that share launches."""
        memory = self._placed(made)
        if memory.peak <= self._most:
            return self._fused(made, memory, {})
        every = range(len(self._data.steps))
        merged = self._packs.of(self._data.steps, {position: position for position in every})
        least = self._placed(merged) if merged.kernels else self._alone
        self._most = max(self._most, least.peak)
        apart: dict[int, FusionLimit] = {}
        for number in range(MAX_ROUNDS + 1):
            if memory.peak <= self._most:
                return self._fused(made, memory, apart)
            found = self._early(made, memory) if number < MAX_ROUNDS else {}
            for position, each in (found or live_buffer_limits(made, memory, self._most)).items():
                # What holds too much in a second place is of the kind that does so everywhere.
                apart[position] = replace(each, before_position=position) if position in apart else each
            made = self._packs.of(
                self._data.steps, {position: each.before_position for position, each in apart.items()}
            )
            memory = self._placed(made)
        if memory.peak <= self._most:
            return self._fused(made, memory, apart)
        note = f"{least.peak} B without them"
        name = self._data.fused.graph.name
        self._context.decide(Decision("plan", name, "leave", "refuse.peak", memory.peak, note))
        return self._fused(merged, least, {})

    def _kernels(self, made: HorizontallyFused) -> dict[str, Kernel]:
        return {**self._data.kernels, **made.kernels}

    def _placed(self, made: HorizontallyFused) -> MemoryPlan:
        return self._data.placed(made.steps, self._kernels(made))

    def _early(self, made: HorizontallyFused, memory: MemoryPlan) -> dict[int, FusionLimit]:
        data = self._data
        symbols = data.fused.graph.symbols
        return early_buffer_limits(
            data.steps, made, memory, data.kernels, data.placements, symbols, self._most
        )

    def _fused(
        self, made: HorizontallyFused, memory: MemoryPlan, apart: Mapping[int, FusionLimit]
    ) -> UnplacedPlan:
        """The plan with these foreach kernels; what was decided is recorded."""
        for position, each in sorted(apart.items()):
            self._context.decide(self._refusal(position, each))
        for decision in made.decisions:
            self._context.decide(decision)
        return replace(self._data, kernels=self._kernels(made), steps=made.steps, groups=(), memory=memory)

    def _refusal(self, position: int, apart: FusionLimit) -> Decision:
        """Why a launch is no loop of a foreach kernel, or of none before others."""
        note = f"{apart.live_bytes} B at once, {self._alone.peak} B without packs"
        if apart.before_position != position:
            note = f"beside {self._written(apart.before_position)}: {note}"
        return Decision("plan", self._written(position), "leave", "refuse.peak", apart.nbytes, note)

    def _written(self, position: int) -> str:
        """The first value that a launch writes."""
        return written_by(self._data.steps[position], self._data.kernels)[0]
