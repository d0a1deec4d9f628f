"""Chains without a right factor: what their kernels compute, what they are compiled to."""

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
from triton_scheduled import emitted, tiled

from litz_codegen_triton.capabilities import shared_memory_limit
from litz_codegen_triton.runtime.compile import compile_source
from litz_ir.dtypes import f64
from litz_ir.plan import Kernel, Store, TileRequest
from litz_ir.scalar import cast

CASES = {case.name: case for case in triton_attention_scores.cases()}


@pytest.fixture(scope="module")
def differences() -> Mapping[str, str]:
    program = Path(triton_attention_scores.__file__)
    return {line["case"]: line["difference"] for line in run_interpreted(program)}


@pytest.mark.parametrize("name", CASES)
def test_a_lone_chain_computes_what_the_reference_computes(name: str, differences: Mapping[str, str]) -> None:
    assert differences[name] == ""


@pytest.mark.parametrize("name", CASES)
def test_folds_are_products_of_tiles(name: str) -> None:
    text = emitted(CASES[name].kernel).text
    assert "for e in range" not in text and text.count("tl.dot(") == 2


@pytest.mark.parametrize("name", ["lone_rows_0", "lone_columns_3", "lone_listed_1", "lone_points_1"])
def test_text(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"{name}.py.txt", emitted(CASES[name].kernel).text)


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
def test_tensor_cores_multiply_and_registers_suffice(
    chip: str, instruction: str, name: str, depth: int, tmp_path: Path
) -> None:
    source = emitted(LARGE[name](depth))
    found = compile_source(source, chip, tmp_path)
    assert instruction in found.ptx and found.shared_bytes <= shared_memory_limit(chip)
    assert triton_assembly.compiled(source, chip, tmp_path).spilled == 0


def test_nothing_is_added_where_nothing_is_seen() -> None:
    """What the mask hides takes no part in what programs do to memory together; what no list has is not walked."""
    text = emitted(LARGE["listed"](64)).text
    assert "mask = ge\n" in text or "mask=ge" in text, text
    assert "tl.where(ge, 0.0" not in text and text.count("tl.atomic_add(") == 1
    assert "in tl.range(0, length, RBLOCK" in text


def test_a_schedule_names_tiles() -> None:
    chosen = replace(
        LARGE["rows"](64), schedule=TileRequest(blocks=(("m", 128), ("n", 32)), warps=8, stages=2)
    )
    tiles = tiled(chosen)
    assert [dim.block for dim in tiles.outer] == [1, 128, 1]
    assert (tiles.inner[0] and tiles.inner[0].block, tiles.warps, tiles.stages) == (32, 8, 2)


def test_other_sums_stay_what_they_are() -> None:
    """Doubles are summed point by point, and so is what two statements know otherwise."""
    made = rows("wide", Heads())
    (phase, last) = made.phases
    (statement,) = phase.statements
    assert not isinstance(statement, Store) and hasattr(statement, "values")
    doubles = replace(statement, results=(("s", f64),), values=(cast(statement.values[0], f64),))
    assert (
        tiled(
            replace(made, phases=(replace(phase, statements=(doubles,)), replace(last, statements=())))
        ).attention
        is None
    )
