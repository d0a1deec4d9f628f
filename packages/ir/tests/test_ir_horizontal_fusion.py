"""Horizontally fused kernels: independent subkernels that run in one launch."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from litz_ir.errors import VerifyError
from litz_ir.interp.kernel import run_kernel
from litz_ir.origin import UNKNOWN
from litz_ir.plan.accessed_ranges import AccessRange, access_ranges
from litz_ir.plan.horizontal_fusion import invocations_of, origins_by_subkernel, split_subkernels
from litz_ir.plan.kernel import Kernel, KernelOrigin
from litz_ir.plan.program import Launch, Plan
from litz_ir.plan.verify.kernel import verify_kernel
from litz_ir.plan.verify.plan import verify_plan
from litz_ir.serial import from_json, to_json
from litz_ir.text import from_text, to_text
from litz_ir.text.parsing.kernel import parse_kernel
from litz_ir.text.printing.kernel import print_kernel

FUSED = """\
kernel fused(in %x: f32, out %a: f32, in %y: f32 align 16, out %b: f32, in %z: f32, inout %c: f32) {
  symbols {
    s0: int from 0 to 64
    q: float
  }
  kernel scaled(in %p0: f32, out %p1: f32) {
    symbols {
      n: int from 0 to 128
      q: float
    }
    outer [i0: n]
    phase [] {
      %p1[i0] = %p0[i0] * f32($q);
    }
  }
    invoke (%x, %a, 5, q)
    invoke (%y, %b, s0*2, q)
  kernel sums(in %p0: f32, inout %p1: f32, in %p2: f32) {
    outer [i0: 2]
    phase [r0: 3] {
      $t: f32 = reduce.sum { %p0[i0*3 + r0] };
    }
    phase [] {
      %p1[i0] = %p1[i0] + $t * %p2[0];
    }
  }
    invoke (%z, %c, %x)
}
"""


def kernel(text: str) -> Kernel:
    found = parse_kernel(text)
    verify_kernel(found)
    return found


def test_the_text_of_a_fused_kernel_round_trips() -> None:
    found = kernel(FUSED)
    assert print_kernel(found) == FUSED
    assert [own.name for own, _ in invocations_of(found)] == ["scaled", "scaled", "sums"]


def test_each_subkernel_can_be_split_off() -> None:
    whole = kernel(FUSED)
    scaled, sums = split_subkernels(whole)
    for each in (scaled, sums):
        verify_kernel(each)
    assert [len(invocations_of(each)) for each in (scaled, sums)] == [2, 1]
    assert [each.name for each in sums.parameters] == ["x", "z", "c"]
    given = buffers()
    run_kernel(scaled, {each.name: given[each.name] for each in scaled.parameters}, {"s0": 3, "q": 2.0})
    assert given["b"].tolist() == [2, 4, 6, 8, 10, 12] and given["c"].tolist() == [1, 2]


def test_origins_belong_to_their_invocation() -> None:
    whole = kernel(FUSED)
    origins = [
        KernelOrigin(name, UNKNOWN, invocation)
        for name, invocation in (("a", 0), ("c", 2), ("b", 1), ("d", 0))
    ]
    scaled, sums = origins_by_subkernel(whole, origins)
    assert [each.operation for each in scaled] == ["a", "b", "d"]
    assert [each.operation for each in sums] == ["c"]
    assert origins_by_subkernel(replace(whole, subkernels=()), origins) == ()


def buffers() -> dict[str, np.ndarray]:
    names = {"x": 5, "a": 5, "y": 6, "b": 6, "z": 6, "c": 2}
    return {name: np.arange(count, dtype=np.float32) + 1 for name, count in names.items()}


def test_the_order_of_subkernels_has_no_effect() -> None:
    found = kernel(FUSED)
    for subkernels in permutations(found.subkernels):
        given = buffers()
        reordered = Kernel("p", found.parameters, found.symbols, (), (), (), found.schedule, subkernels)
        run_kernel(reordered, given, {"s0": 3, "q": 2.0})
        assert given["a"].tolist() == [2, 4, 6, 8, 10]
        assert given["b"].tolist() == [2, 4, 6, 8, 10, 12]
        assert given["c"].tolist() == [1 + 6, 2 + 15]


def test_a_fused_kernel_accesses_what_its_invocations_access() -> None:
    found = access_ranges(kernel(FUSED), {"s0": 3, "q": 2.0})
    assert found["y"] == AccessRange(0, 5, 24, 0) and found["b"] == AccessRange(0, 5, 0, 24)
    assert found["c"] == AccessRange(0, 1, 8, 8)
    assert found["x"] == AccessRange(0, 4, 20, 0)  # which two invocations read


WRONG = {
    "a result that another loop reads": ("independent", "invoke (%z, %c, %x)", "invoke (%z, %c, %a)"),
    "a result that another loop writes": ("independent", "invoke (%y, %b, s0*2, q)", "invoke (%y, %a, s0*2, q)"),
    "a name that is no parameter": ("invocation", "invoke (%z, %c, %x)", "invoke (%w, %c, %x)"),
    "too few buffers": ("invocation", "invoke (%z, %c, %x)", "invoke (%z, %c)"),
    "too few symbols": ("invocation", "5, q)", "5)"),
    "a size that it cannot be": ("invocation", "%a, 5, q", "%a, 129, q"),
    "a size that it may not be": ("invocation", "s0*2, q", "s0*3, q"),
    "a float for a size": ("invocation", "%a, 5, q", "%a, q, q"),
    "a symbol that nobody gives": ("free-symbols", "s0*2, q", "s1*2, q"),
    "another dtype": ("invocation", "in %z: f32", "in %z: f64"),
    "less alignment": ("invocation", "kernel scaled(in %p0: f32", "kernel scaled(in %p0: f32 align 16"),
    "what is written is an input": ("access", "out %a: f32", "in %a: f32"),
    "what is read is a result": ("access", "in %y: f32", "inout %y: f32"),
    "a parameter that no invocation uses": ("invocation", "in %z: f32,", "in %z: f32, in %w: f32,"),
    "two subkernels of one name": ("subkernels", "kernel sums", "kernel scaled"),
    "phases": ("subkernels", "    invoke (%z, %c, %x)\n", "    invoke (%z, %c, %x)\n  phase [] { %a[0] = 0.0; }\n"),
    "a cluster": ("cluster", "outer [i0: n]", "schedule tile_request cluster 4 outer [i0: n]"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_fused_kernel_is_refused(name: str) -> None:
    check, right, wrong = WRONG[name]
    assert FUSED.count(right) == 1
    with pytest.raises(VerifyError) as caught:
        kernel(FUSED.replace(right, wrong))
    assert caught.value.check == check


PLAN = """
plan p on cpu "any" (%x: f32[8], %y: f32[8]) -> (%o) {
  storage a: 64
  storage b: 32
  buffer %x: f32[8]
  buffer %y: f32[8]
  buffer %s: f32[8] in a
  buffer %t: f32[8] in a at 32
  buffer %u: f32[8] in a
  buffer %o: f32[8] in b
  kernel twice(in %p0: f32, out %p1: f32, in %p2: f32, out %p3: f32) {
    kernel copy(in %p0: f32, out %p1: f32) {
      outer [i0: 8]
      phase [] { %p1[i0] = %p0[i0]; }
    }
      invoke (%p0, %p1)
      invoke (%p2, %p3)
  }
  allocate a
  allocate b
  launch twice(%x, %s, %y, %t)
  launch twice(%s, %u, %t, %o)
  free a
}
"""


def plan(text: str) -> Plan:
    found = from_text(text)
    assert isinstance(found, Plan)
    verify_plan(found)
    return found


def test_an_invocation_may_overwrite_its_own_input() -> None:
    found = plan(PLAN)
    assert from_text(to_text(found)) == found and from_json(to_json(found)) == found


def test_a_plan_prints_the_invocation_of_each_origin() -> None:
    text = to_text(plan(PLAN)).replace(
        "  launch twice(%s, %u, %t, %o)\n",
        "  launch twice(%s, %u, %t, %o)\n    for a\n    for b invocation 1 @ b\n",
    )
    found = plan(text)
    assert to_text(found) == text
    (step,) = [each for each in found.steps if isinstance(each, Launch) and each.origins]
    assert [(each.operation, each.invocation) for each in step.origins] == [("a", 0), ("b", 1)]
    assert to_text(from_json(to_json(found))) == text
    with pytest.raises(VerifyError, match="b is the origin of invocation 2"):
        plan(text.replace("invocation 1", "invocation 2"))


@pytest.mark.parametrize(
    ("right", "wrong", "check"),
    [
        ("%u: f32[8] in a\n", "%u: f32[8] in a at 32\n", "overlap"),  # over what the other loop reads
        ("twice(%x, %s, %y, %t)", "twice(%x, %s, %y, %s)", "independent"),
        ("%y: f32[8]\n", "%y: f32[8] shares %s\n", "independent"),
    ],
)
def test_invocations_of_a_launch_share_no_memory(right: str, wrong: str, check: str) -> None:
    assert PLAN.count(right) == 1
    with pytest.raises(VerifyError) as caught:
        plan(PLAN.replace(right, wrong))
    assert caught.value.check == check
