"""Foreach kernels: their results, their vectorised accesses, their tiles and grids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import triton_assembly
import triton_horizontal_fusion
from test_triton_interpret import run_interpreted
from triton_scheduled import choices, emitted, scheduled, subkernel_tiles

from litz_codegen_triton.emit.indexing.grid import grid_size
from litz_codegen_triton.runtime.compile import compile_source
from litz_codegen_triton.tune.candidate_configs import describe_tiling
from litz_ir.plan import Foreach, Kernel, TileLoops
from litz_ir.plan.verify.kernel import verify_kernel
from litz_ir.symbols import evaluate

CASES = triton_horizontal_fusion.cases()
BY_NAME = {case.name: case.kernel for case in CASES}


@pytest.fixture(scope="module")
def differences() -> Mapping[str, str]:
    program = Path(triton_horizontal_fusion.__file__)
    return {line["case"]: line["difference"] for line in run_interpreted(program)}


@pytest.mark.parametrize("name", list(BY_NAME))
def test_a_foreach_kernel_agrees_with_the_reference_interpreter(
    name: str, differences: Mapping[str, str]
) -> None:
    verify_kernel(BY_NAME[name])
    assert differences[name] == ""


@pytest.mark.parametrize("chip", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("kernel", triton_horizontal_fusion.CUBINS, ids=lambda kernel: kernel.name)
def test_accesses_are_vectorised_and_no_registers_are_spilled(
    chip: str, kernel: Kernel, tmp_path: Path
) -> None:
    source = emitted(kernel)
    assert sum(count for _, _, count in source.vector_accesses) >= 7
    assert triton_assembly.compiled(source, chip, tmp_path) == triton_assembly.Outcome(source.name)
    # These subkernels have no instruction in common that the compiler could merge.
    found = triton_assembly.widths(compile_source(source, chip, tmp_path).ptx)
    for direction in ("load", "store"):
        wanted = sum(count for way, _, count in source.vector_accesses if way == direction)
        assert found[direction, 16] >= wanted


def test_equal_loops_are_one_subkernel() -> None:
    source = emitted(triton_horizontal_fusion.CUBINS[0])
    assert source.text.count("tl.sqrt") == 1


def test_all_subkernels_have_the_same_number_of_warps() -> None:
    kernel = triton_horizontal_fusion.CUBINS[1]
    tilings = subkernel_tiles(kernel)
    assert len({tiles.warps for tiles in tilings}) == 1
    assert describe_tiling(scheduled(kernel)) == "2 of x 4, r 128, 4 warps; 2 of x 2048, 4 warps"


@pytest.mark.parametrize("kernel", triton_horizontal_fusion.CUBINS, ids=lambda kernel: kernel.name)
def test_candidates_have_other_tiles_of_the_subkernels(kernel: Kernel, tmp_path: Path) -> None:
    first, *others = choices(kernel)
    assert first == scheduled(kernel) and 3 <= len(others) <= 5
    leading = [describe_tiling(each).split("; ")[-1] for each in (first, *others)]
    assert len(set(leading)) == len(leading), "candidates differ in the subkernel that moves the most bytes"
    for each in others:
        verify_kernel(each)
        assert replace(each, subkernels=(), schedule=first.schedule) == replace(first, subkernels=())
        assert each.subkernels != first.subkernels
        tilings = subkernel_tiles(each)
        assert len({tiles.warps for tiles in tilings}) == 1
        for subkernel in each.subkernels:
            schedule = subkernel.kernel.schedule
            assert isinstance(schedule, TileLoops) and each.schedule == Foreach(schedule.warps, 32)
        found = triton_assembly.compiled(emitted(each), "sm_90", tmp_path)
        assert (found.spilled, found.refused) == (0, "")


def test_the_grid_has_the_ctas_of_all_invocations() -> None:
    kernel = triton_horizontal_fusion.CUBINS[0]
    (tiles,) = subkernel_tiles(kernel)
    block = tiles.outer[0].block
    sizes = [1 << 20, 768 * 4, 2304, 50257 * 16, 48]
    expected = sum(-(-size // block) for size in sizes)
    assert evaluate(grid_size(scheduled(kernel)), {"s0": 3}) == expected
    assert evaluate(grid_size(scheduled(kernel)), {"s0": 0}) == expected - 1
