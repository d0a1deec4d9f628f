"""`python tests/triton_cubins.py FOLDER`: every Triton source in a folder compiled to a cubin, and what became of it.

The sources are those that `triton_instead` leaves: the kernels of lowering's own tests. Exit code 1 when one is
refused, when one spills registers that is not known to, or when there are fewer than asked for.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import triton

from litz_codegen_triton.emit.kernel import KernelSource
from litz_codegen_triton.runtime.compile import compile_source
from litz_ir.errors import CompileFailed

SPILLS = re.compile(r"(\d+) bytes spill stores")
KNOWN_SPILLS = frozenset(
    {
        "k0_sqrt_rsqrt_exp_exp2_expm1_log",  # ten functions in f64 side by side, 12 bytes
        "k0_masked_scatter",  # 36 bytes
        "k0_max_pool2d_with_indices",  # a window of 49 pairs, 688 bytes
        "k1_index_put",  # rows of indices that are searched for one another, up to 9,696 bytes
        "k1_upsample_lanczos2d_aa",  # 4 bytes
        "k2_embedding_bag_forward_only",  # 12 bytes
    }
)
"""Kernels that may spill: those of which nothing smaller is known."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What compiling a source gave: the bytes of registers it spills, or the compiler's last words."""

    name: str
    spilled: int = 0
    refused: str = ""


def compiled(path: Path, chip: str) -> Outcome:
    """Compile one source, reading the assembler's report."""
    triton.knobs.nvidia.dump_ptxas_log = True
    triton.knobs.compilation.always_compile = True
    source = KernelSource(**json.loads(path.read_text()))
    said = io.StringIO()
    with tempfile.TemporaryDirectory(prefix="litz-triton-") as folder, contextlib.redirect_stdout(said):
        try:
            compile_source(source, chip, Path(folder))
        except CompileFailed as error:
            return Outcome(source.name, refused=error.output[-400:])
    report = SPILLS.findall(said.getvalue())
    assert report, f"the assembler reported nothing on {source.name}"
    return Outcome(source.name, sum(map(int, report)))


def main() -> int:
    """Compile what is there; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--chip", default="sm_90")
    parser.add_argument("--least", type=int, default=1, help="how many there must be")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    paths = sorted(options.folder.glob("*.json"))
    with ProcessPoolExecutor(options.workers) as pool:
        outcomes = list(pool.map(compiled, paths, [options.chip] * len(paths), chunksize=8))
    refused = [each for each in outcomes if each.refused]
    spilling = [each for each in outcomes if each.spilled]
    print(
        f"{len(outcomes)} kernels for {options.chip}: {len(refused)} refused, {len(spilling)} spill registers"
    )
    for each in refused:
        print(f"refused: {each.name}: {each.refused}")
    for each in spilling:
        print(f"spills {each.spilled} bytes: {each.name}")
    wrong = refused or [each for each in spilling if each.name not in KNOWN_SPILLS]
    return 1 if wrong or len(outcomes) < options.least else 0


if __name__ == "__main__":
    sys.exit(main())
