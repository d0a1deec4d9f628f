"""`python tests/triton_cubins.py FOLDER`: every Triton source in a folder compiled to a cubin, and what became of it.

The sources are those that `triton_instead` leaves: the kernels of lowering's own tests. Exit code 1 when one is
refused, when one spills registers that is not known to, when one accesses memory in smaller pieces than
`litz_codegen_triton.emit.indexing.vector_accesses` says it has to, or when there are fewer than asked for.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import MappingProxyType

from litz_codegen_triton.capabilities import chip_model
from litz_codegen_triton.emit import KernelSource

sys.path.insert(0, str(Path(__file__).parents[1] / "packages" / "codegen-triton" / "tests"))
import triton_assembly

KNOWN_SPILLS: Mapping[str, int] = MappingProxyType(
    {
        "k0_sqrt_rsqrt_exp_exp2_expm1_log": 12,  # ten functions in f64 in one kernel
        "k1_upsample_lanczos2d_aa": 4,  # around the call for quotients of f64
        "k0_softmax": 4,  # columns, sm_100
        "k0_var": 4,  # columns, sm_100
        "k0_flex_attention_max": 80,  # sm_100, heads of a size that is not known
        "k0_flex_attention_max_flex_attention": 4,  # sm_90, forwards in small tiles whose sums are kept
        "k0_max_pool3d_with_indices_backward": 16,  # sm_90, the bounds of windows over three axes
        "k0_avg_pool3d_backward": 68,  # sm_90, the same, with the divisor of each window
        "k2_flex_attention_backward_2_sum_flex_attention_backward_flex_a": 12,  # the same
        "k0_index": 12,  # sm_80, around the call that a failed check is
        "k1_index": 12,  # sm_80, the same
        "k0_min_max": 32,  # rows at a warp or two each, with both indices as i64
        "k2_cumsum": 16,  # sm_80, the tile of a divided scan in 32 warps
        "k2_index_put": 8,  # sm_100, around the calls for quotients of i64
    }
)
"""Bytes that kernels may spill, by kernel: no configuration with fewer is known."""

KNOWN_NARROW: frozenset[str] = frozenset()
"""Kernels whose accesses may be smaller than the vectorisation rule requires."""

LONG = 200_000
"""Bytes of a source from which Triton takes minutes: one kernel stacks 1,100 tensors. It is compiled where all are."""


def compiled(path: Path, chip: str) -> triton_assembly.Outcome:
    """Compile one source."""
    with tempfile.TemporaryDirectory(prefix="litz-triton-") as folder:
        return triton_assembly.compiled(KernelSource(**json.loads(path.read_text())), chip, Path(folder))


def suits(path: Path, chip: str) -> bool:
    """Report that a chip can run a source: thread blocks that wait for one another need a chip with clusters."""
    return not json.loads(path.read_text())["cluster_barriers"] or chip_model(chip).max_cluster_size > 1


def whole(path: Path, modules: Sequence[str]) -> bool:
    """Report that a source is of one of lowering's test modules, by the module's name."""
    return path.stem.startswith(tuple(f"test_lowering_{each}-" for each in modules))


def different(folder: Path, modules: Sequence[str]) -> Iterator[Path]:
    """Yield the sources in a folder in the order of the digests at the end of their names, and each once: where several
    modules have it, as that of one of ``modules``."""
    found = sorted(folder.glob("*.json"), key=lambda path: whole(path, modules))
    for _, path in sorted({path.stem.rpartition("-")[2]: path for path in found}.items()):
        yield path


def main() -> int:
    """Compile all sources in the folder and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--chip", default="sm_90")
    parser.add_argument("--least", type=int, default=1, help="how many there must be")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="one in N of them, by their names")
    parser.add_argument("--whole", default="", help="test modules of lowering whose kernels are all compiled")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    modules = options.whole.split(",")
    paths = [path for path in different(options.folder, modules) if suits(path, options.chip)]
    chosen = [
        path
        for k, path in enumerate(paths)
        if options.every == 1
        or (path.stat().st_size <= LONG and (not k % options.every or whole(path, modules)))
    ]
    with ProcessPoolExecutor(options.workers) as pool:
        outcomes = list(pool.map(compiled, chosen, [options.chip] * len(chosen), chunksize=8))
    refused = [each for each in outcomes if each.refused]
    spilling = [each for each in outcomes if each.spilled]
    narrow = [each for each in outcomes if each.narrow]
    print(
        f"{len(outcomes)} of {len(paths)} kernels for {options.chip}: {len(refused)} refused, "
        f"{len(spilling)} spill registers, {len(narrow)} have accesses that are too narrow"
    )
    for each in refused:
        print(f"refused: {each.name}: {each.refused}")
    for each in spilling:
        print(f"spills {each.spilled} bytes: {each.name}")
    for each in narrow:
        print(f"too narrow: {each.name}: {each.narrow}")
    wrong = refused or [each for each in spilling if each.spilled > KNOWN_SPILLS.get(each.name, 0)]
    wrong = wrong or [each for each in narrow if each.name not in KNOWN_NARROW]
    return 1 if wrong or len(paths) < options.least else 0


if __name__ == "__main__":
    sys.exit(main())
