"""Loop graphs scheduled for a GPU, and a program that compares their plans with the reference interpreter.

Run as a program (``TRITON_INTERPRET=1 python triton_graphs.py``) it runs every plan with its kernels in Triton's
interpreter and prints one line of JSON per graph: its name and the difference, empty where there is none.
"""

from __future__ import annotations

import json
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from litz_codegen_triton.capabilities import CUDA, chip_capabilities
from litz_codegen_triton.schedule.plan import schedule_plan
from litz_ir.host.memory import NumpyMemory
from litz_ir.interp import run_graph
from litz_ir.interp.encoding import decode, encode
from litz_ir.loops import LoopGraph, Ref, Value
from litz_ir.passes import PassContext
from litz_ir.plan import Plan
from litz_ir.symbols import evaluate
from litz_ir.text import from_text
from litz_scheduler import schedule

SYMBOLS = {"s0": 6, "s1": 45}

TEXTS = """
graph softmax on cuda(%x: f32[40, 100] fixed) -> (%o) {
  %mul = pointwise f32[i0: 40, i1: 100] { %x[i0, i1] * 0.125 }
  %m = reduce.max f32[i0: 40, i1: 1 | r0: 100] { %mul[i0, r0] }
  %e = pointwise f32[i0: 40, i1: 100] { exp(%mul[i0, i1] - %m[i0, 0]) }
  %z = reduce.sum f32[i0: 40, i1: 1 | r0: 100] { %e[i0, r0] }
  %o = pointwise f32[i0: 40, i1: 100] fixed { %e[i0, i1] / %z[i0, 0] }
}

graph causal on cuda(%x: f32[3, 20, 20] fixed) -> (%o) {
  %s = pointwise f32[i0: 3, i1: 20, i2: 20] { where(index(i2) <= index(i1), %x[i0, i1, i2], -inf) }
  %m = reduce.max f32[i0: 3, i1: 20, i2: 1 | r0: 20] { %s[i0, i1, r0] }
  %e = pointwise f32[i0: 3, i1: 20, i2: 20] { exp(%s[i0, i1, i2] - %m[i0, i1, 0]) }
  %z = reduce.sum f32[i0: 3, i1: 20, i2: 1 | r0: 20] { %e[i0, i1, r0] }
  %o = pointwise f32[i0: 3, i1: 20, i2: 20] fixed { %e[i0, i1, i2] / %z[i0, i1, 0] }
}

graph layer_norm on cuda(%x: bf16[30, 200] fixed, %w: f32[200] fixed, %b: f32[200] fixed) -> (%o, %v) {
  %f = pointwise f32[i0: 30, i1: 200] { f32(%x[i0, i1]) }
  %s = reduce.sum f32[i0: 30, i1: 1 | r0: 200] { %f[i0, r0] }
  %c = pointwise f32[i0: 30, i1: 200] { %f[i0, i1] - %s[i0, 0] * 0.005 }
  %v = reduce.sum f32[i0: 30, i1: 1 | r0: 200] fixed { %c[i0, r0] * %c[i0, r0] }
  %r = pointwise f32[i0: 30, i1: 1] { rsqrt(%v[i0, 0] * 0.005 + 0.00001) }
  %o = pointwise bf16[i0: 30, i1: 200] fixed { bf16(%c[i0, i1] * %r[i0, 0] * %w[i1] + %b[i1]) }
}

graph batch_norm on cuda(%x: f32[4, 6, 5, 7] fixed, %w: f32[6] fixed) -> (%o, %mean) {
  %mean, %m2, %n = reduce.welford [i0: 6 | r0: 4, r1: 5, r2: 7] -> f32[6] fixed, f32[6], f32[6] { %x[r0, i0, r1, r2] }
  %rate = pointwise f32[i0: 6] { rsqrt(%m2[i0] / 140.0 + 0.00001) * %w[i0] }
  %o = pointwise f32[i0: 4, i1: 6, i2: 5, i3: 7] fixed { maximum(0.0, (%x[i0, i1, i2, i3] - %mean[i1]) * %rate[i1]) }
}

graph gelu_backward on cuda(%g: bf16[64, 48] fixed, %x: bf16[64, 48] fixed) -> (%o, %b) {
  %f = pointwise f32[i0: 64, i1: 48] { f32(%x[i0, i1]) }
  %c = pointwise f32[i0: 64, i1: 48] { 0.5 * (1.0 + erf(%f[i0, i1] * 0.70710678)) }
  %p = pointwise f32[i0: 64, i1: 48] { %f[i0, i1] * exp(-0.5 * %f[i0, i1] * %f[i0, i1]) * 0.39894228 }
  %o = pointwise bf16[i0: 64, i1: 48] fixed { bf16(f32(%g[i0, i1]) * (%c[i0, i1] + %p[i0, i1])) }
  %b = reduce.sum f32[i0: 48 | r0: 64] fixed { f32(%o[r0, i0]) }
}

graph bias_gradient on cuda(%g: bf16[24, 88, 520] fixed, %x: bf16[24, 88, 520] fixed) -> (%d, %b) {
  %d = pointwise bf16[i0: 24, i1: 88, i2: 520] fixed {
    bf16(f32(%g[i0, i1, i2]) * maximum(f32(%x[i0, i1, i2]), 0.0) * 0.01)
  }
  %b = reduce.sum f32[i0: 520 | r0: 2112] fixed { f32(%d[r0//88, r0 % 88, i0]) }
}

graph bias_of_heads on cuda(%q: f32[44, 64, 192] fixed, %k: f32[44, 64, 192] fixed) -> (%d, %b) {
  %d = pointwise bf16[i0: 64, i1: 44, i2: 2, i3: 192] fixed {
    bf16(masked(index(i2) == 1, %q[i1, i0, i3], 0.0) * 0.01 + masked(index(i2) == 0, %k[i1, i0, i3], 0.0) * 0.02)
  }
  %b = reduce.sum f32[i0: 384 | r0: 64, r1: 44] fixed { f32(%d[r0, r1, i0//192, i0 % 192]) }
}

graph norm_and_cast on cuda(%x: f32[2112, 256] fixed, %dy: bf16[2112, 256] fixed, %w: f32[256] fixed)
    -> (%dx, %narrow, %dw, %b) {
  %scaled = pointwise f32[i0: 2112, i1: 256] { f32(%dy[i0, i1]) * %w[i1] * 0.01 }
  %total = reduce.sum f32[i0: 2112, i1: 1 | r0: 256] { %scaled[i0, r0] * %x[i0, r0] }
  %dx = pointwise f32[i0: 2112, i1: 256] fixed { %scaled[i0, i1] - %x[i0, i1] * %total[i0, 0] * 0.01 }
  %dw = reduce.sum f32[i0: 256 | r0: 2112] fixed { f32(%dy[r0, i0]) * %x[r0, i0] * 0.01 }
  %narrow = pointwise bf16[i0: 2112, i1: 256] fixed { bf16(%dx[i0, i1]) }
  %b = reduce.sum f32[i0: 256 | r0: 2112] fixed { f32(%narrow[r0, i0]) }
}

graph embedding on cuda(%t: f32[50, 24] fixed, %n: i64[3, 9] fixed, %p: f32[9, 24] fixed) -> (%o) {
  %e = pointwise f32[i0: 3, i1: 9, i2: 24] { %t[indirect(%n[i0, i1], size=50, wrap, raised), i2] }
  %o = pointwise f32[i0: 3, i1: 9, i2: 24] fixed { %e[i0, i1, i2] + %p[i1, i2] }
}

graph cross_entropy on cuda(%x: f32[12, 70] fixed, %n: i64[12] fixed) -> (%loss) {
  %m, %z = reduce.online_softmax [i0: 12 | r0: 70] -> f32[12], f32[12] { %x[i0, r0] }
  %l = pointwise f32[i0: 12] { log(%z[i0]) + %m[i0] - %x[i0, indirect(%n[i0], size=70, raised)] }
  %s = reduce.sum f32[ | r0: 12] { %l[r0] }
  %loss = pointwise f32[] fixed { %s[] / 12.0 }
}

graph heads on cuda(%x: f32[2, 10, 24] fixed) -> (%o) {
  %v = view f32[i0: 2, i1: 4, i2: 10, i3: 6] { %x[i0, i2, i1*6 + i3] }
  %o = pointwise f32[i0: 2, i1: 4, i2: 10, i3: 6] fixed { %v[i0, i1, i2, i3] * 2.0 }
}

graph running on cuda(%x: f32[5, 33] fixed) -> (%o, %b) {
  %o = scan.sum dimension 1 f32[i0: 5 | r0: 33] fixed { %x[i0, r0] }
  %v, %b = reduce.argmax [i0: 5 | r0: 33] -> f32[5], i64[5] fixed { %o[i0, r0], index(r0) }
}

graph open on cuda(%x: f32[s0, s1] fixed) -> (%o) {
  symbols {
    s0: int from 2 hint 6
    s1: int from 2 hint 45
  }
  %s = reduce.sum f32[i0: s0, i1: 1 | r0: s1] { %x[i0, r0] }
  %o = pointwise f32[i0: s0, i1: s1] fixed { %x[i0, i1] - %s[i0, 0] }
}
"""


def graphs() -> list[LoopGraph]:
    """Return every graph of :data:`TEXTS`."""
    found = []
    for text in TEXTS.strip().split("\n\n"):
        graph = from_text(text)
        assert isinstance(graph, LoopGraph)
        found.append(graph)
    return found


def plan_of(graph: LoopGraph) -> Plan:
    """Return the graph's plan, scheduled for ``sm_90``."""
    capabilities = chip_capabilities("sm_90")
    return schedule_plan(schedule(graph, PassContext({CUDA: capabilities})), capabilities)


def inputs_of(graph: LoopGraph) -> list[Any]:
    """Return the graph's inputs, as they are in memory; the same in every process."""
    rng = np.random.default_rng(zlib.crc32(graph.name.encode()))
    arrays = []
    for value in graph.inputs:
        assert isinstance(value, Value)
        shape = [evaluate(size, SYMBOLS) for size in value.type.shape]
        if value.type.dtype.is_integer:
            arrays.append(rng.integers(0, 50, shape))
        else:
            arrays.append(encode(rng.standard_normal(shape).astype(np.float32), value.type.dtype))
    return arrays


def difference(graph: LoopGraph, got: Sequence[Any], wanted: Sequence[Any]) -> str:
    """Return the first difference between two lists of outputs; empty where there is none."""
    types: Mapping[str, Any] = {name: value.type for name, value in graph.values().items()}
    for output, a, b in zip(graph.outputs, got, wanted, strict=True):
        assert isinstance(output, Ref), "all outputs are values"
        dtype = types[output.name].dtype
        tolerance = 2e-2 if dtype.bits == 16 else 1e-5
        if not np.allclose(decode(a, dtype), decode(b, dtype), rtol=tolerance, atol=tolerance):
            return f"{output} differs by {np.abs(decode(a, dtype) - decode(b, dtype)).max()}"
    return ""


def compared(graph: LoopGraph, inputs: Sequence[Any], folder: Path) -> str:
    """Return the difference between the plan in Triton's interpreter and the graph, or the exception of the former."""
    from litz_codegen_triton.runtime.interpret import run_plan

    try:
        got = run_plan(plan_of(graph), inputs, folder, memory=NumpyMemory(fill=0xA5))
        return difference(graph, got, run_graph(graph, inputs))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def raised(graph: LoopGraph, inputs: Sequence[Any], folder: Path) -> str:
    """Return the name of the error that the plan raises in Triton's interpreter, or an empty string."""
    from litz_codegen_triton.runtime.interpret import run_plan

    try:
        run_plan(plan_of(graph), inputs, folder)
    except Exception as error:
        return type(error).__name__
    return ""


def main() -> None:
    """Compare every plan and print a line of JSON for each; then run one whose indices are out of range."""
    with tempfile.TemporaryDirectory() as folder:
        for graph in graphs():
            found = compared(graph, inputs_of(graph), Path(folder))
            print(json.dumps({"case": graph.name, "difference": found}), flush=True)
            if graph.name == "embedding":
                table, indices, positions = inputs_of(graph)
                indices[1, 4] = 50
                found = raised(graph, [table, indices, positions], Path(folder))
                print(json.dumps({"case": "embedding, out of range", "difference": found}), flush=True)


if __name__ == "__main__":
    main()
