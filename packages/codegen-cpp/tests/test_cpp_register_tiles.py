"""Register tiles of matmuls: tables of half bytes, order of prefetches, ends of long sums."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest
from cpp_kernels import I0, R0, R1, kernel
from cpp_units import runnable
from test_cpp_emit import load_all

from litz_codegen_cpp.emit.kernel import emit_kernel
from litz_codegen_cpp.target import CpuTarget
from litz_codegen_cpp.toolchain.build import BuildOptions
from litz_ir.dtypes import f32, i8, u8
from litz_ir.interp.kernel import run_kernel
from litz_ir.loops import NamedCombiner
from litz_ir.plan import Accumulate, CpuLoops, Kernel, Store
from litz_ir.scalar import Expr, Scalar
from litz_ir.scalar.build import cast, const, load, op
from litz_ir.symbols import Size

COLUMNS = 3


def _weight(half: Expr, scale: Expr) -> Expr:
    return op("mul", cast(op("sub", cast(half, i8), const(8, i8)), f32), scale)


def _int4(groups: int, size: int, rows: int, columns: int = 2) -> Kernel:
    """Return rows by columns whose weights are half bytes with a scale for each group of ``size`` bytes."""
    length = groups * size
    sums, stores = [], []
    for number in range(rows * columns):
        row, column = divmod(number, columns)
        at: Size = (I0 * columns + column) * length + R0 * size + R1
        byte = load("w", (at,), u8)
        scale = load("s", ((I0 * columns + column) * groups + R0,), f32)
        x = [load("x", ((R0 * size + R1) * 2 + (2 * length * row + k),), f32) for k in (0, 1)]
        low = op("bit_and", byte, const(15, u8))
        high = op("shift_right", byte, const(4, u8))
        value = op("add", op("mul", x[0], _weight(low, scale)), op("mul", x[1], _weight(high, scale)))
        sums.append(Accumulate(((f"s{number}", f32),), NamedCombiner("sum"), (value,)))
        stores.append(Store("o", (I0 * columns + column) * rows + row, Scalar(f"s{number}", f32)))
    return kernel(
        f"int4_{groups}_{size}_{rows}", "x w s : o", [("i0", COLUMNS)],
        [([("r0", groups), ("r1", size)], sums), ([], stores)],
        dtypes={"w": u8}, schedule=CpuLoops(parallel=("i0",), vector="r1"),
    )  # fmt: skip


@pytest.mark.parametrize("name", [None, *runnable()])
def test_half_bytes_equal_the_interpreter(name: str | None, tmp_path: Path) -> None:
    shapes = [(1, 128, 2), (4, 64, 4), (3, 16, 2), (5, 100, 3), (300, 16, 2), (40, 64, 1)]
    kernels = [_int4(*shape) for shape in shapes]
    assert all("look_up(" in emit_kernel(each, 16).text for each in kernels)
    assert not any("look_up(" in emit_kernel(each, 8).text for each in kernels)
    module = load_all(CpuTarget(isa=name, build_options=BuildOptions(optimize="-O1")), kernels, tmp_path)
    draw = np.random.default_rng(0)
    for (groups, size, rows), each in zip(shapes, kernels, strict=True):
        columns, bytes_ = 2 * COLUMNS, groups * size
        w = draw.integers(0, 256, columns * bytes_).astype(np.uint8)
        w[: min(256, len(w))] = np.arange(min(256, len(w)))
        s = draw.standard_normal(columns * groups).astype(np.float32)
        s[-1] = np.nan
        s[0] = 0
        x = draw.standard_normal(2 * bytes_ * rows).astype(np.float32)
        found, wanted = ({"x": x, "w": w, "s": s, "o": np.zeros(columns * rows, np.float32)} for _ in "ab")
        run_kernel(each, wanted, {})
        module.function(each.name)([found[p.name].ctypes.data for p in each.parameters], [])
        scale = np.nanmax(np.abs(wanted["o"])) + 1
        np.testing.assert_allclose(found["o"], wanted["o"], atol=4e-6 * scale, rtol=1e-5, err_msg=each.name)


def test_a_table_is_made_once_a_group() -> None:
    text = emit_kernel(_int4(4, 64, 2), 16).text
    inner = text[text.index("for (int64_t r1") :]
    assert inner.count("look_up(") == 16 and "bit_and" not in inner and "cast_1 *" not in inner


def test_many_groups_end_sums_as_rarely_as_one_long_sum() -> None:
    assert "settle()" not in emit_kernel(_int4(4, 64, 2), 16).text
    assert "if (r0 % 64 == 63)" in emit_kernel(_int4(300, 16, 2), 16).text


def _ahead(rows: int, runs: list[int], length: int, start: int = 0, pitch: int = 0) -> list[str]:
    """Return the prefetches of a kernel whose points are ``rows`` by all ``runs`` of columns, each in its own loop."""
    pitch, columns = pitch or length, sum(runs)
    phases, stores = [], []
    for end, run in zip(accumulate(runs), runs):
        sums = []
        for column in range(end - run, end):
            w = load("w", ((I0 * columns + column) * pitch + R0 + start,), f32)
            for row in range(rows):
                value = op("mul", load("x", (R0 + length * row,), f32), w)
                name = f"s{column}_{row}"
                sums.append(Accumulate(((name, f32),), NamedCombiner("sum"), (value,)))
                stores.append(Store("o", (I0 * columns + column) * rows + row, Scalar(name, f32)))
        phases.append(([("r0", length)], sums))
    tile = kernel(
        "tile", "x w : o", [("i0", COLUMNS)], [*phases, ([], stores)],
        schedule=CpuLoops(parallel=("i0",), vector="r0"),
    )  # fmt: skip
    lines = emit_kernel(tile, 16).text.splitlines()
    return [line.split("(")[1].removesuffix(");") for line in lines if "prefetch_stream(" in line]


def _lines(rows: int, start: int, count: int, ahead: int) -> list[str]:
    """Return prefetches of ``count`` lines for each step over ``rows`` rows, in the order of memory."""
    starts = [f" + {start + 16 * k}" if start + 16 * k else "" for k in range(count)]
    return [f"w + at_0 + r0*{rows}{each}, {ahead}" for each in starts]


def test_few_rows_prefetch_the_next_tile_in_the_order_of_memory() -> None:
    assert _ahead(4, [4], 4096) == _lines(4, 0, 4, 65536)


def test_other_tiles_prefetch_along_each_row() -> None:
    assert _ahead(8, [2], 4096) == [f"w + at_0 + r0{k}, 32768" for k in ("", " + 4096")]
    # A second-level cache does not hold them.
    assert _ahead(4, [4], 32768)[1] == "w + at_0 + r0 + 32768, 8192"
    # They have elements that are not read.
    assert _ahead(4, [4], 4096, pitch=8192)[1] == "w + at_0 + r0 + 8192, 8192"


def test_a_slice_of_a_wider_weight_is_prefetched_from_its_own_start() -> None:
    assert _ahead(4, [4], 4096, start=40960) == _lines(4, 40960, 4, 65536)


def test_loops_of_unequal_numbers_of_columns_prefetch_each_line_once() -> None:
    loops = [_lines(6, 0, 6, 98304), _lines(5, 6 * 4096, 5, 98304), _lines(5, 11 * 4096, 5, 98304)]
    assert _ahead(4, [6, 5, 5], 4096) == [line for loop in loops for line in loop]
