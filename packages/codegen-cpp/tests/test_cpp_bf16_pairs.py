"""Sums of products of bf16 numbers in pairs, with the CPU's instruction for them and without."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest
from cpp_units import call

from litz_codegen_cpp.toolchain import isa
from litz_codegen_cpp.toolchain.build import BuildOptions, compile_source
from litz_codegen_cpp.toolchain.compilers import find_compiler
from litz_ir.dtypes import bf16
from litz_ir.errors import CompilerNotFound
from litz_ir.interp.encoding import decode, encode

UNIT = """
#include <litz/bf16_pairs.h>
using namespace litz;
#define SUM(form)                                                                                       \\
  extern "C" void form(const bf16* x, const float* y, float* sums, int64_t n) {                         \\
    sum_state<vec<float>> s;                                                                            \\
    for (int64_t i = 0; i < n; i += 2 * LITZ_LANES)                                                     \\
      add_products(s, load_##form(x + i), join_##form(load(y + i), load(y + i + LITZ_LANES)));          \\
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
