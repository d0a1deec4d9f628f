"""`python triton_on_device.py`: every kernel of the corpus on the GPU at hand, against the reference interpreter.

Prints a line of JSON for each; exit code 1 when one differs. What the GPU's maths library does less exactly than
litz's own tests ask of the interpreter is held to the case's tolerance all the same.
"""

from __future__ import annotations

import json
import sys
import tempfile
from itertools import chain
from pathlib import Path

import numpy as np
import torch
import triton_chains
import triton_corpus
import triton_folds
import triton_lone_chains
import triton_packs
import triton_products

from litz_codegen_triton.capabilities import chip_capabilities
from litz_codegen_triton.emit.kernel import emit_kernel
from litz_codegen_triton.runtime.compile import CompiledKernel, compile_source
from litz_codegen_triton.runtime.launch import LaunchModule, current_chip
from litz_ir.errors import LitzError

ROOMS = (triton_packs, triton_lone_chains, triton_corpus, triton_products, triton_folds, triton_chains)


def computed(case: triton_corpus.Case, chip: str, folder: Path) -> dict[str, np.ndarray]:
    """The case's buffers after a run on the device."""
    kernel, held = case.kernel, triton_corpus.buffers_of(case)
    built = compile_source(emit_kernel(kernel), chip, folder)

    def unaligned(name: str) -> CompiledKernel:
        return compile_source(emit_kernel(kernel), chip, folder, aligned=False)

    module = LaunchModule({kernel.name: built}, {kernel.name: kernel}, 132, unaligned)
    there = {name: torch.from_numpy(each.view(np.uint8).copy()).cuda() for name, each in held.items()}
    symbols = [case.symbols[info.name] for info in kernel.symbols]
    module.function(kernel.name)([there[p.name].data_ptr() for p in kernel.parameters], symbols)
    return {name: there[name].cpu().numpy().view(each.dtype) for name, each in held.items()}


def main() -> int:
    """Run every case; the exit code."""
    chip, wrong = current_chip(), 0
    if chip is None:
        print("no NVIDIA GPU here", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="litz-triton-") as folder:
        for case in chain.from_iterable(room.cases() for room in ROOMS):
            known = chip_capabilities(chip)
            if case.kernel.schedule.shared > known.together or (case.f8_products and not known.f8_products):
                continue
            try:
                difference = triton_corpus.difference(
                    case, computed(case, chip, Path(folder)), triton_corpus.reference(case)
                )
            except LitzError as error:
                difference = str(error)
            wrong += difference != ""
            print(json.dumps({"case": case.name, "difference": difference}), flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
