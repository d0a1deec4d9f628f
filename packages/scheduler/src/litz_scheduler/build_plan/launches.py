"""Groups as launches of kernels; equal groups share one kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from litz_ir.dtypes import i64
from litz_ir.fused import Decision, Group
from litz_ir.loops import LoopGraph, Operation, TensorType, Value, contiguous
from litz_ir.passes import PassContext
from litz_ir.plan import Kernel, KernelOrigin, Launch, Parameter, Schedule, scratch_words
from litz_ir.symbols import symbol
from litz_ir.target import Capabilities
from litz_scheduler.build_plan.values import Values
from litz_scheduler.canonical import Bound, bind, title
from litz_scheduler.cost import body_cost, estimate, points, type_bytes
from litz_scheduler.graph import Lineage
from litz_scheduler.kernels import Body, build_body
from litz_scheduler.loop_order import Nest, bodies_of
from litz_scheduler.options import SchedulerOptions
from litz_scheduler.tiling import schedule_nest


class KernelNames:
    """The kernels of a plan and of all its subplans: those that are equal, for one kind of device, have one name. One
    belongs to one compilation."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, Kernel], str] = {}

    def known(self, kind: str, kernel: Kernel) -> str | None:
        """The name of a nameless kernel for a ``kind`` of device that was met before."""
        return self._names.get((kind, kernel))

    def add(self, kind: str, kernel: Kernel, called: str) -> str:
        """A name for a new nameless kernel, made from its number and ``called``."""
        name = self._names[kind, kernel] = f"k{len(self._names)}_{called}"
        return name


class Launches:
    """Makes kernels and remembers them, so that an equal one is made once. ``lineage`` tells what was inlined where."""

    def __init__(
        self,
        graph: LoopGraph,
        values: Values,
        lineage: Lineage,
        context: PassContext,
        options: SchedulerOptions,
        names: KernelNames,
    ) -> None:
        self.symbols = graph.symbols
        self.values = values
        self.lineage = lineage
        self.context = context
        self.options = options
        self._names = names
        self._used: dict[str, Kernel] = {}

    def kernels(self) -> dict[str, Kernel]:
        """Every kernel that was launched so far, by name."""
        return dict(self._used)

    def launch(self, group: Group, operations: Mapping[str, Operation], capabilities: Capabilities) -> Launch:
        """The launch of a group; ``operations`` holds its members by name."""
        stored = {name for name, fate in group.fates if fate == "store"}
        for member in group.members:
            for value in operations[member.operation].results:
                if value.name in stored:
                    self.values.written(value)
        values = self.values
        body = build_body(group, operations, values.type, capabilities, self.symbols, self.options)

        def schedule(nest: Nest) -> Schedule:
            return self._schedule(nest, body, group, capabilities)

        bound = bind(body, schedule, values.type, values.memory, self.symbols)
        if bound.kernel.schedule.shared > 1 or bound.kernel.schedule.relay:
            bound = self._with_scratch(bound, group, capabilities)
        fused = self.lineage.of(member.operation for member in group.members)
        return Launch(
            self._name(bound, group, operations),
            bound.buffers,
            tuple(symbol(name) for name in bound.symbols),
            tuple(KernelOrigin(name, operation.origin) for name, operation in fused),
        )

    def _with_scratch(self, bound: Bound, group: Group, capabilities: Capabilities) -> Bound:
        """The kernel with memory for its programs to tell one another what they found."""
        kernel = bound.kernel
        shape = (scratch_words(kernel),)
        type_ = TensorType(i64, shape, contiguous(shape), capabilities.device)
        scratch = Value(f"{group.name}.scratch", type_)
        self.values.written(scratch)
        parameter = Parameter(f"p{len(kernel.parameters)}", i64, "scratch")
        kernel = replace(kernel, parameters=(*kernel.parameters, parameter))
        relay, note = kernel.schedule.relay, f"{kernel.schedule.shared} programs"
        decision = Decision("plan", group.name, "together", "share.programs", note=note)
        if relay:
            decision = Decision("plan", group.name, "in turn", "scan.relay", note=f"{relay} points a program")
        self.context.decide(decision)
        return replace(bound, kernel=kernel, buffers=(*bound.buffers, scratch.name))

    def _schedule(self, nest: Nest, body: Body, group: Group, capabilities: Capabilities) -> Schedule:
        names = (*group.reads, *group.writes)
        traffic = sum(estimate(type_bytes(self.values.type(name)), self.symbols) for name in names)
        work = 0
        for phase in nest.phases:
            spanned = estimate(points((*nest.outer, *phase.axes)), self.symbols)
            work += spanned * body_cost(*(b for s in phase.statements for b in bodies_of(s)))
        scratch = bool(body.locals)
        return schedule_nest(nest, traffic, work, capabilities, self.symbols, self.options, scratch)

    def _name(self, bound: Bound, group: Group, operations: Mapping[str, Operation]) -> str:
        kind = self.values.type(bound.buffers[0]).device.kind
        name = self._names.known(kind, bound.kernel)
        if name is None:
            called = title(operations[member.operation] for member in group.members)
            name = self._names.add(kind, bound.kernel, called)
        else:
            self.context.decide(Decision("plan", group.name, "share", "share.kernel", note=f"as {name}"))
        self._used.setdefault(name, replace(bound.kernel, name=name))
        return name
