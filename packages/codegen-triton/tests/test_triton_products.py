"""Products of matrices: what their kernels compute, what they are compiled to, how they are cut into tiles."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import triton_products
from test_triton_interpret import run_interpreted
from triton import knobs
from triton_corpus import I0, I1, R0, kernel, load, op, scalar

from litz_codegen_triton.emit.blocks import tiling
from litz_codegen_triton.emit.kernel import emit_kernel
from litz_codegen_triton.runtime.compile import CompiledKernel, compile_source
from litz_ir.dtypes import DType, bf16, f16, f32, f64
from litz_ir.errors import CodegenError
from litz_ir.loops.nodes import Kind
from litz_ir.plan.kernel import Accumulate, Kernel, Store
from litz_ir.plan.schedule import Schedule
from litz_ir.scalar.build import cast, const

CASES = {case.name: case for case in triton_products.cases()}
REDUCED = {
    "product_1_16_65", "product_17_65_1", "product_127_1_17", "product_f32_small", "product_of_nothing",
}  # fmt: skip
"""Too few rows, columns or summed points for tiles of them."""

SHARED = {"sm_80": 163 << 10, "sm_90": 227 << 10}
"""Bytes of shared memory that a program may have."""


@pytest.fixture(scope="module")
def differences() -> Mapping[str, str]:
    program = Path(triton_products.__file__)
    return {line["case"]: line["difference"] for line in run_interpreted(program)}


@pytest.mark.parametrize("name", CASES)
def test_a_product_computes_what_the_reference_computes(name: str, differences: Mapping[str, str]) -> None:
    assert differences[name] == ""


@pytest.mark.parametrize("name", CASES)
def test_tiles_are_multiplied_where_there_are_enough_points(name: str) -> None:
    assert ("tl.dot(" in emit_kernel(CASES[name].kernel).text) == (name not in REDUCED)


@pytest.mark.parametrize("name", ["product_bias_gelu", "product_dequantised", "product_one_for_all"])
def test_text(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"{name}.py.txt", emit_kernel(CASES[name].kernel).text)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("chip", SHARED)
def test_a_product_compiles(name: str, chip: str, tmp_path: Path) -> None:
    found = compile_source(emit_kernel(CASES[name].kernel), chip, tmp_path)
    assert found.shared <= SHARED[chip]


def large(
    dtype: DType, turned: tuple[bool, bool] = (False, False), side: int = 4096, multiply: str = "mul"
) -> Kernel:
    made = triton_products.product(
        "large", side, side, side, dtype, turned=turned, result=dtype, multiply=multiply
    )
    return made.kernel


def registers_spilt(compiled: CompiledKernel, folder: Path) -> int:
    """Bytes of local memory that a thread has, as the assembler allotted them."""
    path = folder / "spilt.cubin"
    path.write_bytes(compiled.cubin)
    command = [knobs.nvidia.cuobjdump.path, "-res-usage", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return sum(map(int, re.findall(r"(?:STACK|LOCAL):(\d+)", done.stdout)))


@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("dtype", [bf16, f16], ids=str)
@pytest.mark.parametrize(("chip", "instruction"), [("sm_80", "mma.sync"), ("sm_90", "wgmma.mma_async")])
def test_tensor_cores_multiply_what_comes_without_waiting(
    chip: str, instruction: str, dtype: DType, turned: tuple[bool, bool], tmp_path: Path
) -> None:
    found = compile_source(emit_kernel(large(dtype, turned)), chip, tmp_path)
    assert instruction in found.ptx
    assert "cp.async.cg.shared.global" in found.ptx, "factors are read ahead, 16 bytes at a time"
    assert "ld.global" not in found.ptx, "nothing is read on the way through registers"
    assert found.shared <= SHARED[chip]
    assert registers_spilt(found, tmp_path) == 0


@pytest.mark.parametrize("chip", SHARED)
def test_f32_is_multiplied_exactly(chip: str, tmp_path: Path) -> None:
    found = compile_source(emit_kernel(large(f32)), chip, tmp_path)
    assert "fma.rn.f32" in found.ptx and "tf32" not in found.ptx
    assert registers_spilt(found, tmp_path) == 0


@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("chip", SHARED)
def test_f32_is_multiplied_by_tensor_cores_where_its_factors_may_be_rounded(
    chip: str, turned: tuple[bool, bool], tmp_path: Path
) -> None:
    found = compile_source(emit_kernel(large(f32, turned, multiply="mul_tf32")), chip, tmp_path)
    assert re.search(r"mma\S*\.f32\.tf32\.tf32", found.ptx) and "fma.rn.f32" not in found.ptx
    assert found.shared <= SHARED[chip]
    assert registers_spilt(found, tmp_path) == 0


def test_a_schedule_names_tiles_warps_and_stages() -> None:
    blocks = (("i0", 64), ("i1", 256), ("r0", 32))
    chosen = replace(large(bf16), schedule=Schedule(blocks=blocks, warps=8, stages=5))
    tiles = tiling(chosen)
    assert [dim.block for dim in tiles.outer] == [64, 256]
    assert (tiles.inner[0] and tiles.inner[0].block, tiles.warps, tiles.stages) == (32, 8, 5)
    assert tiles.programs == 64 * 16
    assert "tl.range(0, 4096, RBLOCK, num_stages=5)" in emit_kernel(chosen).text
    with pytest.raises(CodegenError, match="power of two"):
        tiling(replace(chosen, schedule=Schedule(blocks=(("i1", 48),))))


def test_tiles_are_smaller_where_processors_would_be_idle() -> None:
    sizes = [
        [dim.block for dim in tiling(large(bf16, side=side), processors=132).outer]
        for side in (4096, 1024, 256)
    ]
    assert sizes == [[128, 128], [64, 64], [32, 32]]


def sums(value: Accumulate, *others: Store) -> Kernel:
    return kernel(
        "sums",
        [("a", bf16, "in"), ("b", bf16, "in"), ("o", f32, "out")],
        [("i0", 64), ("i1", 64)],
        ([("r0", 64)], [value]),
        ((), [*others, Store("o", I0 * 64 + I1, scalar("s"))]),
    )


def test_other_sums_stay_reductions() -> None:
    a, b = (cast(load(name, (at,), bf16), f32) for name, at in (("a", I0 * 64 + R0), ("b", R0 * 64 + I1)))
    three = op("mul", op("mul", a, b), cast(load("b", (I0 * 64 + I1,), bf16), f32))
    kind, same = Kind("sum"), op("mul", a, op("add", a, const(1.0, f32)))
    for value in (op("add", a, b), three, same, cast(op("mul", *(cast(x, f64) for x in (a, b))), f32)):
        assert "tl.dot" not in emit_kernel(sums(Accumulate((("s", f32),), kind, (value,)))).text
    largest = Accumulate((("s", f32),), Kind("max"), (op("mul", a, b),))
    assert "tl.dot" not in emit_kernel(sums(largest)).text
