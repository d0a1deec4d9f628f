"""The OpenCL device of the tests, which skip with the reason where there is none, and plans run on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("pyopencl", reason="pyopencl is not installed", exc_type=ImportError)

from litz_ir import LoopGraph, Plan, from_text
from litz_ir.errors import ToolchainError
from litz_ir.host import Executor
from litz_ir.interp import run_graph
from litz_ir.loops import Value
from litz_ir.passes import PassContext
from litz_ir.target import BufferFunction
from litz_scheduler import schedule
from litz_target_opencl.memory import ClMemory
from litz_target_opencl.target import CAPABILITIES, OpenClTarget

Array = npt.NDArray[Any]
TARGET = OpenClTarget()


def _missing() -> str:
    try:
        return "" if TARGET.queue else "no queue"
    except ToolchainError as error:
        return str(error)


NO_DEVICE = _missing()
needs_device = pytest.mark.skipif(bool(NO_DEVICE), reason=f"needs an OpenCL device: {NO_DEVICE}")


def graph_of(text: str) -> LoopGraph:
    """Parse a loop graph."""
    graph = from_text(text)
    assert isinstance(graph, LoopGraph)
    return graph


def plan_of(graph: LoopGraph) -> Plan:
    """Schedule a graph for the device."""
    return schedule(graph, PassContext({CAPABILITIES.device: CAPABILITIES}))


def launchers(plan: Plan, folder: Path) -> Mapping[str, BufferFunction]:
    """Build a plan's kernels."""
    kernels = {kernel.name: kernel for kernel in plan.kernels}
    units = TARGET.emit(plan)
    module = TARGET.load(units, [TARGET.build(unit, folder) for unit in units], kernels)
    return {name: module.function(name) for name in kernels}


def on_device(plan: Plan, inputs: Sequence[Any], folder: Path) -> list[Array]:
    """Run a plan whose tensors are in the device's memory; an input that is no array is passed as it is."""
    memory = ClMemory(TARGET.queue)
    given: list[Any] = []
    for info, each in zip(plan.inputs, inputs, strict=True):
        given.append(memory.put(each, info.type.dtype) if isinstance(info, Value) else each)
    found = Executor(plan, launchers(plan, folder), memory).run(given)
    for info, tensor, each in zip(plan.inputs, given, inputs):
        if isinstance(info, Value):
            np.copyto(each, memory.read(tensor, info.type.dtype))  # what the plan writes to its inputs
    return [memory.read(tensor, tensor.dtype) for tensor in found]


def agrees(text: str, inputs: Sequence[Any], folder: Path, rtol: float = 1e-6) -> Plan:
    """Compare a graph's results, and its inputs after the run, with the reference interpreter's; returns its
    plan."""
    graph = graph_of(text)
    plan = plan_of(graph)
    mine, theirs = ([np.copy(x) if isinstance(x, np.ndarray) else x for x in inputs] for _ in "ab")
    found, expected = on_device(plan, mine, folder), run_graph(graph, theirs)
    for a, b in zip((*found, *mine), (*expected, *theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)
    return plan
