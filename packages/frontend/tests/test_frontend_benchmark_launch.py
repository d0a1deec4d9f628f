"""Benchmark launches: kernels that can be launched without effect, and the buffers of such launches."""

from __future__ import annotations

import pytest
import torch

from litz.tuning.benchmark_launch import benchmark_buffers, can_benchmark
from litz_ir.text import parse_kernel

KERNEL = """
kernel k({parameters}) {{
  outer [i0: 1000]
  phase [] {{
    {statement}
  }}
}}
"""


@pytest.mark.parametrize(
    ("parameters", "statement", "tried"),
    [
        ("in %a: f32, inout %b: f32", "%b[i0] = %b[i0] + %a[i0];", True),
        ("in %a: f32, in %n: i64, out %b: f32", "%b[i0] = %a[indirect(%n[i0], size=9, raised)];", True),
        ("in %n: i64, inout %b: f32", "%b[indirect(%n[i0], size=9, raised)] add = 1.0;", True),
        ("in %a: f32, inout %n: i64", "%n[i0] = i64(%a[indirect(%n[i0], size=9, raised)]);", False),
        ("inout %b: f32", "%b[i0] = %b[indirect(i64(%b[i0]), size=9, assumed)];", False),
    ],
)
def test_kernels_whose_outputs_decide_addresses_cannot_be_benchmarked(
    parameters: str, statement: str, tried: bool
) -> None:
    kernel = parse_kernel(KERNEL.format(parameters=parameters, statement=statement))
    assert can_benchmark(kernel) == tried


FUSED = """
kernel fused(in %a: f32, out %b: f32, inout %c: f32, inout %n: i64) {{
  kernel copy(in %p0: f32, out %p1: f32) {{
    outer [i0: 8]
    phase [] {{ %p1[i0] = %p0[i0]; }}
  }}
    invoke (%a, %b)
  kernel follow(inout %p0: f32, {access} %p1: i64) {{
    outer [i0: 8]
    phase [] {{
      %p0[indirect(%p1[i0], size=8, raised)] add = 1.0;
      {statement}
    }}
  }}
    invoke (%c, %n)
}}
"""


@pytest.mark.parametrize(
    ("access", "statement", "tried"), [("in", "", True), ("inout", "%p1[i0] = %p1[i0] + 1;", False)]
)
def test_a_horizontal_fusion_is_benchmarked_if_all_its_subkernels_can_be(
    access: str, statement: str, tried: bool
) -> None:
    text = FUSED.format(access=access, statement=statement).replace("inout %n", f"{access} %n")
    assert can_benchmark(parse_kernel(text)) == tried


def test_a_benchmark_reads_the_buffers_and_writes_to_copies() -> None:
    kernel = parse_kernel(
        KERNEL.format(parameters="in %a: f32, out %b: f32", statement="%b[i0 + 500] = %a[i0];")
    )
    found = benchmark_buffers(kernel, [4096, 8192], [], torch.device("cpu"))
    assert found is not None
    (read, write), (memory,) = found
    assert read == 4096
    first, last = write + 500 * 4, write + 1500 * 4
    assert memory.data_ptr() <= first and last <= memory.data_ptr() + memory.nbytes
    assert (memory.data_ptr() - write) % 256 == 0, "alignment is preserved"
