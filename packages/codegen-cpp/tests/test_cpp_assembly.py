"""The machine code of the main kernels: the innermost loops compute whole vectors, and spill none of them.

A vector that a loop only reads from the stack is a constant of an exponential, which would else be read from a table;
tiles, which fill the registers with sums, read none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from cpp_assembly import Loop, assembly, innermost_loops
from cpp_kernels import all_cases
from test_cpp_emit import plan_of

from litz_codegen_cpp.emit.unit import emit_plan
from litz_codegen_cpp.toolchain.isa import Isa, by_name
from litz_ir.errors import CompilerNotFound
from litz_ir.plan import CpuAttention, Kernel
from litz_ir.target.conformance import conformance_cases
from litz_ir.text import parse_kernel

CHAIN = """kernel chain(in %x: f32, in %y: f32, out %o: f32) {
  schedule cpu_loops parallel(i0) vector i0
  outer [i0: 65536]
  phase [] { let t0 = %x[i0] * %y[i0] + 1.5; %o[i0] = t0 / (exp(-t0) + 1.0); }
}"""

KERNELS: Mapping[str, Kernel] = {
    "pointwise chain": parse_kernel(CHAIN),
    **{case.kernel.name: case.kernel for case in all_cases()},
    "attention": next(
        replace(case.kernel, schedule=CpuAttention("j", 23, "i", "columns"))
        for case in conformance_cases()
        if case.name == "attention_f32"
    ),
}
LOOPS = ("pointwise chain", "softmax_inner", "layer_norm_inner")
"""Kernels of loops by themselves."""
KNOWN_SPILLS: Mapping[tuple[str, str], int] = {
    ("layer_norm_inner", "avx2"): 1,  # four of Welford's triples, but for one vector
    ("softmax_inner", "avx2"): 4,  # the sums of four exponentials, whose constants take the registers
    ("softmax_inner", "neon"): 4,
}
"""Vectors that a kernel's loops store, by kernel and instruction set."""
TILES: Mapping[str, tuple[str, str]] = {
    "matmul": ("multiply_tile", "#define LITZ_PANELS template\n#include <litz/library/copied_sums.h>\n"),
    "convolution": (
        "multiply_strip",
        "#define LITZ_PANELS template\n#include <litz/library/copied_sums.h>\n",
    ),
    "channels": ("sum_channels", "#define LITZ_CHANNELS template\n#include <litz/library/tiled_sums.h>\n"),
    "attention": ("attention_", ""),
}
"""Part of the names of functions that compute tiles, and their source where no kernel has them."""
ISAS = ("avx512", "avx2", "neon")


def loops_of(source: str, isa: Isa) -> list[Loop]:
    """The innermost loops that are mostly arithmetic; what stores the rows of a tile that are left is not."""
    try:
        found = innermost_loops(assembly(source, isa))
    except CompilerNotFound as error:
        pytest.skip(str(error))
    return [each for each in found if 5 * len(each.arithmetic) >= len(each.instructions)]


def source_of(name: str, isa: Isa) -> str:
    (unit,) = emit_plan(plan_of([KERNELS[name]]), isa.lanes, ())
    return unit.text


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", LOOPS)
def test_loops_compute_whole_vectors_and_spill_none(name: str, isa: str) -> None:
    chosen = by_name(isa)
    loops = loops_of(source_of(name, chosen), chosen)
    assert loops
    assert [each for each in loops if each.vector_bytes != chosen.vector_bytes] == []
    spilled = [each.spills for each in loops if each.spills]
    assert sum(map(len, spilled)) == KNOWN_SPILLS.get((name, isa), 0), spilled


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", TILES)
def test_tiles_are_in_registers(name: str, isa: str) -> None:
    chosen = by_name(isa)
    function, source = TILES[name]
    loops = [
        each for each in loops_of(source or source_of(name, chosen), chosen) if function in each.function
    ]
    assert max(len(each.arithmetic) for each in loops) >= 8
    assert [each for each in loops if each.vector_bytes != chosen.vector_bytes] == []
    assert [(each.function, each.on_stack) for each in loops if each.on_stack] == []


LOOP = """
	.type	f, @function
f:
	vmovaps	%zmm3, 64(%rsp)
.L3:
	vmulps	(%rdi,%rax), %zmm1, %zmm2
	vmovaps	%zmm2, -64(%rbp)
	vaddps	64(%rsp), %zmm2, %zmm2
	vmovaps	%zmm2, (%rsp,%rax)
	jne	.L3
	ret
"""


def test_what_is_read_from_assembly() -> None:
    (loop,) = innermost_loops(LOOP)
    assert loop.function == "f" and loop.vector_bytes == 64 and len(loop.arithmetic) == 2
    assert loop.spills == ("vmovaps %zmm2, -64(%rbp)",) and len(loop.on_stack) == 2
    arm = LOOP[: LOOP.index("f:")].replace("@", "%") + (
        "f:\n.L1:\n\tfmla\tv0.4s, v1.4s, v2.s[0]\n\tstr\tq0, [sp, 16]\n\tldr\tq3, [sp]\n\tbne\t.L1\n"
    )
    (loop,) = innermost_loops(arm)
    assert loop.vector_bytes == 16 and loop.spills == ("str q0, [sp, 16]",) and len(loop.on_stack) == 2
