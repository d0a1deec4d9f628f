"""Matmul kernels: their results, their compiled code, their tiles."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import triton_matmuls
from test_triton_interpret import run_interpreted
from triton import knobs
from triton_cases import I0, I1, R0, kernel, scalar
from triton_scheduled import emitted, tiled

from litz_codegen_triton.capabilities import chip_model
from litz_codegen_triton.runtime.compile import compile_source
from litz_codegen_triton.runtime.compiled_kernel import CompiledKernel
from litz_ir.dtypes import DType, bf16, f8e4m3fn, f8e5m2, f16, f32, f64, i8, i32
from litz_ir.errors import CodegenError
from litz_ir.loops import Axis, NamedCombiner
from litz_ir.plan import Accumulate, Kernel, Store, TileRequest
from litz_ir.scalar import cast, const, op, substitute_expr
from litz_ir.scalar.build import load
from litz_ir.symbols import Size, add, mul, symbol

CASES = {case.name: case for case in triton_matmuls.cases()}
REDUCED = {
    "matmul_1_16_65", "matmul_17_65_1", "matmul_127_1_17", "matmul_f32_small", "matmul_of_nothing",
}  # fmt: skip
"""Cases with too small an M, N or K for ``tl.dot``."""

SHARED_MEMORY = {"sm_80": 163 << 10, "sm_90": 227 << 10}
"""Bytes of shared memory that a CTA may use."""


@pytest.fixture(scope="module")
def differences() -> Mapping[str, str]:
    program = Path(triton_matmuls.__file__)
    return {line["case"]: line["difference"] for line in run_interpreted(program)}


@pytest.mark.parametrize("name", CASES)
def test_a_matmul_agrees_with_the_reference_interpreter(name: str, differences: Mapping[str, str]) -> None:
    assert differences[name] == ""


@pytest.mark.parametrize("name", CASES)
def test_dot_is_used_where_m_n_and_k_are_large_enough(name: str) -> None:
    assert ("tl.dot(" in emitted(CASES[name].kernel).text) == (name not in REDUCED)


FP8_INSTRUCTIONS = {name for name, case in CASES.items() if case.multiplies("mul_f8")}


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("name", "chip"),
    [(n, chip) for n in CASES for chip in SHARED_MEMORY if chip != "sm_80" or n not in FP8_INSTRUCTIONS],
)
def test_a_matmul_compiles(name: str, chip: str, tmp_path: Path) -> None:
    found = compile_source(emitted(CASES[name].kernel), chip, tmp_path)
    assert found.shared_bytes <= SHARED_MEMORY[chip]


def large(
    dtype: DType, transposed: tuple[bool, bool] = (False, False), size: int = 4096, multiply: str = "mul"
) -> Kernel:
    case = triton_matmuls.matmul(
        "large", size, size, size, dtype, transposed=transposed, result=dtype, multiply=multiply
    )
    return case.kernel


def spilled_bytes(compiled: CompiledKernel, folder: Path) -> int:
    """Return the bytes of local memory that the assembler allotted to a thread: stack and spills."""
    path = folder / "spilled.cubin"
    path.write_bytes(compiled.cubin)
    command = [knobs.nvidia.cuobjdump.path, "-res-usage", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return sum(map(int, re.findall(r"(?:STACK|LOCAL):(\d+)", done.stdout)))


@pytest.mark.parametrize("transposed", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("dtype", [bf16, f16], ids=str)
@pytest.mark.parametrize(("chip", "instruction"), [("sm_80", "mma.sync"), ("sm_90", "wgmma.mma_async")])
def test_operands_are_copied_asynchronously_to_tensor_cores(
    chip: str, instruction: str, dtype: DType, transposed: tuple[bool, bool], tmp_path: Path
) -> None:
    found = compile_source(emitted(large(dtype, transposed)), chip, tmp_path)
    assert instruction in found.ptx
    assert "cp.async.cg.shared.global" in found.ptx, "operands are prefetched, 16 bytes a thread"
    assert "ld.global" not in found.ptx, "no operand passes through registers"
    assert found.shared_bytes <= SHARED_MEMORY[chip]
    assert spilled_bytes(found, tmp_path) == 0


LOW_PRECISION = {
    "i8": (
        triton_matmuls.matmul(
            "i8",
            4096,
            4096,
            4096,
            i8,
            transposed=(False, True),
            result=i32,
            value=triton_matmuls.COUNT,
            accumulator=i32,
        ),
        {
            "sm_80": r"mma\.sync\S*s8\.s8\.s32",
            "sm_90": r"wgmma\.mma_async\S*s32\.s8\.s8",
            "sm_100": r"mma\S*s8\.s8",
        },
    ),
    "f8": (
        triton_matmuls.matmul(
            "f8", 4096, 4096, 4096, f8e4m3fn, transposed=(False, True), result=bf16, multiply="mul_f8"
        ),
        {"sm_90": r"wgmma\.mma_async\S*e4m3\.e4m3", "sm_100": r"tcgen05\.mma\S*kind::f8f6f4"},
    ),
    "f8_fast": (
        triton_matmuls.matmul(
            "f8",
            4096,
            4000,
            4000,
            f8e5m2,
            b_dtype=f8e4m3fn,
            transposed=(False, True),
            result=bf16,
            multiply="mul_f8_fast",
        ),
        {"sm_90": r"wgmma\.mma_async\S*e5m2\.e4m3", "sm_100": r"tcgen05\.mma\S*kind::f8f6f4"},
    ),
}
"""Matmuls of int8 and fp8, and the instructions that compute them on each chip."""


@pytest.mark.parametrize(
    ("name", "chip"), [(name, chip) for name, (_, chips) in LOW_PRECISION.items() for chip in chips]
)
def test_tensor_cores_multiply_int8_and_fp8(name: str, chip: str, tmp_path: Path) -> None:
    case, instructions = LOW_PRECISION[name]
    found = compile_source(emitted(case.kernel), chip, tmp_path)
    assert re.search(instructions[chip], found.ptx)
    assert "cp.async.cg.shared.global" in found.ptx, "operands are prefetched, 16 bytes a thread"
    assert "ld.global" not in found.ptx, "no operand passes through registers"
    assert found.shared_bytes <= chip_model(chip).shared_bytes
    assert spilled_bytes(found, tmp_path) == 0


@pytest.mark.parametrize("chip", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("b_dtype", [i8, f8e4m3fn], ids=str)
def test_low_precision_weights_are_multiplied_in_the_dtype_of_the_activations(
    b_dtype: DType, chip: str, tmp_path: Path
) -> None:
    case = triton_matmuls.matmul("w", 512, 4096, 4096, b_dtype=b_dtype, transposed=(False, True), result=bf16)
    found = compile_source(emitted(case.kernel), chip, tmp_path)
    assert re.search(r"mma\S*bf16\.bf16|tcgen05\.mma\S*kind::f16", found.ptx)
    assert spilled_bytes(found, tmp_path) == 0


def test_int8_matmuls_that_may_overflow_do_not_use_dot() -> None:
    for summed, uses_dot in ((1 << 16, True), (1 << 17, False)):
        case = triton_matmuls.matmul(
            "deep", 64, 64, summed, i8, result=i32, value=triton_matmuls.COUNT, accumulator=i32
        )
        assert ("tl.dot(" in emitted(case.kernel).text) == uses_dot


@pytest.mark.parametrize("chip", SHARED_MEMORY)
def test_f32_is_multiplied_exactly(chip: str, tmp_path: Path) -> None:
    found = compile_source(emitted(large(f32)), chip, tmp_path)
    assert "fma.rn.f32" in found.ptx and "tf32" not in found.ptx
    assert spilled_bytes(found, tmp_path) == 0


@pytest.mark.parametrize("transposed", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("chip", SHARED_MEMORY)
def test_tf32_matmuls_use_tensor_cores(chip: str, transposed: tuple[bool, bool], tmp_path: Path) -> None:
    found = compile_source(emitted(large(f32, transposed, multiply="mul_tf32")), chip, tmp_path)
    assert re.search(r"mma\S*\.f32\.tf32\.tf32", found.ptx) and "fma.rn.f32" not in found.ptx
    assert found.shared_bytes <= SHARED_MEMORY[chip]
    assert spilled_bytes(found, tmp_path) == 0


def test_a_request_sets_tiles_warps_and_stages() -> None:
    blocks = (("i0", 64), ("i1", 256), ("r0", 32))
    chosen = replace(large(bf16), schedule=TileRequest(blocks=blocks, warps=8, stages=5))
    tiles = tiled(chosen)
    assert [dim.block for dim in tiles.outer] == [64, 256]
    assert (tiles.inner[0] and tiles.inner[0].block, tiles.warps, tiles.stages) == (32, 8, 5)
    assert tiles.grid_size == 64 * 16
    assert "tl.range(0, 4096, RBLOCK, num_stages=5)" in emitted(chosen).text
    with pytest.raises(CodegenError, match="power of two"):
        tiled(replace(chosen, schedule=TileRequest(blocks=(("i1", 48),))))


def test_tiles_are_smaller_where_sms_would_be_idle() -> None:
    sizes = [[dim.block for dim in tiled(large(bf16, size=size)).outer] for size in (4096, 1024, 256)]
    assert sizes == [[128, 128], [64, 64], [32, 32]]


@pytest.mark.parametrize(
    ("dtype", "size", "block", "gathered"),
    [(bf16, 4096, 64, 64), (bf16, 1024, 128, 64), (bf16, 256, 256, 64), (f32, 4096, 64, 32)],
)
def test_gathered_operands_have_a_smaller_block_of_k(
    dtype: DType, size: int, block: int, gathered: int
) -> None:
    whole = large(dtype, size=size)
    (phase, *rest) = whole.phases
    (statement,) = phase.statements
    assert isinstance(statement, Accumulate)
    index: dict[str, Size] = {"r0": add(mul(symbol("r0"), 16), symbol("r1"))}
    body = substitute_expr(statement.values[0], index)
    split = replace(
        phase, axes=(Axis("r0", size // 16), Axis("r1", 16)), statements=(replace(statement, values=(body,)),)
    )

    def summed(each: Kernel) -> int:
        (inner, *_) = tiled(each).inner
        assert inner is not None
        return inner.block

    assert summed(whole) == block
    assert summed(replace(whole, phases=(split, *rest))) == gathered


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
    kind, same = NamedCombiner("sum"), op("mul", a, op("add", a, const(1.0, f32)))
    for value in (op("add", a, b), three, same, cast(op("mul", *(cast(x, f64) for x in (a, b))), f32)):
        assert "tl.dot" not in emitted(sums(Accumulate((("s", f32),), kind, (value,)))).text
    largest = Accumulate((("s", f32),), NamedCombiner("max"), (op("mul", a, b),))
    assert "tl.dot" not in emitted(sums(largest)).text


PERSISTENT = TileRequest(
    blocks=(("i0", 128), ("i1", 256), ("r0", 64)), warps=8, stages=3, grid=132, descriptors=True
)


@pytest.mark.parametrize("transposed", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize(("chip", "instruction"), [("sm_90", "wgmma.mma_async"), ("sm_100", "tcgen05.mma")])
def test_tma_copies_operands_with_descriptors(
    chip: str, instruction: str, transposed: tuple[bool, bool], tmp_path: Path
) -> None:
    kernel = replace(large(bf16, transposed), schedule=PERSISTENT)
    source = emitted(kernel)
    found = compile_source(source, chip, tmp_path)
    assert source.grid_size == 132
    assert instruction in found.ptx and "cp.async.bulk.tensor" in found.ptx
    assert "ld.global" not in found.ptx and "cp.async.cg" not in found.ptx
    assert found.scratch == 2 * 128, "a descriptor of 128 bytes for each operand"
    assert found.shared_bytes <= 227 << 10
    assert spilled_bytes(found, tmp_path) == 0


def test_operands_without_a_descriptor_are_loaded_by_address(tmp_path: Path) -> None:
    blocks = (("i0", 32), ("i1", 32), ("r0", 32))
    schedule = TileRequest(blocks=blocks, grid=2, descriptors=True)
    expected = {4096: 2, 4095: 1, 4088: 2, 4092: 1}
    for columns, descriptors in expected.items():
        chosen = triton_matmuls.matmul("p", 64, columns, 64, schedule=schedule).kernel
        assert emitted(chosen).text.count("tl.make_tensor_descriptor(") == descriptors
    gathered = replace(CASES["matmul_of_gathered"].kernel, schedule=schedule)
    assert "tl.make_tensor_descriptor(" not in emitted(gathered).text
    # A kernel with a symbolic number of tiles cannot be persistent.
    assert "tl.num_programs" not in emitted(replace(CASES["matmul_symbolic"].kernel, schedule=schedule)).text


def test_a_persistent_grid_has_no_more_ctas_than_tiles() -> None:
    schedule = TileRequest(blocks=(("i0", 32), ("i1", 32), ("r0", 32)), grid=132)
    assert emitted(triton_matmuls.matmul("p", 64, 96, 64, schedule=schedule).kernel).grid_size == 6
