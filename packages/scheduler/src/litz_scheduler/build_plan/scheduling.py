"""Context of the passes that build a plan: names of kernels and plans, the source graph, plans of subgraphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from litz_ir.errors import PassError
from litz_ir.loops import LoopGraph
from litz_ir.passes import PassContext
from litz_ir.plan import Kernel, Plan


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


class PlanNames:
    """Names of a plan and all its subplans, unique within one compilation."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def unique(self, name: str) -> str:
        """Return ``name``, with a number where another plan has it, and take it."""
        found, count = name, 2
        while found in self._taken:
            found, count = f"{name}_{count}", count + 1
        self._taken.add(found)
        return found


def _no_subplan(graph: LoopGraph) -> Plan:
    raise PassError(
        f"the subgraph {graph.name} has no plan",
        hint="run the pass by litz_scheduler.schedule, which plans subgraphs",
    )


@dataclass(slots=True)
class SchedulingContext(PassContext):
    """Context of the passes that build a plan."""

    source: LoopGraph | None = None
    """The loop graph before scheduling, whose operations are the origins of launches; by default that of the plan."""
    names: KernelNames = field(default_factory=KernelNames)
    """Names of the kernels made so far, shared with subplans."""
    plan_names: PlanNames = field(default_factory=PlanNames)
    """Names of the plan and of the subplans made so far, shared with subplans."""
    subplan: Callable[[LoopGraph], Plan] = _no_subplan
    """Function from a subgraph of a higher-order operator to its plan."""


def scheduling(context: PassContext) -> SchedulingContext:
    """Return the context as that of passes that build a plan; raises ``PassError`` for another one."""
    if isinstance(context, SchedulingContext):
        return context
    raise PassError(
        "passes that build a plan need the source graph and the names of kernels",
        hint="run them by litz_scheduler.schedule, or with a litz_scheduler.SchedulingContext",
    )
