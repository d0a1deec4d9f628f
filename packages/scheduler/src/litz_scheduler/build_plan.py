"""From a fused graph to a plan: kernels, calls, memory and the steps in order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace

from litz_ir.device import CPU, Device
from litz_ir.errors import ScheduleError
from litz_ir.fused.decision import Decision
from litz_ir.fused.group import Fate, FusedGraph, Group, Member
from litz_ir.loops.layout import contiguous, is_dense
from litz_ir.loops.nodes import (
    Argument,
    Assert,
    Axis,
    Call,
    Contraction,
    Extern,
    HostScalar,
    LoopGraph,
    Operation,
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
)  # fmt: skip
from litz_ir.passes.base import PassContext
from litz_ir.plan.kernel import Kernel, KernelOrigin
from litz_ir.plan.program import CallStep, Check, Define, Launch, Placement, Plan, RegionStep, Step
from litz_ir.plan.schedule import Schedule
from litz_ir.scalar.expr import Load, substitute_expr
from litz_ir.symbols.term import Symbol, symbol
from litz_ir.target.capabilities import Capabilities
from litz_scheduler.canonical import Bound, bind
from litz_scheduler.cost.compute import body_cost
from litz_scheduler.cost.traffic import estimate, points, type_bytes
from litz_scheduler.domain import collapsed_axes
from litz_scheduler.graph import alias_type
from litz_scheduler.kernels import Body, build_body
from litz_scheduler.loop_order import Nest, bodies_of
from litz_scheduler.memory.reuse import UNPLACED, place
from litz_scheduler.options import SchedulerOptions
from litz_scheduler.tiling import schedule_nest


def build_plan(
    fused: FusedGraph, context: PassContext, options: SchedulerOptions, subplan: Callable[[LoopGraph], Plan]
) -> Plan:
    """Schedule a fused graph for the devices at hand; ``subplan`` plans the branches of control flow."""
    return _PlanBuilder(fused, context, options, subplan).build()


class _PlanBuilder:
    def __init__(
        self, fused: FusedGraph, context: PassContext, options: SchedulerOptions, subplan: Callable[[LoopGraph], Plan]
    ) -> None:
        self.subplan = subplan
        self.graph = fused.graph
        self.groups = fused.groups
        self.context = context
        self.options = options
        self.operations = self.graph.named()
        self.placements: dict[str, Placement] = {}
        self.kernels: dict[Kernel, str] = {}
        self.steps: list[Step] = []
        self.device = self._device()
        self.capabilities = self._capabilities(self.device)

    def _device(self) -> Device:
        devices = [v.type.device for o in self.graph.operations for v in o.results]
        return next((d for d in devices if d != CPU), CPU)

    def _capabilities(self, device: Device) -> Capabilities:
        for known, capabilities in self.context.capabilities.items():
            if known.kind == device.kind:
                return capabilities
        raise ScheduleError(
            f"no target is given for device {device}", hint=f"install a package that offers the {device.kind} target"
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

    # --- symbols -------------------------------------------------------------------------------------------------------

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

    # --- values --------------------------------------------------------------------------------------------------------

    def _type(self, name: str) -> TensorType:
        placement = self.placements.get(name)
        if placement is None:
            raise ScheduleError("a value is read before anything defines it", node=name, hint="verify the fused graph")
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
            self.placements[value.name] = Placement(_dense(value.type), storage=UNPLACED)

    # --- groups --------------------------------------------------------------------------------------------------------

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
        type_ = alias_type(view, self._type(view.base))
        if type_ is None:
            self._copy(view.results[0], view.axes, Load(view.base, view.index, view.results[0].type.dtype))
            self.context.decide(Decision("plan", view.name, "copy", "copy.layout", type_bytes(view.results[0].type)))
            return
        self.placements[view.name] = Placement(type_, base=view.base)
        self.context.decide(Decision("plan", view.name, "alias", "alias.view"))

    def _copy(self, value: Value, axes: tuple[Axis, ...], body: Load) -> None:
        """A kernel of its own that fills ``value`` from ``body``."""
        operation = Pointwise(results=(value,), axes=axes, bodies=(body,))
        self.operations[value.name] = operation
        self._kernel(single(operation))

    def _call(self, call: Call) -> None:
        results = tuple(value.name for value in call.results if value.name not in call.silent)
        reason = call.reason if isinstance(call, Extern) else "realise.extern" if isinstance(call, Contraction) else ""
        unpack = call.unpack or len(results) > 1
        attributes = call.attributes
        self.steps.append(CallStep(call.target, call.arguments, attributes, results, unpack, reason, call.origin))
        bases = {result: read for read, result in call.mutates} | dict(call.aliases)
        for value in call.results:
            base = bases.get(value.name)
            self.placements[value.name] = Placement(value.type, base=base)

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
        if self._dies_here(scatter.base, scatter):
            self.placements[value.name] = Placement(self._type(scatter.base), base=scatter.base)
        else:
            axes = tuple(Axis(f"i{k}", size) for k, size in enumerate(value.type.shape))
            index = tuple(symbol(axis.name) for axis in axes)
            self._copy(value, axes, Load(scatter.base, index, value.type.dtype))
        self.operations[value.name] = scatter
        self._kernel(group)

    def _dies_here(self, name: str, reader: Operation) -> bool:
        """True when only ``reader`` reads a value that a kernel of this plan stored."""
        placement = self.placements.get(name)
        if placement is None or placement.storage is None or Ref(name) in self.graph.outputs:
            return False
        readers = [o for o in self.graph.operations if name in o.reads]
        return len(readers) == 1 and readers[0] is reader

    # --- kernels -------------------------------------------------------------------------------------------------------

    def _kernel(self, group: Group) -> None:
        stored = {name for name, fate in group.fates if fate == "store"}
        for member in group.members:
            for value in self.operations[member.operation].results:
                if value.name in stored:
                    self._place_result(value)
        device = self.operations[group.members[0].operation].results[0].type.device
        capabilities = self._capabilities(device)
        body = build_body(group, self.operations, self._type, capabilities, self.graph.symbols)
        bound = bind(body, lambda nest: self._schedule(nest, body, group, capabilities), self._type, self.graph.symbols)
        name = self._name(bound, group)
        symbols = tuple(symbol(s) for s in bound.symbols)
        origins = tuple(
            KernelOrigin(m.operation, self.operations[m.operation].origin) for m in group.members
        )
        self.steps.append(Launch(name, bound.buffers, symbols, origins))

    def _schedule(self, nest: Nest, body: Body, group: Group, capabilities: Capabilities) -> Schedule:
        traffic = sum(
            estimate(type_bytes(self._type(name)), self.graph.symbols) for name in (*group.reads, *group.writes)
        )
        work = 0
        for phase in nest.phases:
            spanned = estimate(points((*nest.outer, *phase.axes)), self.graph.symbols)
            work += spanned * body_cost(*(b for s in phase.statements for b in bodies_of(s)))
        return schedule_nest(nest, traffic, work, capabilities, self.graph.symbols, self.options, bool(body.locals))

    def _name(self, bound: Bound, group: Group) -> str:
        known = self.kernels.get(bound.kernel)
        if known is not None:
            self.context.decide(Decision("plan", group.name, "share", "share.kernel", note=f"as {known}"))
            return known
        name = f"k{len(self.kernels)}_{_title(self.operations[m.operation] for m in group.members)}"
        self.kernels[bound.kernel] = name
        return name


def single(operation: Operation) -> Group:
    """A group of one pointwise operation whose results are stored."""
    assert isinstance(operation, Pointwise)
    outer = tuple(axis for axis in operation.axes if axis.size != 1)
    own = collapsed_axes(operation.axes)
    index = tuple(own.get(axis.name, symbol(axis.name)) for axis in operation.axes)
    bodies = tuple(substitute_expr(body, own) for body in operation.bodies)
    writes = tuple(value.name for value in operation.results)
    fates: tuple[tuple[str, Fate], ...] = tuple((name, "store") for name in writes)
    member = Member(operation.name, 0, False, index, bodies)
    return Group(operation.name, outer, (), (member,), fates, operation.reads, writes)


def _dense(type_: TensorType) -> TensorType:
    """The type with a layout that its memory can have: eager's strides when they leave no gap, else row-major."""
    if is_dense(type_.shape, type_.layout):
        return type_
    return replace(type_, layout=contiguous(type_.shape, fixed=type_.layout.fixed))


TITLE_WORDS, TITLE_LENGTH = 6, 60


def _title(operations: Iterable[Operation]) -> str:
    """A readable name: what was fused, in order, without repeats."""
    words: list[str] = []
    for operation in operations:
        called = operation.origin.operation.split(".")
        word = called[1] if len(called) > 1 else re.sub(r"_?\d+$", "", operation.name)
        word = re.sub(r"\W+", "_", word).strip("_")
        if word and word not in words:
            words.append(word)
    return "_".join(words[:TITLE_WORDS])[:TITLE_LENGTH].strip("_") or "kernel"
