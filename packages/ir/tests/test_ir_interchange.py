"""The interchange form: everything round-trips, in documents as the page describes them, of any minor version."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from ir_interchange_samples import GRAPH, KERNEL, PLAN, TEXTS, document_of, everything, objects_in, read, same

from litz_ir.dtypes import DType, b1, f16, f32, f64, u64
from litz_ir.errors import SerialError
from litz_ir.interchange import from_interchange, interchange_schema, to_interchange
from litz_ir.loops.nodes import LoopGraph, Pointwise
from litz_ir.scalar import expr as e
from litz_ir.scalar.build import op
from litz_ir.scalar.node import Expr
from litz_ir.symbols.term import Size, symbol
from litz_ir.text import from_text, parse_graph


def with_body(body: Expr) -> LoopGraph:
    """A graph of one operation."""
    graph = parse_graph("graph g(%x: f32[4]) -> (%o) { %o = pointwise f32[i0: 4] { %x[i0] } }")
    (operation,) = graph.operations
    assert isinstance(operation, Pointwise)
    return graph.with_operations((dataclasses.replace(operation, bodies=(body,)),))


@settings(max_examples=100)
@given(everything)
def test_everything_round_trips(data: Any) -> None:
    text = to_interchange(data)
    found = from_interchange(text)
    assert same(found, data)
    assert to_interchange(found) == text
    assert text.isascii()


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_text_examples_round_trip(text: str) -> None:
    data = from_text(text)
    found = from_interchange(to_interchange(data))
    assert same(found, data)


def test_a_document_reads_like_the_documentation() -> None:
    document = document_of(parse_graph(GRAPH))
    assert document["format"] == "litz-interchange" and document["version"] == [1, 0]
    assert document["class"] == "LoopGraph"
    e_operation, o_operation = document["operations"]
    assert e_operation["axes"][0] == {
        "class": "Axis",
        "name": "i0",
        "size": {"class": "Symbol", "name": "s0"},
    }
    assert e_operation["origin"] == {
        "class": "Origin",
        "node": "exp_1",
        "file": "m.py",
        "line": 3,
        "source": "exp(x[i])",
    }
    assert "origin" not in o_operation
    (body,) = e_operation["bodies"]
    exp = document["expressions"][body["expression"]]
    assert exp["class"] == "Op" and exp["dtype"] == "f32" and exp["name"] == "exp"
    (load,) = (document["expressions"][each["expression"]] for each in exp["args"])
    assert load["buffer"] == "x"
    assert load["index"][0] == {
        "class": "Indirect",
        "value": {"expression": 0},
        "size": {"class": "Symbol", "name": "s0"},
        "wrap": True,
    }
    assert document["outputs"][1:] == [
        {
            "class": "Sum",
            "terms": [{"class": "Summand", "term": {"class": "Symbol", "name": "s0"}, "factor": 2}],
        },
        {"class": "float", "value": -0.0},
    ]


def test_shared_expressions_are_written_once() -> None:
    body: Expr = e.Load("x", (symbol("i0"),), f32)
    for _ in range(200):
        body = op("mul", body, body)
    deep = with_body(body)
    document = document_of(deep)
    assert len(document["expressions"]) == 201
    assert read(document) == deep


@pytest.mark.parametrize(
    ("value", "dtype", "written"),
    [
        (0.1, f64, "0.1"),
        (-0.0, f32, "-0.0"),
        (1e300, f64, "1e+300"),
        (5e-324, f64, "5e-324"),
        (float("nan"), f32, '"nan"'),
        (float("inf"), f16, '"inf"'),
        (float("-inf"), f32, '"-inf"'),
        (2**64 - 1, u64, "18446744073709551615"),
        (True, b1, "true"),
    ],
)
def test_literals_are_json_numbers_or_named_floats(value: float, dtype: DType, written: str) -> None:
    graph = with_body(e.Const(value, dtype))
    text = to_interchange(graph)
    assert f'"value": {written}}}' in text
    assert from_interchange(text) == graph


def test_a_float_may_be_written_without_a_fraction() -> None:
    graph = with_body(e.Const(2.0, f32))
    text = to_interchange(graph)
    assert from_interchange(text.replace('"value": 2.0', '"value": 2')) == graph


@settings(max_examples=60)
@given(everything)
def test_programs_that_write_2_for_two_change_nothing(data: Any) -> None:
    def shortened(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: shortened(each) for key, each in part.items()}
        if isinstance(part, list):
            return [shortened(each) for each in part]
        is_whole = isinstance(part, float) and part.is_integer() and math.copysign(1, part) > 0
        return int(part) if is_whole else part

    assert same(read(shortened(document_of(data))), data)


def test_terms_are_simplified() -> None:
    i0 = {"class": "Symbol", "name": "i0"}
    eight = {"class": "Summand", "term": i0, "factor": 8}
    terms: list[tuple[Any, Size]] = [
        ({"class": "Sum", "terms": [{"class": "Summand", "term": i0}]}, symbol("i0")),
        ({"class": "Product", "factors": [2, i0, 3]}, symbol("i0") * 6),
        (
            {"class": "FloorDiv", "dividend": {"class": "Sum", "terms": [eight]}, "divisor": 4},
            symbol("i0") * 2,
        ),
        ({"class": "Mod", "dividend": {"class": "Sum", "terms": [eight]}, "divisor": 4}, 0),
        ({"class": "Min", "args": [i0, i0]}, symbol("i0")),
        ({"class": "Max", "args": [3, 4]}, 4),
    ]
    document = document_of(parse_graph("graph g() -> () { }"))
    document["outputs"] = [term for term, _ in terms]
    assert read(document).outputs == tuple(size for _, size in terms)


# --- versions -------------------------------------------------------------------------------------------


def test_absent_fields_have_their_defaults() -> None:
    """A document in which every field is written has the same meaning."""
    document = document_of(from_text(PLAN))
    definitions = interchange_schema()["$defs"]
    short = json.dumps(document)
    for each in objects_in(document):
        for name, field in definitions[each["class"]]["properties"].items():
            if "default" in field:
                each.setdefault(name, copy.deepcopy(field["default"]))
    assert len(json.dumps(document)) > len(short)
    assert same(read(document), from_text(PLAN))


@settings(max_examples=60)
@given(everything)
def test_unknown_fields_are_ignored(data: Any) -> None:
    document = document_of(data)
    for each in list(objects_in(document)):
        each["hue"] = {"class": "Paint", "expression": -1, "value": [{}]}
    document["version"] = [1, 7]
    assert same(read(document), data)


def test_an_expression_of_an_unknown_class_is_an_error_where_it_is_used() -> None:
    document = document_of(from_text(PLAN))
    last = len(document["expressions"])
    document["expressions"] += [
        {"class": "Sparse", "dtype": "f32"},
        {"class": "Op", "dtype": "f32", "name": "neg", "args": [{"expression": last}]},
    ]
    document["steps"][0]["hue"] = {"expression": last + 1}
    document["version"] = [1, 3]
    assert same(read(document), from_text(PLAN))
    document["kernels"][0]["phases"][0]["statements"][0]["value"] = {"expression": last + 1}
    with pytest.raises(
        SerialError, match=r"expressions\[3\]: expected Expr, found object of .*Sparse; .* 1\.3, .* 1\.0"
    ):
        read(document)


def test_a_newer_document_that_cannot_be_read_is_called_newer() -> None:
    document = document_of(from_text(KERNEL))
    document["version"] = [1, 9]
    document["phases"][1]["statements"][0]["mode"] = "xor"
    message = r"^\$\.phases\[1\]\.statements\[0\]\.mode: expected one of set, .*1\.9, the reader 1\.0$"
    with pytest.raises(SerialError) as found:
        read(document)
    assert re.search(message, found.value.message)
    assert found.value.hint


def test_documents_of_version_1_0_can_be_read() -> None:
    plan = from_interchange((Path(__file__).parent / "golden" / "interchange_1_0.json").read_text())
    assert same(plan, from_text(PLAN))
