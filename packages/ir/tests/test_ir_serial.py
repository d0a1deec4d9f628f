"""The serial form: everything round-trips, damage is an error, and digests cover the fields that compare."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from typing import Any

import ir_plan_strategies as given_plans
import ir_strategies as given_nodes
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litz_ir.dtypes import f32
from litz_ir.errors import LitzError, SerialError
from litz_ir.fused.decision import Decision, Reason
from litz_ir.fused.group import FusedGraph
from litz_ir.loops import nodes
from litz_ir.loops.nodes import LoopGraph, Operation
from litz_ir.origin import Origin
from litz_ir.scalar.build import op
from litz_ir.scalar.expr import Load
from litz_ir.scalar.node import Expr
from litz_ir.serial import digest, from_json, to_json
from litz_ir.serial.schema import CLASSES, codec_of
from litz_ir.symbols.term import symbol
from litz_ir.text import parse_graph, to_text

GRAPH = """
graph g(%x: f32[s0, 8], %i: i64[s0]) -> (%o, s0*2, -0.0) {
  symbols { s0: int from 2 hint 4 source "x" }
  %e = pointwise f32[i0: s0, i1: 8] { exp(%x[indirect(%i[i0], size=s0, wrap, raised), i1]) } @ exp_1 "exp(x[i])" m.py:3
  %o = reduce.sum f32[i0: s0 | r0: 8] { %e[i0, r0] * %e[i0, 7 - r0] }
}
"""

everything = (
    given_nodes.loop_graphs() | given_plans.fused_graphs | given_plans.kernels() | given_plans.plans()
)


@settings(max_examples=150)
@given(everything)
def test_everything_round_trips(data: Any) -> None:
    text = to_json(data)
    found = from_json(text)
    assert found == data
    assert to_json(found) == text
    assert digest(found) == digest(data)


@settings(max_examples=60)
@given(given_nodes.operations(0))
def test_origins_round_trip_and_are_not_digested(operation: Operation) -> None:
    graph = parse_graph("graph g() -> () { }").with_operations((operation,))
    read = from_json(to_json(graph))
    assert isinstance(read, LoopGraph)
    (found,) = read.operations
    assert found.origin == operation.origin
    elsewhere = graph.with_operations(
        (dataclasses.replace(operation, origin=Origin("other", file="f", line=3)),)
    )
    assert digest(elsewhere) == digest(graph)


def test_decisions_round_trip_with_their_reasons() -> None:
    decision = Decision(
        "acme", "a", "leave", Reason("acme.cold", "its operand is cold"), symbol("n"), "a note"
    )
    read = from_json(to_json(FusedGraph(parse_graph("graph g() -> () { }"), (), (decision,))))
    assert isinstance(read, FusedGraph) and read.decisions == (decision,)


def test_a_digest_sees_every_difference() -> None:
    graph = parse_graph(GRAPH)
    changed = [
        GRAPH.replace("graph g", "graph h"),
        GRAPH.replace("7 - r0", "6 - r0"),
        GRAPH.replace("wrap, ", ""),
        GRAPH.replace("from 2", "from 3"),
        GRAPH.replace("-0.0", "0.0"),
        GRAPH.replace("exp(%x", "sin(%x"),
    ]
    digests = {digest(parse_graph(text)) for text in (GRAPH, *changed)}
    assert len(digests) == 1 + len(changed)
    assert digest(parse_graph(to_text(graph))) == digest(graph)


def test_a_digest_is_the_same_in_every_process() -> None:
    imports = "from litz_ir.serial import digest; from litz_ir.text import parse_graph"
    program = f"{imports}; print(digest(parse_graph({GRAPH!r})))"
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert found == {digest(parse_graph(GRAPH))}


def test_an_expression_has_a_digest() -> None:
    x = Load("x", (symbol("i0"),), f32)
    assert digest(op("exp", x)) == digest(op("exp", x)) != digest(x)


def test_shared_expressions_are_written_once() -> None:
    body: Expr = Load("x", (symbol("i0"),), f32)
    for _ in range(200):
        body = op("mul", body, body)
    graph = parse_graph("graph g(%x: f32[4]) -> (%o) { %o = pointwise f32[i0: 4] { %x[i0] } }")
    (operation,) = graph.operations
    assert isinstance(operation, nodes.Pointwise)
    deep = graph.with_operations((dataclasses.replace(operation, bodies=(body,)),))
    text = to_json(deep)
    assert len(text) < 10_000
    assert from_json(text) == deep


@settings(max_examples=200)
@given(st.data())
def test_damage_is_an_error_or_has_no_effect(data: st.DataObject) -> None:
    text = to_json(parse_graph(GRAPH))
    start = data.draw(st.integers(0, len(text) - 1))
    length = data.draw(st.integers(0, 12))
    noise = data.draw(st.text(alphabet='0123456789"[]{},:-.tfnul', max_size=4))
    broken = text[:start] + noise + text[start + length :]
    try:
        found = from_json(broken)
    except SerialError:
        return
    assert isinstance(found, LoopGraph)
    assert from_json(to_json(found)) == found


def replaced(path: tuple[Any, ...], value: Any) -> str:
    document = json.loads(to_json(parse_graph(GRAPH)))
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return json.dumps(document)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        "{" * 100_000,
        replaced(("format",), "other"),
        replaced(("version",), 2),
        replaced(("schema",), ""),
        replaced(("kind",), "Popen"),
        replaced(("nodes",), None),
        replaced(("nodes", 0), ["s", "not a name"]),
        replaced(("nodes", 0), ["call", "os.system"]),
        replaced(("nodes", 0), ["+", 0, [[0, 1]]]),
        replaced(("nodes", 0), ["//", 1, 0]),
        replaced(("data",), []),
        replaced(("data", 0), 5),
        replaced(("data", 2), [["Popen", ["ls"]]]),
        replaced(("data", 4, 0, 0), "Operation"),
        replaced(("data", 5, 0, 1), [True]),
    ],
)
def test_text_that_is_no_graph_is_refused(text: str) -> None:
    with pytest.raises(SerialError):
        from_json(text)


@pytest.mark.parametrize("text", [None, 3, {}])
def test_what_is_no_text_is_refused(text: Any) -> None:
    with pytest.raises(SerialError, match="expected text, found a value of type ") as found:
        from_json(text)
    assert found.value.hint == "give the output of litz_ir.to_json"


def test_other_things_have_no_serial_form() -> None:
    with pytest.raises(TypeError):
        to_json(f32)  # type: ignore[arg-type]  # on purpose


def test_every_class_has_a_codec_and_every_operation_is_listed() -> None:
    assert all(codec_of(cls).tag == cls.__name__ for cls in CLASSES)
    concrete = {
        cls for cls in vars(nodes).values() if isinstance(cls, type) and issubclass(cls, nodes.Operation)
    } - {nodes.Operation, nodes.Call}
    assert concrete <= set(CLASSES)
    assert issubclass(SerialError, LitzError)
