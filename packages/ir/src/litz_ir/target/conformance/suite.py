"""The conformance suite, which compares a target's kernels with the reference interpreter.

    report = run_conformance(MyTarget(), Path("build"))
    print(report.describe())

Every case is one small kernel. Its plan is emitted, built and loaded like any other, and its results are compared with
those of the reference interpreter. On a CPU each case runs twice, with threads and vectors and without any schedule,
and attention in blocks too where the target has them; on a device with tiles it runs once, as the target schedules it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from litz_ir.errors import KernelError, LitzError
from litz_ir.host.launch import BufferFunction, Launcher
from litz_ir.host.memory import Memory, NumpyMemory
from litz_ir.interp.kernel import run_kernel
from litz_ir.loops.nodes import Input, ScalarInput, Value, tensor_type
from litz_ir.plan.attention_blocks import attention_of
from litz_ir.plan.horizontal_fusion import invocations_of, schedules_of, with_schedules
from litz_ir.plan.kernel import Kernel
from litz_ir.plan.program import Launch, Placement, Plan
from litz_ir.plan.schedule import CpuAttention, CpuLoops, Schedule, TileRequest, cpu_loops
from litz_ir.symbols.table import SymbolTable
from litz_ir.symbols.term import evaluate, symbol
from litz_ir.target.capabilities import Capabilities
from litz_ir.target.cases import Case, all_cases
from litz_ir.target.protocol import SchedulingTarget, Target, check_members
from litz_ir.target.requirements import requirements_of

_ROWS = 16
"""Rows of a block of attention: those of the widest vector."""


@dataclass(frozen=True, slots=True)
class Report:
    """Results of the conformance suite."""

    passed: tuple[str, ...]
    """Names of cases that passed."""
    failed: tuple[tuple[str, str], ...]
    """Name and reason of each case that failed."""
    skipped: tuple[tuple[str, str], ...]
    """Name and missing capability of each case that did not run."""

    def describe(self) -> str:
        """A summary as text, with one line for each case that did not pass."""
        lines = [f"{len(self.passed)} passed, {len(self.failed)} failed, {len(self.skipped)} skipped"]
        lines += [f"  failed   {name}: {reason}" for name, reason in self.failed]
        lines += [f"  skipped  {name}: {reason}" for name, reason in self.skipped]
        return "\n".join(lines)


def conformance_cases() -> tuple[Case, ...]:
    """The cases of the suite, whose buffers are the same on every machine."""
    return all_cases()


def run_conformance(
    target: Target, folder: Path, memory: Memory | None = None, *, cases: Sequence[Case] | None = None
) -> Report:
    """Run the suite, or ``cases``, on ``target`` and report the results.

    Sources are built in ``folder``; ``memory`` is the device's, by default NumPy's. Errors of a case are reported, not
    raised. Raises :class:`TargetError` if the target lacks a member of :class:`Target`, with the list of those.
    """
    check_members(target)
    capabilities = target.capabilities()
    passed, failed, skipped = [], [], []
    for case in conformance_cases() if cases is None else cases:
        lack = lacking(case, capabilities)
        if lack:
            skipped.append((case.name, lack))
            continue
        complaint = _attempt(target, case, folder, NumpyMemory() if memory is None else memory)
        if complaint:
            failed.append((case.name, complaint))
        else:
            passed.append(case.name)
    return Report(tuple(passed), tuple(failed), tuple(skipped))


def lacking(case: Case, capabilities: Capabilities) -> str:
    """The capability that the case needs and the device lacks; empty if there is none."""
    missing = requirements_of(case.kernel).lacking(capabilities)
    if missing:
        return f"needs {missing}"
    scratch = sum(
        evaluate(array.size, {name: int(value) for name, value in case.symbols.items()})
        * array.dtype.itemsize
        for array in case.kernel.scratch
    )
    if scratch > capabilities.scratch_bytes:
        return f"needs {scratch} bytes of scratch arrays per outer point"
    if case.fp8_matmul and not capabilities.fp8_matmul:
        return "needs fp8 matmuls"
    if len(invocations_of(case.kernel)) > capabilities.max_subkernels:
        return "needs horizontal fusion"
    return ""


def case_plan(case: Case, capabilities: Capabilities) -> Plan:
    """A plan that launches the case's kernel on its inputs, as scheduled and without a schedule."""
    kernel = case.kernel
    inputs: list[Input] = [
        Value(p.name, tensor_type(p.dtype, len(case.buffers[p.name]), device=capabilities.device))
        for p in kernel.parameters
    ]
    buffers = tuple((each.name, Placement(each.type)) for each in inputs if isinstance(each, Value))
    inputs += [
        ScalarInput(info.name, "float" if info.kind == "float" else "int", info.name)
        for info in kernel.symbols
    ]
    launched = tuple(parameter.name for parameter in kernel.parameters)
    symbols = tuple(symbol(info.name) for info in kernel.symbols)
    kernels = _variants(kernel, capabilities)
    return Plan(
        name=kernel.name,
        device=capabilities.device,
        capability=capabilities.name,
        symbols=SymbolTable(kernel.symbols),
        inputs=tuple(inputs),
        constants=(),
        buffers=buffers,
        storages=(),
        kernels=kernels,
        steps=tuple(Launch(variant.name, launched, symbols) for variant in kernels),
        outputs=(),
    )


def _variants(kernel: Kernel, capabilities: Capabilities) -> tuple[Kernel, ...]:
    if capabilities.max_tile_elements:
        return (_rescheduled(kernel, TileRequest()),)
    plain = replace(kernel, schedule=CpuLoops())
    blocks = _attention_schedules(kernel) if capabilities.blocked_attention else ()
    attention = tuple(
        replace(kernel, schedule=each, name=f"{kernel.name}_blocks_{number}")
        for number, each in enumerate(blocks)
    )
    schedule = cpu_loops(kernel.schedule)
    if not capabilities.model.vector_bytes:
        schedule = replace(schedule, vector=None)
    if capabilities.model.threads < 2:
        schedule = replace(schedule, parallel=())
    if schedule == CpuLoops():
        return (plain, *attention)
    return (replace(kernel, schedule=schedule), replace(plain, name=f"{kernel.name}_plain"), *attention)


def _attention_schedules(kernel: Kernel) -> Iterator[CpuAttention]:
    """Yield schedules of attention in blocks that suit a kernel, with lanes along rows and along columns."""
    for columns in kernel.outer:
        for rows in kernel.outer:
            found = [CpuAttention(columns.name, _ROWS, rows.name)]
            if isinstance(rows.size, int) and rows.size:
                found.append(CpuAttention(columns.name, rows.size, rows.name, "columns"))
            yield from (each for each in found if attention_of(kernel, each) is not None)


def _rescheduled(kernel: Kernel, schedule: Schedule) -> Kernel:
    """The kernel with this schedule, and each of its subkernels too."""
    return with_schedules(kernel, [schedule] * len(schedules_of(kernel)))


def _attempt(target: Target, case: Case, folder: Path, memory: Memory) -> str:
    """The reason that the case fails; empty if it passes."""
    plan = case_plan(case, target.capabilities())
    try:
        if isinstance(target, SchedulingTarget):
            plan = target.schedule(plan)
        units = target.emit(plan)
        binaries = [target.build(unit, folder) for unit in units]
        module = target.load(units, binaries, {kernel.name: kernel for kernel in plan.kernels})
        launchers = {kernel.name: module.function(kernel.name) for kernel in plan.kernels}
    except (LitzError, KeyError) as error:
        return f"{type(error).__name__}: {error}"
    expected = case.fresh()
    if not case.fails:
        run_kernel(case.kernel, expected, case.symbols)
    for kernel in plan.kernels:
        complaint = _compare(case, kernel, launchers[kernel.name], memory, plan, expected)
        if complaint:
            plain = kernel.schedule == CpuLoops() != case.kernel.schedule
            return f"{complaint} (without a schedule)" if plain else complaint
    return ""


def _compare(
    case: Case,
    kernel: Kernel,
    launch: Launcher,
    memory: Memory,
    plan: Plan,
    expected: Mapping[str, Any],
) -> str:
    tensors = {}
    for parameter in kernel.parameters:
        content = case.buffers[parameter.name]
        storage = memory.empty(content.nbytes, plan.device)
        tensors[parameter.name] = memory.view(storage, parameter.dtype, content.shape, (1,), 0)
        memory.write(tensors[parameter.name], content)
    symbols = [case.symbols[info.name] for info in kernel.symbols]
    try:
        if isinstance(launch, BufferFunction):
            sizes = ((tensor, case.buffers[name].nbytes) for name, tensor in tensors.items())
            launch.run([memory.buffer(tensor, 0, nbytes) for tensor, nbytes in sizes], symbols)
        else:
            launch([memory.address(tensor) for tensor in tensors.values()], symbols)
    except KernelError as error:
        return "" if case.fails else f"{type(error).__name__}: {error}"
    if case.fails:
        return "it does not report the index out of range"
    for parameter in kernel.parameters:
        found = memory.read(tensors[parameter.name], parameter.dtype)
        complaint = case.difference(parameter.name, expected[parameter.name], found)
        if complaint:
            return complaint
    return ""
