"""Sums of products of bf16 numbers in pairs, with the CPU's instruction for them and without."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest
from cpp_kernels import I0, R0, N, kernel
from cpp_units import call, runnable
from test_cpp_emit import load_all

from litz_codegen_cpp.emit.kernel import emit_kernel
from litz_codegen_cpp.target import CpuTarget
from litz_codegen_cpp.toolchain import isa
from litz_codegen_cpp.toolchain.build import BuildOptions, compile_source
from litz_codegen_cpp.toolchain.compilers import find_compiler
from litz_ir.dtypes import bf16, f32, i8
from litz_ir.errors import CompilerNotFound
from litz_ir.interp.encoding import decode, encode
from litz_ir.interp.kernel import run_kernel
from litz_ir.loops import NamedCombiner
from litz_ir.plan import Accumulate, CpuLoops, Kernel, Store
from litz_ir.scalar import Expr, Scalar
from litz_ir.scalar.build import cast, load, op
from litz_ir.symbols import Size, SymbolInfo

UNIT = """
#include <litz/bf16_pairs.h>
using namespace litz;
#define SUM(form)                                                                                       \\
  extern "C" void form(const bf16* x, const float* y, float* sums, int64_t n) {                         \\
    sum_state<vec<float>> s;                                                                            \\
    for (int64_t i = 0; i < n; i += 2 * LITZ_LANES)                                                     \\
      add_products(s, load_##form(x + i), join_##form<false>(load(y + i), load(y + i + LITZ_LANES)));          \\
    store(sums, s.result());                                                                            \\
  }
SUM(adjacent)
SUM(consecutive)
extern "C" int64_t lanes() { return LITZ_LANES; }
"""


def _sets() -> list[isa.Isa]:
    """Return the instruction sets that this CPU runs, with and without optional instructions."""
    found, each = [], isa.step_down(isa.detect())
    found.append(isa.detect())
    while each is not None:
        found.append(each)
        each = isa.step_down(each)
    return found


@pytest.mark.parametrize("chosen", _sets(), ids=lambda each: "-".join((each.name, *sorted(each.features))))
def test_both_orders_sum_the_same_products(chosen: isa.Isa, tmp_path: Path) -> None:
    try:
        compiler = find_compiler()
    except CompilerNotFound as error:
        pytest.skip(str(error))
    out = tmp_path / "unit.so"
    compile_source(UNIT, isa=chosen, compiler=compiler, out=out, options=BuildOptions(optimize="-O1"))
    unit = ctypes.CDLL(str(out))
    lanes = int(unit["lanes"]())
    steps, draw = 5, np.random.default_rng(0)
    bits = encode(draw.standard_normal(2 * lanes * steps).astype(np.float32), bf16)
    x = decode(bits, bf16).astype(np.float64)
    y = draw.standard_normal(len(x)).astype(np.float32)
    rounded = decode(encode(y, bf16), bf16).astype(np.float64)
    for form in ("adjacent", "consecutive"):
        sums = np.zeros(lanes, np.float32)
        call(unit, form, bits, y, sums, len(x))
        halves = rounded.reshape(steps, 2, lanes)
        partner = halves.transpose(0, 2, 1) if form == "adjacent" else halves
        want = float((x.reshape(steps, -1) * partner.reshape(steps, -1)).sum())
        assert sums.astype(np.float64).sum() == pytest.approx(want, rel=1e-5, abs=1e-5)
    x[3] = np.inf
    call(unit, "consecutive", encode(x.astype(np.float32), bf16), y, sums, len(x))
    assert np.isinf(sums).sum() == 1 and np.isfinite(sums).sum() == lanes - 1
    y[5] = np.nan
    call(unit, "consecutive", encode(x.astype(np.float32), bf16), y, sums, len(x))
    assert np.isnan(sums).any()


def _widened(buffer: str, offset: Size) -> Expr:
    """Return an element of bf16 as a float; integers are rounded to bf16 before."""
    dtype = i8 if buffer == "c" else bf16
    return cast(cast(load(buffer, (offset,), dtype), bf16), f32)


def _tile(form: str, unroll: int) -> Kernel:
    """Return sums of two rows by two columns, of one product or of two that are adjacent or apart."""
    count = 1 if form in ("one", "converted") else 2
    steps = {"one": (R0,), "converted": (R0,), "adjacent": (R0 * 2, R0 * 2 + 1), "apart": (R0, R0 + N)}[form]
    matrix = "c" if form == "converted" else "w"
    sums, stores = [], []
    for number in range(4):
        row, column = divmod(number, 2)
        products = [
            op(
                "mul",
                _widened("x", N * (count * row) + k),
                _widened(matrix, (I0 * 2 + column) * N * count + k),
            )
            for k in steps
        ]
        value = products[0] if count == 1 else op("add", *products)
        sums.append(Accumulate(((f"s{number}", f32),), NamedCombiner("sum"), (value,)))
        stores.append(Store("o", I0 * 4 + number, Scalar(f"s{number}", f32)))
    return kernel(
        f"tile_{form}_{unroll}", "x w c : o", [("i0", 3)], [([("r0", N)], sums), ([], stores)],
        dtypes={"x": bf16, "w": bf16, "c": i8}, symbols=(SymbolInfo("n", "int", 0),),
        schedule=CpuLoops(parallel=("i0",), vector="r0", unroll=unroll),
    )  # fmt: skip


@pytest.mark.parametrize("name", [None, *runnable()])
def test_register_tiles_equal_the_interpreter(name: str | None, tmp_path: Path) -> None:
    kernels = [_tile(form, n) for form in ("one", "converted", "adjacent", "apart") for n in (1, 2, 3, 4)]
    assert all("add_products(" in emit_kernel(each, 16).text for each in kernels if "_3" not in each.name)
    module = load_all(CpuTarget(isa=name, build_options=BuildOptions(optimize="-O1")), kernels, tmp_path)
    draw = np.random.default_rng(1)
    for each in kernels:
        for n in (1, 15, 16, 31, 32, 48, 100, 257):
            x, w = (encode(draw.standard_normal(size), bf16) for size in (4 * n, 12 * n))
            buffers = {"x": x, "w": w, "c": draw.integers(-128, 128, 12 * n).astype(np.int8)}
            found, wanted = (dict(buffers, o=np.zeros(12, np.float32)) for _ in range(2))
            run_kernel(each, wanted, {"n": n})
            module.function(each.name)([found[p.name].ctypes.data for p in each.parameters], [n])
            scale = np.abs(wanted["o"]).max() + 1
            np.testing.assert_allclose(
                found["o"], wanted["o"], atol=3e-6 * scale, rtol=1e-5, err_msg=f"{each.name} {n}"
            )
