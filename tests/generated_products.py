"""Functions of torch's that multiply matrices, their products generated for a GPU: what their plans compute.

Run as a program (``TRITON_INTERPRET=1 python generated_products.py FOLDER``) it runs every plan with its kernels in
Triton's interpreter and prints a line of JSON for each function: its name, what differs from eager (empty when nothing
does), how many kernels multiply tiles, how many there are, and which calls are left. The kernels' compiled form is left
in the folder.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from litz_codegen_triton.emit.kernel import emit_kernel
from litz_ir.device import CPU
from litz_ir.loops.nodes import LoopGraph
from litz_ir.passes.base import PassContext
from litz_ir.plan.program import CallStep, Plan
from litz_ir.target.capabilities import Capabilities
from litz_scheduler import SchedulerOptions, schedule
from litz_scheduler.options import Precision

sys.path.insert(0, str(Path(__file__).parents[1] / "packages" / "lowering" / "tests"))
import lowering_check

# The graphs are captured on the CPU, so a GPU's traits are given to that device.
MACHINE = Capabilities("sm_90", CPU, processors=132, block_limit=32768)
OPTIONS = SchedulerOptions(generated_products=frozenset({"all"}))


@dataclass(frozen=True)
class Case:
    """A function and its arguments; how many kernels multiply tiles, and how many there are in all; ``precision`` is
    that of products of f32."""

    call: Callable[..., Any]
    arguments: tuple[torch.Tensor, ...]
    products: int
    kernels: int
    dynamic: bool = False
    gradients: bool = False
    precision: Precision = "ieee"


def normal(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """The same numbers in every process, small enough for sums of products."""
    generator = torch.Generator().manual_seed(sum(shape) + len(shape))
    return (torch.randn(shape, generator=generator) / 4).to(dtype)


def mlp(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.gelu(F.linear(x, w, b))


def swiglu(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)


def quantised(x: torch.Tensor, q: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return F.linear(x, q.to(x.dtype) * scale[:, None])


def heads(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    batch, length, _ = x.shape
    return F.linear(x, w, b).view(batch, length, 4, -1).transpose(1, 2).contiguous()


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.transpose(-2, -1) * 0.25, -1) @ v


def normalised(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(F.linear(x, w) + x, (w.shape[0],), b)


def looked_up(table: torch.Tensor, places: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.embedding(places, table) @ w


def both(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x @ w
    return y, y.relu()


def rows_of_nan() -> torch.Tensor:
    return torch.full((33,), float("nan"), dtype=torch.bfloat16)


X, W, B = normal(40, 70), normal(33, 70), normal(33)
SQUARE, INPUT = normal(70, 70), normal(2, 20, 70)

CASES: Mapping[str, Case] = {
    "mm": Case(lambda a, b: a @ b, (X, normal(70, 33)), 1, 1),
    "mm_right_turned": Case(lambda a, b: a @ b.t(), (X, W), 1, 1),
    "mm_left_turned": Case(lambda a, b: a.t() @ b, (normal(70, 40), normal(70, 33)), 1, 1),
    "mm_both_turned": Case(lambda a, b: a.t() @ b.t(), (normal(70, 40), W), 1, 1),
    "mm_result_turned": Case(lambda a, b: (a @ b.t()).t().contiguous(), (X, W), 1, 1),
    "mm_f16": Case(lambda a, b: a @ b.t(), (X.half(), W.half()), 1, 1),
    "mm_f32": Case(lambda a, b: a @ b.t() + 1, (X.float(), W.float()), 1, 1),
    "mm_tf32": Case(
        lambda a, b: F.relu(a @ b.t()) + 1, (X.float(), W.float()), 1, 1, precision="tf32"
    ),
    "mm_one_row": Case(lambda a, b: a @ b.t(), (X[:1], W), 0, 1),
    "mm_one_summed": Case(lambda a, b: a @ b.t(), (X[:, :1], W[:, :1]), 0, 1),
    "mm_nothing_summed": Case(lambda a, b: a @ b.t(), (X[:, :0], W[:, :0]), 0, 1),
    "mm_dynamic": Case(lambda a, b: F.relu(a @ b.t()), (X, W), 1, 1, dynamic=True),
    "addmm_scaled": Case(
        lambda b, x, w: torch.addmm(b, x, w.t(), beta=0.5, alpha=2), (normal(40, 33), X, W), 1, 1
    ),
    "addmm_of_nothing": Case(lambda b, x, w: torch.addmm(b, x, w.t(), beta=0), (rows_of_nan(), X, W), 1, 1),
    "bmm": Case(torch.bmm, (normal(3, 18, 20), normal(3, 20, 24)), 1, 1),
    "bmm_one_for_all": Case(lambda a, b: a @ b.t(), (INPUT, W), 1, 1),
    "bmm_broadcast": Case(
        lambda a, b: torch.bmm(a, b.expand(3, 20, 24)), (normal(3, 18, 20), normal(20, 24)), 1, 1
    ),
    "baddbmm": Case(
        lambda c, a, b: torch.baddbmm(c, a, b, alpha=0.5), (normal(1, 24), normal(3, 18, 20), normal(3, 20, 24)), 1, 1
    ),
    "bias_gelu": Case(mlp, (INPUT, W, B), 1, 1),
    "residual": Case(lambda x, w: x + F.linear(x, w), (INPUT, SQUARE), 1, 1),
    "swiglu": Case(swiglu, (X, normal(48, 70), normal(48, 70), normal(70, 48)), 3, 3),
    "two_results": Case(both, (X, normal(70, 33)), 1, 1),
    "heads": Case(heads, (INPUT, normal(32, 70), normal(32)), 1, 1),
    "attention": Case(attention, (normal(4, 18, 20), normal(4, 24, 20), normal(4, 24, 32)), 2, 3),
    "normalised": Case(normalised, (X, SQUARE, normal(70)), 1, 2),
    "deep": Case(lambda x, w, b: F.relu(F.linear(x, w, b)), (normal(20, 8192), normal(33, 8192), B), 1, 2),
    "int8_weights": Case(quantised, (X, torch.arange(33 * 70).view(33, 70).sub(900).to(torch.int8), B), 1, 1),
    "of_relu": Case(lambda x, w: F.relu(x) @ w.t(), (X, W), 1, 1),
    "of_gelu": Case(lambda x, w: F.gelu(x) @ w.t(), (X, W), 1, 2),
    "of_narrowed": Case(lambda x, w: x.bfloat16() @ w.t(), (X.float(), W), 1, 2),
    "of_one_relu": Case(lambda x, w, v: (F.relu(x) @ w.t(), F.relu(x) @ v.t()), (X, W, SQUARE), 2, 3),
    "of_looked_up": Case(looked_up, (normal(50, 70), torch.arange(40) % 50, normal(70, 33)), 1, 2),
    "gradients": Case(mlp, (X, W, B), 3, 4, gradients=True),
}  # fmt: skip


@dataclass
class Seen:
    """The plans that were made, and what they made of products."""

    folder: Path
    plans: list[Plan]
    options: SchedulerOptions

    def run(
        self,
        graph: LoopGraph,
        inputs: Sequence[Any],
        constants: Mapping[str, Any] | None = None,
        externs: Any = None,
    ) -> list[Any]:
        """The outputs of ``graph``, computed by Triton kernels."""
        from litz_codegen_triton.runtime.interpret import run_plan

        plan = schedule(graph, PassContext({CPU: MACHINE}), self.options)
        self.plans.append(plan)
        return run_plan(plan, inputs, self.folder, externs=externs, constants=constants)


def compared(case: Case, seen: Seen) -> str:
    """What differs between the plans of a function and eager; what is raised counts."""
    lowering_check.run_graph = seen.run
    how: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-4, "rounding": 3e-2, "allowed": ("aten",)}
    try:
        if case.gradients:
            lowering_check.check_gradients(case.call, *case.arguments, **how)
        else:
            lowering_check.check(case.call, *case.arguments, dynamic=case.dynamic, **how)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main(folder: Path, names: Sequence[str]) -> None:
    """Compare every function, or the named ones."""
    for name in names or CASES:
        options = dataclasses.replace(OPTIONS, product_precision=CASES[name].precision)
        seen = Seen(folder, [], options)
        difference = compared(CASES[name], seen)
        sources = [emit_kernel(kernel) for plan in seen.plans for kernel in plan.kernels]
        for number, source in enumerate(sources):
            text = json.dumps(dataclasses.asdict(dataclasses.replace(source, programs=0)))
            (folder / f"{name}_{number}.json").write_text(text)
        products = sum("tl.dot(" in source.text for source in sources)
        calls = [step.target for plan in seen.plans for step in plan.steps if isinstance(step, CallStep)]
        line = {"case": name, "difference": difference, "products": products, "kernels": len(sources)}
        print(json.dumps(line | {"calls": calls}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
