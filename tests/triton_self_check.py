"""Checked graphs whose kernels are Triton's, run in Triton's interpreter on the CPU.

``TRITON_INTERPRET=1 python triton_self_check.py FOLDER`` compiles programs with ``tanh`` spelled as ``sin`` and the
cache in FOLDER: checked, and once more without a check. It prints a line of JSON for each: whether each of two calls
was right, how many kernels each graph has, what a self-check gave to ATen before, and how many warnings there were.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from interpreted_gpu import GPU
from torch.nn import functional as F

import litz
from litz import pipeline
from litz.compilation import compilation
from litz.targets import TargetSet
from litz_codegen_cpp.target import CpuTarget
from litz_codegen_triton.emit import emit_kernel
from litz_codegen_triton.emit.source import ops_table
from litz_codegen_triton.runtime.interpret import InterpretedModule
from litz_codegen_triton.schedule import schedule_plan
from litz_ir.device import CPU
from litz_ir.plan import Kernel, Plan, kernels_in
from litz_ir.target import Capabilities, SourceUnit


class InterpretedTriton(CpuTarget):
    """Target that runs a GPU's kernels in the interpreter on the CPU's memory."""

    def capabilities(self) -> Capabilities:
        return dataclasses.replace(GPU, device=CPU)

    def schedule(self, plan: Plan) -> Plan:
        return schedule_plan(plan, GPU)

    def emit(self, plan: Plan) -> tuple[SourceUnit, ...]:
        sources = [emit_kernel(kernel, form="interpreted") for kernel in kernels_in(plan)]
        return tuple(SourceUnit(each.name, "triton", each.text, (each.name,)) for each in sources)

    def build(self, unit: SourceUnit, folder: Path) -> Path:
        path = folder / f"{unit.name}.py"
        path.write_text(unit.text)
        return path

    def load(  # type: ignore[override]  # what the interpreter runs is no library
        self, units: Sequence[SourceUnit], binaries: Sequence[Path], kernels: Mapping[str, Kernel]
    ) -> InterpretedModule:
        return InterpretedModule(kernels, Path(tempfile.mkdtemp()))


@dataclasses.dataclass(frozen=True)
class Case:
    """A program that computes ``tanh``, and its arguments; trained where these want gradients."""

    function: Callable[..., torch.Tensor]
    args: tuple[torch.Tensor, ...]

    def run(self, function: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
        """Return the result of a call, and the gradients of its arguments."""
        args = [each.detach().clone().requires_grad_(each.requires_grad) for each in self.args]
        result = function(*args)
        if not result.requires_grad:
            return [result]
        result.square().sum().backward()
        return [result.detach(), *(each.grad for each in args if each.grad is not None)]


class Warnings(logging.Handler):
    """Counts litz's warnings."""

    count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += record.levelno >= logging.WARNING


def two_regions(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (torch.tanh(x * w) @ w).sigmoid().sum(0)


X, W = torch.linspace(-1, 1, 36).reshape(6, 6), torch.linspace(0, 1, 36).reshape(6, 6)
CASES = {
    "inference": Case(two_regions, (X, W)),
    "training": Case(lambda x: F.gelu(x, approximate="tanh") * 2, (X.clone().requires_grad_(),)),
}


def observed(case: Case, check: str) -> dict[str, Any]:
    """Return the observations of two calls of a program in a session of their own."""
    torch._dynamo.reset()
    seen: list[Any] = []
    handler, log = Warnings(), logging.getLogger("litz")
    log.addHandler(handler)

    def backend(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        return litz.compile_fx(gm, inputs, observers=(seen.append,))

    with litz.config.patch(self_check=check):
        compiled = torch.compile(case.function, backend=backend)
        pairs = [zip(case.run(compiled), case.run(case.function), strict=True) for _ in range(2)]
    log.removeHandler(handler)
    left = [[e.target for e in made.artifact.fallbacks if e.reason == pipeline.DEMOTED] for made in seen]
    return {
        "right": [all(torch.allclose(mine, theirs, atol=1e-5) for mine, theirs in pair) for pair in pairs],
        "kernels": [len(made.artifact.plan.kernels) for made in seen],
        "demoted": left,
        "warnings": handler.count,
    }


def main(folder: str) -> None:
    compilation.targets_for = lambda devices, config: TargetSet({"cpu": InterpretedTriton()})
    ops_table.SPELLINGS = {**ops_table.SPELLINGS, "tanh": ops_table.SPELLINGS["sin"]}
    with litz.config.patch(cache=True, cache_dir=folder, fallback="warn", verify=False):
        for name, case in CASES.items():
            found = {"checked": observed(case, "first"), "again": observed(case, "off")}
            print(json.dumps({"case": name, **found}))


if __name__ == "__main__":
    main(*sys.argv[1:])
