"""The verifiers of kernels and plans: each check finds the violation that it is for."""

from __future__ import annotations

import pytest

from litz_ir.errors import VerifyError
from litz_ir.plan.kernel import Kernel
from litz_ir.plan.program import Plan
from litz_ir.plan.verify.kernel import verify_kernel
from litz_ir.plan.verify.plan import verify_plan
from litz_ir.text import from_text

# --- kernels --------------------------------------------------------------------------------------------

KERNEL = """
kernel k(in %a: f32, out %b: f32, inout %c: i64) {
  symbols { s0: int from 1   q: float }
  schedule cpu_loops parallel(i0) vector r0 lanes 16 unroll 2
  outer [i0: s0]
  scratch %t: f32[8]
  phase [r0: 8] {
    %t[r0] = %a[i0*8 + r0] * f32($q);
    $m: f32 = reduce.max { %a[i0*8 + r0] };
  }
  phase [r0: 8] {
    %b[i0*8 + r0] = %t[r0] - $m;
    scan.sum { %c[r0] } -> %c[r0];
  }
  phase [] { %c[i0] add = 1; }
}
"""


def kernel(text: str) -> None:
    data = from_text(text)
    assert isinstance(data, Kernel)
    verify_kernel(data)


def test_a_right_kernel_is_accepted() -> None:
    kernel(KERNEL)


WRONG_KERNELS = {
    "two parameters of one name": ("kernel-names", "out %b: f32", "out %a: f32"),
    "a local like a parameter": (
        "kernel-names",
        "scratch %t: f32[8]",
        "scratch %t: f32[8] scratch %a: f32[8]",
    ),
    "an empty local": ("kernel-names", "scratch %t: f32[8]", "scratch %t: f32[0]"),
    "an axis twice": ("axes", "phase [r0: 8] {\n    %t", "phase [i0: 8, r0: 8] {\n    %t"),
    "an axis like a symbol": ("axes", "outer [i0: s0]", "outer [i0: 4, s0: 4]"),
    "an unknown size": ("free-symbols", "outer [i0: s0]", "outer [i0: s1]"),
    "parallel inside": ("schedule", "parallel(i0)", "parallel(r0)"),
    "vector of nothing": ("schedule", "vector r0", "vector r1"),
    "no register": ("schedule", "unroll 2", "unroll 0"),
    "an unknown buffer": ("kernel-buffer", "%b[i0*8 + r0] =", "%z[i0*8 + r0] ="),
    "an unknown load": ("defined-before-use", "%t[r0] - $m", "%z[r0]:f32 - $m"),
    "storing to an in": ("access", "%b[i0*8 + r0] =", "%a[i0*8 + r0] ="),
    "reading an out": ("access", "%t[r0] - $m", "%b[r0] - $m"),
    "adding to an out": ("access", "%b[i0*8 + r0] =", "%b[i0*8 + r0] add ="),
    "a stored dtype": ("store-dtype", "%t[r0] - $m", "i64(%t[r0])"),
    "leaving a local": ("index-bounds", "outer [i0: s0]", "outer [i0: 4] scratch %u: f32[8]"),
    "two indices": ("index-arity", "%t[r0] - $m", "%t[r0, r0] - $m"),
    "an unknown axis": ("free-symbols", "%t[r0] - $m", "%t[r1] - $m"),
    "a scalar of the same phase": ("scalar-known", "* f32($q)", "* $m:f32"),
    "a scalar twice": ("defined-once", "%b[i0*8 + r0] =", "$m: f32 = reduce.max { 1.0 }; %b[i0*8 + r0] ="),
    "an accumulated dtype": ("result-dtype", "$m: f32 = reduce.max", "$m: f32 = reduce.any"),
    "a combiner": ("combiner-arity", "reduce.max", "reduce.argmax"),
    "a scan along nothing": ("scan-axis", "phase [] {", "phase [] { scan.sum { %c[0] } -> %c[0];"),
}


@pytest.mark.parametrize("name", WRONG_KERNELS)
def test_each_check_of_a_kernel_finds_its_fault(name: str) -> None:
    check, right, wrong = WRONG_KERNELS[name]
    assert right in KERNEL
    text = KERNEL.replace(right, wrong)
    if name == "leaving a local":
        text = text.replace("outer [i0: 4] local", "outer [i0: 4]\n local").replace(
            "%t[r0] - $m", "%t[r0 + 1] - $m"
        )
    with pytest.raises(VerifyError) as caught:
        kernel(text)
    assert caught.value.check == check


CLUSTER = """
kernel k(in %a: f32, out %b: f32, out %c: f32, workspace %w: i64, inout %d: f32) {
  schedule tile_request cluster 4
  outer [i0: 6]
  phase [r0: 8] { $m: f32 = reduce.max { %a[i0*8 + r0] }; }
  phase [r0: 8] { %b[i0*8 + r0] = %a[i0*8 + r0] - $m; }
  phase [] { %c[i0] = $m; %d[i0] = %d[i0] + $m; }
}
"""

WRONG_CLUSTER = {
    "an empty cluster": ("schedule", "cluster 4", "cluster 0"),
    "no workspace": ("cluster", ", workspace %w: i64", ""),
    "a workspace of floats": ("cluster", "workspace %w: i64", "workspace %w: f32"),
    "a workspace that is read": ("access", "%a[i0*8 + r0] - $m", "%w[i0] - 1"),
    "a workspace that is stored to": ("access", "%c[i0] = $m", "%w[i0] = 1"),
    "several nests": ("cluster", "phase [r0: 8] { %b", "phase [r1: 8] { %b[i0*8 + r1] = 0.0; } phase [r0: 8] { %b"),
    "combining in memory": ("cluster", "%d[i0] = %d[i0] + $m", "%d[i0] add = $m"),
    "a point": ("cluster", "[r0: 8] { $m: f32 = reduce.max { %a[i0*8 + r0]", "[] { $m: f32 = reduce.max { %a[0]"),
    "a load of what another thread block stores": ("cluster", "%a[i0*8 + r0] - $m", "%d[i0]"),
    "a store in phases with and without axes": ("cluster", "%c[i0] = $m", "%b[i0] = $m"),
}  # fmt: skip


def test_a_cluster_may_divide_outer_points() -> None:
    kernel(CLUSTER)


@pytest.mark.parametrize("name", WRONG_CLUSTER)
def test_a_kernel_that_no_cluster_can_divide_is_refused(name: str) -> None:
    check, right, wrong = WRONG_CLUSTER[name]
    assert right in CLUSTER
    with pytest.raises(VerifyError) as caught:
        kernel(CLUSTER.replace(right, wrong))
    assert caught.value.check == check


# --- plans ----------------------------------------------------------------------------------------------

PLAN = """
plan p on cpu "any" (%x: f32[s0, 8], %mask: b1[2], $q: float, object %gen: generator) donated (%x) -> (%o, %v, s0, $q) {
  symbols { s0: int from 1 to 4   q: float   u0: float }
  const %c: f32[8]
  storage a: 128
  storage b: s0*32
  buffer %x: f32[s0, 8]
  buffer %mask: b1[2]
  buffer %c: f32[8]
  buffer %t: f32[8] in a at 32
  buffer %o: f32[s0, 8] in b
  buffer %v: f32[8] shares %y
  buffer %y: f32[8]
  kernel k(in %p0: f32, out %p1: f32) {
    symbols { s0: int }
    outer [i0: s0*8]
    phase [] { %p1[i0] = %p0[i0]; }
  }
  define s0 from size 0 of %x
  allocate a
  launch k(%c, %t; 1)
  allocate b
  launch k(%x, %o; s0)
  %y, _ = call f(%t, [%c, s0], $q, rng=%gen) unpack
  launch k(%c, %v; 1)
  free a
  define u0 { f64(%y[0]) }
  check { %mask[0] } "must hold"
}
"""


def plan(text: str) -> None:
    data = from_text(text)
    assert isinstance(data, Plan)
    verify_plan(data)


def test_a_right_plan_is_accepted() -> None:
    plan(PLAN)


WRONG_PLANS = {
    "two storages of one name": ("defined-once", "storage b: s0*32", "storage a: s0*32"),
    "two buffers of one name": ("defined-once", "buffer %y: f32[8]", "buffer %y: f32[8] buffer %x: f32[8]"),
    "two definitions of a symbol": ("defined-once", "define u0 {", "define s0 {"),
    "a result twice": ("defined-once", "free a", "%y = call g() free a"),
    "no storage": ("placement", "in a at 32", "in z at 32"),
    "a storage and a base": ("placement", "in a at 32", "in a at 32 shares %x"),
    "shares nothing": ("placement", "shares %y", "shares %z"),
    "shares itself": ("placement", "shares %y", "shares %v"),
    "another device": ("placement", "storage a: 128", "storage a: 128 on cuda"),
    "too small": ("storage-size", "in a at 32", "in a at 100"),
    "too small for any size": ("storage-size", "storage b: s0*32", "storage b: s0*32 - 4"),
    "past the end of a donated input": (
        "reused-memory",
        "buffer %o: f32[s0, 8] in b",
        "buffer %o: f32[s0, 64] shares %x",
    ),
    "past the end of a result": ("reused-memory", "buffer %v: f32[8]", "buffer %v: f32[9]"),
    "allocates nothing": ("allocate", "allocate b", "allocate c"),
    "allocates twice": ("allocate", "allocate b", "allocate b allocate b"),
    "frees nothing": ("free", "free a", "free a free a"),
    "not allocated": ("live", "allocate a", ""),
    "freed before": ("live", "allocate b", "allocate b free a"),
    "not defined": ("live", "launch k(%c, %t; 1)", "launch k(%y, %t; 1)"),
    "a dropped result": ("live", "free a", "free a free y"),
    "not placed": ("placed", "launch k(%c, %t; 1)", "launch k(%c, %z; 1)"),
    "a result not placed": ("placed", "%y, _ = call", "%y, %z = call"),
    "an unknown kernel": ("launch", "launch k(%c", "launch l(%c"),
    "a buffer missing": ("launch", "launch k(%c, %t; 1)", "launch k(%c; 1)"),
    "a symbol missing": ("launch", "launch k(%c, %t; 1)", "launch k(%c, %t)"),
    "a dtype": ("launch", "launch k(%c, %t; 1)", "launch k(%mask, %t; 1)"),
    "memory of two devices": ("launch", "buffer %c: f32[8]", "buffer %c: f32[8] on cuda"),
    "memory of two GPUs": ("launch", "%t: f32[8] in a at 32", "%t: f32[8] on cuda:1 shares %c"),
    "a kernel without buffers": (
        "launch",
        "define s0 from",
        "kernel e() { outer [i0: 4] phase [] { } } launch e() define s0 from",
    ),
    "a symbol before it is known": ("free-symbols", "define s0 from size 0 of %x", ""),
    "an unknown scalar": ("scalar-known", "[%c, s0], $q", "[%c, s0], $z"),
    "a dimension": ("define", "from size 0 of %x", "from size 2 of %x"),
    "a body's kind": ("result-dtype", "{ f64(%y[0]) }", "{ %y[0] }"),
    "a condition": ("result-dtype", "check { %mask[0] }", "check { 1 }"),
    "a body out of range": ("index-bounds", "check { %mask[0] }", "check { %mask[2] }"),
    "a wrong kernel": ("access", "out %p1", "in %p1"),
    "an output": ("live", "-> (%o, ", "-> (%t, %o, "),
    "what is donated is no tensor": ("donated", "donated (%x)", "donated (%gen)"),
    "no such branch": ("region", "free a", "region.invoke() { q } free a"),
    "a branch": ("placed", "define s0", 'plan q on cpu "any" () -> (%z) { } define s0'),
    "two branches of a name": (
        "defined-once",
        "define s0",
        'plan q on cpu "a" () -> () { } plan q on cpu "a" () -> () { } define s0',
    ),
    "a branch of the plan's name": ("defined-once", "define s0", 'plan p on cpu "a" () -> () { } define s0'),
    "a branch of the name of one inside another": (
        "defined-once",
        "define s0",
        'plan q on cpu "a" () -> () { plan r on cpu "a" () -> () { } } plan r on cpu "a" () -> () { } define s0',
    ),
}


@pytest.mark.parametrize("name", WRONG_PLANS)
def test_each_check_of_a_plan_finds_its_fault(name: str) -> None:
    check, right, wrong = WRONG_PLANS[name]
    assert right in PLAN
    text = PLAN.replace(right, wrong)
    if name == "a symbol before it is known":
        text = text.replace("launch k(%x, %o; s0)", "launch k(%x, %o; s0) define s0 from size 0 of %x")
    with pytest.raises(VerifyError) as caught:
        plan(text)
    assert caught.value.check == check


def test_a_kernel_is_launched_on_one_kind_of_device() -> None:
    text = """
    plan p on cuda "any" (%x: f32[8], %a: f32[8] on cpu, %b: f32[8] on OTHER) -> () {
      buffer %x: f32[8]
      buffer %a: f32[8] on cpu
      buffer %b: f32[8] on OTHER
      kernel k(inout %p0: f32) { outer [i0: 8] phase [] { %p0[i0] = %p0[i0] + 1.0; } }
      launch k(%LAST)
      launch k(%x)
    }
    """
    plan(text.replace("OTHER", "cuda:1").replace("LAST", "b"))
    with pytest.raises(VerifyError, match="k is launched on cpu and cuda") as caught:
        plan(text.replace("OTHER", "cuda:1").replace("LAST", "a"))
    assert caught.value.check == "kernel-devices"


SHARING = """
plan p on cpu "any" (%x: f32[8]) -> (%d) {
  storage a: 128
  storage d: 32
  buffer %x: f32[8]
  buffer %b: f32[8] in a
  buffer %c: f32[8] in a at 64
  buffer %e: f32[8] in a
  buffer %d: f32[8] in d
  kernel k(in %p0: f32, out %p1: f32) {
    outer [i0: 8]
    phase [] { %p1[i0] = %p0[i0]; }
  }
  allocate a
  allocate d
  launch k(%x, %b)
  launch k(%b, %c)
  launch k(%c, %e)
  launch k(%e, %d)
  free a
}
"""


def test_buffers_may_use_a_storage_one_after_another() -> None:
    plan(SHARING)
    plan(SHARING.replace("in a at 64", "in a"))  # each over the last, which the launch reads


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("in a at 64", "in a at 16"),
        ("launch k(%c, %e)", "launch k(%c, %e) launch k(%b, %d)"),
        ("-> (%d)", "-> (%d, %b)"),
        ("%b: f32[8]", "%b: f32[17]"),
    ],
)
def test_live_buffers_do_not_overlap(right: str, wrong: str) -> None:
    assert right in SHARING
    with pytest.raises(VerifyError) as caught:
        plan(SHARING.replace(right, wrong).replace("  free a\n", ""))
    assert caught.value.check == "overlap"
