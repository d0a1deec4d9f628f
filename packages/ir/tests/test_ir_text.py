"""The text form: it matches the documentation, round-trips, and reports the position of errors."""

from __future__ import annotations

import dataclasses
from typing import Any

import ir_plan_strategies as given_plans
import ir_strategies as given_nodes
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litz_ir.dtypes import f32
from litz_ir.errors import ParseError
from litz_ir.fused.decision import Decision, Reason
from litz_ir.fused.group import FusedGraph, Group, Member
from litz_ir.loops import nodes
from litz_ir.loops.nodes import LoopGraph, Operation
from litz_ir.origin import Origin
from litz_ir.plan.kernel import Invocation, Kernel, Parameter, Subkernel
from litz_ir.plan.program import CallStep, Placement, Plan
from litz_ir.scalar.build import op
from litz_ir.scalar.expr import Load
from litz_ir.scalar.node import Expr
from litz_ir.symbols.term import Size, symbol
from litz_ir.text import (
    from_text,
    parse_expr,
    parse_graph,
    parse_term,
    print_expr,
    print_graph,
    print_term,
    to_text,
)


@given(given_nodes.indirect_terms())
def test_terms_round_trip(term: Size) -> None:
    assert parse_term(print_term(term)) == term


@given(given_nodes.exprs(None, 4))
def test_expressions_round_trip(expr: Expr) -> None:
    assert parse_expr(print_expr(expr)) == expr


@settings(max_examples=150)
@given(given_nodes.loop_graphs())
def test_loop_graphs_round_trip(graph: LoopGraph) -> None:
    text = to_text(graph)
    found = from_text(text)
    assert found == graph
    assert to_text(found) == text


@settings(max_examples=100)
@given(given_nodes.operations())
def test_origins_round_trip(operation: Operation) -> None:
    graph = dataclasses.replace(parse_graph("graph g() -> () { }"), operations=(operation,))
    assert parse_graph(print_graph(graph)).operations[0].origin == operation.origin


@settings(max_examples=80)
@given(given_plans.fused_graphs | given_plans.kernels() | given_plans.plans())
def test_other_levels_round_trip(data: Any) -> None:
    text = to_text(data)
    found = from_text(text)
    assert found == data
    assert to_text(found) == text


def test_the_text_form_reads_like_the_documentation() -> None:
    text = """\
graph softmax(%x: f32[4096, 1024]) -> (%o) {
  %s = pointwise f32[i0: 4096, i1: 1024] { %x[i0, i1] * 0.125 }  @ "x * 0.125" model.py:12
  %m = reduce.max f32[i0: 4096 | r0: 1024] { %s[i0, r0] }  @ softmax model.py:13
  %e = pointwise f32[i0: 4096, i1: 1024] { exp(%s[i0, i1] - %m[i0]) }
  %z = reduce.sum f32[i0: 4096 | r0: 1024] { %e[i0, r0] }
  %o = pointwise f32[i0: 4096, i1: 1024] { %e[i0, i1] / %z[i0] }
}
"""
    graph = parse_graph(text)
    assert print_graph(graph) == text
    assert graph.operations[0].origin == Origin(source="x * 0.125", file="model.py", line=12)
    assert graph.operations[1].origin == Origin(node="softmax", file="model.py", line=13)


def test_spaces_lines_and_comments_do_not_matter() -> None:
    spread = "graph g (%x : f32[ 4 ]) -> (%o) { # a comment\n %o =\n pointwise f32 [i0 : 4]\n { exp ( %x [ i0 ] ) } }"
    assert parse_graph(spread) == parse_graph(
        "graph g(%x: f32[4])->(%o){%o=pointwise f32[i0:4]{exp(%x[i0])}}"
    )


def test_common_expressions_are_printed_once() -> None:
    body: Expr = Load("x", (symbol("i0"),), f32)
    for _ in range(300):
        body = op("mul", op("exp", body), body)
    text = print_expr(body)
    assert len(text) < 20_000
    assert parse_expr(text) == body


def test_a_long_body_is_printed_in_short_lines() -> None:
    body: Expr = Load("x", (symbol("i0"),), f32)
    for k in range(500):
        body = op("sub", body, Load(f"y{k}", (symbol("i0"),), f32))
    text = print_expr(body)
    assert max(map(len, text.splitlines())) < 500
    assert parse_expr(text) == body


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%x[i0]:f32 * 2", "%x[i0]:f32 * 2.0"),
        ("2 * 3.5", None),
        ("1 + 2", "1 + 2"),
        ("f16(2)", "f16(2)"),
        ("--%x[i0]:f32", "--%x[i0]:f32"),
        ("(%x[i0]:f32 - 1.0) - (2.0 - %x[i0]:f32)", "%x[i0]:f32 - 1.0 - (2.0 - %x[i0]:f32)"),
        ("index(i0) < 3 & index(i1) < 4", None),
        ("(index(i0) < 3) & (index(i1) < 4)", "(index(i0) < 3) & (index(i1) < 4)"),
        ("masked(%m[]:b1, 1.0, nan)", "masked(%m[]:b1, 1.0, nan)"),
    ],
)
def test_literals_and_precedence(text: str, expected: str | None) -> None:
    if expected is None:
        with pytest.raises(ParseError):
            parse_expr(text)
    else:
        assert print_expr(parse_expr(text)) == expected


WRONG = {
    "graph g() -> () {\n  %a = pointwise f32[i0: 4] { %x[i0] }\n}": (2, 31, "buffer %x is not declared here"),
    "graph g() -> () {\n  %a = pintwise f32[i0: 4] { 1.0 }\n}": (
        2,
        8,
        "unknown operation 'pintwise'; known:",
    ),
    "graph g() -> () {\n  %a = reduce.sun f32[ | r0: 4] { 1.0 }\n}": (
        2,
        8,
        "unknown combiner 'sun'; known: sum",
    ),
    "graph g() -> (": (1, 15, "expected an index term, found the end of the text"),
    "graph g(%x: f33[4]) -> () { }": (1, 13, "expected a dtype such as f32, found 'f33'"),
    "graph g() -> () { } graph": (1, 21, "expected the end of the text, found 'graph'"),
    "graph g() -> () { %a, %b = view f32[i: 4] { %x[i] } }": (1, 43, "2 results, but 1 types"),
    "graph g() -> () { symbols { s: int from 4 to 2 } }": (1, 29, "empty range"),
    "graph g() -> () { host u { exp(1.0 } }": (1, 36, "expected ')', found '}'"),
    "graph g() -> () { host u { frob(1.0) } }": (1, 28, "unknown scalar operation 'frob'"),
    "graph g() -> () { host u { exp(1.0, 2.0) } }": (1, 28, "exp takes 1 arguments, got 2"),
    "graph g() -> () { host u { exp(1) } }": (1, 28, "exp is not defined over (i64)"),
    "graph g() -> () { host u { 1.5:i64 } }": (1, 28, "a float literal where i64 is expected"),
    "graph g() -> () { host u { 256:u8 } }": (1, 28, "256 does not fit u8"),
    "graph g() -> () { host u { t0 } }": (1, 28, "no let defines this name"),
    "graph g() -> () { host u { index(i0//0) } }": (1, 36, "division by zero"),
    "graph g() -> () { extern f(a=1, 2) }": (1, 33, "a positional argument after a named one"),
    "graph g() -> () { extern f() @ m.py }\n}": (1, 30, "expected an origin's"),
    "graph g() -> () { ? }": (1, 19, "unexpected character '?'"),
    'graph g() -> () { assert { true } "\\q" }': (1, 35, "cannot read the escapes"),
    "kernel k(in %x: f32) { phase [] { %x[0] -= 1.0; } }": (1, 41, "expected '=' or a scatter mode"),
    'plan p on cpu "any" () -> () { lunch k() }': (1, 32, "expected a step"),
    "fused { graph g() -> () { } group g [] in () out () { drop %x } }": (1, 55, "a storage class"),
    'fused { graph g() -> () { } decision fusion fuse "g0" fuse.luck }': (
        1,
        65,
        "expected the sentence of the reason fuse.luck, found '}'",
    ),
    "program": (1, 1, "expected one of graph, fused, plan, kernel"),
}


@pytest.mark.parametrize("text", WRONG)
def test_an_error_has_a_position_and_a_message(text: str) -> None:
    line, column, message = WRONG[text]
    with pytest.raises(ParseError) as caught:
        from_text(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert message in str(caught.value)
    assert text.splitlines()[line - 1].strip() in str(caught.value)


def test_brackets_may_not_be_nested_without_end() -> None:
    with pytest.raises(ParseError, match="nested too deeply"):
        from_text("graph g() -> () { host u { " + "(" * 50_000 + "1")


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with pytest.raises(ParseError):
        from_text(text)


@pytest.mark.parametrize("text", [None, 3, b"graph g() -> ()"])
def test_what_is_no_text_is_refused(text: Any) -> None:
    for parse in (from_text, parse_graph):
        with pytest.raises(ParseError, match="expected text, found a value of type "):
            parse(text)


def test_other_things_have_no_text_form() -> None:
    with pytest.raises(TypeError, match="no text form for int"):
        to_text(3)  # type: ignore[arg-type]  # on purpose


def test_a_reason_is_explained_at_the_first_decision_that_has_it() -> None:
    cold, frozen = Reason("acme.cold", "its operand is cold"), Reason("acme.cold", "its operand is frozen")
    decisions = tuple(
        Decision("acme", subject, "leave", reason)
        for subject, reason in zip("abcd", (cold, cold, frozen, cold))
    )
    text = to_text(FusedGraph(parse_graph("graph g() -> () { }"), (), decisions))
    assert text.count("its operand is cold") == 2 and text.count("its operand is frozen") == 1
    read = from_text(text)
    assert isinstance(read, FusedGraph) and read.decisions == decisions


def test_the_strategies_know_every_field() -> None:
    """A new field needs a place in the text form: add it there, to the strategies, and here."""
    known = {
        "Call": 9, "Extern": 10, "ContractionCall": 10, "Random": 9, "Collective": 9, "Pointwise": 2, "Reduction": 4,
        "Scan": 5, "Scatter": 5, "Sort": 4, "View": 5, "Mutation": 2, "Region": 3, "Assert": 3, "HostScalar": 2,
    }  # fmt: skip
    shared = len(dataclasses.fields(Operation))
    found = {
        cls.__name__: len(dataclasses.fields(cls)) - shared
        for cls in vars(nodes).values()
        if isinstance(cls, type) and issubclass(cls, Operation) and cls is not Operation
    }
    assert found == known
    others = {
        cls: len(dataclasses.fields(cls))
        for cls in (
            LoopGraph,
            Member,
            Group,
            Parameter,
            Kernel,
            Subkernel,
            Invocation,
            Placement,
            CallStep,
            Plan,
        )
    }
    assert list(others.values()) == [9, 5, 7, 4, 8, 2, 2, 4, 8, 15]
