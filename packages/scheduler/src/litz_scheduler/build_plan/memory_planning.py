"""Memory planning: a plan with the steps that allocate and free memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from litz_ir.passes import PassContext
from litz_ir.plan import Launch, Plan
from litz_scheduler.build_plan.forms import UnplacedPlan


@dataclass(frozen=True, slots=True)
class PlanMemory:
    """Assign memory to all buffers of a plan, in the layout of least modelled peak."""

    name: str = "plan-memory"
    ulp: int = 0

    def apply(self, data: UnplacedPlan, context: PassContext) -> Plan:
        """Return the finished plan, with all decisions of the passes before."""
        graph = data.fused.graph
        memory = (
            data.modelled()
            if context.fuel is None
            else data.placed(data.steps, data.kernels, partial(context.allows, "memory"))
        )
        launched = {step.kernel for step in memory.steps if isinstance(step, Launch)}
        for decision in memory.decisions:
            context.decide(decision)
        return Plan(
            name=graph.name,
            device=data.device,
            capability=data.machine.name,
            symbols=graph.symbols,
            inputs=graph.inputs,
            constants=graph.constants,
            buffers=tuple(memory.placements.items()),
            storages=memory.storages,
            kernels=tuple(each for name, each in data.kernels.items() if name in launched),
            steps=memory.steps,
            outputs=graph.outputs,
            peak=memory.peak,
            decisions=tuple(context.decisions),
            subplans=data.subplans,
            donated=memory.donated,
        )
