"""Fused attention kernels: their results, their compiled code, their tiles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import triton_assembly
import triton_fused_attention
from test_triton_interpret import run_interpreted
from triton_fused_attention import (
    MASKED,
    Heads,
    M,
    causal,
    forward,
    key_gradients,
    listed,
    listed_queries,
    query_gradient,
)
from triton_scheduled import emitted, roles, scheduled, tiled

from litz_codegen_triton.capabilities import chip_model
from litz_codegen_triton.emit.kernel import emit_kernel
from litz_codegen_triton.emit.kernel_source import KernelSource
from litz_codegen_triton.emit.loops.fused_attention import FusedAttention
from litz_codegen_triton.runtime.compile import compile_source
from litz_ir.dtypes import f32, f64, i64
from litz_ir.plan import Accumulate, Attention, Kernel, TileRequest
from litz_ir.scalar import Expr, NestedReduction, cast, const, index, masked, op, transform
from litz_ir.symbols import Size, SymbolInfo, add, mul, symbol

CASES = {case.name: case for case in triton_fused_attention.cases()}


@pytest.fixture(scope="module")
def differences() -> Mapping[str, str]:
    program = Path(triton_fused_attention.__file__)
    return {found["case"]: found["difference"] for found in run_interpreted(program)}


@pytest.mark.parametrize("name", CASES)
def test_attention_agrees_with_the_reference_interpreter(name: str, differences: Mapping[str, str]) -> None:
    assert differences[name] == ""


@pytest.mark.parametrize("name", CASES)
def test_nested_reductions_use_dot(name: str) -> None:
    text = emitted(CASES[name].kernel).text
    assert "for e in range" not in text and text.count("tl.dot(") >= 2


@pytest.mark.parametrize("name", CASES)
def test_attention_compiles(name: str, tmp_path: Path) -> None:
    found = compile_source(emitted(CASES[name].kernel), "sm_90", tmp_path)
    assert found.shared_bytes <= chip_model("sm_86").shared_bytes, "small heads fit the least shared memory"


@pytest.mark.parametrize("name", [name for name in CASES if "described" in name])
def test_described_operands_have_no_addresses(name: str) -> None:
    source = emitted(CASES[name].kernel)
    text = source.text
    loop = text[text.index("in tl.range(") :]
    made = len(source.descriptors), text.count("tl.make_tensor_descriptor(")
    count = 4 if "dkdv" in name else 2
    assert made == ((count, 0) if "listed" in name else (0, count)), "tails are filled with zeros"
    loads = [text for text in loop.splitlines() if "tl.load(" in text]
    assert not any("span" in each or "rindex" in each for each in loads), "values of points neither"


def test_launches_make_descriptors_of_whole_buffers() -> None:
    whole = emitted(CASES["attention_listed_described"].kernel).descriptors
    assert {(each.shape, each.strides, each.block) for each in whole} == {((192, 32), (32, 1), (32, 32))}
    columns = emitted(CASES["attention_listed_columns"].kernel)
    assert {(each.shape, each.strides) for each in columns.descriptors} == {((96, 64), (64, 1))}
    assert "zindex * 32]" in columns.text
    padded = emitted(CASES["attention_listed_columns_padded"].kernel)
    assert not padded.descriptors, "a padded tile would read the columns of the next head"
    assert padded.text.count("tl.make_tensor_descriptor(") == 2


@pytest.mark.parametrize(
    "heads", [Heads(depth=20, width=20), Heads(dtype=f32), Heads(rows=symbol("s1"), keys=symbol("s2"))]
)
def test_operands_that_no_descriptor_can_load_are_loaded_by_threads(heads: Heads) -> None:
    symbols = [SymbolInfo(name, low=0, hint=40) for name in ("s1", "s2") if not isinstance(heads.rows, int)]
    made = forward("plain", heads, schedule=TileRequest(descriptors=True), symbols=symbols)
    assert "make_tensor_descriptor" not in emitted(made).text


def large(depth: int, *, group: int = 1) -> Heads:
    return Heads(batch=64 // group, rows=4096, keys=4096, depth=depth, width=depth, group=group)


SPILLS: Mapping[tuple[str, str, int], int] = {
    ("sm_80", "dkdv", 64): 272,
    ("sm_80", "dkdv_listed", 64): 300,
    ("sm_90", "dkdv", 64): 4,
    ("sm_100", "dkdv", 64): 132,
    ("sm_100", "dkdv_listed", 64): 132,
    ("sm_80", "dkdv", 128): 24,
    ("sm_80", "dkdv_listed", 128): 64,
    ("sm_90", "dkdv_listed", 128): 20,
    ("sm_100", "listed", 128): 4,
}
"""Bytes of registers that may be spilled: all have the tiles for sm_90, the fastest of those measured on an H100 and an
H200."""

LARGE: Mapping[str, Callable[[int], Kernel]] = {
    "forward": lambda depth: forward("large", large(depth)),
    "causal": lambda depth: forward("large", large(depth), causal),
    "groups": lambda depth: forward("large", large(depth, group=4), causal),
    "listed": lambda depth: listed("large", large(depth), 128, 128, causal),
    "dq": lambda depth: query_gradient("large", large(depth), causal),
    "dkdv": lambda depth: key_gradients("large", large(depth), causal),
    "dkdv_listed": lambda depth: listed_queries("large", large(depth, group=4), 128, 128, causal),
}


def source_for(chip: str, kernel: Kernel) -> KernelSource:
    """The source of a kernel with the tiles for sm_90, without descriptors for chips that have none."""
    made = scheduled(kernel)
    assert isinstance(made.schedule, Attention)
    described = made.schedule.descriptors and chip_model(chip).tensor_descriptors
    return emit_kernel(replace(made, schedule=replace(made.schedule, descriptors=described)))


@pytest.mark.parametrize("depth", [64, 128])
@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize(
    ("chip", "instruction"), [("sm_80", "mma.sync"), ("sm_90", "wgmma.mma_async"), ("sm_100", "tcgen05.mma")]
)
def test_operands_are_copied_asynchronously_to_tensor_cores(
    chip: str, instruction: str, name: str, depth: int, tmp_path: Path
) -> None:
    source = source_for(chip, LARGE[name](depth))
    found = compile_source(source, chip, tmp_path)
    assert instruction in found.ptx
    described = source.descriptors or "tl.make_tensor_descriptor(" in source.text
    copied = "cp.async.bulk.tensor.2d" if described else "cp.async.cg.shared.global"
    assert copied in found.ptx, "operands are prefetched, in tiles or 16 bytes a thread"
    assert found.shared_bytes <= chip_model(chip).shared_bytes
    spilled = triton_assembly.compiled(source, chip, tmp_path).spilled
    assert spilled <= SPILLS.get((chip, name, depth), 0)


def test_an_operand_that_is_both_k_and_v_is_loaded_once() -> None:
    text = emitted(LARGE["dkdv"](64)).text
    assert text.count("load(") == 6 and text.count("tl.trans(v") == 2
    assert emitted(LARGE["dq"](64)).text.count("load(") == 6


def test_a_loop_bound_ends_the_loop() -> None:
    text = emitted(LARGE["listed"](64)).text
    assert "tl.minimum(add.to(tl.int32), 32) * 128" in text and "in tl.range(0, length, RBLOCK" in text
    assert "tl.load(listed_ptr + qblockindex * 32 + index_1)" in text, (
        "all rows of a tile have one block of queries"
    )
    assert text.count("tl.where(lt") == 1, "the condition of the loop bound is not tested again"


def test_comparisons_are_made_only_in_blocks_that_need_them() -> None:
    text = emitted(CASES["attention_listed_full"].kernel).text
    _, test, *_, last = map(str.strip, text[text.index("shown = qk") :].splitlines()[:5])
    assert test.startswith("if roffset < length") and last == "shown = where_1", text
    assert text.count("for roffset") == 1 and "shown" not in emitted(CASES["attention_listed"].kernel).text


def window(score: Expr, key: Size) -> Expr:
    recent = op("lt", op("sub", index(M), index(key)), const(100, i64))
    return causal(op("where", recent, score, MASKED), key)


def test_rows_with_most_points_start_first() -> None:
    """Later queries see more keys under a causal mask, and earlier keys more queries."""
    masked_rows = listed("last", large(64), 128, 128, causal), listed("same", large(64), 128, 128, window)
    orders = [tiled(each).order for each in (*masked_rows, LARGE["dkdv_listed"](64), LARGE["causal"](64))]
    assert orders == ["last_rows", "batch", "first_rows", "batch"]
    many = listed_queries("many", replace(large(64, group=4), batch=64), 128, 128, causal)
    assert tiled(many).order == "batch", "finishes head after head"
    text = emitted(masked_rows[0]).text
    assert "rowsindex = (64 - 1 - program // 64) * YBLOCK" in text and "zindex = (program % 64)" in text
    assert "rowsindex = program // 16 * YBLOCK" in emitted(LARGE["dkdv_listed"](64)).text


def test_long_loops_under_a_mask_read_tiles_through_descriptors() -> None:
    def described(kernel: Kernel) -> bool:
        return tiled(kernel).summed_descriptors

    short = replace(large(128), keys=512)
    assert described(LARGE["listed"](128)) and described(LARGE["dkdv_listed"](128))
    assert described(LARGE["dq"](256)) and described(LARGE["forward"](256)), "also without a list"
    assert not described(LARGE["forward"](128)) and not described(LARGE["dkdv"](64))
    assert not described(listed("short", short, 128, 128, causal)), "each thread block makes its descriptors"
    assert not described(forward("exact", replace(large(256), dtype=f32)))
    masks, changed = (listed_queries("dkdv", large(64), 128, 128, each) for each in (causal, distant))
    assert [tiled(each).inner[0].block for each in (masks, changed) if tiled(each).inner[0]] == [128, 64]
    assert described(changed) and not described(masks), "spills less"


def distant(score: Expr, key: Size) -> Expr:
    """Fall with the distance of query and key, capped several times."""
    fallen = op("sub", score, op("mul", const(0.5, f32), cast(index(add(M, mul(key, -1))), f32)))
    for scale in (0.25, 0.5, 2.0, 4.0):
        fallen = op("mul", op("tanh", op("mul", fallen, const(scale, f32))), const(3.0, f32))
    return causal(fallen, key)


def test_few_rows_have_small_tiles() -> None:
    one, groups = (forward("few", replace(large(128, group=group), rows=1)) for group in (1, 4))
    for few in (one, groups):
        assert [dim.block for dim in tiled(few).outer] == [1, 16, 128]
    found = roles(groups)
    assert isinstance(found, FusedAttention) and [axis.name for axis in found.rows] == ["g", "m"]


def test_a_request_sets_tiles_warps_and_stages() -> None:
    blocks = (("m", 64), ("d", 64), ("n", 128))
    chosen = replace(LARGE["forward"](64), schedule=TileRequest(blocks=blocks, warps=8, stages=4))
    tiles = tiled(chosen)
    assert [dim.block for dim in tiles.outer] == [1, 64, 64]
    assert (tiles.inner[0] and tiles.inner[0].block, tiles.warps, tiles.stages) == (128, 8, 4)
    text = emitted(chosen).text
    assert "tl.range(0, 4096, RBLOCK, num_stages=4)" in text
    blocked = replace(LARGE["listed"](64), schedule=TileRequest(blocks=(("m", 256), ("t", 256)), warps=8))
    assert [dim.block for dim in tiled(blocked).outer] == [1, 128, 16]


@pytest.mark.parametrize("depth", [64, 128])
def test_f32_operands_are_multiplied_exactly(depth: int, tmp_path: Path) -> None:
    heads = replace(large(depth), dtype=f32)
    source = emitted(forward("exact", heads))
    found = compile_source(source, "sm_90", tmp_path)
    assert "fma.rn.f32" in found.ptx and "tf32" not in found.ptx
    assert triton_assembly.compiled(source, "sm_90", tmp_path).spilled == 0


@pytest.mark.parametrize("depth", [64, 128])
@pytest.mark.parametrize("name", ["forward", "dq", "dkdv"])
@pytest.mark.parametrize(
    ("chip", "instruction"), [("sm_80", "mma.sync"), ("sm_90", "tf32"), ("sm_100", "tcgen05.mma")]
)
def test_tf32_operands_are_multiplied_by_tensor_cores(
    chip: str, instruction: str, name: str, depth: int, tmp_path: Path
) -> None:
    heads = replace(large(depth), dtype=f32)
    make = {"forward": forward, "dq": query_gradient, "dkdv": key_gradients}[name]
    source = emitted(triton_fused_attention.tf32_operands(make("rounded", heads)))
    assert source.text.count('input_precision="tf32"') == source.text.count("tl.dot(") >= 2
    found = compile_source(source, chip, tmp_path)
    assert instruction in found.ptx and "tf32" in found.ptx
    assert found.shared_bytes <= chip_model(chip).shared_bytes
    assert triton_assembly.compiled(source, chip, tmp_path).spilled == 0


def test_other_nested_reductions_stay_loops() -> None:
    heads = Heads()

    def lazy(score: Expr, key: Size) -> Expr:
        return masked(
            op("ge", index(triton_fused_attention.M), index(key)), score, triton_fused_attention.MASKED
        )

    def deeper(score: Expr, key: Size) -> Expr:
        return transform(
            score,
            lambda node: (
                NestedReduction((("e", 512),), node.body) if isinstance(node, NestedReduction) else node
            ),
        )

    def of_sums(score: Expr, key: Size) -> Expr:
        return transform(
            score,
            lambda node: (
                NestedReduction(node.axes, op("add", node.body, const(1.0, f32)))
                if isinstance(node, NestedReduction)
                else node
            ),
        )

    for change, summed in (
        (lazy, "nested = tl.sum("),
        (deeper, "for e in range"),
        (of_sums, "nested = tl.sum("),
    ):
        text = emitted(forward("plain", heads, change)).text
        assert "tl.dot" not in text and summed in text, (
            "as a tile where one has all points of the head, else in loops"
        )
    (first, last) = forward("doubles", heads).phases
    (statement,) = first.statements
    assert isinstance(statement, Accumulate)
    doubles = replace(
        statement,
        results=tuple((name, f64) for name, _ in statement.results),
        values=tuple(cast(value, f64) for value in statement.values),
    )
    made = replace(
        forward("doubles", heads),
        phases=(replace(first, statements=(doubles,)), replace(last, statements=())),
    )
    assert roles(made) is None
