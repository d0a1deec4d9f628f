"""Packs: one launch for loops of many sizes, which finds each program's loop by its number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import triton_assembly
import triton_horizontal_fusion
from test_triton_interpret import run_interpreted
from triton_scheduled import choices, emitted, scheduled, subkernel_tiles

from litz_codegen_triton.emit.grid import grid_size
from litz_codegen_triton.runtime.compile import compile_source
from litz_codegen_triton.tune import describe_tiling
from litz_ir.plan import Foreach, Kernel, TileLoops
from litz_ir.plan.verify_kernel import verify_kernel
from litz_ir.symbols import evaluate

CASES = triton_horizontal_fusion.cases()
BY_NAME = {case.name: case.kernel for case in CASES}


@pytest.fixture(scope="module")
def differences() -> Mapping[str, str]:
    program = Path(triton_horizontal_fusion.__file__)
    return {line["case"]: line["difference"] for line in run_interpreted(program)}


@pytest.mark.parametrize("name", list(BY_NAME))
def test_a_pack_computes_what_the_reference_computes(name: str, differences: Mapping[str, str]) -> None:
    verify_kernel(BY_NAME[name])
    assert differences[name] == ""


@pytest.mark.parametrize("chip", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("kernel", triton_horizontal_fusion.CUBINS, ids=lambda kernel: kernel.name)
def test_accesses_of_packs_are_wide_and_no_registers_are_spilled(
    chip: str, kernel: Kernel, tmp_path: Path
) -> None:
    source = emitted(kernel)
    assert sum(count for _, _, count in source.vector_accesses) >= 7
    assert triton_assembly.compiled(source, chip, tmp_path) == triton_assembly.Outcome(source.name)
    # Nothing of these parts is alike, so that each has its own.
    found = triton_assembly.widths(compile_source(source, chip, tmp_path).ptx)
    for direction in ("load", "store"):
        wanted = sum(count for way, _, count in source.vector_accesses if way == direction)
        assert found[direction, 16] >= wanted


def test_alike_loops_are_written_once(golden: Callable[[str, str], None]) -> None:
    source = emitted(triton_horizontal_fusion.CUBINS[0])
    assert source.text.count("tl.sqrt") == 1
    golden("pack.py.txt", source.text)


def test_kinds_of_loops_have_programs_of_one_size() -> None:
    kernel = triton_horizontal_fusion.CUBINS[1]
    tilings = subkernel_tiles(kernel)
    assert len({tiles.warps for tiles in tilings}) == 1
    assert describe_tiling(scheduled(kernel)) == "2 of x 4, r 128, 4 warps; 2 of x 2048, 4 warps"


@pytest.mark.parametrize("kernel", triton_horizontal_fusion.CUBINS, ids=lambda kernel: kernel.name)
def test_candidates_are_other_tiles_of_the_parts(kernel: Kernel, tmp_path: Path) -> None:
    first, *others = choices(kernel)
    assert first == scheduled(kernel) and 3 <= len(others) <= 5
    leading = [describe_tiling(each).split(" beside ")[-1] for each in (first, *others)]
    assert len(set(leading)) == len(leading), "what moves most is cut anew each time"
    for each in others:
        verify_kernel(each)
        assert replace(each, subkernels=(), schedule=first.schedule) == replace(first, subkernels=())
        assert each.subkernels != first.subkernels
        tilings = subkernel_tiles(each)
        assert len({tiles.warps for tiles in tilings}) == 1
        for part in each.subkernels:
            assert isinstance(part.kernel.schedule, TileLoops) and each.schedule == Foreach(
                part.kernel.schedule.warps
            )
        found = triton_assembly.compiled(emitted(each), "sm_90", tmp_path)
        assert (found.spilled, found.refused) == (0, "")


def test_programs_are_those_of_all_loops() -> None:
    kernel = triton_horizontal_fusion.CUBINS[0]
    (tiles,) = subkernel_tiles(kernel)
    block = tiles.outer[0].block
    sizes = [1 << 20, 768 * 4, 2304, 50257 * 16, 48]
    expected = sum(-(-size // block) for size in sizes)
    assert evaluate(grid_size(scheduled(kernel)), {"s0": 3}) == expected
    assert evaluate(grid_size(scheduled(kernel)), {"s0": 0}) == expected - 1
