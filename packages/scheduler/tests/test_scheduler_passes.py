"""Each pass over the loop graph on a small graph, with its result in text."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from scheduler_builder import CPU_LIKE, GPU_LIKE, assert_same, plan_of, verify_stage

from litz_ir.device import CPU
from litz_ir.errors import ScheduleError
from litz_ir.loops import LoopGraph
from litz_ir.passes import Pass, PassContext, Timings
from litz_ir.plan import CallStep, Launch, Plan
from litz_ir.target import Capabilities
from litz_ir.text import parse_graph, to_text
from litz_scheduler import SchedulerOptions, fusion_passes, graph_passes, plan_passes, schedule
from litz_scheduler.build_plan import KernelNames
from litz_scheduler.library import (
    FreezeParameterLoops,
    GeneratedConvolutions,
    GeneratedMatmuls,
    LinearMatmuls,
    PrepackConvolutions,
    UnfuseBias,
)
from litz_scheduler.online_reduction import OnlineReductions
from litz_scheduler.realise import Inline
from litz_scheduler.simplify import CommonSubexpressions, ComposeViews, DeadCode, UnitReductions
from litz_scheduler.split_reduction import SplitReductions
from litz_scheduler.split_scan import SplitScans

Golden = Callable[[str, str], None]

DEAD = """
graph dead(%x: f32[4] fixed, %y: f32[4] fixed) -> (%b) {
  %a = pointwise f32[i0: 4] { exp(%x[i0]) }
  %b = pointwise f32[i0: 4] fixed { exp(%y[i0]) }
  %c = pointwise f32[i0: 4] { %a[i0] + %b[i0] }
  %d = pointwise f32[i0: 4] { %x[i0] * 2.0 }
  %x1 replaces %x = mutate %x with %d -> f32[4] fixed
}
"""

VIEWS = """
graph views(%x: f32[4, 6] fixed) -> (%transposed, %o) {
  %transposed = view f32[i0: 6, i1: 4] strides(1, 6) fixed { %x[i1, i0] }
  %back = view f32[i0: 4, i1: 6] { %transposed[i1, i0] }
  %flat = view f32[i0: 24] { %back[i0 // 6, i0 % 6] }
  %again = view f32[i0: 4, i1: 6] { %flat[i0*6 + i1] }
  %o = pointwise f32[i0: 4, i1: 6] fixed { exp(%again[i0, i1]) }
}
"""

GIVEN_STRIDES = """
graph given_strides(%x: f32[n, n] fixed) -> (%kept, %told, %lost) {
  symbols { n: int from 2 hint 4 }
  %transposed = view f32[i0: n, i1: n] strides(1, n) { %x[i1, i0] }
  %back = view f32[i0: n, i1: n] { %transposed[i1, i0] }
  %halves = view f32[i0: 2, i1: n * n // 4, i2: 2] strides(n * n // 2, 2, 1)
    { %back[(i0*(n*n//4)*2 + i1*2 + i2) // n, (i0*(n*n//4)*2 + i1*2 + i2) % n] } given strides(n, 1)
  %kept = view f32[i0: n * n // 4, i1: 2] strides(2, n * n // 2) fixed { %halves[i1, i0, 0] }
  %shown = view f32[i0: n * n // 4, i1: 4] { %back[(i0*4 + i1) // n, (i0*4 + i1) % n] } given strides(n, 1)
  %told = view f32[i0: 4, i1: n * n // 4] strides(1, 4) fixed { %shown[i1, i0] }
  %odd = view f32[i0: n * n // 4, i1: 4] { %transposed[(i0*4 + i1) // n, (i0*4 + i1) % n] } given strides(n, 1)
  %lost = view f32[i0: 4, i1: n * n // 4] strides(1, 4) fixed { %odd[i1, i0] }
}
"""

OLD_VIEW = """
graph old_view(%x: f32[4, 6] fixed) -> (%o) {
  %flipped = view.copy f32[i0: 4, i1: 6] { %x[3 - i0, i1] }
  %x1 replaces %x = mutate %x with %flipped -> f32[4, 6] fixed
  %upper = view f32[i0: 2, i1: 6] { %flipped[i0, i1] }
  %o = pointwise f32[i0: 2, i1: 6] fixed { exp(%upper[i0, i1]) }
}
"""

UNIT_AXES = """
graph unit_axes(%x: f32[4, 1] fixed) -> (%s, %v, %p) {
  %s = reduce.sum f32[i0: 4 | r0: 1] fixed { %x[i0, r0] }
  %m, %v, %n = reduce.welford [i0: 4 | r0: 1] -> f32[4], f32[4] fixed, f32[4] { %x[i0, r0] }
  %q, %p = reduce.argmax [i0: 4 | r0: 1] -> f32[4], i64[4] fixed { %x[i0, r0], index(r0) }
}
"""

EQUAL_OPERATIONS = """
graph equal_operations(%x: f32[4] fixed) -> (%c, %d, %e) {
  %a = pointwise f32[i0: 4] { exp(%x[i0]) }
  %b = pointwise f32[i0: 4] { exp(%x[i0]) }
  %c = pointwise f32[i0: 4] fixed { %a[i0] + %b[i0] }
  %d = pointwise f32[i0: 4] fixed { %a[i0] * 2.0 }
  %e = pointwise f32[i0: 4] fixed { %b[i0] * 2.0 }
}
"""

INLINED = """
graph inlined(%x: f32[8, 6] fixed, %w: f32[6, 6] fixed) -> (%o, %s, %matmul) {
  %scaled = pointwise f32[i0: 8, i1: 6] { %x[i0, i1] * 0.5 }
  %expensive = pointwise f32[i0: 8, i1: 6] { exp(%scaled[i0, i1]) }
  %transposed = view f32[i0: 6, i1: 8] { %expensive[i1, i0] }
  %cheap = pointwise f32[i0: 6, i1: 8] { %transposed[i0, i1] + 1.0 }
  %o = pointwise f32[i0: 6, i1: 8] fixed { %cheap[i0, i1] * %transposed[i0, i1] }
  %s = reduce.sum f32[i0: 8 | r0: 6] fixed { %scaled[i0, r0] }
  %called = pointwise f32[i0: 8, i1: 6] { neg(%x[i0, i1]) }
  %matmul = contraction.matmul aten.mm.default(%called, %w) -> f32[8, 6] fixed
}
"""

UPDATED = """
graph updated(%x: f32[6] fixed, %g: f32[6] fixed) -> (%o) {
  %old = view f32[i0: 3] { %x[i0*2] }
  %step = pointwise f32[i0: 6] { %x[i0] - %g[i0] * 0.25 }
  %x1 replaces %x = mutate %x with %step -> f32[6] fixed
  %flipped = view.copy f32[i0: 6] { %x1[5 - i0] }
  %x2 replaces %x1 = mutate %x1 with %flipped -> f32[6] fixed
  %o = pointwise f32[i0: 3] fixed { exp(%old[i0]) }
}
"""

SOFTMAX = """
graph softmax(%x: f32[n, 1024] fixed) -> (%o) {
  symbols { n: int from 1 to 4096 hint 64 }
  %s = pointwise f32[i0: n, i1: 1024] { %x[i0, i1] * 0.125 }  @ mul (aten.mul.Tensor) m.py:1
  %m = reduce.max f32[i0: n | r0: 1024] { %s[i0, r0] }
  %e = pointwise f32[i0: n, i1: 1024] { exp(%s[i0, i1] - %m[i0]) }
  %z = reduce.sum f32[i0: n | r0: 1024] { %e[i0, r0] }
  %o = pointwise f32[i0: n, i1: 1024] fixed { %e[i0, i1] / %z[i0] }
}
"""

MATMULS = """
graph matmuls(
  %x: f32[64, 96] fixed, %w: f32[128, 96] fixed, %b: f32[128] fixed, %m: f32[96, 128] fixed,
  %e: f32[96, 128] strides(0, 0) fixed
) -> (%o, %p, %few, %copied, %twice) {
  %transposed = view f32[i0: 96, i1: 128] { %w[i1, i0] }
  %o = contraction.matmul aten.addmm.default(%b, %x, %transposed) -> f32[64, 128] fixed flops 1572864
  %p = contraction.matmul aten.mm.default(%x, %m) -> f32[64, 128] fixed flops 1572864
  %rows = view f32[i0: 4, i1: 96] { %x[i0, i1] }
  %few = contraction.matmul aten.mm.default(%rows, %m) -> f32[4, 128] fixed flops 98304
  %copied = contraction.matmul aten.mm.default(%x, %e) -> f32[64, 128] fixed flops 1572864
  %twice = contraction.matmul aten.addmm.default(%b, %x, %m, alpha=2) -> f32[64, 128] fixed flops 1572864
}
"""

CONVOLUTIONS = """
graph convolutions(
  %x: f32[1, 4, 8, 8] fixed, %w: f32[4, 4, 3, 3] fixed, %v: f32[4, 1, 1, 1] fixed, %b: f32[4] fixed,
  %mean: f32[4] fixed, %scale: f32[4] fixed, %other: f32[1, 4, 8, 8] fixed, %u: f32[4, 4, 1, 1] fixed
) frozen (%w, %v, %b, %mean, %scale) -> (%sum, %seen, %left) {
  %c = contraction.convolution aten.convolution.default(%x, %w, none, [1, 1], [1, 1], [1, 1], false, [0, 0], 1)
    -> f32[1, 4, 8, 8] fixed need exact
  %norm = pointwise f32[i0: 1, i1: 4, i2: 8, i3: 8] {
    let t0 = (%c[0, i1, i2, i3] - %mean[i1]) * %scale[i1] + %b[i1];
    where(t0 < 0.0, 0.0, t0)
  }
  %d = contraction.convolution aten.convolution.default(%norm, %v, %b, [2, 2], [0, 0], [1, 1], false, [0, 0], 4)
    -> f32[1, 4, 4, 4] fixed need exact
  %sharp = pointwise f32[i0: 1, i1: 4, i2: 4, i3: 4] { sigmoid(%d[0, i1, i2, i3] * %scale[i1]) }
  %sum = reduce.sum f32[i0: 1, i1: 4 | r0: 4, r1: 4] fixed { %sharp[0, i1, r0, r1] + %norm[0, i1, r0, r1] }
  %e = contraction.convolution aten.convolution.default(%other, %w, %b, [1, 1], [1, 1], [1, 1], false, [0, 0], 1)
    -> f32[1, 4, 8, 8] fixed need exact
  %seen = pointwise f32[i0: 1, i1: 4, i2: 8, i3: 8] fixed { %e[0, i1, i2, i3] + %e[0, i1, 7 - i2, i3]
    + %x[0, i1, i2, i3] }
  %left = contraction.convolution aten.convolution.default(%other, %u, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
    -> f32[1, 4, 8, 8] fixed need exact
}
"""

LONG = """
graph long(%x: f32[2, 96, 64] fixed, %n: i64[n] fixed) -> (%all, %each, %rows, %odd, %moments, %counted) {
  symbols { n: int from 1 to 4096 hint 64 }
  %all = reduce.sum f32[ | r0: 2, r1: 96, r2: 64] fixed { exp(%x[r0, r1, r2]) }
  %value, %each = reduce.argmax [i0: 2 | r0: 96, r1: 64] -> f32[2], i64[2] fixed { %x[i0, r0, r1], index(r0*64 + r1) }
  %rows = reduce.max f32[i0: 2, i1: 96 | r0: 64] fixed { %x[i0, i1, r0] }
  %odd = reduce.sum f32[ | r0: 89] fixed { %x[0, r0, 0] }
  %moments, %squares, %count = reduce.welford [ | r0: 96] -> f32[] fixed, f32[], f32[] { %x[0, r0, 0] }
  %counted = reduce.sum i64[ | r0: n] fixed { %n[r0] }
}
"""

RUNNING = """
graph running(%x: f32[640] fixed, %y: i64[4, 96, 2] fixed, %h: f16[640] fixed) -> (%a, %b, %c, %d) {
  %a = scan.sum dimension 0 f32[ | k: 640] fixed { exp(%x[k]) }
  %b = scan.max dimension 1 i64[i0: 4, i1: 2 | k: 96] fixed { %y[i0, k, i1] }
  %c = scan.sum dimension 0 f16[ | k: 640] fixed { %h[k] }
  %d = pointwise f32[i0: 640] fixed { %a[i0] * 2.0 }
}
"""

DEPENDENT = """
graph dependent(%x: f32[8, 40] fixed, %y: f32[40, 8] fixed) -> (%soft, %again, %mean, %var, %unmerged, %count) {
  %maximum = reduce.max f32[i0: 8, i1: 1 | r0: 40] { %x[i0, r0] * 0.5 }
  %exponentials = pointwise f32[i0: 8, i1: 40] { exp(%x[i0, i1] * 0.5 - %maximum[i0, 0]) }
  %total = reduce.sum f32[i0: 8, i1: 1 | r0: 40] { %exponentials[i0, r0] }
  %soft = pointwise f32[i0: 8, i1: 40] fixed { %exponentials[i0, i1] / %total[i0, 0] }
  %again = reduce.sum f32[i0: 8 | r0: 40] fixed { exp(%x[i0, r0] * 0.5 - %maximum[i0, 0]) }
  %sum = reduce.sum f32[i0: 1, i1: 8 | r0: 40] { %y[r0, i1] }
  %mean = pointwise f32[i0: 8] fixed { %sum[0, i0] / 40.0 }
  %squares = reduce.sum f32[i0: 8 | r0: 40] {
    let difference = %y[r0, i0] - %sum[0, i0] / 40.0;
    difference * difference
  }
  %var = pointwise f32[i0: 8] fixed { %squares[i0] / 39.0 }
  %unmerged = reduce.sum f32[i0: 8 | r0: 40] fixed {
    let other = %y[r0, i0] - %sum[0, i0] / 39.0;
    other * other
  }
  %count = reduce.sum f32[i0: 8 | r0: 40] fixed { floor(%y[r0, i0]) }
  %about = reduce.sum f32[i0: 8 | r0: 40] {
    let difference = floor(%y[r0, i0]) - %count[i0] / 40.0;
    difference * difference
  }
}
"""

BIASES = """
graph biases(%x: f32[8, 6] fixed, %w: f32[6, 4] fixed, %b: f32[4] fixed, %h: bf16[4, 4] fixed, %g: bf16[4] fixed)
  -> (%o, %called, %half, %z) {
  %s = contraction.matmul aten.addmm.default(%b, %x, %w) -> f32[8, 4] fixed flops 384
  %o = pointwise f32[i0: 8, i1: 4] fixed { exp(%s[i0, i1]) }
  %t = contraction.matmul aten.addmm.default(%b, %x, %w) -> f32[8, 4] fixed flops 384
  %shown = view f32[i0: 4, i1: 8] { %t[i1, i0] }
  %called = contraction.matmul aten.mm.default(%shown, %o) -> f32[4, 4] fixed flops 256
  %n = contraction.matmul aten.addmm.default(%g, %h, %h) -> bf16[4, 4] fixed flops 128
  %half = pointwise bf16[i0: 4, i1: 4] fixed { %n[i0, i1] * 2.0:bf16 }
  %z = contraction.matmul aten.addmm.default(%b, %x, %w) -> f32[8, 4] fixed flops 384
}
"""

FROZEN = """
graph parameters(%x: f32[8, 6] fixed, %w: f32[6, 6] fixed, %v: f32[6] fixed) frozen (%w, %v) -> (%o, %p, %seen) {
  %narrow = pointwise bf16[i0: 6, i1: 6] { bf16(%w[i1, i0]) }
  %norm = reduce.sum f32[i0: 6 | r0: 6] { %w[i0, r0] * %w[i0, r0] }
  %scaled = pointwise f32[i0: 6] { %norm[i0] * %v[i0] }
  %wide = pointwise f32[i0: 6, i1: 6] { %v[i0] * %v[i1] }
  %mixed = pointwise f32[i0: 6] { %x[0, i0] * %v[i0] }
  %seen = pointwise f32[i0: 6] fixed { neg(%v[i0]) }
  %o = extern aten.f.default(%x, %narrow, %scaled) -> f32[8, 6] fixed
  %p = extern aten.f.default(%x, %wide, %mixed) -> f32[8, 6] fixed
}
"""

CASES: dict[str, tuple[Pass[LoopGraph, LoopGraph], str]] = {
    "dead_code": (DeadCode(), DEAD),
    "compose_views": (ComposeViews(), VIEWS),
    "compose_views_strides": (ComposeViews(), GIVEN_STRIDES),
    "compose_views_versions": (ComposeViews(), OLD_VIEW),
    "unit_reductions": (UnitReductions(), UNIT_AXES),
    "common_subexpressions": (CommonSubexpressions(), EQUAL_OPERATIONS),
    "prepack_convolutions": (PrepackConvolutions(SchedulerOptions(prepack_convolutions=True)), CONVOLUTIONS),
    "split_reductions": (SplitReductions(SchedulerOptions(cpu_split_bytes=64)), LONG),
    "freeze_parameter_loops": (FreezeParameterLoops(), FROZEN),
    "linear_matmuls": (LinearMatmuls(SchedulerOptions(linear_flops=1 << 20)), MATMULS),
    "inline": (Inline(), INLINED),
    "inline_mutations": (Inline(), UPDATED),
}


MATMUL_CALLS = """
graph matmul_calls(
  %x: bf16[64, 96] fixed, %w: bf16[128, 96] fixed, %b: bf16[128] fixed, %g: bf16[64, 128] strides(1, 64) fixed,
  %t: f32[3, 64, 96] fixed, %u: f32[3, 96, 8] fixed, %d: f64[64, 96] fixed, %e: f64[96, 8] fixed
) -> (%o, %p, %scaled, %zero, %odd, %q, %double) {
  %transposed = view bf16[i0: 96, i1: 128] { %w[i1, i0] }
  %o = contraction.matmul aten.addmm.default(%b, %x, %transposed) -> bf16[64, 128] fixed flops 1572864
  %p = contraction.matmul aten.mm.default(%x, %transposed) -> bf16[64, 128] fixed flops 1572864
  %scaled = contraction.matmul aten.addmm.default(%g, %x, %transposed, alpha=2, beta=0.5)
    -> bf16[64, 128] fixed flops 1572864
  %zero = contraction.matmul aten.addmm.default(%b, %x, %transposed, beta=0) -> bf16[64, 128] fixed flops 1572864
  %odd = contraction.matmul aten.mv.default(%x, %b) -> bf16[64] fixed flops 1572864
  %q = contraction.matmul aten.bmm.default(%t, %u) -> f32[3, 64, 8] fixed flops 1572864
  %double = contraction.matmul aten.mm.default(%d, %e) -> f64[64, 8] fixed flops 1572864
}
"""

CONVOLUTION_CALLS = """
graph convolution_calls(
  %x: bf16[2, 16, 9, 9] strides(1296, 1, 144, 16) fixed, %w: bf16[24, 16, 3, 3] fixed, %b: bf16[24] fixed,
  %v: bf16[24, 4, 3, 3] fixed, %r: f32[2, 16, 9] fixed, %u: f32[24, 16, 3] fixed, %t: bf16[16, 8, 2, 2] fixed,
  %one: bf16[32, 1, 3, 3] fixed, %c: bf16[8] fixed
) -> (%padded, %whole, %row, %groups, %transposed, %odd, %each) {
  %padded = contraction.convolution aten.convolution.default(%x, %w, %b, [2, 2], [1, 1], [1, 1], false, [0, 0], 1)
    -> bf16[2, 24, 5, 5] strides(600, 1, 120, 24) fixed need exact
  %whole = contraction.convolution aten.convolution.default(%x, %w, none, [1, 1], [0, 0], [2, 2], false, [0, 0], 1)
    -> bf16[2, 24, 5, 5] strides(600, 1, 120, 24) fixed need exact
  %row = contraction.convolution aten.convolution.default(%r, %u, none, [1], [1], [1], false, [0], 1)
    -> f32[2, 24, 9] fixed need exact
  %groups = contraction.convolution aten.convolution.default(%x, %v, none, [1, 1], [1, 1], [1, 1], false, [0, 0], 4)
    -> bf16[2, 24, 9, 9] strides(1944, 1, 216, 24) fixed need exact
  %transposed = contraction.convolution aten.convolution.default(%x, %t, none, [2, 2], [0, 0], [1, 1], true, [0, 0], 1)
    -> bf16[2, 8, 18, 18] strides(2592, 1, 144, 8) fixed need exact
  %odd = contraction.convolution aten.convolution.default(%x, %t, %c, [2, 1], [0, 1], [1, 1], true, [1, 0], 1)
    -> bf16[2, 8, 19, 8] strides(1216, 1, 64, 8) fixed need exact
  %each = contraction.convolution aten.convolution.default(%x, %one, none, [1, 1], [1, 1], [1, 1], false, [0, 0], 16)
    -> bf16[2, 32, 9, 9] strides(2592, 1, 288, 32) fixed need exact
}
"""

CONVOLUTION_GRADIENTS = """
graph gradients(
  %x: bf16[2, 16, 8, 8] fixed, %w: bf16[24, 16, 3, 3] fixed, %d: bf16[2, 24, 4, 4] fixed,
  %v: f32[8, 4, 1] fixed, %r: f32[2, 8, 9] fixed, %e: f32[2, 8, 5] fixed,
  %t: bf16[16, 24, 2, 2] fixed, %l: bf16[2, 24, 16, 16] fixed
) -> (%gx, %gw, %gb, %gr, %gv, %gt, %gu) {
  %gx, %gw, %gb = contraction.convolution aten.convolution_backward.default(%d, %x, %w, [24], [2, 2], [1, 1], [1, 1],
      false, [0, 0], 1, [true, true, true])
    -> bf16[2, 16, 8, 8] fixed, bf16[24, 16, 3, 3] fixed, bf16[24] fixed need exact
  %gr, %gv, %nothing = contraction.convolution aten.convolution_backward.default(%e, %r, %v, [0], [2], [0], [1],
      false, [0], 2, [true, true, false])
    -> f32[2, 8, 9] fixed, f32[8, 4, 1] fixed, f32[0] fixed need exact
  %gt, %gu, %other = contraction.convolution aten.convolution_backward.default(%l, %x, %t, [0], [2, 2], [0, 0], [1, 1],
      true, [0, 0], 1, [true, true, false])
    -> bf16[2, 16, 8, 8] fixed, bf16[16, 24, 2, 2] fixed, f32[0] fixed need exact
}
"""

EVERY = SchedulerOptions(generated_matmuls=frozenset({"all"}))

ON_A_GPU: dict[str, tuple[Pass[LoopGraph, LoopGraph], str]] = {
    "unfuse_bias": (UnfuseBias(), BIASES),
    "generated_convolutions": (GeneratedConvolutions(EVERY), CONVOLUTION_CALLS),
    "generated_gradients": (GeneratedConvolutions(EVERY), CONVOLUTION_GRADIENTS),
    "generated_matmuls": (GeneratedMatmuls(EVERY), MATMUL_CALLS),
    "online_reductions": (OnlineReductions(SchedulerOptions(long_row=32, tall_column=32)), DEPENDENT),
    "split_scans": (SplitScans(SchedulerOptions(gpu_split_bytes=512)), RUNNING),
    "split_reductions_sm_90": (SplitReductions(SchedulerOptions(gpu_split_bytes=512)), LONG),
}


@pytest.mark.parametrize("name", [*CASES, *ON_A_GPU])
def test_result_of_a_pass(name: str, golden: Golden) -> None:
    item, text = (CASES | ON_A_GPU)[name]
    graph = parse_graph(text)
    machine = GPU_LIKE if name in ON_A_GPU else CPU_LIKE
    context = PassContext({CPU: machine})
    verify_stage("before", None, graph)
    after = item.apply(graph, context)
    verify_stage(item.name, graph, after)
    assert item.apply(parse_graph(text), PassContext({CPU: machine})) == after
    notes = "".join(f"# {decision.describe()}\n" for decision in context.decisions)
    golden(f"{name}.txt", to_text(after) + "\n" + notes)


@pytest.mark.parametrize("gpu_split_bytes", [16, 1 << 20])
def test_results_of_online_reductions(gpu_split_bytes: int) -> None:
    graph = parse_graph(DEPENDENT)
    plan = plan_of(
        graph, GPU_LIKE, SchedulerOptions(long_row=32, tall_column=32, gpu_split_bytes=gpu_split_bytes)
    )
    merged = [d.subject for d in plan.decisions if d.reason == "merge.online"]
    assert merged == ["total", "squares"]
    assert_same(graph, plan)


@pytest.mark.parametrize("machine", [CPU_LIKE, GPU_LIKE], ids=lambda machine: machine.name)
def test_every_stage_of_a_softmax(machine: object, golden: Golden) -> None:
    assert machine in (CPU_LIKE, GPU_LIKE)
    capabilities = CPU_LIKE if machine == CPU_LIKE else GPU_LIKE
    stages: list[str] = []

    def record(name: str, before: Any, after: Any) -> None:
        verify_stage(name, before, after)
        if name in ("dead-code-2", "fuse", "plan"):
            stages.append(f"# after {name}\n{to_text(after)}")

    schedule(parse_graph(SOFTMAX), PassContext({CPU: capabilities}), hooks=[record])
    golden(f"softmax_{capabilities.name}.txt", "\n".join(stages))


def test_named_matmuls_are_generated_and_only_on_a_gpu() -> None:
    graph = parse_graph(MATMUL_CALLS)

    def calls(options: SchedulerOptions, machine: Capabilities = GPU_LIKE) -> list[str]:
        plan = plan_of(graph, machine, options)
        return [name or "" for step in plan.steps if isinstance(step, CallStep) for name in step.results]

    every = ["o", "p", "scaled", "zero", "odd", "q", "double"]
    assert sorted(calls(SchedulerOptions())) == sorted(every)
    assert sorted(calls(EVERY, CPU_LIKE)) == sorted(every)
    assert sorted(calls(EVERY)) == ["double", "odd"]
    chosen = calls(SchedulerOptions(generated_matmuls=frozenset({"p", "q", "double"})))
    assert sorted(chosen) == ["double", "o", "odd", "scaled", "zero"]


def test_named_convolutions_are_generated_and_only_on_a_gpu() -> None:
    graph = parse_graph(CONVOLUTION_GRADIENTS)

    def calls(options: SchedulerOptions, machine: Capabilities = GPU_LIKE) -> list[str]:
        plan = plan_of(graph, machine, options)
        return sorted(step.results[0] or "" for step in plan.steps if isinstance(step, CallStep))

    assert calls(SchedulerOptions()) == calls(EVERY, CPU_LIKE) == ["gr", "gt", "gx"]
    assert calls(EVERY) == []
    assert calls(SchedulerOptions(generated_matmuls=frozenset({"gt", "gw"}))) == ["gr"]


def test_pass_names_are_unique_and_passes_that_change_no_arithmetic_are_exact() -> None:
    passes = graph_passes(SchedulerOptions())
    assert len({item.name for item in passes}) == len(passes)
    assert [item.name for item in passes if item.ulp] == [
        "generated-matmuls", "generated-convolutions", "generated-attention", "linear-matmuls", "unfuse-bias",
        "prepack-convolutions", "propagate-channels-last", "online-reductions", "split-reductions", "split-scans",
    ]  # fmt: skip


@pytest.mark.parametrize("gpu_split_bytes", [16, 512, 1 << 20])
def test_results_of_split_scans(gpu_split_bytes: int) -> None:
    # The test inputs have no f16.
    without_f16 = re.sub(r", %h: f16\[640\] fixed|, %c|  %c = .*\n", "", RUNNING)
    graph = parse_graph(without_f16)
    assert_same(graph, plan_of(graph, GPU_LIKE, SchedulerOptions(gpu_split_bytes=gpu_split_bytes)))


def no_subgraph(graph: LoopGraph) -> Plan:
    raise AssertionError("the graph has no higher-order operator")


def test_timings_and_hooks_name_every_pass() -> None:
    timings, seen = Timings(), []
    schedule(
        parse_graph(SOFTMAX),
        PassContext({CPU: CPU_LIKE}),
        hooks=[lambda name, before, after: seen.append(name)],
        timings=timings,
    )
    options = SchedulerOptions()
    building = plan_passes(options, parse_graph(SOFTMAX), KernelNames(), no_subgraph)
    expected = [each.name for each in (*graph_passes(options), *fusion_passes(options))] + ["fuse"]
    expected += [each.name for each in building] + ["plan"]
    assert len({*expected}) == len(expected), "names are unique"
    assert seen == expected
    assert list(timings.seconds) == expected


@pytest.mark.parametrize("fuel", range(7))
def test_fuel_stops_the_passes_and_the_plan_is_complete(fuel: int) -> None:
    passes = graph_passes(SchedulerOptions())
    plan = schedule(parse_graph(SOFTMAX), PassContext({CPU: CPU_LIKE}), fuel=fuel)
    assert any(isinstance(step, Launch) for step in plan.steps)
    assert fuel <= len(passes)


def test_a_device_without_capabilities_is_named_in_the_error() -> None:
    graph = parse_graph(SOFTMAX.replace("graph softmax(", "graph softmax on cuda("))
    with pytest.raises(ScheduleError, match="no target is given for device cuda"):
        schedule(graph, PassContext({CPU: CPU_LIKE}))
