"""Whole graphs, scheduled for the OpenCL device and run there by the executor, against the reference
interpreter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from opencl_device import TARGET, Array, agrees, graph_of, launchers, needs_device, plan_of

from litz_ir.dtypes import f32, i32, i64
from litz_ir.errors import DTypeError, IndexOutOfRange
from litz_ir.host import Executor
from litz_ir.plan import cpu_loops
from litz_target_opencl.memory import ClMemory

pytestmark = needs_device

EMBEDDING = """graph embedding on opencl (%w: f32[50, 24] fixed, %ids: i64[7, 3] fixed) -> (%o) {
  %o = pointwise f32[i0: 7, i1: 3, i2: 24] fixed {
    %w[indirect(%ids[i0, i1], size=50, wrap, raised), i2] * 2.0
  }
}"""


def floats(*shape: int) -> Array:
    """Normal numbers, the same in every run."""
    return np.random.default_rng(len(shape)).standard_normal(shape, np.float32)


def test_softmax(tmp_path: Path) -> None:
    plan = agrees(
        """graph softmax on opencl (%x: f32[64, 1000] fixed) -> (%o) {
          %m = reduce.max f32[i0: 64, i1: 1 | r0: 1000] { %x[i0, r0] }
          %e = pointwise f32[i0: 64, i1: 1000] { exp(%x[i0, i1] - %m[i0, 0]) }
          %z = reduce.sum f32[i0: 64, i1: 1 | r0: 1000] { %e[i0, r0] }
          %o = pointwise f32[i0: 64, i1: 1000] fixed { %e[i0, i1] / %z[i0, 0] }
        }""",
        [floats(64, 1000)],
        tmp_path,
    )
    (kernel,) = plan.kernels
    assert cpu_loops(kernel.schedule).parallel


def test_softmax_of_sizes_known_at_the_call(tmp_path: Path) -> None:
    text = """graph softmax on opencl (%x: f32[n, m] fixed) -> (%o) {
      symbols {
        n: int from 2
        m: int from 2
      }
      %m = reduce.max f32[i0: n, i1: 1 | r0: m] { %x[i0, r0] }
      %e = pointwise f32[i0: n, i1: m] { exp(%x[i0, i1] - %m[i0, 0]) }
      %z = reduce.sum f32[i0: n, i1: 1 | r0: m] { %e[i0, r0] }
      %o = pointwise f32[i0: n, i1: m] fixed { %e[i0, i1] / %z[i0, 0] }
    }"""
    agrees(text, [floats(19, 33)], tmp_path)


def test_layer_norm(tmp_path: Path) -> None:
    agrees(
        """graph norm on opencl (%x: f32[6, 5, 96] fixed, %g: f32[96] fixed, %b: f32[96] fixed) -> (%o) {
          %s = reduce.sum f32[i0: 6, i1: 5 | r0: 96] { %x[i0, i1, r0] }
          %c = pointwise f32[i0: 6, i1: 5, i2: 96] { %x[i0, i1, i2] - %s[i0, i1] / 96.0 }
          %v = reduce.sum f32[i0: 6, i1: 5 | r0: 96] { %c[i0, i1, r0] * %c[i0, i1, r0] }
          %o = pointwise f32[i0: 6, i1: 5, i2: 96] fixed {
            %c[i0, i1, i2] * rsqrt(%v[i0, i1] / 96.0 + 0.00001) * %g[i2] + %b[i2]
          }
        }""",
        [floats(6, 5, 96), floats(96), floats(96)],
        tmp_path,
    )


def test_layer_norm_by_welford(tmp_path: Path) -> None:
    agrees(
        """graph welford on opencl (%x: f32[33, 70] fixed) -> (%o) {
          %m, %q, %n = reduce.welford [i0: 33 | r0: 70] -> f32[33], f32[33], f32[33] { %x[i0, r0] }
          %o = pointwise f32[i0: 33, i1: 70] fixed {
            (%x[i0, i1] - %m[i0]) * rsqrt(%q[i0] / %n[i0] + 0.00001)
          }
        }""",
        [floats(33, 70)],
        tmp_path,
    )


def test_a_contraction_as_loops_with_its_epilogue(tmp_path: Path) -> None:
    plan = agrees(
        """graph linear on opencl (%x: f32[24, 40] fixed, %w: f32[40, 56] fixed, %b: f32[56] fixed) -> (%o) {
          %p = reduce.sum f32[i0: 24, i1: 56 | r0: 40] { %x[i0, r0] * %w[r0, i1] }
          %o = pointwise f32[i0: 24, i1: 56] fixed { maximum(%p[i0, i1] + %b[i1], 0.0) }
        }""",
        [floats(24, 40), floats(40, 56), floats(56)],
        tmp_path,
    )
    assert len(plan.kernels) == 1


def test_an_embedding_gather(tmp_path: Path) -> None:
    ids = np.random.default_rng(0).integers(-50, 50, (7, 3))
    agrees(EMBEDDING, [floats(50, 24), ids], tmp_path)


def test_an_index_out_of_range_is_an_index_error_once(tmp_path: Path) -> None:
    plan, memory = plan_of(graph_of(EMBEDDING)), ClMemory(TARGET.queue)
    executor = Executor(plan, launchers(plan, tmp_path), memory)
    ids = np.zeros((7, 3), np.int64)
    ids[6, 2] = 50
    w = memory.put(floats(50, 24), f32)
    index = memory.put(ids, i64)
    with pytest.raises(IndexOutOfRange, match="out of range"):
        executor.run([w, index])
    memory.write(index, np.zeros_like(ids))
    (o,) = executor.run([w, index])
    np.testing.assert_array_equal(memory.read(o, f32)[6, 2], floats(50, 24)[0] * 2)


def test_a_tensor_of_another_dtype_is_refused_by_name(tmp_path: Path) -> None:
    plan, memory = plan_of(graph_of(EMBEDDING)), ClMemory(TARGET.queue)
    executor = Executor(plan, launchers(plan, tmp_path), memory)
    integers = memory.put(np.zeros((50, 24), np.int32), i32)
    with pytest.raises(DTypeError, match="input w is f32, got elements of i32"):
        executor.run([integers, memory.put(np.zeros((7, 3), np.int64), i64)])


def test_scans_scatters_and_inputs_that_change(tmp_path: Path) -> None:
    agrees(
        """graph put on opencl (%x: f32[20, 30] fixed, %k: i64[20] fixed, %y: f32[8, 30] fixed) -> (%s, %y1) {
          %s = scan.sum dimension 1 f32[i0: 20 | k0: 30] fixed { %x[i0, k0] }
          %t = scatter.add [i0: 20, i1: 30] -> f32[8, 30] {
            %y[indirect(%k[i0], size=8, raised), i1] = %x[i0, i1]
          }
          %y1 replaces %y = mutate %y with %t -> f32[8, 30] fixed
        }""",
        [floats(20, 30), np.arange(20) % 8, floats(8, 30)],
        tmp_path,
    )


def test_transposed_and_empty_tensors(tmp_path: Path) -> None:
    agrees(
        """graph strided on opencl (%x: f32[12, 20] fixed, %e: f32[0, 4] fixed) -> (%o, %z, %s) {
          %o = pointwise f32[i0: 20, i1: 12] strides(1, 20) fixed { exp(%x[i1, i0]) }
          %z = pointwise f32[i0: 0, i1: 4] fixed { %e[i0, i1] + 1.0 }
          %s = reduce.sum f32[i0: 4 | r0: 0] fixed { %e[r0, i0] }
        }""",
        [floats(12, 20), floats(0, 4)],
        tmp_path,
    )
