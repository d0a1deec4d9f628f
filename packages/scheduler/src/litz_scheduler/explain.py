"""What became of a graph, as data and as text: kernels and what they fuse, calls and why, memory, and every choice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module

from litz_ir.fused import REASONS, Decision
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
from litz_scheduler.cost import type_bytes


@dataclass(frozen=True, slots=True)
class Traffic:
    """A buffer that a launch reads or writes, and how many bytes it holds; symbolic where its size is."""

    buffer: str
    bytes: Size


@dataclass(frozen=True, slots=True)
class SubkernelLaunchReport:
    """Loops of a pack that are alike: how many, their ``operations``, and their axes as in :class:`LaunchReport`."""

    invocations: int
    operations: tuple[KernelOrigin, ...]
    outer: tuple[Axis, ...]
    inner: tuple[Axis, ...]


@dataclass(frozen=True, slots=True)
class LaunchReport:
    """One launch. ``operations`` are those that it fuses, with the user's lines; ``inner`` the axes of the loops
    inside one point of ``outer``, none where there is no such loop. A pack has several ``invocations`` in
    ``subkernels``, and no axes of its own."""

    kernel: str
    operations: tuple[KernelOrigin, ...]
    reads: tuple[Traffic, ...]
    writes: tuple[Traffic, ...]
    outer: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    schedule: Schedule
    invocations: int = 1
    subkernels: tuple[SubkernelLaunchReport, ...] = ()

    @property
    def bytes_read(self) -> Size:
        """Bytes in the buffers that it reads."""
        return add(*(traffic.bytes for traffic in self.reads))

    @property
    def bytes_written(self) -> Size:
        """Bytes in the buffers that it writes."""
        return add(*(traffic.bytes for traffic in self.writes))


@dataclass(frozen=True, slots=True)
class CallStepReport:
    """A routine of the host that the plan calls, and why nothing was generated for it."""

    target: str
    reason: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class StorageReport:
    """A storage and the buffers that live in it one after the other."""

    name: str
    bytes: Size
    buffers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlanReport:
    """A plan, explained. ``branches`` are the plans of its control flow; ``decisions`` come in the order taken."""

    name: str
    capability: str
    kernels: tuple[str, ...]
    launches: tuple[LaunchReport, ...]
    calls: tuple[CallStepReport, ...]
    storages: tuple[StorageReport, ...]
    peak: Size
    decisions: tuple[Decision, ...]
    branches: tuple[PlanReport, ...] = ()

    def by_stage(self) -> dict[str, tuple[Decision, ...]]:
        """The decisions of each stage, stages in the order that they began."""
        stages: dict[str, list[Decision]] = {}
        for decision in self.decisions:
            stages.setdefault(decision.stage, []).append(decision)
        return {stage: tuple(decisions) for stage, decisions in stages.items()}

    def to_text(self) -> str:
        """The report for a person."""
        return "\n".join(_lines(self))


def explain_plan(plan: Plan) -> PlanReport:
    """What became of the graph that ``plan`` was made from."""
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
    parts = (
        SubkernelLaunchReport(len(part.invocations), origins, part.kernel.outer, _inner(part.kernel))
        for part, origins in zip(kernel.subkernels, origins_by_subkernel(kernel, step.origins), strict=True)
    )
    return LaunchReport(
        kernel.name, step.origins, tuple(reads), tuple(writes), kernel.outer, _inner(kernel), kernel.schedule,
        len(invocations_of(kernel)) or 1, tuple(parts),
    )  # fmt: skip


def _inner(kernel: Kernel) -> tuple[Axis, ...]:
    return next((phase.axes for phase in kernel.phases if phase.axes), ())


def _storages(plan: Plan, placements: dict[str, Placement]) -> Iterator[StorageReport]:
    held: dict[str, list[str]] = {storage.name: [] for storage in plan.storages}
    for name in placements:
        storage = placements[memory_root(name, placements)].storage
        if storage is not None:
            held[storage].append(name)
    for each in plan.storages:
        yield StorageReport(each.name, each.nbytes, tuple(held[each.name]))


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
        for part in launch.subkernels:
            operations = abbreviated_list(f"%{each.operation}" for each in part.operations)
            yield f"    {_count(part.invocations, 'loop')} {_over(part.outer, part.inner)}: {operations}"
            yield from (
                f"      {place}" for place in describe_locations(each.origin for each in part.operations)
            )
    for call in report.calls:
        reason = f": {REASONS.get(call.reason, call.reason)}" if call.reason else ""
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
        return f"{launch.invocations} loops side by side"
    return "; ".join([_over(launch.outer, launch.inner), *_mapped(launch.schedule)])


def _mapped(schedule: Schedule) -> list[str]:
    """Threads and lanes of a CPU's loops; the form and tiles of a GPU's, once its target has decided them."""
    match schedule:
        case CpuLoops():
            parts = [f"parallel {', '.join(schedule.parallel)}"] if schedule.parallel else []
            return [*parts, f"lanes along {schedule.vector}"] if schedule.vector else parts
        case TileRequest():
            return []
        case _:
            # The text form is loaded here: compiling needs none of it.
            return [import_module("litz_ir.text").print_schedule(schedule)]


def _over(outer: Iterable[Axis], inner: Iterable[Axis]) -> str:
    first, second = (", ".join(f"{axis.name}: {axis.size}" for axis in axes) for axes in (outer, inner))
    return f"over [{first} | {second}]" if second else f"over [{first}]"


def _operation(each: KernelOrigin) -> str:
    return f"%{each.operation}{_from(each.origin)}"


def _from(origin: Origin) -> str:
    return f"  {origin.describe()}" if origin else ""
