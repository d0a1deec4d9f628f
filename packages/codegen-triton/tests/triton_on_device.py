"""Program that runs every hand-built kernel on the current GPU and compares it with the reference interpreter.

`python triton_on_device.py` prints a line of JSON for each case; the exit code is 1 if one differs. The GPU's maths
library is compared with the tolerances of the case, as Triton's interpreter is.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton_attention_scores
import triton_cases
import triton_corpus
import triton_fused_attention
import triton_horizontal_fusion
import triton_matmuls
import triton_nested_reductions

from litz_codegen_triton.capabilities import chip_capabilities
from litz_codegen_triton.emit.kernel import emit_kernel
from litz_codegen_triton.runtime.compile import compile_source
from litz_codegen_triton.runtime.compiled_kernel import CompiledKernel
from litz_codegen_triton.runtime.launch import LaunchModule, current_chip
from litz_codegen_triton.schedule.kernel import schedule_kernel
from litz_ir.dtypes import f32
from litz_ir.errors import LitzError
from litz_ir.plan import launched_cluster

TF32 = 2.0**-9
"""The error allowed in a TF32 matmul, relative to its largest result: operands have 10 bits of mantissa."""

MODULES = (
    triton_horizontal_fusion,
    triton_attention_scores,
    triton_corpus,
    triton_matmuls,
    triton_nested_reductions,
    triton_fused_attention,
)


def computed(case: triton_cases.Case, chip: str, folder: Path) -> dict[str, np.ndarray]:
    """Return the case's buffers after a run on the device."""
    kernel = schedule_kernel(case.kernel, chip_capabilities(chip))
    buffers = triton_cases.buffers_of(case)
    built = compile_source(emit_kernel(kernel), chip, folder)

    def unaligned(name: str) -> CompiledKernel:
        return compile_source(emit_kernel(kernel), chip, folder, aligned=False)

    module = LaunchModule({kernel.name: built}, {kernel.name: kernel}, unaligned)
    on_device = {name: torch.from_numpy(each.view(np.uint8).copy()).cuda() for name, each in buffers.items()}
    symbols = [case.symbols[info.name] for info in kernel.symbols]
    module.function(kernel.name)([on_device[p.name].data_ptr() for p in kernel.parameters], symbols)
    return {name: on_device[name].cpu().numpy().view(each.dtype) for name, each in buffers.items()}


def difference(case: triton_cases.Case, found: Mapping[str, Any]) -> str:
    """Return the difference from the reference interpreter, which multiplies f32 exactly where the GPU uses TF32."""
    wanted = triton_cases.reference(case)
    if case.multiplies("mul_tf32"):
        floats = [wanted[p.name] for p in case.kernel.parameters if p.access == "out" and p.dtype == f32]
        finite = (np.abs(each[np.isfinite(each)]) for each in floats)
        largest = max((float(each.max(initial=0.0)) for each in finite), default=0.0)
        case = replace(case, rtol=max(case.rtol, TF32), atol=max(case.atol, TF32 * largest))
    return triton_cases.difference(case, found, wanted)


def main() -> int:
    """Run every case that the GPU supports, and return the exit code."""
    chip, wrong = current_chip(), 0
    if chip is None:
        print("no NVIDIA GPU here", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="litz-triton-") as folder:
        for case in chain.from_iterable(module.cases() for module in MODULES):
            known = chip_capabilities(chip)
            f8 = case.multiplies("mul_f8")
            if launched_cluster(case.kernel.schedule) > known.model.max_cluster_size or (
                f8 and not known.fp8_matmul
            ):
                continue
            try:
                found = difference(case, computed(case, chip, Path(folder)))
            except LitzError as error:
                found = str(error)
            wrong += found != ""
            print(json.dumps({"case": case.name, "difference": found}), flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
