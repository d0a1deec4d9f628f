"""The verifiers of loop graphs and fused graphs: each check finds the violation that it is for."""

from __future__ import annotations

import dataclasses

import pytest

from litz_ir.dtypes import u8
from litz_ir.errors import VerifyError
from litz_ir.fused.group import FusedGraph
from litz_ir.fused.verify import verify_fused
from litz_ir.loops.nodes import Axis, Operation, Pointwise
from litz_ir.loops.verify import verify_graph
from litz_ir.scalar.expr import Const
from litz_ir.text import from_text, parse_graph

GRAPH = """
graph every(
  %x: f32[4, 8], %ids: i64[4], %dyn: f32[s0, 8], $n: int as s0, $q: float, object %gen: generator, %w: f32[4]
) frozen (%w) donated (%ids) -> (%o, s0, $q) saved (%o) {
  symbols { s0: int from 2 to 64   q: float   u0: int }
  const %c: f32[8]
  %p = pointwise f32[i0: 4, i1: 8] { %x[i0, i1] * f32($q) + %c[i1] }
  %m, %at = reduce.argmax [i0: 4 | r0: 8] -> f32[4], i64[4] { %p[i0, r0], index(r0) }
  %total, %count = reduce.combine [ | r0: 4]
    -> f32[], i64[] from { 0.0, 0 } by { $0 + $2, $1 + $3 } to { $0, $1 } { %m[r0], 1 }
  %run = scan.sum dimension 1 f32[i0: 4 | k: 8] { %p[i0, k] }
  %pad = pointwise f32[i0: 4, i1: 10] { masked(index(i1) < 8, %x[i0, i1], 0.0) }
  %rows = pointwise f32[i0: 4, i1: 8] { %dyn[indirect(%ids[i0], size=s0, wrap, raised), i1] }
  %put = scatter.add [i0: 4] -> f32[8] { %c[indirect(%ids[i0], size=8, assumed)] = %m[i0] }
  %flat = view f32[j: 32] { %x[j//8, j % 8] }
  %sorted, %order = sort %put dimension 0 -> f32[8], i64[8]
  %x1 replaces %x = mutate %x with %p -> f32[4, 8]
  %y, %c1 replaces %c = extern aten.f.out(%x1, %c, rng=%gen) -> f32[4], f32[8] mutates(%c -> %c1) silent(%c1)
  %noise = random aten.rand.default([4]) -> f32[4] token rng
  assert { %noise[0] < 1.0 } "must be small" token assert
  host u0 { index(3) }
  %z = pointwise f32[i0: u0] { 1.0 }
  %o = region.cond(true, %y) -> f32[4] {
    graph yes(%a: f32[4]) -> (%b) { symbols { q: float } %b = pointwise f32[i0: 4] { %a[i0] + f32($q) } }
    graph no(%a: f32[4]) -> (%a) { }
  }
  %kept = region.frozen(%w) -> f32[4] {
    graph prepared(%a: f32[4]) -> (%b) { %b = pointwise f32[i0: 4] { %a[i0] * 2.0 } }
  }
}
"""


def test_a_right_graph_with_operations_of_each_kind_is_accepted() -> None:
    graph = parse_graph(GRAPH)
    verify_graph(graph)
    assert all(
        any(isinstance(each, kind) for each in graph.operations) for kind in Operation.__subclasses__()
    )


def small(body: str, outputs: str = "", inputs: str = "%x: f32[4, 8], %y: f32[4, 8]", marks: str = "") -> str:
    return f"graph g({inputs}) {marks} -> ({outputs}) {{ symbols {{ s0: int from 2 to 9 }} {body} }}"


def step(carried: str, body: str) -> str:
    """A scan whose step takes ``%c`` of the type ``carried`` and returns ``%n``, which ``body`` defines."""
    return small(
        f"%o = region.scan([%y], [%x]) -> f32[4] {{ graph step(%c: {carried}, %v: f32[8]) -> (%n) {{ {body} }} }}"
    )


WRONG_GRAPHS = {
    "defined twice": ("defined-once", small("%x = view f32[i0: 4, i1: 8] { %y[i0, i1] }")),
    "an input twice": ("defined-once", small("", inputs="%x: f32[4], %x: f32[4]")),
    "two results of one name": (
        "defined-once",
        small("%s, %s = sort %x dimension 0 -> f32[4, 8], i64[4, 8]"),
    ),
    "read before": ("defined-before-use", small("%a = pointwise f32[i0: 4] { %b[i0]:f32 }")),
    "an argument": ("defined-before-use", small("%a = extern f(%b) -> f32[4]")),
    "a loop over two devices": ("devices", small("%a = pointwise f32[i0: 4] on cuda { %x[i0, 0] }")),
    "a view of another device's memory": ("devices", small("%a = view f32[i0: 4] on cuda:1 { %x[i0, 0] }")),
    "an object as a buffer": (
        "defined-before-use",
        small("%a = view f32[i0: 4] { %g[i0] }", inputs="object %g: gen"),
    ),
    "read after": (
        "version-order",
        small("%x1 replaces %x = mutate %x with %y -> f32[4, 8] %a = pointwise f32[i0: 4] { %x[i0, 0] }"),
    ),
    "returned after": ("version-order", small("%x1 replaces %x = mutate %x with %y -> f32[4, 8]", "%x")),
    "replaces nothing": ("version", small("%a replaces %b = extern f(%x) -> f32[4]")),
    "replaces another type": ("version", small("%a replaces %x = extern f(%x) -> f32[4]")),
    "replaces twice": (
        "version",
        small("%a replaces %x, %b replaces %x = extern f(%x) -> f32[4, 8], f32[4, 8]"),
    ),
    "no token": ("token", small("%a = random f() -> f32[4]")),
    "another token": ("token", small('assert { true } "m" token rng')),
    "returns nothing known": ("outputs", small("", "%a")),
    "returns an unknown scalar": ("outputs", small("", "$a")),
    "returns an unknown symbol": ("outputs", small("", "s0 + s1")),
    "strides": ("type", small("", inputs="%x: f32[4] strides(1, 2)")),
    "negative size": ("type", small("", inputs="%x: f32[-4]")),
    "unknown symbol in a type": ("free-symbols", small("", inputs="%x: f32[s1]")),
    "unknown symbol in an axis": ("free-symbols", small("%a = pointwise f32[i0: s1] { 1.0 }")),
    "unknown axis": ("free-symbols", small("%a = pointwise f32[i0: 4] { %x[i0, i1] }")),
    "unknown symbol in a view": ("free-symbols", small("%a = view f32[i0: 4] { %x[i0, i1] }")),
    "an axis twice": ("axes", small("%a = pointwise f32[i0: 4, i0: 4] { 1.0 }")),
    "an axis like a symbol": ("axes", small("%a = pointwise f32[s0: 4] { 1.0 }")),
    "another shape": ("result-shape", small("%a = pointwise [i0: 4] -> f32[5] { 1.0 }")),
    "another rank": ("result-shape", small("%a = reduce.sum [i0: 4 | r0: 8] -> f32[4, 8] { %x[i0, r0] }")),
    "a scatter's shape": ("result-shape", small("%a = scatter.set [i0: 4] -> f32[4] { %x[i0, 0] = 1.0 }")),
    "another dtype": ("result-dtype", small("%a = pointwise i64[i0: 4] { %x[i0, 0] }")),
    "a reduction's dtype": ("result-dtype", small("%a = reduce.any f32[i0: 4 | r0: 8] { %x[i0, r0] < 1.0 }")),
    "a sort's positions": ("result-dtype", small("%a, %b = sort %x dimension 0 -> f32[4, 8], i32[4, 8]")),
    "a view's dtype": ("result-dtype", small("%a = view i64[i0: 4] { %x[i0, 0] }")),
    "a condition": ("result-dtype", small('assert { 1.0 } "m" token assert')),
    "too few bodies": ("result-count", small("%a, %b = pointwise [i0: 4] -> f32[4], f32[4] { 1.0 }")),
    "one of sort's results": ("result-count", small("%a = sort %x dimension 0 -> f32[4, 8]")),
    "two of a view": ("result-count", small("%a, %b = view [i0: 4] -> f32[4], f32[4] { %x[i0, 0] }")),
    "a combiner's values": ("combiner-arity", small("%a = reduce.sum f32[i0: 4 | r0: 8] { 1.0, 2.0 }")),
    "a combiner's results": ("combiner-arity", small("%a = reduce.welford f32[i0: 4 | r0: 8] { 1.0 }")),
    "an identity too many": (
        "combiner-arity",
        small("%a = reduce.combine f32[ | r0: 8] from { 0.0 } by { $0, $1 } to { $0 } { 1.0 }"),
    ),
    "a row in order as one value": (
        "combiner-sort",
        small("%a = reduce.sort i64[i0: 4 | r0: 8] { index(r0) }"),
    ),
    "a row of floats in order": (
        "combiner-sort",
        small("%a = scan.sort dimension 1 f32[i0: 4 | r0: 8] { 1.0 }"),
    ),
    "a combiner's dtype": (
        "combiner-dtype",
        small("%a = reduce.combine f32[ | r0: 8] from { 0 } by { $0 + $1 } to { f32($0) } { 1.0 }"),
    ),
    "a kind's dtype": ("combiner-dtype", small("%a = reduce.xor f32[i0: 4 | r0: 8] { %x[i0, r0] }")),
    "scores and values of two dtypes": (
        "combiner-dtype",
        small("%a, %b, %c = reduce.softmax_sum [ | r0: 8] -> f32[], f32[], f32[] { 1.0, 2.0:f64 }"),
    ),
    "a parameter outside": ("combine-parameter", small("%a = pointwise f32[i0: 4] { $0:f32 }")),
    "a parameter's dtype": (
        "combine-parameter",
        small("%a = reduce.combine f32[ | r0: 8] from { 0.0 } by { $0 + $1 } to { $0:i64 } { 1.0 }"),
    ),
    "scan dimension": (
        "scan-dimension",
        small("%a = scan.sum dimension 2 [i0: 4 | k: 8] -> f32[4, 8] { 1.0 }"),
    ),
    "sort dimension": ("sort-dimension", small("%a, %b = sort %x dimension 2 -> f32[4, 8], i64[4, 8]")),
    "a mutation without a version": ("mutation", small("%a = mutate %x with %y -> f32[4, 8]")),
    "a mutation's source": (
        "mutation",
        small("%a replaces %x = mutate %x with %s -> f32[4, 8]", inputs="%x: f32[4, 8], %s: f32[4]"),
    ),
    "mutates no argument": (
        "call-mutates",
        small("%a replaces %x = extern f(%y) -> f32[4, 8] mutates(%x -> %a)"),
    ),
    "mutates into nothing": ("call-mutates", small("%a = extern f(%x) -> f32[4, 8] mutates(%x -> %a)")),
    "shares with no argument": ("call-aliases", small("%a = extern f(%y) -> f32[4] aliases(%a -> %x)")),
    "no result shares": ("call-aliases", small("%a = extern f(%y) -> f32[4] aliases(%b -> %y)")),
    "no result is silent": ("call-results", small("%a = extern f(%y) -> f32[4] silent(%b)")),
    "one branch": ("region", small("region.cond(true) { graph a() -> () { } }")),
    "a branch's results": ("region", small("region.invoke() { graph a() -> (1) { } }")),
    "a branch's body": (
        "result-dtype",
        small("region.invoke() { graph a() -> () { %a = pointwise i64[] { 1.0:f32 } } }"),
    ),
    "what a step carries overlaps": (
        "carried",
        step("f32[4] strides(0)", "%n = pointwise f32[i0: 4] { %c[i0] }"),
    ),
    "a step returns other strides": (
        "carried",
        step("f32[2, 2] strides(1, 2)", "%n = pointwise f32[i0: 2, i1: 2] { %c[i0, i1] }"),
    ),
    "a step returns another dtype": ("carried", step("i64[4]", "%n = pointwise f32[i0: 4] { f32(%c[i0]) }")),
    "what is frozen is no input": ("frozen", small("", marks="frozen (%z)")),
    "what is frozen is no tensor": ("frozen", small("", inputs="object %z: gen", marks="frozen (%z)")),
    "what is frozen is overwritten": (
        "frozen",
        small("%x1 replaces %x = mutate %x with %y -> f32[4, 8]", marks="frozen (%x)"),
    ),
    "what is donated is no input": ("donated", small("", marks="donated (%z)")),
    "what is donated is no tensor": ("donated", small("", inputs="object %z: gen", marks="donated (%z)")),
    "what is donated is held": ("donated", small("", marks="frozen (%x) donated (%x)")),
    "what is donated is overwritten": (
        "donated",
        small("%x1 replaces %x = mutate %x with %y -> f32[4, 8]", marks="donated (%x)"),
    ),
    "what is saved is not returned": ("saved", small("", outputs="s0) saved (%x")),
    "what is kept reads more": (
        "frozen",
        small(
            "%a = region.frozen(%x, %y) -> f32[] { graph k() -> (%x) { const %x: f32[] } }",
            marks="frozen (%x)",
        ),
    ),
    "what is kept has an effect": (
        "frozen",
        small(
            "%a = region.frozen() -> f32[4] "
            "{ graph k() -> (%r) { %r = random aten.rand.default([4]) -> f32[4] token rng } }"
        ),
    ),
    "a symbol's kind": ("host-scalar", small("host s0 { 1.0 }")),
    "a symbol twice": ("host-scalar", small("host u0 { 1 } host u0 { 2 }")),
    "a symbol too early": ("free-symbols", small("%a = pointwise f32[i0: s0] { 1.0 } host s0 { 2 }")),
    "an unknown scalar": ("scalar-known", small("%a = pointwise f32[i0: 4] { $z:f32 }")),
    "a scalar's dtype": ("scalar-known", small("%a = pointwise f32[i0: 4] { $q:f32 }", inputs="$q: float")),
    "a load's dtype": ("load-dtype", small("%a = pointwise f16[i0: 4] { %x[i0, 0]:f16 }")),
    "a load's rank": ("index-arity", small("%a = pointwise f32[i0: 4] { %x[i0] }")),
    "a view's rank": ("index-arity", small("%a = view f32[i0: 4] { %x[i0] }")),
    "a view's given strides": ("index-arity", small("%a = view f32[i0: 4] { %x[i0, 0] } given strides(8)")),
    "a scatter's rank": ("index-arity", small("%a = scatter.set [i0: 4] -> f32[4, 8] { %x[i0] = 1.0 }")),
    "past the end": ("index-bounds", small("%a = pointwise f32[i0: 4] { %x[i0 + 1, 0] }")),
    "before the start": ("index-bounds", small("%a = reduce.sum f32[i0: 4 | r0: 8] { %x[i0, r0 - 1] }")),
    "far outside": ("index-bounds", small("%a = pointwise f32[i0: 4] { %x[i0 % 3 + s0 + 5, 0] }")),
    "a view past the end": ("index-bounds", small("%a = view f32[i0: 4] { %x[i0, i0*3] }")),
    "a scatter past the end": (
        "index-bounds",
        small("%a = scatter.set [i: 5] -> f32[4, 8] { %x[i, 0] = 1.0 }"),
    ),
    "an unknown operation": ("scalar-operation", small("%a = pointwise f32[i0: 4] { frob(%x[i0, 0]):f32 }")),
    "an operation's arguments": (
        "scalar-operation",
        small("%a = pointwise f32[i0: 4] { exp(1.0, 2.0):f32 }"),
    ),
    "an operation's dtypes": ("scalar-dtype", small("%a = pointwise f32[i0: 4] { add(1.0, 2:i64):f32 }")),
    "an operation's result": ("scalar-dtype", small("%a = pointwise f16[i0: 4] { exp(1.0):f16 }")),
}


@pytest.mark.parametrize("name", WRONG_GRAPHS)
def test_each_check_of_a_graph_finds_its_fault(name: str) -> None:
    check, text = WRONG_GRAPHS[name]
    with pytest.raises(VerifyError) as caught:
        verify_graph(parse_graph(text))
    assert caught.value.check == check


def test_a_literal_that_does_not_fit_is_found() -> None:
    graph = parse_graph(small("%a = pointwise u8[i0: 4] { 3 }"))
    (operation,) = graph.operations
    assert isinstance(operation, Pointwise)
    wrong = dataclasses.replace(operation, bodies=(Const(300, u8),), axes=(Axis("i0", 4),))
    with pytest.raises(VerifyError, match="literal"):
        verify_graph(graph.with_operations((wrong,)))


def test_an_error_names_the_operation_and_the_users_line() -> None:
    text = small('%a = pointwise f32[i0: 4] { %x[i0 + 1, 0] } @ add_1 "y = x[1:]" model.py:7\n')
    with pytest.raises(VerifyError) as caught:
        verify_graph(parse_graph(text))
    shown = str(caught.value)
    assert "operation: a" in shown
    assert "model.py:7: y = x[1:]" in shown
    assert caught.value.node == "a"


@pytest.mark.parametrize(
    "body",
    [
        "%a = pointwise f32[i0: 0] { %x[i0 + 9, 0] }",
        "%a = pointwise f32[i0: s0] { %x[i0 + 1, 0] }",
        "%a = pointwise f32[i0: 4] { masked(false, %x[i0 + 9, 0], 0.0) }",
        "%a = pointwise f32[i0: 4] { %x[i0 + 1 - (i0 + 1)//4, 0] }",
    ],
)
def test_an_index_that_may_be_in_range_is_accepted(body: str) -> None:
    verify_graph(parse_graph(small(body)))


# --- fused graphs ---------------------------------------------------------------------------------------

LOOPS = """
graph norm(%x: f32[4, 8]) -> (%o) {
  %m = reduce.max f32[i0: 4 | r0: 8] { %x[i0, r0] }
  %e = pointwise f32[i0: 4, i1: 8] { exp(%x[i0, i1] - %m[i0]) }
  %o = pointwise f32[i0: 4, i1: 8] { %e[i0, i1] * 2.0 }
}
"""
GROUPS = """
group g0 [i0: 4 | r0: 8] in (%x) out (%o) {
  run %m phase 0 inner at [i0] { %x[i0, r0] }
  run %e phase 1 inner at [i0, r0] { exp(%x[i0, r0] - %m[i0]) }
  run %o phase 1 inner at [i0, r0] { %e[i0, r0] * 2.0 }
  register %m  inline %e  store %o
}
"""


def fused(groups: str) -> None:
    data = from_text(f"fused {{ {LOOPS} {groups} }}")
    assert isinstance(data, FusedGraph)
    verify_fused(data)


def test_a_right_fused_graph_is_accepted() -> None:
    fused(GROUPS)


WRONG_GROUPS = {
    "no group": ("partition", GROUPS, ""),
    "a member twice": ("partition", "run %o", "run %o phase 1 run %o"),
    "an unknown member": ("partition", "run %o", "run %z"),
    "an axis twice": ("axes", "| r0: 8]", "| i0: 8]"),
    "an axis over nothing known": ("free-symbols", "| r0: 8]", "| r0: s0]"),
    "a storage class missing": ("storage-classes", "register %m", ""),
    "a storage class twice": ("storage-classes", "register %m", "register %m store %m"),
    "stored, not written": ("storage-classes", "out (%o)", "out ()"),
    "reads too little": ("group-reads", "in (%x)", "in ()"),
    "too few bodies": ("member-bodies", "{ %e[i0, r0] * 2.0 }", ""),
    "another dtype": ("member-bodies", "{ %e[i0, r0] * 2.0 }", "{ 2 }"),
    "an index missing": ("member-index", "run %e phase 1 inner at [i0, r0]", "run %e phase 1 inner at [i0]"),
    "an inner axis outside": ("free-symbols", "run %o phase 1 inner", "run %o phase 1"),
    "a body out of range": ("index-bounds", "{ %x[i0, r0] }", "{ %x[i0, r0 + 1] }"),
    "read before reduced": ("phases", "run %e phase 1", "run %e phase 0"),
    "read before computed": ("phases", "run %e phase 1", "run %e phase 2"),
    "before the first": ("phases", "run %m phase 0", "run %m phase -1"),
}


@pytest.mark.parametrize("name", WRONG_GROUPS)
def test_each_check_of_a_fused_graph_finds_its_fault(name: str) -> None:
    check, right, wrong = WRONG_GROUPS[name]
    assert right in GROUPS
    with pytest.raises(VerifyError) as caught:
        fused(GROUPS.replace(right, wrong))
    assert caught.value.check == check


def test_groups_run_in_order() -> None:
    groups = """
    group late [i0: 4, i1: 8] in (%x, %m) out (%o) { run %e at [] run %o at [] inline %e store %o }
    group early [i0: 4 | r0: 8] in (%x) out (%m) { run %m phase 0 inner at [i0] { %x[i0, r0] } store %m }
    """.replace("at []", "phase 0")
    with pytest.raises(VerifyError) as caught:
        fused(groups)
    assert caught.value.check == "group-order"
