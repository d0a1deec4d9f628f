"""Products of matrices: what their kernels compute, what they are compiled to, how they are cut into tiles."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import triton_matmuls
from test_triton_interpret import run_interpreted
from triton import knobs
from triton_corpus import I0, I1, R0, kernel, load, op, scalar
from triton_scheduled import emitted, tiled

from litz_codegen_triton.capabilities import shared_memory_limit
from litz_codegen_triton.runtime.compile import CompiledKernel, compile_source
from litz_ir.dtypes import DType, bf16, f8e4m3fn, f8e5m2, f16, f32, f64, i8, i32
from litz_ir.errors import CodegenError
from litz_ir.loops import Axis, NamedCombiner
from litz_ir.plan import Accumulate, Kernel, Store, TileRequest
from litz_ir.scalar import cast, const, substitute_expr
from litz_ir.symbols import Size, add, mul, symbol

CASES = {case.name: case for case in triton_matmuls.cases()}
REDUCED = {
    "product_1_16_65", "product_17_65_1", "product_127_1_17", "product_f32_small", "product_of_nothing",
}  # fmt: skip
"""Too few rows, columns or summed points for tiles of them."""

SHARED = {"sm_80": 163 << 10, "sm_90": 227 << 10}
"""Bytes of shared memory that a program may have."""


@pytest.fixture(scope="module")
def differences() -> Mapping[str, str]:
    program = Path(triton_matmuls.__file__)
    return {line["case"]: line["difference"] for line in run_interpreted(program)}


@pytest.mark.parametrize("name", CASES)
def test_a_product_computes_what_the_reference_computes(name: str, differences: Mapping[str, str]) -> None:
    assert differences[name] == ""


@pytest.mark.parametrize("name", CASES)
def test_tiles_are_multiplied_where_there_are_enough_points(name: str) -> None:
    assert ("tl.dot(" in emitted(CASES[name].kernel).text) == (name not in REDUCED)


@pytest.mark.parametrize(
    "name", ["product_bias_gelu", "product_dequantised", "product_one_for_all", "product_described_01"]
)
def test_text(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"{name}.py.txt", emitted(CASES[name].kernel).text)


MACHINES_OWN = {name for name, case in CASES.items() if case.multiplies("mul_f8")}


@pytest.mark.parametrize(
    ("name", "chip"),
    [(n, chip) for n in CASES for chip in SHARED if chip != "sm_80" or n not in MACHINES_OWN],
)
def test_a_product_compiles(name: str, chip: str, tmp_path: Path) -> None:
    found = compile_source(emitted(CASES[name].kernel), chip, tmp_path)
    assert found.shared_bytes <= SHARED[chip]


def large(
    dtype: DType, turned: tuple[bool, bool] = (False, False), side: int = 4096, multiply: str = "mul"
) -> Kernel:
    made = triton_matmuls.product(
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
    found = compile_source(emitted(large(dtype, turned)), chip, tmp_path)
    assert instruction in found.ptx
    assert "cp.async.cg.shared.global" in found.ptx, "factors are read ahead, 16 bytes at a time"
    assert "ld.global" not in found.ptx, "nothing is read on the way through registers"
    assert found.shared_bytes <= SHARED[chip]
    assert registers_spilt(found, tmp_path) == 0


NARROW = {
    "i8": (
        triton_matmuls.product(
            "i8",
            4096,
            4096,
            4096,
            i8,
            turned=(False, True),
            result=i32,
            value=triton_matmuls.COUNT,
            total=i32,
        ),
        {
            "sm_80": r"mma\.sync\S*s8\.s8\.s32",
            "sm_90": r"wgmma\.mma_async\S*s32\.s8\.s8",
            "sm_100": r"mma\S*s8\.s8",
        },
    ),
    "f8": (
        triton_matmuls.product(
            "f8", 4096, 4096, 4096, f8e4m3fn, turned=(False, True), result=bf16, multiply="mul_f8"
        ),
        {"sm_90": r"wgmma\.mma_async\S*e4m3\.e4m3", "sm_100": r"tcgen05\.mma\S*kind::f8f6f4"},
    ),
    "f8_fast": (
        triton_matmuls.product(
            "f8",
            4096,
            4000,
            4000,
            f8e5m2,
            right=f8e4m3fn,
            turned=(False, True),
            result=bf16,
            multiply="mul_f8_fast",
        ),
        {"sm_90": r"wgmma\.mma_async\S*e5m2\.e4m3", "sm_100": r"tcgen05\.mma\S*kind::f8f6f4"},
    ),
}
"""Products of numbers of 8 bits, and the instructions that make them."""


@pytest.mark.parametrize(
    ("name", "chip"), [(name, chip) for name, (_, chips) in NARROW.items() for chip in chips]
)
def test_tensor_cores_multiply_numbers_of_8_bits(name: str, chip: str, tmp_path: Path) -> None:
    case, instructions = NARROW[name]
    found = compile_source(emitted(case.kernel), chip, tmp_path)
    assert re.search(instructions[chip], found.ptx)
    assert "cp.async.cg.shared.global" in found.ptx, "factors are read ahead, 16 bytes at a time"
    assert "ld.global" not in found.ptx, "nothing is read on the way through registers"
    assert found.shared_bytes <= shared_memory_limit(chip)
    assert registers_spilt(found, tmp_path) == 0


@pytest.mark.parametrize("chip", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("right", [i8, f8e4m3fn], ids=str)
def test_narrow_weights_are_multiplied_as_the_floats_beside_them(
    right: DType, chip: str, tmp_path: Path
) -> None:
    made = triton_matmuls.product("w", 512, 4096, 4096, right=right, turned=(False, True), result=bf16)
    found = compile_source(emitted(made.kernel), chip, tmp_path)
    assert re.search(r"mma\S*bf16\.bf16|tcgen05\.mma\S*kind::f16", found.ptx)
    assert registers_spilt(found, tmp_path) == 0


def test_sums_that_may_not_fit_are_added_one_by_one() -> None:
    for summed, tiles in ((1 << 16, True), (1 << 17, False)):
        made = triton_matmuls.product(
            "deep", 64, 64, summed, i8, result=i32, value=triton_matmuls.COUNT, total=i32
        )
        assert ("tl.dot(" in emitted(made.kernel).text) == tiles


@pytest.mark.parametrize("chip", SHARED)
def test_f32_is_multiplied_exactly(chip: str, tmp_path: Path) -> None:
    found = compile_source(emitted(large(f32)), chip, tmp_path)
    assert "fma.rn.f32" in found.ptx and "tf32" not in found.ptx
    assert registers_spilt(found, tmp_path) == 0


@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("chip", SHARED)
def test_f32_is_multiplied_by_tensor_cores_where_its_factors_may_be_rounded(
    chip: str, turned: tuple[bool, bool], tmp_path: Path
) -> None:
    found = compile_source(emitted(large(f32, turned, multiply="mul_tf32")), chip, tmp_path)
    assert re.search(r"mma\S*\.f32\.tf32\.tf32", found.ptx) and "fma.rn.f32" not in found.ptx
    assert found.shared_bytes <= SHARED[chip]
    assert registers_spilt(found, tmp_path) == 0


def test_a_schedule_names_tiles_warps_and_stages() -> None:
    blocks = (("i0", 64), ("i1", 256), ("r0", 32))
    chosen = replace(large(bf16), schedule=TileRequest(blocks=blocks, warps=8, stages=5))
    tiles = tiled(chosen)
    assert [dim.block for dim in tiles.outer] == [64, 256]
    assert (tiles.inner[0] and tiles.inner[0].block, tiles.warps, tiles.stages) == (32, 8, 5)
    assert tiles.grid_size == 64 * 16
    assert "tl.range(0, 4096, RBLOCK, num_stages=5)" in emitted(chosen).text
    with pytest.raises(CodegenError, match="power of two"):
        tiled(replace(chosen, schedule=TileRequest(blocks=(("i1", 48),))))


def test_tiles_are_smaller_where_processors_would_be_idle() -> None:
    sizes = [[dim.block for dim in tiled(large(bf16, side=side)).outer] for side in (4096, 1024, 256)]
    assert sizes == [[128, 128], [64, 64], [32, 32]]


@pytest.mark.parametrize(
    ("dtype", "side", "points", "gathered"),
    [(bf16, 4096, 64, 64), (bf16, 1024, 128, 64), (bf16, 256, 256, 64), (f32, 4096, 64, 32)],
)
def test_gathered_factors_are_summed_fewer_points_at_a_time(
    dtype: DType, side: int, points: int, gathered: int
) -> None:
    whole = large(dtype, side=side)
    (phase, *rest) = whole.phases
    (statement,) = phase.statements
    assert isinstance(statement, Accumulate)
    place: dict[str, Size] = {"r0": add(mul(symbol("r0"), 16), symbol("r1"))}
    body = substitute_expr(statement.values[0], place)
    parts = replace(
        phase, axes=(Axis("r0", side // 16), Axis("r1", 16)), statements=(replace(statement, values=(body,)),)
    )

    def summed(made: Kernel) -> int:
        (inner, *_) = tiled(made).inner
        assert inner is not None
        return inner.block

    assert summed(whole) == points
    assert summed(replace(whole, phases=(parts, *rest))) == gathered


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


IN_TURNS = TileRequest(
    blocks=(("i0", 128), ("i1", 256), ("r0", 64)), warps=8, stages=3, grid=132, descriptors=True
)


@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize(("chip", "instruction"), [("sm_90", "wgmma.mma_async"), ("sm_100", "tcgen05.mma")])
def test_described_factors_are_copied_by_tiles(
    chip: str, instruction: str, turned: tuple[bool, bool], tmp_path: Path
) -> None:
    kernel = replace(large(bf16, turned), schedule=IN_TURNS)
    source = emitted(kernel)
    found = compile_source(source, chip, tmp_path)
    assert source.grid_size == 132
    assert instruction in found.ptx and "cp.async.bulk.tensor" in found.ptx
    assert "ld.global" not in found.ptx and "cp.async.cg" not in found.ptx
    assert found.scratch == 2 * 128, "a descriptor of 128 bytes for each factor"
    assert found.shared_bytes <= 227 << 10
    assert registers_spilt(found, tmp_path) == 0


def test_what_cannot_be_described_is_read_by_address(tmp_path: Path) -> None:
    blocks = (("i0", 32), ("i1", 32), ("r0", 32))
    schedule = TileRequest(blocks=blocks, grid=2, descriptors=True)
    lines = {4096: 2, 4095: 1, 4088: 2, 4092: 1}
    for columns, descriptors in lines.items():
        made = triton_matmuls.product("p", 64, columns, 64, schedule=schedule).kernel
        assert emitted(made).text.count("tl.make_tensor_descriptor(") == descriptors
    looked_up = replace(CASES["product_of_looked_up"].kernel, schedule=schedule)
    assert "tl.make_tensor_descriptor(" not in emitted(looked_up).text
    # A number of tiles that is not known is no number of programs either.
    assert "tl.num_programs" not in emitted(replace(CASES["product_open"].kernel, schedule=schedule)).text


def test_more_programs_than_tiles_are_none() -> None:
    schedule = TileRequest(blocks=(("i0", 32), ("i1", 32), ("r0", 32)), grid=132)
    assert emitted(triton_matmuls.product("p", 64, 96, 64, schedule=schedule).kernel).grid_size == 6
