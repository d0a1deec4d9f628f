"""Graphs and plans for tests of the interchange form, and functions over their documents."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import ir_plan_strategies as given_plans
import ir_strategies as given_nodes

from litz_ir.interchange import from_interchange, to_interchange
from litz_ir.serial import to_json

GRAPH = """
graph g(%x: f32[s0, 8], %i: i64[s0]) -> (%o, s0*2, -0.0) {
  symbols { s0: int from 2 hint 4 source "x" }
  %e = pointwise f32[i0: s0, i1: 8] { exp(%x[indirect(%i[i0], size=s0, wrap, raised), i1]) } @ exp_1 "exp(x[i])" m.py:3
  %o = reduce.sum f32[i0: s0 | r0: 8] { %e[i0, r0] * %e[i0, 7 - r0] }
}
"""
FUSED = """
fused {
graph g(%x: f32[4]) -> (%o) {
  %o = pointwise f32[i0: 4] { %x[i0] * 2.0 }
}
  group g0 [i0: 4] in (%x) out (%o) {
    run %o phase 0 at [i0] { %x[i0] * 2.0 }
    store %o
  }
  decision realise inline "e" realise.cheap "it is cheap" bytes 16 note "once"
}
"""
KERNEL = """
kernel k(in %p0: f32, out %p1: f32) {
  symbols { s0: int from 2 }
  schedule cpu_loops parallel(i0) vector r0 grain 8
  outer [i0: s0]
  scratch %l0: f32[16]
  phase [r0: 16] {
    $a0: f32 = reduce.max { %p0[i0*16 + r0] };
    %l0[r0] = exp(%p0[i0*16 + r0 % 4]);
  }
  phase [r0: 16] {
    %p1[i0*16 + r0] = %l0[r0] / $a0;
  }
}
"""
PLAN = """
plan p on cpu "avx512" (%x: f32[4] fixed) -> (%o) {
  storage s0: 64
  buffer %x: f32[4] fixed
  buffer %o: f32[4] fixed in s0
  peak 64
  kernel k(in %p0: f32, out %p1: f32) {
    schedule cpu_loops vector i0
    outer [i0: 4]
    phase [] { %p1[i0] = %p0[i0] + 0.5; }
  }
  allocate s0
  launch k(%x, %o)
    for add @ add "x + 0.5" model.py:12
}
"""
VIEWED = """
plan block on cpu "avx512" (%x: f32[s0, 256] fixed, %w: f32[256, 256] fixed) -> (%y) {
  symbols { s0: int from 1 hint 64 source "x" }
  storage a: s0*1024
  storage b: s0*1024
  buffer %x: f32[s0, 256] fixed
  buffer %w: f32[256, 256] fixed
  buffer %h: f32[s0, 256] fixed in a
  buffer %m: f32[s0, 256] fixed
  buffer %rows: f32[s0, 16, 16] fixed shares %m
  buffer %y: f32[s0, 256] fixed in b
  peak s0*3072
  kernel relu(in %p0: f32, out %p1: f32) {
    symbols { s0: int from 1 }
    schedule cpu_loops parallel(i0) vector r0
    outer [i0: s0]
    phase [r0: 256] { %p1[i0*256 + r0] = maximum(%p0[i0*256 + r0], 0.0); }
  }
  kernel softmax(in %p0: f32, out %p1: f32) {
    symbols { s0: int from 1 }
    schedule cpu_loops parallel(i0) vector r0
    outer [i0: s0]
    phase [r0: 256] { $a0: f32 = reduce.max { %p0[i0*256 + r0] }; }
    phase [r0: 256] { $a1: f32 = reduce.sum { exp(%p0[i0*256 + r0] - $a0) }; }
    phase [r0: 256] { %p1[i0*256 + r0] = exp(%p0[i0*256 + r0] - $a0) / $a1; }
  }
  define s0 from size 0 of %x
  allocate a
  launch relu(%x, %h; s0)
    for relu @ relu "torch.relu(x)" model.py:12
  %m = call aten.mm.default(%h, %w) @ mm "h @ w" model.py:13
  free a
  allocate b
  launch softmax(%rows, %y; s0)
    for softmax @ softmax "m.softmax(-1)" model.py:14
  free m
}
"""
TEXTS = {"graph": GRAPH, "fused": FUSED, "kernel": KERNEL, "plan": PLAN, "viewed": VIEWED}

everything = (
    given_nodes.loop_graphs() | given_plans.fused_graphs | given_plans.kernels() | given_plans.plans()
)


def document_of(data: Any) -> dict[str, Any]:
    """The document of a graph or plan, parsed."""
    found: dict[str, Any] = json.loads(to_interchange(data))
    return found


def read(document: Any) -> Any:
    """The graph or plan of a parsed document."""
    return from_interchange(json.dumps(document))


def same(a: Any, b: Any) -> bool:
    """Equal in all fields, those included that do not compare."""
    return bool(a == b) and to_json(a) == to_json(b)


def objects_in(data: Any) -> Iterator[dict[str, Any]]:
    """Every object with a class in a document."""
    if isinstance(data, dict):
        if "class" in data:
            yield data
        data = list(data.values())
    if isinstance(data, list):
        for each in data:
            yield from objects_in(each)


def places_in(
    data: Any, path: str = "$", inside: Any = None, key: Any = None
) -> Iterator[tuple[str, Any, Any]]:
    """Every place in a document: its path, the object or array that it is in, and the key in that."""
    if inside is not None:
        yield path, inside, key
    for each in data if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ():
        step = f".{each}" if isinstance(data, dict) else f"[{each}]"
        yield from places_in(data[each], path + step, data, each)


def place(document: Any, path: str) -> tuple[Any, Any]:
    """The object or array that a path like ``operations[0].name`` leads to, and the last key."""
    *before, last = [int(step) if step.isdecimal() else step for step in re.findall(r"\w+", path)]
    for step in before:
        document = document[step]
    return document, last
