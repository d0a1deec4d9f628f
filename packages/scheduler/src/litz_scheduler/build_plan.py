"""From a fused graph to a plan: kernels, calls, memory and the steps in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from litz_ir.device import CPU, Device
from litz_ir.errors import ScheduleError
from litz_ir.fused.decision import Decision
from litz_ir.fused.group import FusedGraph, Group
from litz_ir.loops.layout import is_dense
from litz_ir.loops.nodes import (
    Argument,
    Assert,
    Axis,
    Call,
    Contraction,
    Extern,
    HostScalar,
    LoopGraph,
    Output,
    Pointwise,
    Ref,
    Region,
    ScalarInput,
    Scatter,
    Sort,
    TensorType,
    Value,
    View,
    index_reads,
)
from litz_ir.loops.rewriter import rename_reads
from litz_ir.passes.base import PassContext
from litz_ir.plan.kernel import Kernel, KernelOrigin
from litz_ir.plan.program import CallStep, Check, Define, Launch, Placement, Plan, RegionStep, Step
from litz_ir.plan.schedule import Schedule
from litz_ir.scalar.expr import Load, loads
from litz_ir.symbols.term import Symbol, symbol
from litz_ir.target.capabilities import Capabilities
from litz_scheduler.canonical import Bound, bind, title
from litz_scheduler.cost.compute import body_cost
from litz_scheduler.cost.traffic import estimate, points, type_bytes
from litz_scheduler.graph import Lineage, alias_type, as_promised, dense_type, output_names, same_strides
from litz_scheduler.kernels import Body, build_body, single
from litz_scheduler.loop_order import Nest, bodies_of
from litz_scheduler.memory.reuse import UNPLACED, place
from litz_scheduler.options import SchedulerOptions
from litz_scheduler.tiling import schedule_nest


def build_plan(
    fused: FusedGraph,
    context: PassContext,
    options: SchedulerOptions,
    subplan: Callable[[LoopGraph], Plan],
    source: LoopGraph,
) -> Plan:
    """Schedule a fused graph for the devices at hand. ``subplan`` plans the branches of control flow; ``source`` is the
    graph as it came, whose operations launches name as their origins."""
    return _PlanBuilder(fused, context, options, subplan, source).build()


class _PlanBuilder:
    def __init__(
        self,
        fused: FusedGraph,
        context: PassContext,
        options: SchedulerOptions,
        subplan: Callable[[LoopGraph], Plan],
        source: LoopGraph,
    ) -> None:
        self.lineage = Lineage(source, fused.graph)
        self.subplan = subplan
        self.graph = fused.graph
        self.groups = fused.groups
        self.context = context
        self.options = options
        self.operations = self.graph.named()
        self.values = self.graph.values()
        self.returned = output_names(self.graph)
        self.readers = Counter(name for operation in self.graph.operations for name in operation.reads)
        self.owned: set[str] = set()
        self.placements: dict[str, Placement] = {}
        self.kernels: dict[Kernel, str] = {}
        self.steps: list[Step] = []
        self.device = self._device()
        self.capabilities = self._capabilities(self.device)

    def _device(self) -> Device:
        values = (*(v for o in self.graph.operations for v in o.results), *self.graph.inputs)
        devices = [value.type.device for value in values if isinstance(value, Value)]
        return next((d for d in devices if d != CPU), CPU)

    def _capabilities(self, device: Device) -> Capabilities:
        for known, capabilities in self.context.capabilities.items():
            if known.kind == device.kind:
                return capabilities
        raise ScheduleError(
            f"no target is given for device {device}",
            hint=f"install a package that offers the {device.kind} target",
        )

    def build(self) -> Plan:
        for value in (*self.graph.inputs, *self.graph.constants):
            if isinstance(value, Value):
                self.placements[value.name] = Placement(value.type)
        self._bind_sizes()
        for group in self.groups:
            self._group(group)
        outputs = tuple(self._output(output) for output in self.graph.outputs)
        named = {name: replace(kernel, name=name) for kernel, name in self.kernels.items()}
        memory = place(self.steps, self.placements, outputs, named, self.graph.symbols, self.context)
        return Plan(
            name=self.graph.name,
            device=self.device,
            capability=self.capabilities.name,
            symbols=self.graph.symbols,
            inputs=self.graph.inputs,
            constants=self.graph.constants,
            buffers=tuple(memory.placements.items()),
            storages=memory.storages,
            kernels=tuple(named.values()),
            steps=memory.steps,
            outputs=outputs,
            peak=memory.peak,
            decisions=tuple(self.context.decisions),
        )

    # --- symbols --------------------------------------------------------------------------------------------

    def _bind_sizes(self) -> None:
        """Symbols that no argument binds are read off the inputs' sizes and strides."""
        bound = {i.symbol for i in self.graph.inputs if isinstance(i, ScalarInput)}
        for value in self.graph.inputs:
            if not isinstance(value, Value):
                continue
            for kind, terms in (("size", value.type.shape), ("stride", value.type.layout.strides)):
                for dim, term in enumerate(terms):
                    if isinstance(term, Symbol) and term.name not in bound:
                        bound.add(term.name)
                        source = ("size" if kind == "size" else "stride", value.name, dim)
                        self.steps.append(Define(term.name, source))  # type: ignore[arg-type]  # a literal

    # --- values ---------------------------------------------------------------------------------------------

    def _type(self, name: str) -> TensorType:
        placement = self.placements.get(name)
        if placement is None:
            raise ScheduleError(
                "a value is read before anything defines it", node=name, hint="verify the fused graph"
            )
        return placement.type

    def _output(self, output: Output) -> Output:
        if isinstance(output, Ref):
            self._type(output.name)
        return output

    def _place_result(self, value: Value) -> None:
        """Memory for a value that a kernel writes: its own, or that of the version it replaces."""
        if value.replaces is not None:
            self.placements[value.name] = Placement(self._type(value.replaces), base=value.replaces)
        elif value.name not in self.placements:
            self.placements[value.name] = Placement(dense_type(value.type), storage=UNPLACED)
            self.owned.add(value.name)

    def _memory(self, name: str) -> str:
        """The oldest buffer with the same elements in the same places: a kernel that writes a new version and reads the
        old one has one parameter for both."""
        while True:
            placement = self.placements[name]
            base = None if placement.base is None else self.placements[placement.base]
            if (
                base is None
                or base.type.layout != placement.type.layout
                or base.type.dtype != placement.type.dtype
            ):
                return name
            assert placement.base is not None
            name = placement.base

    # --- groups ---------------------------------------------------------------------------------------------

    def _group(self, group: Group) -> None:
        operation = self.operations[group.members[0].operation]
        match operation:
            case View():
                self._view(operation)
            case Call():
                self._call(operation)
            case Sort():
                self._sort(operation)
            case Assert():
                self.steps.append(Check(operation.condition, operation.message, operation.origin))
            case HostScalar():
                self.steps.append(Define(operation.symbol, operation.body))
            case Region():
                self._region(operation)
            case Scatter():
                self._scatter(group, operation)
            case _:
                self._kernel(group)

    def _view(self, view: View) -> None:
        type_ = alias_type(view, self._type(view.base), self.graph.symbols)
        if type_ is None or not as_promised(view.results[0].type, type_.layout):
            self._copy(view.results[0], view.axes, Load(view.base, view.index, view.results[0].type.dtype))
            self.context.decide(
                Decision("plan", view.name, "copy", "copy.layout", type_bytes(view.results[0].type))
            )
            return
        self.placements[view.name] = Placement(type_, base=view.base)
        self.context.decide(Decision("plan", view.name, "alias", "alias.view"))

    def _copy(self, value: Value, axes: tuple[Axis, ...], body: Load) -> None:
        """A kernel of its own that fills ``value`` from ``body``."""
        operation = Pointwise(results=(value,), axes=axes, bodies=(body,))
        self.operations[value.name] = operation
        self._kernel(single(operation))

    def _call(self, call: Call) -> None:
        call = self._with_layouts(call)
        results = tuple(value.name for value in call.results if value.name not in call.silent)
        reason = (
            call.reason
            if isinstance(call, Extern)
            else "realise.extern"
            if isinstance(call, Contraction)
            else ""
        )
        unpack = call.unpack or len(results) > 1
        attributes = call.attributes
        self.steps.append(
            CallStep(call.target, call.arguments, attributes, results, unpack, reason, call.origin)
        )
        bases = {result: read for read, result in call.mutates} | dict(call.aliases)
        for value in call.results:
            base = bases.get(value.name)
            self.placements[value.name] = Placement(value.type, base=base)

    def _with_layouts(self, call: Call) -> Call:
        """The call reading copies of what it does not take in the layout that it has. What it overwrites stays."""
        overwritten = {read for read, _ in call.mutates}
        copies: dict[str, str] = {}
        for name in call.reads:
            value = self.values.get(name)
            if call.need == "any" or value is None or name in overwritten:
                continue
            layout = self._type(name).layout
            fits = (
                is_dense(value.type.shape, layout)
                if call.need == "dense"
                else same_strides(value.type, layout)
            )
            if not fits:
                copy = Value(f"{name}.for.{call.name}", dense_type(value.type))
                axes = tuple(Axis(f"i{k}", size) for k, size in enumerate(value.type.shape))
                index = tuple(symbol(axis.name) for axis in axes)
                self._copy(copy, axes, Load(name, index, value.type.dtype))
                self.context.decide(Decision("plan", name, "copy", "copy.layout", type_bytes(value.type)))
                copies[name] = copy.name
        renamed = rename_reads(call, copies)
        assert isinstance(renamed, Call)
        return renamed

    def _sort(self, sort: Sort) -> None:
        arguments: tuple[Argument, ...] = (Ref(sort.source), sort.dimension, sort.descending, sort.stable)
        results = tuple(value.name for value in sort.results)
        self.steps.append(CallStep("sort", arguments, (), results, True, "realise.extern", sort.origin))
        self.placements.update((value.name, Placement(value.type)) for value in sort.results)

    def _region(self, region: Region) -> None:
        plans = tuple(self.subplan(subgraph) for subgraph in region.subgraphs)
        results = tuple(value.name for value in region.results)
        self.steps.append(RegionStep(region.kind, plans, region.arguments, results, region.origin))
        self.placements.update((value.name, Placement(value.type)) for value in region.results)

    def _scatter(self, group: Group, scatter: Scatter) -> None:
        value = scatter.results[0]
        if self._dies_here(scatter):
            self.placements[value.name] = Placement(self._type(scatter.base), base=scatter.base)
            self.owned.add(value.name)
            self.context.decide(
                Decision("plan", value.name, "place", "memory.inplace", type_bytes(value.type))
            )
        else:
            axes = tuple(Axis(f"i{k}", size) for k, size in enumerate(value.type.shape))
            index = tuple(symbol(axis.name) for axis in axes)
            self._copy(value, axes, Load(scatter.base, index, value.type.dtype))
        self.operations[value.name] = scatter
        self._kernel(group)

    def _dies_here(self, scatter: Scatter) -> bool:
        """True when nobody else wants the base, which a kernel of this plan stored, and it is not read on the way."""
        name = scatter.base
        if name not in self.owned or name in self.returned or self.readers[name] != 1:
            return False
        read = (*(load.buffer for load in loads(scatter.body)), *index_reads(scatter.index))
        return name not in read

    # --- kernels --------------------------------------------------------------------------------------------

    def _kernel(self, group: Group) -> None:
        stored = {name for name, fate in group.fates if fate == "store"}
        for member in group.members:
            for value in self.operations[member.operation].results:
                if value.name in stored:
                    self._place_result(value)
        device = self.operations[group.members[0].operation].results[0].type.device
        capabilities = self._capabilities(device)
        body = build_body(group, self.operations, self._type, capabilities, self.graph.symbols)
        bound = bind(
            body,
            lambda nest: self._schedule(nest, body, group, capabilities),
            self._type,
            self._memory,
            self.graph.symbols,
        )
        name = self._name(bound, group)
        symbols = tuple(symbol(s) for s in bound.symbols)
        fused = self.lineage.of(member.operation for member in group.members)
        origins = tuple(KernelOrigin(each, operation.origin) for each, operation in fused)
        self.steps.append(Launch(name, bound.buffers, symbols, origins))

    def _schedule(self, nest: Nest, body: Body, group: Group, capabilities: Capabilities) -> Schedule:
        traffic = sum(
            estimate(type_bytes(self._type(name)), self.graph.symbols)
            for name in (*group.reads, *group.writes)
        )
        work = 0
        for phase in nest.phases:
            spanned = estimate(points((*nest.outer, *phase.axes)), self.graph.symbols)
            work += spanned * body_cost(*(b for s in phase.statements for b in bodies_of(s)))
        return schedule_nest(
            nest, traffic, work, capabilities, self.graph.symbols, self.options, bool(body.locals)
        )

    def _name(self, bound: Bound, group: Group) -> str:
        known = self.kernels.get(bound.kernel)
        if known is not None:
            self.context.decide(Decision("plan", group.name, "share", "share.kernel", note=f"as {known}"))
            return known
        name = f"k{len(self.kernels)}_{title(self.operations[m.operation] for m in group.members)}"
        self.kernels[bound.kernel] = name
        return name
