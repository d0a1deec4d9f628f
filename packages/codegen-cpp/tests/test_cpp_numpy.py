"""Programs as text, scheduled, compiled and run on NumPy arrays: no torch anywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from litz_codegen_cpp.target import CpuTarget
from litz_ir.device import CPU
from litz_ir.host import Executor
from litz_ir.host.externs import numpy_externs
from litz_ir.loops import LoopGraph
from litz_ir.passes import PassContext
from litz_ir.text import from_text
from litz_scheduler import schedule

Array = npt.NDArray[np.float32]

SOFTMAX = """
graph softmax(%x: f32[64, 257] fixed) -> (%o) {
  %s = pointwise f32[i0: 64, i1: 257] { %x[i0, i1] * 0.125 }
  %m = reduce.max f32[i0: 64 | r0: 257] { %s[i0, r0] }
  %e = pointwise f32[i0: 64, i1: 257] { exp(%s[i0, i1] - %m[i0]) }
  %z = reduce.sum f32[i0: 64 | r0: 257] { %e[i0, r0] }
  %o = pointwise f32[i0: 64, i1: 257] fixed { %e[i0, i1] / %z[i0] }
}
"""

MLP = """
graph mlp(%x: f32[16, 24] fixed, %w: f32[24, 48] fixed, %b: f32[48] fixed, %v: f32[48, 8] fixed) -> (%o) {
  %h = contraction.matmul aten.mm.default(%x, %w) -> f32[16, 48]
  %a = pointwise f32[i0: 16, i1: 48] { maximum(%h[i0, i1] + %b[i1], 0.0) }
  %y = contraction.matmul aten.mm.default(%a, %v) -> f32[16, 8]
  %o = pointwise f32[i0: 16, i1: 8] fixed { tanh(%y[i0, i1]) }
}
"""


def run(text: str, folder: Path, *inputs: Array) -> Any:
    graph = from_text(text)
    assert isinstance(graph, LoopGraph)
    target = CpuTarget()
    plan = schedule(graph, PassContext({CPU: target.capabilities()}))
    units = target.emit(plan)
    module = target.load(
        units, [target.build(unit, folder) for unit in units], {k.name: k for k in plan.kernels}
    )
    launchers = {kernel.name: module.function(kernel.name) for kernel in plan.kernels}
    (result,) = Executor(plan, launchers, externs=numpy_externs()).run(inputs)
    return result


def test_softmax_from_text(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((64, 257), dtype=np.float32)
    e = np.exp(x * np.float32(0.125) - (x * np.float32(0.125)).max(1, keepdims=True))
    np.testing.assert_allclose(run(SOFTMAX, tmp_path, x), e / e.sum(1, keepdims=True), rtol=1e-5)


def test_two_layers_with_numpys_matmul(tmp_path: Path) -> None:
    draw = np.random.default_rng(1).standard_normal
    x, w, b, v = (draw(shape, dtype=np.float32) for shape in ((16, 24), (24, 48), (48,), (48, 8)))
    wanted = np.tanh(np.maximum(x @ w + b, 0) @ v)
    np.testing.assert_allclose(run(MLP, tmp_path, x, w, b, v), wanted, rtol=1e-4, atol=1e-5)
