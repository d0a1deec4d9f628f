"""Run a cell at small size in Triton's interpreter, and emit its kernels at full size."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._functorch.aot_autograd import aot_function
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from forms.form import Cell
from forms.judge import difference, results, widened
from litz_codegen_triton.capabilities import chip_model
from litz_codegen_triton.dtypes import SUPPORTED
from litz_codegen_triton.emit import KernelSource, emit_kernel
from litz_codegen_triton.runtime.interpret import run_plan
from litz_codegen_triton.schedule import schedule_plan
from litz_ir.device import CPU, Device
from litz_ir.loops import LoopGraph
from litz_ir.passes import PassContext
from litz_ir.plan import Plan
from litz_ir.target import Capabilities
from litz_lowering import LoweringOptions, decompositions, lower
from litz_scheduler import SchedulerOptions, schedule

sys.path.insert(0, str(Path(__file__).parents[2] / "packages" / "lowering" / "tests"))
import lowering_check  # type: ignore[import-not-found]  # it lies beside lowering's tests

MACHINE = Capabilities(
    "sm_90",
    CPU,
    chip_model("sm_90"),
    atomics=SUPPORTED,
    max_tile_elements=32768,
    forward_progress=True,
    max_subkernels=64,
    max_sorted_row=2048,
)
"""Capabilities of a GPU under the CPU's device, where graphs are captured."""

GPU = Device("cuda")

LITTLE_MACHINE = replace(MACHINE, model=replace(MACHINE.model, sm_count=4, l2_bytes=1 << 10))
"""Capabilities of a GPU so small that small sizes occupy all of it."""

LOWERED = SchedulerOptions(gpu_split_bytes=64, long_row=32, tall_column=16)
"""Scheduler options under which small sizes are scheduled as large ones are."""

FULL_SIZE = SchedulerOptions()


def options_of(cell: Cell, base: SchedulerOptions, look_back: int) -> SchedulerOptions:
    """Return the scheduler's options for a cell."""
    generated = (
        frozenset({"all"}) if "generated_matmuls" in cell.form.options.get("force", "") else frozenset()
    )
    return replace(base, lookback=look_back, generated_matmuls=generated)


def lowering_options(cell: Cell) -> LoweringOptions:
    """Return lowering's options for a cell."""
    return LoweringOptions(max_sorted_row=MACHINE.max_sorted_row if cell.form.options.get("sort_rows") else 0)


def scheduled(graph: LoopGraph, machine: Capabilities, options: SchedulerOptions) -> Plan:
    """The plan of a graph, wherever it was captured, for a GPU of such traits, with tiles for ``MACHINE``."""
    context = PassContext({at: replace(machine, device=at) for at in (CPU, GPU)})
    return schedule_plan(schedule(graph, context, options), MACHINE)


def wrong(cell: Cell, folder: Path) -> str:
    """Describe a difference from eager at small size, or an error."""
    form = cell.form
    options = options_of(cell, LOWERED, form.look_back[1])

    def run(graph: LoopGraph, inputs: Sequence[Any], constants: Any = None, externs: Any = None) -> list[Any]:
        plan = scheduled(graph, LITTLE_MACHINE, options)
        return run_plan(plan, inputs, folder, externs=externs, constants=constants)

    def on_gpu(*given: Tensor) -> list[Tensor]:
        found = run(graph_on_gpu(cell, full=False), [lowering_check.to_array(each) for each in given])
        return [lowering_check.to_tensor(each) for each in found]

    lowering_check.run_graph = run
    try:
        compiled: Callable[..., Any] = on_gpu
        if not form.gpu_rules:
            compiled, _ = lowering_check.captured(
                form.function, dynamic=form.dynamic, options=lowering_options(cell)
            )
        runs = [
            results(
                function,
                [widened(each) if wide else each for each in cell.arguments(full=False)],
                gradients=form.gradients,
            )
            for function, wide in ((compiled, False), (form.function, False), (form.function, True))
        ]
        return difference(*runs, sequential=form.little.at(cell.tail) if form.sequential else 0)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


class _Captured(Exception):
    """Ends a trace once the graph is captured; the compiled function is never called."""


def graph_on_gpu(cell: Cell, *, full: bool) -> LoopGraph:
    """Return the loop graph of a cell, from fake GPU tensors."""
    with FakeTensorMode():
        given = [torch.empty(shape, dtype=dtype, device="cuda") for shape, dtype in cell.described(full=full)]
        table: Mapping[Any, Callable[..., Any]] = decompositions()
        traced = make_fx(cell.form.function, decomposition_table=table)(*given)
    return lower(traced, options=lowering_options(cell)).graph


def graph_of(cell: Cell) -> LoopGraph:
    """Return the loop graph of a cell at full size, of whose arguments only the sizes are read."""
    found: list[LoopGraph] = []

    def keep(gm: GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        found.append(lower(gm, options=lowering_options(cell)).graph)
        raise _Captured

    dynamic = cell.form.dynamic
    how: dict[str, Any] = {"fw_compiler": keep, "decompositions": decompositions()}
    compiled = aot_function(cell.form.function, **how, dynamic=dynamic)
    # Sizes become symbols for tensors with memory alone, which is not there before it is touched.
    made = contextlib.nullcontext() if dynamic else FakeTensorMode(allow_non_fake_inputs=True)
    with contextlib.suppress(_Captured), made:
        compiled(*(torch.empty(shape, dtype=dtype) for shape, dtype in cell.described(full=True)))
    return found[0]


def sources(cell: Cell) -> list[KernelSource]:
    """Return the kernels of a cell at full size."""
    options = options_of(cell, FULL_SIZE, cell.form.look_back[0])
    graph = graph_on_gpu(cell, full=True) if cell.form.gpu_rules else graph_of(cell)
    plan = scheduled(graph, MACHINE, options)
    return [emit_kernel(kernel) for kernel in plan.kernels]
