"""The text form: it reads as documented, reads back what it wrote, and says where it does not."""

from __future__ import annotations

import dataclasses
from typing import Any

import ir_strategies as given_nodes
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litz_ir.dtypes import f32
from litz_ir.errors import ParseError
from litz_ir.loops.nodes import LoopGraph, Operation
from litz_ir.origin import Origin
from litz_ir.scalar.build import op
from litz_ir.scalar.expr import Expr, Load
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
@given(given_nodes.fused_graphs | given_nodes.kernels() | given_nodes.plans())
def test_other_levels_round_trip(data: Any) -> None:
    text = to_text(data)
    found = from_text(text)
    assert found == data
    assert to_text(found) == text
