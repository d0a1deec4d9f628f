"""Kernel naming: equal kernels for one kind of device are one kernel under one name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from litz_ir.fused import Decision
from litz_ir.loops import LoopGraph
from litz_ir.passes import PassContext
from litz_ir.plan import Kernel, Launch, Plan, Step
from litz_scheduler import reasons
from litz_scheduler.analysis.canonical import kernel_title
from litz_scheduler.build_plan.forms import Item, Subgraph, UnnamedLaunch, UnnamedSteps, UnplacedPlan


class KernelNames:
    """Names of the kernels of a plan and all its subplans, unique within one compilation.

    Kernels that are equal, for one kind of device, share a name.
    """

    def __init__(self) -> None:
        self._names: dict[tuple[str, Kernel], str] = {}

    def known(self, kind: str, kernel: Kernel) -> str | None:
        """Return the name given to an equal kernel for the same ``kind`` of device, or None."""
        return self._names.get((kind, kernel))

    def add(self, kind: str, kernel: Kernel, called: str) -> str:
        """Return a new name for an unnamed kernel: its number, then ``called``."""
        name = self._names[kind, kernel] = f"k{len(self._names)}_{called}"
        return name


@dataclass(frozen=True, slots=True)
class NameKernels:
    """Name kernels in the order of their launches, after the operations that they fuse."""

    names: KernelNames
    """The names given so far, shared with subplans."""
    subplan: Callable[[LoopGraph], Plan]
    """A function from a subgraph of a higher-order operator to its plan."""
    name: str = "name-kernels"
    ulp: int = 0

    def apply(self, data: UnnamedSteps, context: PassContext) -> UnplacedPlan:
        """Return the steps with each kernel once, and the plans of subgraphs."""
        named = _NamedSteps(self.names, self.subplan, context)
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

    def __init__(
        self, names: KernelNames, subplan: Callable[[LoopGraph], Plan], context: PassContext
    ) -> None:
        self.kernels: dict[str, Kernel] = {}
        self.subplans: list[Plan] = []
        self._names = names
        self._subplan = subplan
        self._context = context

    def steps(self, items: Sequence[Item]) -> list[Step]:
        """Return the steps of items, and record the decisions among them."""
        steps: list[Step] = []
        for item in items:
            match item:
                case UnnamedLaunch():
                    steps.append(Launch(self._name(item), item.buffers, item.symbols, item.origins))
                case Subgraph():
                    self.subplans.append(replace(self._subplan(item.graph), name=item.name))
                case Decision():
                    self._context.decide(item)
                case _:
                    steps.append(item)
        return steps

    def _name(self, launch: UnnamedLaunch) -> str:
        """Return the name of a launch's kernel, and record where an equal kernel is reused."""
        name = self._names.known(launch.kind, launch.kernel)
        if name is None:
            name = self._names.add(launch.kind, launch.kernel, kernel_title(launch.operations))
        else:
            self._context.decide(
                Decision("plan", launch.group, "share", reasons.SHARE_KERNEL, note=f"as {name}")
            )
        if name not in self.kernels:
            self.kernels[name] = replace(launch.kernel, name=name)
        return name
