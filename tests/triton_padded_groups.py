"""``TRITON_INTERPRET=1 python tests/triton_padded_groups.py FOLDER``: convolutions in groups and their gradients,
planned for a GPU that pads them, in Triton's interpreter.

Prints a line of JSON for each: its name, the difference from eager (empty where there is none), the channels of a group
that the weights of its calls have, and the number of kernels.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from forms import judge
from torch import Tensor

from litz_codegen_triton.capabilities import chip_model
from litz_codegen_triton.runtime.interpret import run_plan
from litz_codegen_triton.schedule import schedule_plan
from litz_codegen_triton.tables.routines import routines_of
from litz_ir.device import CPU
from litz_ir.loops import LoopGraph
from litz_ir.passes import PassContext
from litz_ir.plan import CallStep, Plan
from litz_ir.target import Capabilities
from litz_scheduler import schedule

sys.path.insert(0, str(Path(__file__).parents[1] / "packages" / "lowering" / "tests"))
import lowering_check

# Launches that cost nothing make small convolutions worth padding.
MODEL = replace(chip_model("sm_90"), launch_seconds=0.0, sm_count=4)
MACHINE = Capabilities(
    "sm_90", CPU, MODEL, max_tile_elements=32768, nested_reductions=True, routines=routines_of("sm_90")
)


@dataclass(frozen=True)
class Case:
    """A function and the shapes of its arguments; ``channels`` are those of a group that calls of convolutions have."""

    call: Callable[..., Any]
    shapes: Sequence[tuple[int, ...]]
    channels: Sequence[int]
    last: bool = False
    gradients: bool = False
    dtype: torch.dtype = torch.bfloat16
    infinite: bool = False

    def arguments(self) -> list[Tensor]:
        """Return the arguments, the same in every process."""
        generator = torch.Generator().manual_seed(0)
        made = [(torch.randn(shape, generator=generator) / 4).to(self.dtype) for shape in self.shapes]
        if self.infinite:
            made[0][0, 23, 1, 1], made[0][1, 24, 0, 2] = torch.inf, torch.nan
        if self.last:
            made[0] = made[0].contiguous(memory_format=torch.channels_last)
        return made


def plain(x: Tensor, w: Tensor, **geometry: Any) -> Tensor:
    return F.conv2d(x, w, None, groups=x.shape[1] // w.shape[1], **geometry)


def between(x: Tensor, w: Tensor) -> Tensor:
    """A convolution between loops."""
    return F.relu(plain(F.relu(x) * 0.5, w, padding=1)) + 1.0


def with_bias(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.relu(F.conv2d(x, w, b, padding=1, groups=x.shape[1] // w.shape[1]))


def twice(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    """Groups of two sizes over one tensor, whose padded forms have equally many channels."""
    return plain(F.relu(x), w, padding=1) * plain(F.relu(x), v, padding=1)


def of_one_weight(x: Tensor, w: Tensor) -> Tensor:
    return plain(plain(x, w, padding=1), w, padding=1)


X, W = (2, 48, 6, 5), (48, 24, 3, 3)

CASES: Mapping[str, Case] = {
    "plain": Case(plain, (X, W), (32,)),
    "strided": Case(lambda x, w: plain(x, w, stride=2, padding=(1, 0), dilation=(1, 2)), (X, W), (32,)),
    "channels_last": Case(between, (X, W), (32,), last=True),
    "f16": Case(between, (X, W), (32,), dtype=torch.float16),
    "infinite": Case(between, (X, W), (32,), infinite=True),
    "of_points": Case(plain, (X, (48, 24, 1, 1)), (32,)),
    "more_channels": Case(between, (X, (80, 24, 3, 3)), (32,)),
    "inputs_alone": Case(plain, (X, (64, 24, 3, 3)), (32,), gradients=True),
    "outputs_alone": Case(plain, ((2, 32, 6, 5), (80, 16, 3, 3)), (16,), gradients=True),
    "two_sizes": Case(twice, ((1, 144, 12, 11), (144, 24, 3, 3), (144, 48, 3, 3)), (32, 64)),
    "one_weight": Case(of_one_weight, (X, W), (32, 32), gradients=True),
    "bias": Case(with_bias, (X, W, (48,)), (32,), gradients=True),
    "gradients": Case(between, (X, W), (32,), gradients=True),
    "gradients_last": Case(between, (X, W), (32,), last=True, gradients=True),
    "gradients_f16": Case(lambda x, w: plain(x, w, stride=2), (X, W), (32,), gradients=True, dtype=torch.float16),
    "powers_of_two": Case(between, (X, (48, 16, 3, 3)), (16,)),
    "few": Case(between, ((2, 24, 6, 5), (24, 12, 3, 3)), (12,)),
    "one_group": Case(between, (X, (48, 48, 3, 3)), (48,)),
    "one_point": Case(plain, ((2, 48, 1, 1), (48, 24, 1, 1)), (24,)),
    "f32": Case(between, (X, W), (24,), dtype=torch.float32),
}  # fmt: skip


def check(case: Case, folder: Path) -> dict[str, Any]:
    """Compare a case with eager."""
    plans: list[Plan] = []

    def run(graph: LoopGraph, inputs: Sequence[Any], constants: Any = None, externs: Any = None) -> list[Any]:
        plan = schedule_plan(schedule(graph, PassContext({CPU: MACHINE})), MACHINE)
        plans.append(plan)
        return run_plan(plan, inputs, folder, externs=externs, constants=constants)

    lowering_check.run_graph = run
    compiled, _ = lowering_check.captured(case.call)
    given = case.arguments()
    runs = [
        judge.results(
            function, [judge.widened(each) if wide else each for each in given], gradients=case.gradients
        )
        for function, wide in ((compiled, False), (case.call, False), (case.call, True))
    ]
    found = judge.difference(*runs)
    strides = [[each.stride() for each in run] for run in runs[:2]]
    if not found and strides[0] != strides[1]:
        found = f"strides {strides[0]}, eager {strides[1]}"
    weights = [
        dict(plan.buffers)[step.arguments[1 + ("backward" in step.target)].name]
        for plan in plans
        for step in plan.steps
        if isinstance(step, CallStep)
    ]
    channels = [weight.type.shape[1] for weight in weights]
    return {"difference": found, "channels": channels, "kernels": sum(len(plan.kernels) for plan in plans)}


def main(folder: Path, names: Sequence[str]) -> None:
    """Check every case, or the named ones, and print its line."""
    for name in names or CASES:
        try:
            found = check(CASES[name], folder)
        except Exception as error:
            found = {"difference": f"{type(error).__name__}: {error}", "channels": [], "kernels": 0}
        print(json.dumps({"case": name, **found}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
