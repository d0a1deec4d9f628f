"""Attention kernels without V: their results and their compiled code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import triton_assembly
import triton_attention_scores
from test_triton_interpret import run_interpreted
from triton_attention_scores import columns, distances, listed_distances, points, rows
from triton_fused_attention import Heads, causal
from triton_scheduled import emitted, roles, tiled

from litz_codegen_triton.capabilities import chip_model
from litz_codegen_triton.runtime.compile import compile_source
from litz_ir.dtypes import f64
from litz_ir.plan import Kernel, Store, TileRequest
from litz_ir.scalar import cast

CASES = {case.name: case for case in triton_attention_scores.cases()}


@pytest.fixture(scope="module")
def differences() -> Mapping[str, str]:
    program = Path(triton_attention_scores.__file__)
    return {found["case"]: found["difference"] for found in run_interpreted(program)}


@pytest.mark.parametrize("name", CASES)
def test_scores_agree_with_the_reference_interpreter(name: str, differences: Mapping[str, str]) -> None:
    assert differences[name] == ""


@pytest.mark.parametrize("name", CASES)
def test_nested_reductions_use_dot(name: str) -> None:
    text = emitted(CASES[name].kernel).text
    assert "for e in range" not in text and text.count("tl.dot(") == 2


def large(depth: int, group: int = 1) -> Heads:
    return Heads(batch=64 // group, rows=4096, keys=4096, depth=depth, width=depth, group=group)


LARGE: Mapping[str, Callable[[int], Kernel]] = {
    "rows": lambda depth: rows("large", large(depth), causal),
    "rows_groups": lambda depth: rows("large", large(depth, 4), causal),
    "columns": lambda depth: columns("large", large(depth, 4), causal),
    "distances": lambda depth: distances("large", large(depth), causal),
    "points": lambda depth: points("large", large(depth)),
    "listed": lambda depth: listed_distances("large", large(depth, 4), 128, 128, causal),
}


@pytest.mark.parametrize("depth", [64, 128])
@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize(
    ("chip", "instruction"), [("sm_80", "mma.sync"), ("sm_90", "wgmma.mma_async"), ("sm_100", "tcgen05.mma")]
)
def test_tensor_cores_multiply_without_spills(
    chip: str, instruction: str, name: str, depth: int, tmp_path: Path
) -> None:
    source = emitted(LARGE[name](depth))
    found = compile_source(source, chip, tmp_path)
    assert instruction in found.ptx and found.shared_bytes <= chip_model(chip).shared_bytes
    assert triton_assembly.compiled(source, chip, tmp_path).spilled == 0


def test_masked_scores_are_not_added() -> None:
    """The mask of scores masks the atomic addition, and the loop ends after the listed blocks."""
    text = emitted(LARGE["listed"](64)).text
    assert "mask = ge\n" in text or "mask=ge" in text, text
    assert "tl.where(ge, 0.0" not in text and text.count("tl.atomic_add(") == 1
    assert "in tl.range(0, length, RBLOCK" in text


def test_a_request_sets_tiles_warps_and_stages() -> None:
    chosen = replace(
        LARGE["rows"](64), schedule=TileRequest(blocks=(("m", 128), ("n", 32)), warps=8, stages=2)
    )
    tiles = tiled(chosen)
    assert [dim.block for dim in tiles.outer] == [1, 128, 1]
    assert (tiles.inner[0] and tiles.inner[0].block, tiles.warps, tiles.stages) == (32, 8, 2)


def test_f64_sums_are_not_fused_attention() -> None:
    made = rows("doubles", Heads())
    (phase, last) = made.phases
    (statement,) = phase.statements
    assert not isinstance(statement, Store) and hasattr(statement, "values")
    doubles = replace(statement, results=(("s", f64),), values=(cast(statement.values[0], f64),))
    phases = (replace(phase, statements=(doubles,)), replace(last, statements=()))
    assert roles(replace(made, phases=phases)) is None
