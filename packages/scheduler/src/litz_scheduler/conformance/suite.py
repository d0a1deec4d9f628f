"""Run of the corpus: every graph scheduled for a target, built, executed, and compared with the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from litz_ir.device import Device
from litz_ir.dtypes import ALL, DType
from litz_ir.errors import LitzError, ScheduleError
from litz_ir.host import Executor, ExternTable, Memory, NumpyMemory, numpy_externs
from litz_ir.interp import run_graph, storage_dtype
from litz_ir.loops import LoopGraph, Ref, Value
from litz_ir.passes import PassContext
from litz_ir.passes.check import difference
from litz_ir.plan import plans_in
from litz_ir.target import Capabilities, SchedulingTarget, Target, check_members, requirements_of
from litz_ir.target.conformance import Report
from litz_scheduler.conformance.case import Array, GraphCase
from litz_scheduler.conformance.corpus import graph_cases
from litz_scheduler.options import SchedulerOptions
from litz_scheduler.pipeline import schedule

_Plain = int | float | complex | bool | str | None
"""Types of arguments of routines that are no tensors."""


def run_graph_conformance(
    target: Target,
    folder: Path,
    memory: Memory | None = None,
    *,
    cases: Sequence[GraphCase] | None = None,
    options: SchedulerOptions | None = None,
) -> Report:
    """Schedule, build and run every graph of the corpus, or of ``cases``, on ``target`` and report the results.

    Sources are built in ``folder``; ``memory`` is the device's, by default NumPy's. A graph that the scheduler refuses
    because the device lacks what one of its operations needs is skipped; other errors of a case are failures. Raises
    :class:`~litz_ir.errors.TargetError` if the target lacks a member of its protocol.
    """
    check_members(target)
    capabilities = target.capabilities()
    passed, failed, skipped = [], [], []
    for case in graph_cases(capabilities.device) if cases is None else cases:
        try:
            complaint = _attempt(target, case, folder, memory or NumpyMemory(), options or SchedulerOptions())
        except ScheduleError as error:
            lack = lacking(case.graph, capabilities)
            if lack:
                skipped.append((case.name, lack))
                continue
            complaint = f"{type(error).__name__}: {error}"
        except LitzError as error:
            complaint = f"{type(error).__name__}: {error}"
        if complaint:
            failed.append((case.name, complaint))
        else:
            passed.append(case.name)
    return Report(tuple(passed), tuple(failed), tuple(skipped))


def lacking(graph: LoopGraph, capabilities: Capabilities) -> str:
    """Return what the first operation of a graph needs that the device lacks; empty if there is none."""
    for operation in graph.operations:
        missing = requirements_of(operation).lacking(capabilities)
        if missing:
            return f"{operation.name} needs {missing}"
    return ""


def _attempt(target: Target, case: GraphCase, folder: Path, memory: Memory, options: SchedulerOptions) -> str:
    """Return the difference between a target's results and the interpreter's; empty if they agree."""
    capabilities = target.capabilities()
    plan = schedule(case.graph, PassContext({capabilities.device: capabilities}), options)
    if isinstance(target, SchedulingTarget):
        plan = target.schedule(plan)
    launchers = {}
    for part in plans_in(plan):
        units = target.emit(part)
        module = target.load(
            units, [target.build(unit, folder) for unit in units], {each.name: each for each in part.kernels}
        )
        launchers.update({each.name: module.function(each.name) for each in part.kernels})
    given = case.fresh()
    externs = numpy_externs().extended(case.externs)
    expected = run_graph(case.graph, given, externs=externs)
    tensors = [
        _tensor(memory, array, value.type.dtype, capabilities.device)
        for array, value in zip(case.fresh(), case.graph.inputs, strict=True)
        if isinstance(value, Value)
    ]
    routines = {name: _hosted(externs[name], memory, capabilities.device) for name in externs}
    found = Executor(plan, launchers, memory, ExternTable(routines)).run(tensors)
    values = case.graph.values()
    names = [each.name for each in case.graph.outputs if isinstance(each, Ref)]
    names += [each.name for each in case.graph.inputs]
    for name, a, b in zip(names, [*expected, *given], [*found, *tensors], strict=True):
        dtype = values[name].type.dtype
        complaint = difference(a, np.asarray(memory.read(b, dtype)), dtype, case.ulp)
        if complaint:
            return f"{name}: {complaint}"
    return ""


def _hosted(routine: Callable[..., Any], memory: Memory, device: Device) -> Callable[..., Any]:
    """Return a routine over NumPy arrays as one over tensors of a memory."""

    def call(*arguments: Any, **attributes: Any) -> Any:
        arrays = [
            each if isinstance(each, _Plain) else memory.read(each, next(iter(memory.dtypes(each))))
            for each in arguments
        ]
        returned = routine(*arrays, **attributes)
        several = isinstance(returned, tuple)
        made = tuple(
            _tensor(memory, each, _dtype(each), device) for each in (returned if several else (returned,))
        )
        return made if several else made[0]

    return call


def _dtype(array: Array) -> DType:
    """Return a dtype whose memory form an array has."""
    return next(each for each in ALL if storage_dtype(each) == array.dtype)


def _tensor(memory: Memory, array: Array, dtype: DType, device: Device) -> Any:
    """Return a tensor of a memory with the elements of an array."""
    storage = memory.empty(array.nbytes, device)
    strides = [stride // array.itemsize for stride in array.strides]
    tensor = memory.view(storage, dtype, array.shape, strides, 0)
    memory.write(tensor, array)
    return tensor
