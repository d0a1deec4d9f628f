"""Kernel naming: equal kernels for one kind of device are one kernel under one name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from litz_ir.fused import Decision
from litz_ir.passes import PassContext
from litz_ir.plan import Kernel, Launch, Plan, Step
from litz_scheduler import reasons
from litz_scheduler.analysis.canonical import kernel_title
from litz_scheduler.build_plan.forms import Item, Subgraph, UnnamedLaunch, UnnamedSteps, UnplacedPlan
from litz_scheduler.build_plan.scheduling import SchedulingContext, scheduling


@dataclass(frozen=True, slots=True)
class NameKernels:
    """Name kernels in the order of their launches, after the operations that they fuse."""

    name: str = "name-kernels"
    ulp: int = 0

    def apply(self, data: UnnamedSteps, context: PassContext) -> UnplacedPlan:
        """Return the steps with each kernel once, and the plans of subgraphs."""
        named = _NamedSteps(scheduling(context))
        first = named.steps(data.first)
        groups: list[range] = []
        steps = [*first]
        for items in data.groups:
            steps += named.steps(items)
            groups.append(range(groups[-1].stop if groups else len(first), len(steps)))
        devices = {value.type.device for value in data.fused.graph.values().values()}
        known = (context.machine(device) for device in devices)
        tiled = frozenset(each.device.kind for each in known if each is not None and each.max_tile_elements)
        return UnplacedPlan(
            data.fused, data.device, data.machine, tiled, data.placements, named.kernels, tuple(named.subplans),
            tuple(steps), tuple(groups),
        )  # fmt: skip


class _NamedSteps:
    """Named kernels and subplans, collected while items become steps."""

    def __init__(self, context: SchedulingContext) -> None:
        self.kernels: dict[str, Kernel] = {}
        self.subplans: list[Plan] = []
        self._context = context

    def steps(self, items: Sequence[Item]) -> list[Step]:
        """Return the steps of items, and record the decisions among them."""
        steps: list[Step] = []
        for item in items:
            match item:
                case UnnamedLaunch():
                    steps.append(Launch(self._name(item), item.buffers, item.symbols, item.origins))
                case Subgraph():
                    self.subplans.append(replace(self._context.subplan(item.graph), name=item.name))
                case Decision():
                    self._context.decide(item)
                case _:
                    steps.append(item)
        return steps

    def _name(self, launch: UnnamedLaunch) -> str:
        """Return the name of a launch's kernel, and record where an equal kernel is reused."""
        name = self._context.names.known(launch.kind, launch.kernel)
        if name is None:
            name = self._context.names.add(launch.kind, launch.kernel, kernel_title(launch.operations))
        else:
            self._context.decide(
                Decision("plan", launch.group, "share", reasons.SHARE_KERNEL, note=f"as {name}")
            )
        if name not in self.kernels:
            self.kernels[name] = replace(launch.kernel, name=name)
        return name
