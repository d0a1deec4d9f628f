"""Matmuls of torch's functions, generated for a GPU: results of their plans.

Run as a program (``TRITON_INTERPRET=1 python generated_matmuls.py FOLDER``) it runs every plan with its kernels in
Triton's interpreter and prints a line of JSON for each function: its name, the difference from eager (empty where there
is none), the number of kernels with `tl.dot`, the number of all, and the remaining calls. The compiled kernels stay in
the folder.
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
from forms import judge
from torch.nn import functional as F

from litz_codegen_triton.capabilities import NVIDIA
from litz_codegen_triton.dtypes import SUPPORTED
from litz_codegen_triton.emit import emit_kernel
from litz_codegen_triton.schedule import schedule_plan
from litz_codegen_triton.tables.routines import routines_of
from litz_ir.device import CPU
from litz_ir.loops import LoopGraph
from litz_ir.passes import PassContext
from litz_ir.plan import CallStep, Plan
from litz_ir.target import Capabilities
from litz_scheduler import Precision, SchedulerOptions, schedule

sys.path.insert(0, str(Path(__file__).parents[1] / "packages" / "lowering" / "tests"))
import lowering_check

# The graphs are captured on the CPU, so a GPU's traits are given to that device.
MACHINE = Capabilities(
    "sm_90",
    CPU,
    dataclasses.replace(NVIDIA, sm_count=132),
    atomics=SUPPORTED,
    max_tile_elements=32768,
    routines=routines_of("sm_90"),
)
OPTIONS = SchedulerOptions(generated_matmuls=frozenset({"all"}))


@dataclass(frozen=True)
class Case:
    """A function and its arguments; the number of kernels with `tl.dot`, and of all; ``precision`` is that of f32
    matmuls, ``chips`` the first compute capability whose tensor cores take the operands' dtypes, ``calls`` the targets
    of the calls that remain."""

    call: Callable[..., Any]
    arguments: tuple[torch.Tensor, ...]
    dot_kernels: int
    kernels: int
    dynamic: bool = False
    gradients: bool = False
    precision: Precision = "ieee"
    chips: Sequence[str] = ("sm_80", "sm_90", "sm_100")
    calls: Sequence[str] = ()


def normal(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """Return the same normal numbers in every process, small enough for matmuls."""
    generator = torch.Generator().manual_seed(sum(shape) + len(shape))
    return (torch.randn(shape, generator=generator) / 4).to(dtype)


def mlp(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.gelu(F.linear(x, w, b))


def swiglu(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)


def quantised(x: torch.Tensor, q: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return F.linear(x, q.to(x.dtype) * scale[:, None])


def int4_quantised(x: torch.Tensor, q: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor) -> torch.Tensor:
    """Linear layer with int4 weights, two in a byte, with a scale and a zero point for each group of 16."""
    low, high = q & 15, q >> 4
    numbers = torch.stack([low, high], -1).view(q.shape[0], -1, 16).to(x.dtype)
    return F.linear(x, ((numbers - zero[..., None]) * scale[..., None]).flatten(1))


def int4_in_words(x: torch.Tensor, q: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Linear layer with int4 weights, eight in an i32, with a scale for each group of 16; dequantised in f32, then
    rounded to the dtype."""
    numbers = (q[..., None] >> torch.arange(0, 32, 4, dtype=torch.int32, device=q.device)) & 15
    weights = (numbers - 8).view(q.shape[0], -1, 16).float() * scale[..., None]
    return F.linear(x, weights.flatten(1).to(x.dtype))


def dynamic_int8(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Linear layer with dynamic int8 quantisation of its rows."""
    largest = x.float().abs().amax(-1, keepdim=True) / 127
    rounded = torch.round(x.float() / largest).clamp(-128, 127).to(torch.int8)
    return (torch._int_mm(rounded, w).float() * largest * scale + b).to(x.dtype)


def scaled(out_dtype: torch.dtype, fast: bool = False) -> Callable[..., torch.Tensor]:
    """Return a scaled fp8 matmul with an activation."""

    def run(
        x: torch.Tensor, w: torch.Tensor, s: torch.Tensor, t: torch.Tensor, *bias: torch.Tensor
    ) -> torch.Tensor:
        made = torch._scaled_mm(x, w.t(), s, t, *bias, out_dtype=out_dtype, use_fast_accum=fast)
        return F.relu(made)

    return run


def scaled_mm_v2(x: torch.Tensor, w: torch.Tensor, s: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """Scaled fp8 matmul with scales by row and column, by torch's current operator."""
    row_wise = 1  # F.ScalingType.RowWise
    how: dict[str, Any] = {"bias": None, "out_dtype": torch.bfloat16, "use_fast_accum": True}
    return torch.ops.aten._scaled_mm_v2(x, w.t(), [s], [row_wise], [0], [t], [row_wise], [0], **how)


def experts(x: torch.Tensor, up: torch.Tensor, down: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Grouped matmul: each row uses the weights of its group."""
    gate, value = torch._grouped_mm(x, up, offs=ends).chunk(2, -1)
    return torch._grouped_mm(F.silu(gate) * value, down, offs=ends)


def bytes_of(*shape: int, dtype: torch.dtype = torch.int8) -> torch.Tensor:
    """Return integers of a dtype whose bytes take every value, in mixed order."""
    count = torch.Size(shape).numel() * dtype.itemsize
    return (torch.arange(count) * 167 + sum(shape)).to(torch.uint8).view(dtype).view(shape)


def floats_of(*shape: int, dtype: torch.dtype = torch.float8_e4m3fn) -> torch.Tensor:
    return normal(*shape).to(dtype)


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
HOPPER = ("sm_90", "sm_100")
EIGHTS, MIXED = (floats_of(32, 64), floats_of(48, 64)), floats_of(32, 64, dtype=torch.float8_e5m2)
ONES, LINES = (torch.tensor(0.5), torch.tensor(0.3)), (normal(32, 1).float(), normal(1, 48).float())
ENDS = torch.tensor([17, 17, 23, 60], dtype=torch.int32)

CASES: Mapping[str, Case] = {
    "mm": Case(lambda a, b: a @ b, (X, normal(70, 33)), 1, 1),
    "mm_b_transposed": Case(lambda a, b: a @ b.t(), (X, W), 1, 1),
    "mm_a_transposed": Case(lambda a, b: a.t() @ b, (normal(70, 40), normal(70, 33)), 1, 1),
    "mm_both_transposed": Case(lambda a, b: a.t() @ b.t(), (normal(70, 40), W), 1, 1),
    "mm_result_transposed": Case(lambda a, b: (a @ b.t()).t().contiguous(), (X, W), 1, 1),
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
    "deep_prime": Case(lambda x, w, b: F.linear(x, w, b), (normal(20, 8191), normal(33, 8191), B), 1, 2),
    "deep_prime_f32": Case(lambda x, w: x @ w.t(), (normal(20, 8191).float(), normal(33, 8191).float()), 1, 2),
    "int8_weights": Case(quantised, (X, torch.arange(33 * 70).view(33, 70).sub(900).to(torch.int8), B), 1, 1),
    "int8_summed": Case(
        lambda a, b: torch._int_mm(a, b.t()), (bytes_of(40, 70), bytes_of(33, 70)), 1, 1
    ),
    "int8_deep": Case(lambda a, b: torch._int_mm(a, b.t()), (bytes_of(20, 8200), bytes_of(33, 8200)), 1, 2),
    "int8_quantised": Case(
        dynamic_int8, (X, bytes_of(70, 32), normal(32).float(), normal(32)), 1, 2
    ),
    "int8_of_rows": Case(torch._weight_int8pack_mm, (normal(40, 64), bytes_of(48, 64), normal(48)), 1, 1),
    "int8_of_f16": Case(
        torch._weight_int8pack_mm, (normal(40, 64).half(), bytes_of(48, 64), normal(48).half()), 1, 1
    ),
    "int4_weights": Case(
        int4_quantised, (normal(40, 64), bytes_of(48, 32, dtype=torch.uint8), normal(48, 4), normal(48, 4)), 1, 1
    ),
    "int4_words": Case(
        int4_in_words,
        (normal(40, 64), bytes_of(48, 8, dtype=torch.int32), normal(48, 4).float()), 1, 1
    ),
    "f8_weights": Case(quantised, (X, floats_of(33, 70), B), 1, 1),
    "f8_scaled": Case(scaled(torch.bfloat16), (*EIGHTS, *ONES), 1, 1, chips=HOPPER),
    "f8_scaled_by_others": Case(scaled(torch.bfloat16), (*EIGHTS, *ONES), 1, 1),
    "f8_scaled_rows": Case(scaled(torch.bfloat16, True), (*EIGHTS, *LINES), 1, 1, chips=HOPPER),
    "f8_scaled_mm_v2": Case(scaled_mm_v2, (*EIGHTS, *LINES), 1, 1, chips=HOPPER),
    "f8_scaled_bias": Case(
        scaled(torch.float16), (MIXED, EIGHTS[1], *ONES, normal(48).half()), 1, 1, chips=HOPPER
    ),
    "f8_scaled_f32": Case(scaled(torch.float32), (*EIGHTS, *ONES), 1, 1, chips=HOPPER),
    "f8_deep": Case(
        scaled(torch.bfloat16), (floats_of(32, 8208), floats_of(48, 8208), *ONES), 1, 2, chips=HOPPER
    ),
    "grouped_batches": Case(torch._grouped_mm, (normal(3, 18, 24), normal(3, 24, 32)), 1, 1),
    "grouped_rows": Case(torch._grouped_mm, (normal(60, 24), normal(4, 24, 32), ENDS), 1, 4),
    "grouped_many_rows": Case(torch._grouped_mm, (normal(130, 24), normal(2, 24, 32), ENDS[2:] + 70), 1, 4),
    "experts": Case(experts, (normal(60, 24), normal(4, 24, 64), normal(4, 32, 24), ENDS), 2, 6),
    "of_relu": Case(lambda x, w: F.relu(x) @ w.t(), (X, W), 1, 1),
    "of_gelu": Case(lambda x, w: F.gelu(x) @ w.t(), (X, W), 1, 2),
    "of_narrowed": Case(lambda x, w: x.bfloat16() @ w.t(), (X.float(), W), 1, 2),
    "of_one_relu": Case(lambda x, w, v: (F.relu(x) @ w.t(), F.relu(x) @ v.t()), (X, W, SQUARE), 2, 3),
    "of_looked_up": Case(looked_up, (normal(50, 70), torch.arange(40) % 50, normal(70, 33)), 1, 2),
    "gradients": Case(mlp, (X, W, B), 3, 4, gradients=True),
}  # fmt: skip


@dataclass
class Seen:
    """The plans that were built, and their decisions about matmuls."""

    folder: Path
    plans: list[Plan]
    options: SchedulerOptions
    machine: Capabilities

    def run(
        self,
        graph: LoopGraph,
        inputs: Sequence[Any],
        constants: Mapping[str, Any] | None = None,
        externs: Any = None,
    ) -> list[Any]:
        """Return the outputs of ``graph``, computed by Triton kernels."""
        from litz_codegen_triton.runtime.interpret import run_plan

        plan = schedule_plan(schedule(graph, PassContext({CPU: self.machine}), self.options), self.machine)
        self.plans.append(plan)
        return run_plan(plan, inputs, self.folder, externs=externs, constants=constants)


def gradients_compared(case: Case) -> str:
    """Describe gradients that are further from eager in f64 than eager's own. In narrow floats these differ between
    machines, by the roundings of their libraries and by the sign that they give to an operand of ReLU."""
    compiled, _ = lowering_check.captured(case.call)
    wide = [judge.widened(each) for each in case.arguments]
    runs = ((compiled, case.arguments), (case.call, case.arguments), (case.call, wide))
    return judge.difference(*(judge.results(call, given, gradients=True) for call, given in runs))


def compared(case: Case, seen: Seen) -> str:
    """Describe a difference between the plans of a function and eager, or an error."""
    lowering_check.run_graph = seen.run
    how: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-4, "rounding": 3e-2, "allowed": ("aten",)}
    try:
        if case.gradients:
            return gradients_compared(case)
        lowering_check.check(case.call, *case.arguments, dynamic=case.dynamic, **how)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main(
    cases: Mapping[str, Case],
    folder: Path,
    names: Sequence[str],
    chosen: SchedulerOptions = OPTIONS,
    traits: Capabilities = MACHINE,
) -> None:
    """Compare every function of these, or the named ones."""
    for name in names or cases:
        precision = cases[name].precision
        options = dataclasses.replace(chosen, matmul_precision=precision, convolution_precision=precision)
        machine = dataclasses.replace(traits, fp8_matmul="sm_80" not in cases[name].chips)
        seen = Seen(folder, [], options, machine)
        difference = compared(cases[name], seen)
        sources = [emit_kernel(kernel) for plan in seen.plans for kernel in plan.kernels]
        for number, source in enumerate(sources):
            text = json.dumps(dataclasses.asdict(dataclasses.replace(source, grid_size=0)))
            (folder / f"{name}_{number}.json").write_text(text)
        dot_kernels = sum("tl.dot(" in source.text for source in sources)
        calls = [step.target for plan in seen.plans for step in plan.steps if isinstance(step, CallStep)]
        line = {"case": name, "difference": difference, "dot_kernels": dot_kernels, "kernels": len(sources)}
        print(json.dumps(line | {"calls": calls}), flush=True)


if __name__ == "__main__":
    main(CASES, Path(sys.argv[1]), sys.argv[2:])
