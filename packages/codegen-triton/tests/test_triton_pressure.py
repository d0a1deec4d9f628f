"""The estimate of registers per point, and tiles whose points fit the registers of a thread."""

from __future__ import annotations

from math import prod
from pathlib import Path

import pytest
import triton_assembly
from triton_scheduled import emitted, tiled

from litz_codegen_triton.capabilities import NVIDIA
from litz_codegen_triton.schedule.register_pressure import point_words
from litz_codegen_triton.tables.hopper import HOPPER
from litz_ir.plan import Kernel
from litz_ir.text import parse_kernel

COPY = """
kernel copy(in %x: f32, out %o: f32) {{
  schedule tile_request
  outer [i0: {size}]
  phase [] {{
    %o[i0] = {value};
  }}
}}
"""

PLACED = """
kernel placed(in %x: {dtype}, in %m: i64, in %n: i64, out %o: {dtype}) {{
  symbols {{
    a: int from 2
    b: int from 2
    c: int from 2
  }}
  schedule tile_request
  outer [i0: a, i1: b]
  phase [r0: c] {{
    %o[i1 + i0*b + a*c*b*indirect(%m[min(r0, c - 1)], size=a, assumed)
      + a*b*indirect(%n[min(r0, c - 1)], size=c, assumed)] = %x[i1 + i0*b + a*b*min(r0, a - 1)];
  }}
}}
"""
"""A store whose offset depends on two loaded indices, with symbolic sizes."""

LARGEST = """
kernel largest(in %x: f32, out %o: f32, out %p: i64) {
  symbols {
    a: int from 2
    b: int from 2
  }
  schedule tile_request
  outer [i0: a, i1: (b + 1)//2]
  phase [r0: 3, r1: 3] {
    let t0 = (index(i1*2 + r1 - 1) >= 0) & (index(i1*2 + r1 - 1) < index(b))
      & (index(i0 + r0 - 1) >= 0) & (index(i0 + r0 - 1) < index(a));
    $v: f32, $w: i64 = reduce.combine
      from { -inf, -1 }
      by {
        let t0 = ($2 > $0) | isnan($2);
        where(t0, $2, $0),
        where(t0, $3, $1)
      }
      to { $0, $1 }
      { masked(t0, %x[i1*2 + r1 + b*i0 + b*r0 - b - 1], -inf), where(t0, index(i1*2 + r1 + b*i0 + b*r0 - b - 1), -1) };
  }
  phase [] {
    %o[i1 + i0*((b + 1)//2)] = $v;
    %p[i1 + i0*((b + 1)//2)] = $w;
  }
}
"""
"""Max pooling with indices."""

RUNNING = """
kernel running(in %x: {dtype}, out %o: {dtype}) {{
  symbols {{
    a: int from 0{limit}
  }}
  schedule tile_request
  outer []
  phase [r0: a] {{
    scan.sum {{ %x[r0] }} -> %o[r0];
  }}
}}
"""


def copy(value: str, size: str = "1048576") -> Kernel:
    return parse_kernel(COPY.format(value=value, size=size))


def each(kernel: Kernel) -> int:
    """Return the number of points of a tile that a thread has."""
    tiles = tiled(kernel)
    blocks = [dim.block for dim in tiles.outer] + [inner.block for inner in tiles.inner if inner is not None]
    return prod(blocks) // (NVIDIA.warp_size * tiles.warps)


def test_values_stay_in_registers_until_their_last_use() -> None:
    index = value = 1
    assert point_words(copy("%x[i0]")) == index + value
    assert point_words(copy("exp(sin(exp(sin(%x[i0]))))")) == index + 2 * value
    nested = "%x[i0] + 1.0"
    for step in range(1, 9):
        nested = f"({nested}) * sin(%x[i0 + {step}])"
    # The product of several so far, an element and its sine: a long body need not have many live values.
    assert point_words(copy(nested)) == index + 3 * value
    total = " + ".join(f"sin(%x[i0 + {step}])" for step in range(8))
    again = " * ".join(f"sin(%x[i0 + {step}])" for step in range(8))
    assert point_words(copy(f"({total}) * ({again})")) >= index + 8 * value


def test_64_bit_indices_take_two_registers() -> None:
    assert point_words(copy("%x[i0]", size=str(1 << 33))) == 3


def test_values_that_are_constant_along_a_phase_are_not_counted() -> None:
    row = """
kernel row(in %x: f32, in %y: f32, out %o: f32) {
  schedule tile_request
  outer [i0: 4096]
  phase [r0: 4096] {
    $s: f32 = reduce.sum { %x[r0 + i0*4096]*sin(%y[i0])*cos(%y[i0]) };
  }
  phase [] {
    %o[i0] = $s;
  }
}
"""
    assert point_words(parse_kernel(row)) == 2


def test_independent_loops_share_no_registers() -> None:
    names = [f"%x{k}" for k in range(30)]
    parameters = ", ".join(f"in {name}: f32, out {name}_o: f32" for name in names)
    body = "\n".join(f"    {name}_o[i0] = {name}[i0] + 1.0;" for name in names)
    lists = f"kernel lists({parameters}) {{\n  outer [i0: 4096]\n  phase [] {{\n{body}\n  }}\n}}\n"
    assert point_words(parse_kernel(lists)) == 3


@pytest.mark.parametrize("dtype", ["u8", "bf16", "f32"])
def test_scatters_with_64_bit_indices_have_fewer_points(dtype: str, tmp_path: Path) -> None:
    kernel = parse_kernel(PLACED.format(dtype=dtype))
    assert each(kernel) * point_words(kernel) <= HOPPER.maps.point_registers
    assert each(kernel) >= 8
    assert triton_assembly.compiled(emitted(kernel), "sm_90", tmp_path).spilled == 0


def test_threads_that_reduce_windows_have_registers_for_their_values(tmp_path: Path) -> None:
    kernel = parse_kernel(LARGEST)
    assert (tiled(kernel).warps, each(kernel)) == (4, 4)
    assert each(kernel) * point_words(kernel) <= HOPPER.maps.point_registers
    assert triton_assembly.compiled(emitted(kernel), "sm_90", tmp_path).spilled == 0


@pytest.mark.parametrize("chip", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize(
    ("dtype", "limit", "warps", "points"),
    [("f32", "", 32, 4), ("i64", " to 1000000", 16, 8), ("i64", "", 16, 4)],
)
def test_scans_leave_registers_for_64_bit_values_and_indices(
    dtype: str, limit: str, warps: int, points: int, chip: str, tmp_path: Path
) -> None:
    kernel = parse_kernel(RUNNING.format(dtype=dtype, limit=limit))
    assert (tiled(kernel).warps, each(kernel)) == (warps, points)
    assert triton_assembly.compiled(emitted(kernel), chip, tmp_path).spilled == 0
