"""Calls of torch's attention for GPUs, planned as loops: results of their plans against a dense computation in f64.

Run as a program (``TRITON_INTERPRET=1 python generated_attention.py FOLDER``) it runs every plan with its kernels in
Triton's interpreter and prints a line of JSON for each case: its name, what differs (empty when nothing does), how many
kernels there are, those that run a nested reduction point by point, and the remaining calls. The compiled kernels stay
in the folder.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from litz_codegen_triton.capabilities import NVIDIA
from litz_codegen_triton.dtypes import SUPPORTED
from litz_codegen_triton.emit import emit_kernel
from litz_codegen_triton.runtime.interpret import run_plan
from litz_codegen_triton.schedule import schedule_plan
from litz_ir.device import CPU
from litz_ir.passes import PassContext
from litz_ir.plan import CallStep, Plan
from litz_ir.target import Capabilities
from litz_lowering import LoweringOptions, decompositions, lower
from litz_scheduler import SchedulerOptions, schedule

sys.path.insert(0, str(Path(__file__).parents[1] / "packages" / "lowering" / "tests"))
import lowering_check

# The graphs are captured on the CPU, so a GPU's traits are given to that device.
MACHINE = Capabilities(
    "sm_90",
    CPU,
    dataclasses.replace(NVIDIA, sm_count=132),
    atomics=SUPPORTED,
    max_tile_elements=32768,
    nested_reductions=True,
)
EVERY = SchedulerOptions(generated_matmuls=frozenset({"all"}))

Run = Callable[[Plan, Sequence[Any]], list[Any]]
"""Runs a plan on its inputs."""

_SERIAL = re.compile(r"^ *nested(_\d+)? = tl\.full", re.MULTILINE)


@dataclass(frozen=True)
class Case:
    """A call of ``aten._scaled_dot_product_{routine}_attention``: heads of queries and of keys, lengths, widths of keys
    and of values. ``bias`` is the shape of what is added to scores, whose first ``hidden`` rows hide all keys;
    ``together`` lays heads out beside one another, as models do; the batch and lengths are symbols where they are
    ``dynamic``. How many ``kernels`` there are, without gradients
    and with them."""

    routine: str = "flash"
    causal: bool = False
    scale: float | None = None
    heads: tuple[int, int] = (2, 2)
    lengths: tuple[int, int] = (32, 48)
    widths: tuple[int, int] = (16, 16)
    batch: int = 1
    dtype: torch.dtype = torch.bfloat16
    together: bool = True
    bias: tuple[int, ...] = ()
    hidden: int = 0
    dynamic: bool = False
    kernels: tuple[int, int] = (1, 4)

    def operands(self) -> tuple[Tensor, ...]:
        """Return queries, keys, values and the bias, the same in every process."""
        (heads, shared), (queries, keys), (width, wide) = self.heads, self.lengths, self.widths
        q = self._laid_out(self.batch, heads, queries, width)
        k, v = (self._laid_out(self.batch, shared, keys, each) for each in (width, wide))
        if not self.bias:
            return q, k, v
        bias = _normal(*self.bias)
        if self.hidden:
            bias[:, :, : self.hidden] = -math.inf
        return q, k, v, bias.to(self.dtype)

    def given(self) -> Tensor:
        """The gradient of the attention's output."""
        return self._laid_out(self.batch, self.heads[0], self.lengths[0], self.widths[1])

    def _laid_out(self, batch: int, heads: int, length: int, width: int) -> Tensor:
        if self.together:
            return _normal(batch, length, heads, width).to(self.dtype).transpose(1, 2)
        return _normal(batch, heads, length, width).to(self.dtype)

    def call(self, *operands: Tensor) -> tuple[Any, ...]:
        """The operator's output and its log-sum-exp of the scores, without placeholders and random state."""
        operator = getattr(torch.ops.aten, f"_scaled_dot_product_{self.routine}_attention").default
        q, k, v, *bias = operands
        given = () if self.routine == "flash" else (bias[0] if bias else None, True)
        out, logarithm, *_ = operator(q, k, v, *given, 0.0, self.causal, scale=self.scale)
        return out, logarithm


def _normal(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape) + len(shape))
    return torch.randn(shape, generator=generator)


BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
NEAR = {BF16: 1e-2, F16: 2e-3, F32: 2e-5}
"""Relative tolerance of results, by the largest value; gradients of rounded results get three times as much."""

CASES: Mapping[str, Case] = {
    "flash": Case(batch=2),
    "flash_apart": Case(together=False, scale=0.3),
    "flash_causal": Case(causal=True, lengths=(32, 32)),
    "flash_causal_f16": Case(causal=True, lengths=(32, 32), dtype=F16),
    "flash_causal_long": Case(causal=True, lengths=(200, 200), heads=(1, 1)),
    "flash_causal_more_keys": Case(causal=True, lengths=(40, 192), dtype=F16),
    "flash_causal_more_queries": Case(causal=True, lengths=(180, 140), heads=(1, 1), dtype=F16),
    "flash_grouped": Case(heads=(4, 2), causal=True, lengths=(20, 192)),
    "flash_grouped_all": Case(heads=(6, 2), widths=(24, 24)),
    "flash_wide": Case(widths=(72, 72), lengths=(33, 50)),
    "flash_decode": Case(causal=True, lengths=(1, 2048), heads=(8, 2), kernels=(2, 6)),
    "flash_dynamic": Case(dynamic=True, batch=2),
    "flash_causal_dynamic": Case(dynamic=True, causal=True, batch=2, heads=(1, 1), lengths=(40, 192)),
    "efficient": Case("efficient", lengths=(32, 48)),
    "efficient_causal": Case("efficient", causal=True, lengths=(32, 192), widths=(16, 32), kernels=(1, 5)),
    "efficient_causal_more_queries": Case("efficient", causal=True, lengths=(96, 40)),
    "efficient_padded": Case("efficient", lengths=(50, 40), kernels=(2, 5)),
    "efficient_dynamic": Case("efficient", batch=2, lengths=(50, 40), dynamic=True, kernels=(2, 5)),
    "efficient_bias": Case("efficient", bias=(1, 2, 64, 48), lengths=(64, 48), hidden=3),
    "efficient_bias_of_keys": Case(
        "efficient", batch=2, bias=(2, 1, 1, 48), lengths=(64, 48), causal=True, dtype=F16
    ),
    "efficient_f32": Case("efficient", lengths=(64, 192), causal=True, dtype=F32),
    "efficient_f32_bias": Case("efficient", lengths=(64, 48), bias=(1, 2, 64, 48), dtype=F32),
    "cudnn": Case("cudnn", heads=(4, 2)),
    "cudnn_causal": Case("cudnn", causal=True, lengths=(64, 192), widths=(16, 32), dtype=F16, kernels=(1, 5)),
}  # fmt: skip


def dense(case: Case, *operands: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the operator's output and log-sum-exp densely, of operands in f64."""
    q, k, v, *bias = operands
    group = case.heads[0] // case.heads[1]
    k, v = (each.repeat_interleave(group, 1) for each in (k, v))
    scale = case.widths[0] ** -0.5 if case.scale is None else case.scale
    scores = q @ k.transpose(-2, -1) * scale
    for each in bias:
        scores = scores + each
    (queries, keys), last = case.lengths, case.routine == "flash"
    if case.causal:
        seen = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries if last else 0)
        scores = scores.masked_fill(~seen, -math.inf)
    total = scores.logsumexp(-1)
    hidden = (scores == -math.inf).all(-1, keepdim=True)
    weights = torch.softmax(scores.masked_fill(hidden, 0.0), -1).masked_fill(hidden, 0.0)
    if case.routine == "flash":
        total = total.masked_fill(total == -math.inf, math.inf)
    if case.routine == "efficient":
        total = torch.nn.functional.pad(total, (0, -queries % 32), value=math.inf)
    return weights @ v, total[..., None] if case.routine == "cudnn" else total


@dataclass
class Planned:
    """Compiler of functions to plans, which ``run`` runs."""

    run: Run
    options: SchedulerOptions = EVERY
    plans: list[Plan] = field(default_factory=list)

    def __call__(
        self, function: Callable[..., Any], *operands: Tensor, dynamic: bool = False
    ) -> list[Tensor]:
        fakes = types_of(operands, dynamic)
        with detect_fake_mode(fakes):
            gm = make_fx(function, decomposition_table=decompositions())(*fakes)
        lowered = lower(gm, options=LoweringOptions(nested_reductions=frozenset({"cpu"}), fallback="error"))
        plan = schedule_plan(schedule(lowered.graph, PassContext({CPU: MACHINE}), self.options), MACHINE)
        self.plans.append(plan)
        given = map(lowering_check.to_array, operands)
        return [lowering_check.to_tensor(each) for each in self.run(plan, list(given))]


def types_of(operands: Sequence[Tensor], dynamic: bool) -> list[Tensor]:
    """Return fake operands; the batch and lengths are symbols where they are ``dynamic``."""
    mode = FakeTensorMode(shape_env=ShapeEnv() if dynamic else None)
    kinds = [DimDynamic.DUCK if dynamic and k in (0, 2) else DimDynamic.STATIC for k in range(4)]
    context = StatelessSymbolicContext(dynamic_sizes=kinds) if dynamic else None
    return [mode.from_tensor(each, symbolic_context=context) for each in operands]


def with_gradients(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of queries, keys and values that returns the call's results and their gradients; its first
    argument is the gradient of the first result, further ones go to the call."""

    def function(given: Tensor, *operands: Tensor) -> tuple[Tensor, ...]:
        learned = [each.detach().requires_grad_() for each in operands[:3]]
        out, logarithm = call(*learned, *operands[3:])
        return out.detach(), logarithm.detach(), *torch.autograd.grad(out, learned, given)

    return function


def differs(case: Case, planned: Planned, gradients: bool) -> str:
    """Describe the difference of a plan's results from the operator's; empty where there is none."""
    names, operands = ["out", "logarithm"], case.operands()
    call, wanted = case.call, partial(dense, case)
    if gradients:
        names, call, wanted = [*names, "dq", "dk", "dv"], with_gradients(case.call), with_gradients(wanted)
        operands = (case.given(), *operands)
    results = planned(call, *operands, dynamic=case.dynamic)
    types = call(*(each.to("meta") for each in operands))
    return compared(names, results, wanted(*(each.double() for each in operands)), types)


def compared(
    names: Sequence[str], found: Sequence[Tensor], wanted: Sequence[Tensor], types: Sequence[Tensor]
) -> str:
    """Describe results out of tolerance; empty where there are none."""
    for name, own, value, type_ in zip(names, found, wanted, types, strict=True):
        if (own.shape, own.dtype, own.stride()) != (type_.shape, type_.dtype, type_.stride()):
            return f"{name} is {own.dtype} of {tuple(own.shape)}, {own.stride()}"
        near = NEAR[own.dtype] * (1 if name == "out" else 3)
        most = float(value[value.isfinite()].abs().max())
        if not torch.allclose(own.double(), value, rtol=near, atol=near * most):
            return f"{name} differs by {(own.double() - value).abs().max()}"
    return ""


TITLES = tuple(f"{name}{ending}" for name in CASES for ending in ("", "_backward"))
"""Names of the cases, without gradients and with them."""


def main(folder: Path, titles: Sequence[str]) -> None:
    """Run every case, or the named ones."""
    for title in titles or TITLES:
        name = title.removesuffix("_backward")
        planned = Planned(lambda plan, inputs: run_plan(plan, inputs, folder))
        try:
            difference = differs(CASES[name], planned, title != name)
        except Exception as error:
            difference = f"{type(error).__name__}: {error}"
        report(title, difference, planned.plans, folder)


def report(title: str, difference: str, plans: Sequence[Plan], folder: Path) -> None:
    """Print the line of a case, and leave the kernels of its plans in a folder."""
    sources = [emit_kernel(kernel) for plan in plans for kernel in plan.kernels]
    for number, source in enumerate(sources):
        text = json.dumps(dataclasses.asdict(dataclasses.replace(source, grid_size=0)))
        (folder / f"{title}_{number}.json").write_text(text)
    serial = sum(bool(_SERIAL.search(source.text)) for source in sources)
    calls = [step.target for plan in plans for step in plan.steps if isinstance(step, CallStep)]
    line = {"case": title, "difference": difference, "kernels": len(sources), "serial": serial}
    print(json.dumps(line | {"calls": calls}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
