"""Explanation of a plan as data and as text: kernels and fused operations, calls, memory and decisions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module

from litz_ir.fused import Decision
from litz_ir.loops import Axis
from litz_ir.origin import Origin, abbreviated_list, describe_locations
from litz_ir.plan import (
    CallStep,
    CpuLoops,
    Kernel,
    KernelOrigin,
    Launch,
    Placement,
    Plan,
    Schedule,
    TileRequest,
    invocations_of,
    memory_root,
    origins_by_subkernel,
)
from litz_ir.symbols import Size, add
from litz_scheduler.analysis.cost import type_bytes
from litz_scheduler.arguments import require


@dataclass(frozen=True, slots=True)
class Traffic:
    """A buffer that a launch reads or writes."""

    buffer: str
    """The name of the buffer."""
    bytes: Size
    """Its size in bytes; symbolic for a dynamic shape."""


@dataclass(frozen=True, slots=True)
class SubkernelLaunchReport:
    """A subkernel of a horizontally fused launch: isomorphic loops."""

    invocations: int
    """The number of loops."""
    operations: tuple[KernelOrigin, ...]
    """The operations that they fuse, with the user's source lines."""
    outer: tuple[Axis, ...]
    """Their outer axes."""
    inner: tuple[Axis, ...]
    """Their inner axes; empty where there are none."""


@dataclass(frozen=True, slots=True)
class LaunchReport:
    """One launch of a kernel."""

    kernel: str
    """The name of the kernel."""
    operations: tuple[KernelOrigin, ...]
    """The operations that it fuses, with the user's source lines."""
    reads: tuple[Traffic, ...]
    """The buffers that it reads."""
    writes: tuple[Traffic, ...]
    """The buffers that it writes."""
    outer: tuple[Axis, ...]
    """The outer axes; empty for a horizontally fused launch."""
    inner: tuple[Axis, ...]
    """The axes of the loops inside one outer point; empty where there are none."""
    schedule: Schedule
    """The schedule of the kernel."""
    invocations: int = 1
    """The number of loops; more than one for a horizontally fused launch."""
    subkernels: tuple[SubkernelLaunchReport, ...] = ()
    """The subkernels of a horizontally fused launch."""

    @property
    def bytes_read(self) -> Size:
        """The total size of the buffers that it reads, in bytes."""
        return add(*(traffic.bytes for traffic in self.reads))

    @property
    def bytes_written(self) -> Size:
        """The total size of the buffers that it writes, in bytes."""
        return add(*(traffic.bytes for traffic in self.writes))


@dataclass(frozen=True, slots=True)
class CallStepReport:
    """A call of a library routine or an ATen operator."""

    target: str
    """The routine."""
    reason: str
    """The reason that no kernel was generated, as a sentence, or empty."""
    origin: Origin
    """The FX node and source line of the call."""


@dataclass(frozen=True, slots=True)
class StorageReport:
    """An allocation of memory."""

    name: str
    """The name of the storage."""
    bytes: Size
    """Its size in bytes; symbolic for dynamic shapes."""
    buffers: tuple[str, ...]
    """The buffers and views that use it, at the same or at different times."""


@dataclass(frozen=True, slots=True)
class PlanReport:
    """The explanation of a plan."""

    name: str
    """The name of the graph."""
    capability: str
    """The name of the capabilities that the plan is made for."""
    kernels: tuple[str, ...]
    """The names of the kernels."""
    launches: tuple[LaunchReport, ...]
    """The launches, in order."""
    calls: tuple[CallStepReport, ...]
    """The calls of routines, in order."""
    storages: tuple[StorageReport, ...]
    """The allocations."""
    peak: Size
    """The modelled peak of live bytes."""
    decisions: tuple[Decision, ...]
    """The decisions of the compiler, in the order made."""
    branches: tuple[PlanReport, ...] = ()
    """The plans of the subgraphs of higher-order operators."""

    def by_stage(self) -> dict[str, tuple[Decision, ...]]:
        """Return the decisions of each stage, with stages in the order of their first decision."""
        stages: dict[str, list[Decision]] = {}
        for decision in self.decisions:
            stages.setdefault(decision.stage, []).append(decision)
        return {stage: tuple(decisions) for stage, decisions in stages.items()}

    def to_text(self) -> str:
        """Return the report as lines of text."""
        return "\n".join(_lines(self))


def explain_plan(plan: Plan) -> PlanReport:
    """Return the explanation of ``plan`` and of its subplans."""
    require(Plan, plan, "the argument")
    kernels = {kernel.name: kernel for kernel in plan.kernels}
    placements = dict(plan.buffers)
    launches = [_launch(s, kernels[s.kernel], placements) for s in plan.steps if isinstance(s, Launch)]
    calls = [CallStepReport(s.target, s.reason, s.origin) for s in plan.steps if isinstance(s, CallStep)]
    branches = [explain_plan(subplan) for subplan in plan.subplans]
    return PlanReport(
        plan.name,
        plan.capability,
        tuple(kernels),
        tuple(launches),
        tuple(calls),
        tuple(_storages(plan, placements)),
        plan.peak,
        plan.decisions,
        tuple(branches),
    )


def _launch(step: Launch, kernel: Kernel, placements: dict[str, Placement]) -> LaunchReport:
    reads, writes = [], []
    for parameter, buffer in zip(kernel.parameters, step.buffers, strict=True):
        traffic = Traffic(buffer, type_bytes(placements[buffer].type))
        if parameter.access in ("in", "inout"):
            reads.append(traffic)
        if parameter.access in ("out", "inout"):
            writes.append(traffic)
    subkernels = (
        SubkernelLaunchReport(
            len(subkernel.invocations), origins, subkernel.kernel.outer, _inner(subkernel.kernel)
        )
        for subkernel, origins in zip(
            kernel.subkernels, origins_by_subkernel(kernel, step.origins), strict=True
        )
    )
    return LaunchReport(
        kernel.name, step.origins, tuple(reads), tuple(writes), kernel.outer, _inner(kernel), kernel.schedule,
        len(invocations_of(kernel)) or 1, tuple(subkernels),
    )  # fmt: skip


def _inner(kernel: Kernel) -> tuple[Axis, ...]:
    return next((phase.axes for phase in kernel.phases if phase.axes), ())


def _storages(plan: Plan, placements: dict[str, Placement]) -> Iterator[StorageReport]:
    buffers: dict[str, list[str]] = {storage.name: [] for storage in plan.storages}
    for name in placements:
        storage = placements[memory_root(name, placements)].storage
        if storage is not None:
            buffers[storage].append(name)
    for each in plan.storages:
        yield StorageReport(each.name, each.nbytes, tuple(buffers[each.name]))


# --- text -----------------------------------------------------------------------------------------------


def _lines(report: PlanReport) -> Iterator[str]:
    yield (
        f"plan {report.name} on {report.capability}: {_count(len(report.launches), 'launch')} of "
        f"{_count(len(report.kernels), 'kernel')}, {_count(len(report.calls), 'call')}, "
        f"{_count(len(report.storages), 'storage')}, peak {report.peak} B"
    )
    for launch in report.launches:
        yield f"  {launch.kernel}: reads {_moved(launch.reads, launch.bytes_read)}"
        yield f"    writes {_moved(launch.writes, launch.bytes_written)}"
        yield f"    {_loops(launch)}"
        if not launch.subkernels:
            yield from (f"    {_operation(each)}" for each in launch.operations)
        for subkernel in launch.subkernels:
            operations = abbreviated_list(f"%{each.operation}" for each in subkernel.operations)
            yield f"    {_count(subkernel.invocations, 'loop')} {_over(subkernel.outer, subkernel.inner)}: {operations}"
            yield from (
                f"      {location}"
                for location in describe_locations(each.origin for each in subkernel.operations)
            )
    for call in report.calls:
        reason = f": {call.reason}" if call.reason else ""
        yield f"  call {call.target}{reason}{_from(call.origin)}"
    for storage in report.storages:
        yield f"  {storage.name}: {storage.bytes} B, holds {_names(storage.buffers)}"
    for stage, decisions in report.by_stage().items():
        yield f"  {stage}: {_count(len(decisions), 'decision')}"
        yield from (f"    {decision.describe()}" for decision in decisions)
    for branch in report.branches:
        yield from (f"  {line}" for line in _lines(branch))


def _count(number: int, what: str) -> str:
    plural = f"{what}es" if what.endswith("ch") else f"{what}s"
    return f"{number} {what if number == 1 else plural}"


def _moved(traffic: Iterable[Traffic], total: Size) -> str:
    return f"{total} B ({_names(each.buffer for each in traffic) or 'nothing'})"


def _names(buffers: Iterable[str]) -> str:
    return ", ".join(f"%{name}" for name in buffers)


def _loops(launch: LaunchReport) -> str:
    if launch.invocations > 1:
        return f"{launch.invocations} independent loops in one launch"
    return "; ".join([_over(launch.outer, launch.inner), *_mapped(launch.schedule)])


def _mapped(schedule: Schedule) -> list[str]:
    """Describe the parallel and vectorised axes of CPU loops, or the schedule that a GPU target has decided."""
    match schedule:
        case CpuLoops():
            threads = [f"parallel {', '.join(schedule.parallel)}"] if schedule.parallel else []
            return [*threads, f"lanes along {schedule.vector}"] if schedule.vector else threads
        case TileRequest():
            return []
        case _:
            # Imported on use, because compilation does not need the text form.
            return [import_module("litz_ir.text").print_schedule(schedule)]


def _over(outer: Iterable[Axis], inner: Iterable[Axis]) -> str:
    first, second = (", ".join(f"{axis.name}: {axis.size}" for axis in axes) for axes in (outer, inner))
    return f"over [{first} | {second}]" if second else f"over [{first}]"


def _operation(each: KernelOrigin) -> str:
    return f"%{each.operation}{_from(each.origin)}"


def _from(origin: Origin) -> str:
    return f"  {origin.describe()}" if origin else ""
