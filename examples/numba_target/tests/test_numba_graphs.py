"""Whole graphs, scheduled for the Numba target and compared with the reference interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from litz_ir.errors import IndexOutOfRange

Array = npt.NDArray[Any]
RunTwice = Callable[[str, Sequence[Any]], tuple[Sequence[Array], Sequence[Array]]]

RNG = np.random.default_rng(0)


def floats(*shape: int, dtype: str = "float32") -> Array:
    """Return normal values."""
    return RNG.standard_normal(shape).astype(dtype)


SOFTMAX = """
graph softmax on numba (%x: f32[33, 100] fixed) -> (%o) {
  %m = reduce.max f32[i0: 33, i1: 1 | r0: 100] { %x[i0, r0] }
  %e = pointwise f32[i0: 33, i1: 100] { exp(%x[i0, i1] - %m[i0, 0]) }
  %z = reduce.sum f32[i0: 33, i1: 1 | r0: 100] { %e[i0, r0] }
  %o = pointwise f32[i0: 33, i1: 100] fixed { %e[i0, i1] / %z[i0, 0] }
}"""
LAYER_NORM = """
graph layer_norm on numba (%x: f16[17, 50] fixed, %w: f16[50] fixed, %b: f16[50] fixed)
  -> (%o, %mean, %scale) {
  %mean, %squares, %count = reduce.welford [i0: 17 | r0: 50] -> f32[17] fixed, f32[17], f32[17] {
    f32(%x[i0, r0])
  }
  %scale = pointwise f32[i0: 17] fixed { rsqrt(%squares[i0] / %count[i0] + 1e-05) }
  %o = pointwise f16[i0: 17, i1: 50] fixed {
    f16((f32(%x[i0, i1]) - %mean[i0]) * %scale[i0] * f32(%w[i1]) + f32(%b[i1]))
  }
}"""
MATMUL = """
graph matmul on numba (%a: f32[s0, 20] fixed, %b: f32[20, 31] fixed, %c: f32[31] fixed) -> (%o) {
  symbols { s0: int from 1 hint 9 }
  %p = reduce.sum f32[i0: s0, i1: 31 | r0: 20] { %a[i0, r0] * %b[r0, i1] }
  %o = pointwise f32[i0: s0, i1: 31] fixed { maximum(%p[i0, i1] + %c[i1], 0.0) }
}"""
EMBEDDING = """
graph embedding on numba (%w: f32[11, 6] fixed, %ids: i64[8] fixed) -> (%o, %counts) {
  %o = pointwise f32[i0: 8, i1: 6] fixed { %w[indirect(%ids[i0], size=11, wrap, raised), i1] * 2.0 }
  %zeros = pointwise i64[i0: 11] { 0 }
  %counts = scatter.add [i0: 8] -> i64[11] fixed { %zeros[indirect(%ids[i0], size=11, wrap, raised)] = 1 }
}"""
SCANS = """
graph scans on numba (%x: f32[7, 40] fixed, %k: i32[7, 40] fixed) -> (%sums, %peaks, %at, %sorted) {
  %sums = scan.sum dimension 1 f32[i0: 7 | r0: 40] fixed { exp(%x[i0, r0]) }
  %peaks, %at = scan.argmax dimension 1 [i0: 7 | r0: 40] -> f32[7, 40] fixed, i64[7, 40] fixed {
    %x[i0, r0], index(r0)
  }
  %sorted = scan.sort dimension 1 i32[i0: 7 | r0: 40] fixed { %k[i0, r0] }
}"""
POSITIONS = """
graph positions on numba (%x: bf16[5, 64] fixed, %flag: b1[5] fixed) -> (%best, %at, %any) {
  %best, %at = reduce.argmin [i0: 5 | r0: 64] -> bf16[5] fixed, i64[5] fixed { %x[i0, r0], index(r0) }
  %any = reduce.any b1[i0: 5 | r0: 64] fixed { (%x[i0, r0] > 1.0) & %flag[i0] }
}"""
IDS = np.array([0, 10, -1, 3, 3, -11, 5, 3])
GRAPHS: dict[str, tuple[str, list[Any]]] = {
    "softmax": (SOFTMAX, [floats(33, 100)]),
    "layer_norm": (LAYER_NORM, [floats(*shape, dtype="float16") for shape in ((17, 50), (50,), (50,))]),
    "matmul": (MATMUL, [floats(13, 20), floats(20, 31), floats(31)]),
    "embedding": (EMBEDDING, [floats(11, 6), IDS]),
    "scans": (SCANS, [floats(7, 40), RNG.integers(-9, 9, (7, 40)).astype("int32")]),
    "positions": (POSITIONS, [RNG.integers(0, 1 << 16, (5, 64)).astype("uint16"), np.arange(5) % 2 == 0]),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_give_the_results_of_the_interpreter(name: str, run_twice: RunTwice) -> None:
    text, inputs = GRAPHS[name]
    expected, found = run_twice(text, inputs)
    for a, b in zip(expected, found, strict=True):
        assert a.dtype == b.dtype
        if a.dtype.kind == "f":
            np.testing.assert_allclose(b, a, rtol=2e-3 if a.dtype == np.float16 else 1e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(b, a)


def test_an_index_out_of_range_is_an_index_error(run_twice: RunTwice) -> None:
    with pytest.raises(IndexOutOfRange):
        run_twice(EMBEDDING, [floats(11, 6), IDS + 1])
