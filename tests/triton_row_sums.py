"""``TRITON_INTERPRET=1 python tests/triton_row_sums.py NAMES``: gradients of normalisations, planned for a GPU of four
SMs, in Triton's interpreter.

Prints a line of JSON for each: its name, the largest error of a gradient against eager, the kernels that sum rows and
columns, those that sum rows point by point, and the thread blocks that divide a row. Short rows are divided as long
ones are; the interpreter sums them point by point.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from functorch.compile import min_cut_rematerialization_partition
from torch import Tensor
from torch._functorch.aot_autograd import aot_function, make_boxed_func
from torch.fx import GraphModule

from litz_codegen_triton.capabilities import chip_model
from litz_codegen_triton.emit import emit_kernel
from litz_codegen_triton.runtime.interpret import run_plan
from litz_codegen_triton.schedule import schedule_plan
from litz_ir.device import CPU
from litz_ir.passes import PassContext
from litz_ir.plan import Kernel, launched_cluster
from litz_ir.scalar import nested_reductions
from litz_ir.target import Capabilities
from litz_lowering import correct_metadata, decompositions, lower
from litz_scheduler import schedule
from litz_scheduler.schedules import row_cluster

sys.path.insert(0, str(Path(__file__).parents[1] / "packages" / "lowering" / "tests"))
import lowering_check

MACHINE = Capabilities(
    "sm_90", CPU, replace(chip_model("sm_90"), sm_count=4), max_tile_elements=32768, nested_reductions=True
)
SHAPES = ((64, 96), (4, 24, 128))
DIVIDED = {(64, 48): 3, (64, 24): 2}
"""Shapes, and the thread blocks that divide a row."""
LIMITS = {"_PART_BYTES": 64, "_LARGEST_PART": 16, "_ALONE": (16, 16)}
"""Limits of a thread block's share of a row: 16 elements."""
_SERIAL = re.compile(r"^ *nested(_\d+)? = tl\.full", re.MULTILINE)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A layer norm after a bias, whose gradient sums the columns of what the kernel computes."""
    return F.layer_norm(x + bias, x.shape[-1:], weight, bias)


def rms_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """An RMS norm with a residual."""
    return x + bias + F.rms_norm(x, x.shape[-1:], weight, 1e-6)


def two_norms(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Two norms of one tensor, each with a weight."""
    return F.rms_norm(x * weight, x.shape[-1:], bias) + F.layer_norm(x, x.shape[-1:], weight, bias)


class Compiler:
    """A compiler for AOTAutograd that runs plans in the interpreter, and keeps their kernels."""

    def __init__(self) -> None:
        self.kernels: list[Kernel] = []

    def __call__(self, gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        """Return the call of a graph."""
        correct_metadata(gm)
        plan = schedule_plan(schedule(lower(gm).graph, PassContext({CPU: MACHINE})), MACHINE)
        self.kernels += plan.kernels

        def run(*args: Tensor) -> list[Tensor]:
            with tempfile.TemporaryDirectory() as folder:
                given = [lowering_check.to_array(each) for each in args]
                return [lowering_check.to_tensor(each) for each in run_plan(plan, given, folder=Path(folder))]

        return make_boxed_func(run)


def check(program: Callable[..., Tensor], shape: Sequence[int], dtype: torch.dtype) -> dict[str, Any]:
    """Compare a program's result and gradients with eager's of f32."""
    torch.manual_seed(0)
    x = torch.randn(shape, dtype=dtype)
    args = (x, *(torch.randn(shape[-1], dtype=dtype) for _ in range(2)))
    given = torch.randn(shape, dtype=dtype)
    compiler = Compiler()
    compiled = aot_function(
        program,
        compiler,
        compiler,
        partition_fn=min_cut_rematerialization_partition,
        decompositions=decompositions(recomputed=True),
    )
    results = []
    for function, kind in ((compiled, dtype), (program, torch.float32)):
        leaves = [each.detach().to(kind).requires_grad_() for each in args]
        y = function(*leaves)
        grads = torch.autograd.grad(y, leaves, given.to(y.dtype))
        results.append([y, *grads])
    errors = [float((a.float() - b).norm() / b.norm()) for a, b in zip(*results, strict=True)]
    nested = [kernel for kernel in compiler.kernels if _nested(kernel)]
    serial = [kernel.name for kernel in nested if _SERIAL.search(emit_kernel(kernel).text)]
    clusters = [launched_cluster(kernel.schedule) for kernel in nested]
    names = [kernel.name for kernel in nested]
    return {"error": max(errors), "kernels": names, "serial": serial, "clusters": clusters}


def _nested(kernel: Kernel) -> bool:
    """Return True for a kernel that sums rows inside a loop."""
    values = (each.value for phase in kernel.phases for each in phase.statements if hasattr(each, "value"))
    return bool(nested_reductions(*values))


def named(
    programs: Iterable[Callable[..., Tensor]], shapes: Iterable[tuple[int, ...]]
) -> dict[str, tuple[Callable[..., Tensor], tuple[int, ...], torch.dtype]]:
    """Return programs, shapes and dtypes by the names of their lines."""
    return {
        f"{program.__name__} of {shape} in {dtype}": (program, shape, dtype)
        for program, shape, dtype in product(programs, shapes, (torch.float32, torch.bfloat16))
    }


WHOLE = named((layer_norm, rms_norm, two_norms), SHAPES)
CLUSTERED = named((layer_norm, rms_norm), DIVIDED)


def main() -> None:
    """Check the programs that are named on the command line, and print their lines."""
    for name in sys.argv[1:]:
        limits = LIMITS if name in CLUSTERED else {}
        with ExitStack() as stack:
            for limit, value in limits.items():
                stack.enter_context(mock.patch.object(row_cluster, limit, value))
            try:
                found = check(*(WHOLE | CLUSTERED)[name])
            except Exception as error:
                found = {"failure": f"{type(error).__name__}: {error}"}
        print(json.dumps({"case": name, **found}), flush=True)


if __name__ == "__main__":
    main()
