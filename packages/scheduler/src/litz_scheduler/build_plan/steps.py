"""Steps of fusion groups, in order: launches, calls, higher-order operators and checks."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from litz_ir.device import CPU, Device
from litz_ir.fused import Decision, FusedGraph, Group
from litz_ir.loops import (
    Assert,
    Call,
    HostScalar,
    LoopGraph,
    ObjectInput,
    Ref,
    Region,
    Scatter,
    Sort,
    Value,
    View,
)
from litz_ir.passes import PassContext
from litz_ir.plan import CheckStep, DefineStep
from litz_scheduler import reasons
from litz_scheduler.analysis.cost import type_bytes
from litz_scheduler.analysis.graph_facts import InlinedOperations, viewed
from litz_scheduler.build_plan.calls import Calls
from litz_scheduler.build_plan.forms import Item, UnnamedSteps
from litz_scheduler.build_plan.launches import LaunchBuilder, machine_of
from litz_scheduler.build_plan.scheduling import scheduling
from litz_scheduler.build_plan.sizes import Sizes
from litz_scheduler.build_plan.values import ValuePlacements
from litz_scheduler.options import SchedulerOptions


@dataclass(frozen=True, slots=True)
class BuildSteps:
    """Build the steps of each group and its kernels, for the devices given."""

    options: SchedulerOptions
    name: str = "build-steps"
    ulp: int = 64

    def apply(self, data: FusedGraph, context: PassContext) -> UnnamedSteps:
        """Return the steps of the groups in order; raises ``ScheduleError``."""
        source = scheduling(context).source or data.graph
        return _Builder(data, context, self.options, source).steps()


class _Builder:
    """Build the items of one fused graph, group by group."""

    def __init__(
        self, fused: FusedGraph, context: PassContext, options: SchedulerOptions, source: LoopGraph
    ) -> None:
        graph = fused.graph
        self.fused = fused
        self.context = context
        self.items: list[Item] = []
        self.operations = graph.named()
        self.values = ValuePlacements(graph)
        self.sizes = Sizes(graph.inputs)
        lineage = InlinedOperations(source, graph)
        self.launches = LaunchBuilder(
            graph.symbols, self.operations, self.values, lineage, context, options, self.items
        )
        names = scheduling(context).plan_names
        self.calls = Calls(graph, self.values, self.launches, self.sizes, self.items, names)

    def steps(self) -> UnnamedSteps:
        """Return the steps of all groups."""
        device = _device(self.fused.graph)
        machine = machine_of(device, self.context)
        for value in self.fused.graph.inputs:
            if isinstance(value, Value):
                self.items += self.sizes.of(value)
        starts = [len(self.items)]
        for group in self.fused.groups:
            self._add(group)
            starts.append(len(self.items))
        self._check_outputs()
        groups = tuple(tuple(self.items[start:end]) for start, end in pairwise(starts))
        return UnnamedSteps(
            self.fused, device, machine, self.values.placements, tuple(self.items[: starts[0]]), groups
        )

    def _check_outputs(self) -> None:
        """Raise ``ScheduleError`` for an output that nothing defines."""
        graph = self.fused.graph
        objects = {each.name for each in graph.inputs if isinstance(each, ObjectInput)}
        for output in graph.outputs:
            if isinstance(output, Ref) and output.name not in objects:
                self.values.type(output.name)

    def _add(self, group: Group) -> None:
        """Append the items of a group."""
        operation = self.operations[group.members[0].operation]
        match operation:
            case View():
                self._view(operation)
            case Call():
                self.calls.call(operation)
            case Sort():
                self.calls.sort(operation)
            case Assert():
                self.items.append(
                    CheckStep(operation.condition, operation.message, operation.error, operation.origin)
                )
            case HostScalar():
                self.sizes.bound.add(operation.symbol)
                self.items.append(DefineStep(operation.symbol, operation.body))
            case Region():
                self.calls.region(operation)
            case Scatter():
                self._scatter(group, operation)
            case _:
                for member in group.members:
                    fused = self.operations[member.operation]
                    if isinstance(fused, Scatter):
                        self._allot(fused)
                self.launches.launch(group)

    def _view(self, view: View) -> None:
        """Alias a view to its base where strides can express it, else copy it."""
        value = view.results[0]
        if self.values.alias(view):
            self.items.append(Decision("plan", view.name, "alias", reasons.ALIAS_VIEW))
            return
        self.launches.fill(value, view.axes, viewed(view, self.values.type(view.base)))
        self.items.append(Decision("plan", view.name, "copy", reasons.COPY_LAYOUT, type_bytes(value.type)))

    def _scatter(self, group: Group, scatter: Scatter) -> None:
        """Scatter into the memory that ``_allot`` gives it."""
        self._allot(scatter)
        self.launches.launch(group)

    def _allot(self, scatter: Scatter) -> None:
        """Put a scatter in the base's own memory where nothing else reads it, else in a copy."""
        value = scatter.results[0]
        if self.values.reuse_base(scatter):
            nbytes = type_bytes(value.type)
            self.items.append(Decision("plan", value.name, "allocate", reasons.MEMORY_INPLACE, nbytes))
        else:
            self.launches.copy(scatter.base, value)
        self.operations[value.name] = scatter


def _device(graph: LoopGraph) -> Device:
    """Return the first GPU that a value is on, else the CPU."""
    devices = {value.type.device for value in graph.values().values()} - {CPU}
    return min(devices, key=lambda each: (each.kind, each.index), default=CPU)
