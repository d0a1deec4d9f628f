"""Kernel construction: fusion groups, copies and fills as launches of kernels without names."""

from __future__ import annotations

from dataclasses import replace

from litz_ir.device import Device
from litz_ir.dtypes import i64
from litz_ir.errors import ScheduleError, UnblockedAttention
from litz_ir.fused import Decision, Group
from litz_ir.loops import Axis, Operation, Pointwise, Reduction, TensorType, Value, contiguous
from litz_ir.passes import PassContext
from litz_ir.plan import (
    Kernel,
    KernelOrigin,
    Parameter,
    Schedule,
    cluster_size,
    scan_segment,
    workspace_words,
)
from litz_ir.scalar import Expr, Load, nested_reductions
from litz_ir.symbols import SymbolTable, symbol
from litz_ir.target import Capabilities
from litz_scheduler import reasons
from litz_scheduler.analysis.canonical import CanonicalKernel, canonicalize
from litz_scheduler.analysis.cost import body_cost, estimate, points, type_bytes
from litz_scheduler.analysis.graph_facts import InlinedOperations
from litz_scheduler.analysis.kernels import KernelBody, build_kernel_body, single_operation_group
from litz_scheduler.analysis.loop_order import LoopNest, bodies_of
from litz_scheduler.build_plan.forms import Item, UnnamedLaunch
from litz_scheduler.build_plan.values import ValuePlacements
from litz_scheduler.options import SchedulerOptions
from litz_scheduler.schedules.attention_blocks import attention_in_blocks
from litz_scheduler.schedules.tiling import schedule_nest


class LaunchBuilder:
    """Construct the kernels of groups and append their launches to ``items``.

    ``operations`` are the members of groups by name, ``values`` the placements so far; ``lineage`` gives the
    operations that were inlined into each member.
    """

    def __init__(
        self,
        symbols: SymbolTable,
        operations: dict[str, Operation],
        values: ValuePlacements,
        lineage: InlinedOperations,
        context: PassContext,
        options: SchedulerOptions,
        items: list[Item],
    ) -> None:
        self.symbols = symbols
        self.operations = operations
        self.values = values
        self.lineage = lineage
        self.context = context
        self.options = options
        self._items = items

    def launch(self, group: Group) -> None:
        """Append the launch of a group, unless it stores nothing; raises ``ScheduleError`` where its device has no
        target."""
        operations, values = self.operations, self.values
        first = operations[group.members[0].operation]
        capabilities = machine_of(first.results[0].type.device, self.context)
        stored = {name for name, storage in group.storage_classes if storage == "store"}
        for member in group.members:
            for value in operations[member.operation].results:
                if value.name in stored:
                    values.written(value)
        body = build_kernel_body(group, operations, values.type, capabilities, self.symbols, self.options)

        def schedule(nest: LoopNest) -> Schedule:
            return self._schedule(nest, body, group, capabilities)

        bound = canonicalize(body, schedule, values.type, values.memory, self.symbols)
        if not bound.buffers:
            return  # nothing reads its values: it is dead code that no pass has removed
        if capabilities.blocked_attention:
            bound = replace(bound, kernel=self._in_blocks(bound.kernel, group))
        if cluster_size(bound.kernel.schedule) > 1 or scan_segment(bound.kernel.schedule):
            bound = self._with_workspace(bound, group, capabilities)
        fused = self.lineage.of(member.operation for member in group.members)
        self._items.append(
            UnnamedLaunch(
                bound.kernel,
                values.type(bound.buffers[0]).device.kind,
                group.name,
                tuple(operations[member.operation] for member in group.members),
                bound.buffers,
                tuple(symbol(name) for name in bound.symbols),
                tuple(KernelOrigin(name, operation.origin) for name, operation in fused),
            )
        )

    def _in_blocks(self, kernel: Kernel, group: Group) -> Kernel:
        """Return a kernel, in blocks if it is attention; raise ``UnblockedAttention`` for a long one that would compute
        each score several times."""
        blocked = attention_in_blocks(kernel)
        if blocked is not None:
            return blocked
        operations = [self.operations[member.operation] for member in group.members]
        scores = [each for each in operations if isinstance(each, Reduction) and _recomputes_scores(each)]
        if not scores:
            return kernel
        first = scores[0]
        work = estimate(points((*first.axes, *first.reduce_axes)), self.symbols) * body_cost(*first.bodies)
        if work > _LONG:
            raise UnblockedAttention(
                f"{first.name} is attention that a CPU cannot compute in blocks",
                node=first.name, origin=first.origin, hint="store its scores: compute it by matmuls and a softmax",
            )  # fmt: skip
        return kernel

    def fill(self, value: Value, axes: tuple[Axis, ...], body: Expr) -> None:
        """Append the launch of a kernel that fills ``value`` with ``body`` at each point of ``axes``."""
        operation = Pointwise(results=(value,), axes=axes, bodies=(body,))
        self.operations[value.name] = operation
        self.launch(single_operation_group(operation))

    def copy(self, name: str, value: Value) -> None:
        """Append the launch of a kernel that copies buffer ``name`` into ``value``."""
        axes = tuple(Axis(f"i{k}", size) for k, size in enumerate(value.type.shape))
        self.fill(value, axes, Load(name, tuple(symbol(axis.name) for axis in axes), value.type.dtype))

    def _with_workspace(
        self, bound: CanonicalKernel, group: Group, capabilities: Capabilities
    ) -> CanonicalKernel:
        """Add a workspace, through which the thread blocks communicate, as the kernel's last parameter."""
        kernel = bound.kernel
        shape = (workspace_words(kernel),)
        type_ = TensorType(i64, shape, contiguous(shape), capabilities.device)
        workspace = Value(f"{group.name}.scratch", type_)
        self.values.written(workspace)
        parameter = Parameter(f"p{len(kernel.parameters)}", i64, "workspace")
        kernel = replace(kernel, parameters=(*kernel.parameters, parameter))
        segment = scan_segment(kernel.schedule)
        note = f"{cluster_size(kernel.schedule)} programs"
        decision = Decision("plan", group.name, "cluster", reasons.REDUCE_CLUSTER, note=note)
        if segment:
            note = f"{segment} points a program"
            decision = Decision("plan", group.name, "look back", reasons.SCAN_LOOKBACK, note=note)
        self._items.append(decision)
        return replace(bound, kernel=kernel, buffers=(*bound.buffers, workspace.name))

    def _schedule(
        self, nest: LoopNest, body: KernelBody, group: Group, capabilities: Capabilities
    ) -> Schedule:
        """Return the schedule of a group's loop nest, by the bytes and operations of the group."""
        names = (*group.reads, *group.writes)
        traffic = sum(estimate(type_bytes(self.values.type(name)), self.symbols) for name in names)
        work = 0
        for phase in nest.phases:
            spanned = estimate(points((*nest.outer, *phase.axes)), self.symbols)
            work += spanned * body_cost(*(b for s in phase.statements for b in bodies_of(s)))
        scratch = bool(body.scratch)
        return schedule_nest(nest, traffic, work, capabilities, self.symbols, self.options, scratch)


_LONG = 1 << 24
"""Operations, in adds, above which attention runs in blocks or not in loops at all: about a hundredth of a second."""


def _recomputes_scores(reduction: Reduction) -> bool:
    """Return True for a reduction with nested reductions that are the same for all points of an outer axis."""
    names = frozenset[str]().union(*(each.free_symbols for each in nested_reductions(*reduction.bodies)))
    return bool(names) and not names.issuperset(axis.name for axis in reduction.axes if axis.size != 1)


def machine_of(device: Device, context: PassContext) -> Capabilities:
    """Return the capabilities of a device; raises ``ScheduleError`` where no target is given for it."""
    known = context.machine(device)
    if known is None:
        raise ScheduleError(
            f"no target is given for device {device}",
            hint=f"install a package that offers the {device.kind} target",
        )
    return known
