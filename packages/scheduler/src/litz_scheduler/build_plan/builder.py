"""Groups as steps of a plan: kernels, calls, control flow and checks, in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from litz_ir.device import CPU, Device
from litz_ir.errors import ScheduleError
from litz_ir.fused import Decision, FusedGraph, Group
from litz_ir.loops import (
    Assert,
    Axis,
    Call,
    ComplexValue,
    Contraction,
    Extern,
    HostScalar,
    LoopGraph,
    OpaqueInput,
    Pointwise,
    Ref,
    Region,
    ScalarInput,
    Scatter,
    Sort,
    Value,
    View,
    is_dense,
    rename_reads,
)
from litz_ir.passes import PassContext
from litz_ir.plan import CallStep, Check, Define, Launch, Measure, Plan, RegionStep, Step
from litz_ir.scalar import Expr, Index, Load
from litz_ir.symbols import (
    Size,
    Symbol,
    add,
    coefficient,
    floordiv,
    free_symbols,
    mul,
    substitute,
    symbol,
)
from litz_ir.target import Capabilities
from litz_scheduler.build_plan.arrange import Surroundings, arrange, blocks_of
from litz_scheduler.build_plan.launches import KernelNames, Launches
from litz_scheduler.build_plan.packs import Packs
from litz_scheduler.build_plan.values import Values
from litz_scheduler.cost import type_bytes
from litz_scheduler.graph import Lineage, dense_type, output_names, overwritten_names, same_strides, viewed
from litz_scheduler.kernels import single
from litz_scheduler.options import SchedulerOptions


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """Schedule a fused graph for the devices at hand.

    ``subplan`` plans the branches of control flow; ``source`` is the graph as it came, whose operations launches name
    as their origins; ``names`` knows the kernels made before.
    """

    options: SchedulerOptions
    subplan: Callable[[LoopGraph], Plan]
    source: LoopGraph
    names: KernelNames
    name: str = "plan"
    ulp: int = 64

    def apply(self, data: FusedGraph, context: PassContext) -> Plan:
        """The plan of the groups in order."""
        builder = _Builder(data, context, self.options, self.subplan, self.source, self.names)
        builder.define_sizes()
        for group in data.groups:
            builder.add(group)
        return builder.finish()


class _Builder:
    def __init__(
        self,
        fused: FusedGraph,
        context: PassContext,
        options: SchedulerOptions,
        subplan: Callable[[LoopGraph], Plan],
        source: LoopGraph,
        names: KernelNames,
    ) -> None:
        self.graph = fused.graph
        self.context = context
        self.options = options
        self.names = names
        self.operations = self.graph.named()
        self.logical = self.graph.values()
        self.used = (output_names(self.graph) | overwritten_names(self.graph)).union(
            *(each.reads for each in self.graph.operations)
        )
        self.values = Values(self.graph)
        self.launches = Launches(
            self.graph, self.values, Lineage(source, self.graph), context, options, names
        )
        self.steps: list[Step] = []
        self.starts: list[int] = []
        self.fused = fused
        self.subplans = _Subplans(subplan)
        self.bound = {i.symbol or i.name for i in self.graph.inputs if isinstance(i, ScalarInput)}
        self.device = self._device()
        self.capabilities = self._capabilities(self.device)

    def _device(self) -> Device:
        """The first GPU that a value is on, else the CPU."""
        devices = {value.type.device for value in self.logical.values()} - {CPU}
        return min(devices, key=lambda each: (each.kind, each.index), default=CPU)

    def _capabilities(self, device: Device) -> Capabilities:
        known = self.context.machine(device)
        if known is None:
            raise ScheduleError(
                f"no target is given for device {device}",
                hint=f"install a package that offers the {device.kind} target",
            )
        return known

    def _tiled(self) -> frozenset[str]:
        """The kinds of devices of this graph whose programs hold tiles."""
        devices = {value.type.device for value in self.logical.values()}
        known = (self.context.machine(device) for device in devices)
        return frozenset(each.device.kind for each in known if each is not None and each.block_limit)

    def finish(self) -> Plan:
        """The plan of the steps so far, with memory taken and given back between them."""
        graph = self.graph
        objects = {each.name for each in graph.inputs if isinstance(each, OpaqueInput)}
        for output in graph.outputs:
            if isinstance(output, Ref) and output.name not in objects:
                self.values.type(output.name)
        kernels = self.launches.kernels()
        placements = self.values.placements
        made = arrange(
            blocks_of(self.fused, self.steps, self.starts, placements),
            Surroundings(
                graph.name, placements, graph.outputs, graph.donated, kernels, graph.symbols,
                self.subplans.made, self.capabilities.threads, self._tiled(),
            ),
            Packs(kernels, placements, graph.symbols, self.context.machine, self.options, self.names),
            self.options.beside_peak,
        )  # fmt: skip
        memory = made.memory
        launched = {step.kernel for step in memory.steps if isinstance(step, Launch)}
        for decision in made.decisions:
            self.context.decide(decision)
        return Plan(
            name=graph.name,
            device=self.device,
            capability=self.capabilities.name,
            symbols=graph.symbols,
            inputs=graph.inputs,
            constants=graph.constants,
            buffers=tuple(memory.placements.items()),
            storages=memory.storages,
            kernels=tuple(each for name, each in made.kernels.items() if name in launched),
            steps=memory.steps,
            outputs=graph.outputs,
            peak=memory.peak,
            decisions=tuple(self.context.decisions),
            subplans=self.subplans.made,
            donated=memory.donated,
        )

    def define_sizes(self) -> None:
        """Read the symbols that no argument binds off the inputs' sizes and strides."""
        for value in self.graph.inputs:
            if isinstance(value, Value):
                self._define_sizes_of(value)

    def _define_sizes_of(self, value: Value) -> None:
        """Define the symbols that the sizes and strides of ``value``, which came from outside, settle."""
        for dim, term in enumerate(value.type.shape):
            self._settle(term, ("size", value.name, dim))
        for dim, term in enumerate(value.type.layout.strides):
            self._settle(term, ("stride", value.name, dim))

    def _settle(self, term: Size, source: Measure) -> None:
        """Define the one unknown of ``term``, which is what ``source`` measures; a linear term is solved for it."""
        unknown = [name for name in free_symbols(term) if name not in self.bound]
        if len(unknown) != 1:
            return
        name = unknown[0]
        if isinstance(term, Symbol):
            self.steps.append(Define(name, source))
        else:
            slope = coefficient(term, name)
            if not isinstance(slope, int) or slope == 0:
                return
            measured = f"{name}_{source[0]}"
            self.steps.append(Define(measured, source))
            rest = substitute(term, {name: 0})
            solved = floordiv(add(symbol(measured), mul(rest, -1)), slope)
            self.steps.append(Define(name, Index(solved)))
        self.bound.add(name)

    # --- groups ---------------------------------------------------------------------------------------------

    def add(self, group: Group) -> None:
        """Append the steps of a group."""
        self.starts.append(len(self.steps))
        operation = self.operations[group.members[0].operation]
        match operation:
            case View():
                self._view(operation)
            case Call():
                self._call(operation)
            case Sort():
                self._sort(operation)
            case Assert():
                self.steps.append(
                    Check(operation.condition, operation.message, operation.error, operation.origin)
                )
            case HostScalar():
                self.bound.add(operation.symbol)
                self.steps.append(Define(operation.symbol, operation.body))
            case Region():
                self._region(operation)
            case Scatter():
                self._scatter(group, operation)
            case _:
                self._launch(group)

    def _launch(self, group: Group) -> None:
        device = self.operations[group.members[0].operation].results[0].type.device
        self.steps.append(self.launches.launch(group, self.operations, self._capabilities(device)))

    def _view(self, view: View) -> None:
        value = view.results[0]
        if self.values.alias(view):
            self.context.decide(Decision("plan", view.name, "alias", "alias.view"))
            return
        self._fill(value, view.axes, viewed(view, self.values.type(view.base)))
        self.context.decide(Decision("plan", view.name, "copy", "copy.layout", type_bytes(value.type)))

    def _fill(self, value: Value, axes: tuple[Axis, ...], body: Expr) -> None:
        """A kernel of its own that fills ``value`` from ``body``."""
        operation = Pointwise(results=(value,), axes=axes, bodies=(body,))
        self.operations[value.name] = operation
        self._launch(single(operation))

    def _copy(self, name: str, value: Value) -> None:
        """A kernel of its own that copies ``name`` into ``value``."""
        axes = tuple(Axis(f"i{k}", size) for k, size in enumerate(value.type.shape))
        self._fill(value, axes, Load(name, tuple(symbol(axis.name) for axis in axes), value.type.dtype))

    def _scatter(self, group: Group, scatter: Scatter) -> None:
        value = scatter.results[0]
        if self.values.take_over(scatter):
            nbytes = type_bytes(value.type)
            self.context.decide(Decision("plan", value.name, "place", "memory.inplace", nbytes))
        else:
            self._copy(scatter.base, value)
        self.operations[value.name] = scatter
        self._launch(group)

    # --- calls ----------------------------------------------------------------------------------------------

    def _call(self, call: Call) -> None:
        overwritten = dict(call.mutates)
        call, copies = self._with_layouts(call)
        results = self._wanted(call)
        unpack = call.unpack or len(results) > 1
        pairs = tuple(v.name for v in call.results if isinstance(v, ComplexValue) and v.name in results)
        self.steps.append(
            CallStep(
                call.target,
                call.arguments,
                call.attributes,
                results,
                unpack,
                _reason(call),
                call.origin,
                pairs,
            )
        )
        bases = {result: read for read, result in call.mutates} | dict(call.aliases)
        for value in call.results:
            if value.replaces not in copies:
                self.values.returned(value, bases.get(value.name))
            if value.name in results:
                self._define_sizes_of(value)
        for name, version in overwritten.items():
            if name in copies:
                self._copy(copies[name], self.logical[version])

    def _wanted(self, call: Call) -> tuple[str | None, ...]:
        """The names of what a call returns; None for what nobody uses, unless a size becomes known by it alone."""
        returned = [value for value in call.results if value.name not in call.silent]
        wanted = {value.name for value in returned if value.name in self.used}
        told = self.bound.union(*(_symbols_of(value) for value in returned if value.name in wanted))
        for value in returned:
            if not _symbols_of(value) <= told:
                wanted.add(value.name)
                told |= _symbols_of(value)
        return tuple(value.name if value.name in wanted else None for value in returned)

    def _with_layouts(self, call: Call) -> tuple[Call, dict[str, str]]:
        """The call reading copies of what it does not take in the layout that it has, and the copies by original."""
        copies: dict[str, str] = {}
        for name in call.reads:
            value = self.logical.get(name)
            if value is None or self._suits(call, value):
                continue
            copies[name] = self._copy_for(call, value)
        renamed = rename_reads(call, copies)
        assert isinstance(renamed, Call)
        return renamed, copies

    def _copy_for(self, reader: Call | Region, value: Value) -> str:
        """The name of a copy of ``value`` in the layout that ``reader`` takes."""
        exact = isinstance(reader, Call) and reader.need == "exact"
        promised = replace(value.type, layout=replace(value.type.layout, fixed=exact))
        copy = Value(f"{value.name}.for.{reader.name}", dense_type(promised))
        self._copy(value.name, copy)
        self.context.decide(Decision("plan", value.name, "copy", "copy.layout", type_bytes(value.type)))
        return copy.name

    def _suits(self, call: Call, value: Value) -> bool:
        """True when a call takes a value in the layout that its memory has."""
        layout = self.values.type(value.name).layout
        if call.need == "dense":
            return is_dense(value.type.shape, layout)
        return call.need == "any" or same_strides(value.type, layout)

    def _sort(self, sort: Sort) -> None:
        arguments = (Ref(sort.source), sort.dimension, sort.descending, sort.stable)
        results = tuple(value.name for value in sort.results)
        self.steps.append(CallStep("sort", arguments, (), results, True, "realise.extern", sort.origin))
        for value in sort.results:
            self.values.returned(value)

    def _region(self, region: Region) -> None:
        plans = tuple(self.subplans.of(subgraph) for subgraph in region.subgraphs)
        copies: dict[str, str] = {}
        for name in region.reads:
            value = self.logical.get(name)
            if value is None or same_strides(value.type, self.values.type(name).layout):
                continue
            if not is_dense(value.type.shape, value.type.layout):
                raise ScheduleError(
                    f"%{name} has gaps in eager's layout, and is to be copied into it", node=region.name,
                    origin=region.origin, hint="the operator that reads it runs as it came",
                )  # fmt: skip
            copies[name] = self._copy_for(region, value)
        renamed = rename_reads(region, copies)
        assert isinstance(renamed, Region)
        results = tuple(value.name for value in region.results)
        self.steps.append(RegionStep(region.kind, plans, renamed.arguments, results, region.origin))
        for value in region.results:
            self.values.returned(value)
            self._define_sizes_of(value)


def _symbols_of(value: Value) -> set[str]:
    """The symbols in a value's sizes and strides."""
    terms = (*value.type.shape, *value.type.layout.strides)
    return set[str]().union(*map(free_symbols, terms))


class _Subplans:
    """The plans of a graph's control flow, each subgraph's once, under names of their own."""

    def __init__(self, make: Callable[[LoopGraph], Plan]) -> None:
        self._make = make
        self._names: dict[int, str] = {}
        self._known: list[LoopGraph] = []
        self.made: tuple[Plan, ...] = ()

    def of(self, subgraph: LoopGraph) -> str:
        """The name of a subgraph's plan, which is made when it is first asked for."""
        found = self._names.get(id(subgraph))
        if found is None:
            taken = {plan.name for plan in self.made}
            found, count = subgraph.name, 2
            while found in taken:
                found, count = f"{subgraph.name}_{count}", count + 1
            self.made = (*self.made, replace(self._make(subgraph), name=found))
            self._names[id(subgraph)] = found
            self._known.append(subgraph)  # as long as it lives, its id is its own
        return found


def _reason(call: Call) -> str:
    """Why a routine of the host runs it."""
    if isinstance(call, Extern):
        return call.reason
    if not isinstance(call, Contraction):
        return ""
    return f"library.{call.target}" if call.target in ("linear", "convolution") else "realise.extern"
