"""Candidate configs of kernels: their tiles, and their results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import triton_candidates
from test_triton_emit import copy, row_sum
from test_triton_interpret import run_interpreted
from triton_cases import I0, I1, R0, kernel, scalar
from triton_fused_attention import Heads, forward
from triton_matmuls import matmul
from triton_scheduled import choices, emitted, scheduled, tiled

from litz_codegen_triton.emit.loops.tiles import Tiling
from litz_codegen_triton.runtime.compile import compile_source
from litz_codegen_triton.tables.hopper import HOPPER
from litz_codegen_triton.tune.candidate_configs import MAX_CANDIDATES, describe_tile
from litz_ir.dtypes import bf16, f32
from litz_ir.errors import CodegenError
from litz_ir.loops import NamedCombiner
from litz_ir.plan import Accumulate, Kernel, Matmul, Store, TileRequest
from litz_ir.plan.verify.kernel import verify_kernel
from litz_ir.scalar import op
from litz_ir.scalar.build import load

CASES = {group: [name for name, _, _ in cases()] for group, cases in triton_candidates.CASES.items()}
Outcomes = Mapping[str, dict[str, str]]


def outcomes(group: str) -> Outcomes:
    program = Path(triton_candidates.__file__)
    return {line["case"]: line for line in run_interpreted(program, group)}


@pytest.fixture(scope="module")
def of_the_suite() -> Outcomes:
    return outcomes("suite")


@pytest.fixture(scope="module")
def of_the_corpus() -> Outcomes:
    return outcomes("corpus")


@pytest.mark.parametrize("name", CASES["suite"])
def test_candidates_of_the_suite_agree_with_the_reference_interpreter(
    name: str, of_the_suite: Outcomes
) -> None:
    assert of_the_suite[name]["difference"] == ""


@pytest.mark.parametrize("name", CASES["corpus"])
def test_candidates_of_the_corpus_agree_with_the_reference_interpreter(
    name: str, of_the_corpus: Outcomes
) -> None:
    assert of_the_corpus[name]["difference"] == ""


def test_nearly_every_kernel_has_candidates(of_the_suite: Outcomes, of_the_corpus: Outcomes) -> None:
    found = {**of_the_suite, **of_the_corpus}
    alone = {name for name, line in found.items() if not line["candidates"]}
    assert len(alone) * 20 < len(found), sorted(alone)


def columns(rows: int, width: int) -> Kernel:
    x = load("x", (R0 * width + I0,), f32)
    return kernel(
        "columns",
        [("x", f32, "in"), ("o", f32, "out")],
        [("i0", width)],
        ([("r0", rows)], [Accumulate((("s", f32),), NamedCombiner("sum"), (x,))]),
        ((), [Store("o", I0, scalar("s", f32))]),
    )


def transpose(size: int) -> Kernel:
    store = Store("o", I0 * size + I1, op("neg", load("x", (I1 * size + I0,), f32)))
    return kernel("t", [("x", f32, "in"), ("o", f32, "out")], [("i0", size), ("i1", size)], ((), [store]))


LARGE = {
    "map": copy(1 << 26),
    "rows": row_sum(1 << 14, 4096),
    "short rows": row_sum(1 << 19, 128),
    "long rows": row_sum(1 << 10, 1 << 16),
    "columns": columns(1 << 14, 4096),
    "transpose": transpose(8192),
    "matmul": matmul("matmul", 4096, 4096, 4096).kernel,
    "attention": forward("attention", Heads(batch=32, rows=4096, keys=4096, depth=64, width=64)),
}


def shape(tiles: Tiling) -> tuple[object, ...]:
    outer = tuple(dim.block for dim in tiles.outer)
    inner = tuple(each and (each.block, each.persistent) for each in tiles.inner)
    return outer, inner, tiles.warps, tiles.stages


@pytest.mark.parametrize("name", LARGE)
def test_candidates_differ_in_their_tiles_alone(name: str) -> None:
    first, *others = found = choices(LARGE[name])
    assert first == scheduled(LARGE[name]) and MAX_CANDIDATES - 1 <= len(found) <= MAX_CANDIDATES
    assert len({shape(tiled(each)) for each in found}) == len(found)
    for each in others:
        verify_kernel(each)
        assert (each.name, each.phases, each.outer) == (first.name, first.phases, first.outer)
        tiles = tiled(each)
        points = max((inner.block for inner in tiles.inner if inner), default=1)
        points = 1 if tiles.uses_dot else points
        for dim in tiles.outer:
            points *= dim.block
        assert points <= HOPPER.loops.largest_tile and 32 * tiles.warps <= points


def test_tiles_of_candidates_in_words() -> None:
    words = {name: [describe_tile(tiled(each)) for each in choices(found)] for name, found in LARGE.items()}
    assert words["map"] == [
        "x 1024, 8 warps", "x 512, 8 warps", "x 2048, 8 warps", "x 2048, 16 warps", "x 512, 4 warps", "x 4096, 8 warps",
    ]  # fmt: skip
    assert words["transpose"][:3] == ["y 64, x 64, 4 warps", "y 64, x 64, 8 warps", "y 32, x 64, 4 warps"]
    assert "r 1024 looped, 8 warps" in words["rows"]
    assert words["matmul"][1].endswith("4 stages") and len(set(words["matmul"])) == MAX_CANDIDATES
    assert words["attention"][1] == "y 64, x 64, r 128 looped, 4 warps, 3 stages"
    assert words["long rows"][0].endswith("looped, 32 warps")


def test_matmuls_with_descriptors_have_persistent_candidates() -> None:
    def persistent(found: Kernel, *, described: bool = True) -> list[Matmul]:
        every = [each.schedule for each in choices(found, 227 << 10, described=described)]
        return [each for each in every if isinstance(each, Matmul) and (each.grid or each.descriptors)]

    large = matmul("matmul", 4096, 4096, 4096, result=bf16).kernel
    found = persistent(large)
    assert [(each.columns.block, each.grid, each.descriptors) for each in found] == [
        (256, 132, ("left", "right")), (128, 132, ("left", "right")),
    ]  # fmt: skip
    assert [each.columns.block for each in persistent(LARGE["matmul"])] == [128], "f32 takes more memory"
    assert not persistent(large, described=False)
    assert not persistent(matmul("odd", 4096, 4096, 4095).kernel)
    assert not persistent(matmul("few", 256, 256, 4096).kernel), "each tile has an SM of its own"
    for each in choices(large, described=True):
        verify_kernel(each)


def test_tf32_operands_have_larger_tiles() -> None:
    made = matmul("tf32", 4096, 4096, 4096, f32, multiply="mul_tf32").kernel
    assert describe_tile(tiled(choices(made)[1])) == "y 128, x 128, r 32 looped, 8 warps, 3 stages"


def test_candidates_fit_the_shared_memory_of_a_cta() -> None:
    for nbytes in (99 << 10, 163 << 10):
        for each in choices(LARGE["matmul"], shared_bytes=nbytes)[1:]:
            found = each.schedule
            assert isinstance(found, Matmul)
            extent = found.rows.block + found.columns.block
            assert extent * found.summed.block * 2 * found.stages <= nbytes


def test_no_candidate_leaves_sms_idle() -> None:
    for count in (1 << 12, 1 << 18):
        base, *others = (tiled(each).grid_size for each in choices(copy(count)))
        assert isinstance(base, int)
        assert all(isinstance(each, int) and each >= min(132, base) for each in others)


def test_a_kernel_of_one_point_has_no_candidates() -> None:
    alone = kernel("alone", [("o", f32, "out")], [], ((), [Store("o", 0, load("o", (0,), f32))]))
    assert choices(alone) == (scheduled(alone),)


@pytest.mark.parametrize("name", ["map", "long rows", "transpose", "matmul", "attention"])
def test_candidates_compile(name: str, tmp_path: Path) -> None:
    for each in choices(LARGE[name])[1:3]:
        built = compile_source(emitted(each), "sm_90", tmp_path)
        assert built.warps == tiled(each).warps


def over(*named: tuple[str, int]) -> Tiling:
    """Return the tiles of a transpose with these blocks requested."""
    return tiled(replace(transpose(512), schedule=TileRequest(blocks=named, warps=2)))


def test_a_request_sets_blocks_by_axis() -> None:
    swapped = over(("i1", 16), ("i0", 64))
    assert [(dim.axes[0].name, dim.block) for dim in swapped.outer] == [("i1", 16), ("i0", 64)]
    (flat,) = over(("i0", 256)).outer
    assert ([axis.name for axis in flat.axes], flat.block) == (["i1", "i0"], 256)
    (inner, _) = tiled(replace(row_sum(64, 100), schedule=TileRequest(blocks=(("r0", 1024),)))).inner
    assert inner is not None and (inner.block, inner.persistent) == (128, True)
    three = kernel(
        "three", [("o", f32, "out")], [("i0", 8), ("i1", 8), ("i2", 8)], ((), [Store("o", I0, scalar("s"))])
    )
    with pytest.raises(CodegenError, match="names 3 outer axes"):
        tiled(replace(three, schedule=TileRequest(blocks=(("i0", 2), ("i1", 2), ("i2", 2)))))
