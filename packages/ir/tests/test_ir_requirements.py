"""Requirements of operations and kernels, and the words for what a device lacks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from litz_ir.builder import GraphBuilder
from litz_ir.dtypes import b1, bf16, f32, i64
from litz_ir.loops import Operation, UserCombiner
from litz_ir.scalar import Param, checked, const, op
from litz_ir.target import Capabilities, Requirements, requirements_of
from litz_ir.target.conformance import conformance_cases

PLAIN = Capabilities("plain")


def operations() -> dict[str, Operation]:
    """Operations of every kind by the name of their first result."""
    g = GraphBuilder("g")
    x, ids = g.input("x", f32, (6, 8)), g.input("ids", i64, (4, 1))
    g.exp(x)
    g.sum(x, axis=1)
    a, b = Param(0, f32), Param(1, f32)
    g.reduce(UserCombiner((op("add", a, b),), (const(0.0, f32),), (a,)), x, axis=1)
    g.scan("sum", x, 1)
    g.take(x, ids.reshape(4))
    taken = g.input("values", f32, (4, 8))
    g.scatter(x, ids, taken, mode="add")
    g.pointwise(lambda each: checked(op("gt", each, const(0.0, f32)), each, "index"), x, name="refuses")
    g.sum(x.to(bf16).to(f32) > 0.0, name="of_bools")
    return {each.name: each for each in g.build(x + 1.0).operations}


OPERATIONS = operations()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("exp", Requirements(dtypes=frozenset({f32}), operations=frozenset({"exp"}))),
        ("sum", Requirements(dtypes=frozenset({f32}), combiners=frozenset({"sum"}))),
        (
            "combine",
            Requirements(frozenset({f32}), operations=frozenset({"add"}), combiners=frozenset({"user"})),
        ),
        ("scan_sum", Requirements(frozenset({f32}), combiners=frozenset({"sum"}), scans=True)),
        ("take", Requirements(frozenset({f32, i64}), faults=True)),
        (
            "scatter",
            Requirements(frozenset({f32, i64}), combining_stores=frozenset({("add", f32)}), faults=True),
        ),
        (
            "refuses",
            Requirements(frozenset({f32, b1}), operations=frozenset({"gt"}), faults=True),
        ),
        ("of_bools", Requirements(frozenset({b1}), combiners=frozenset({"sum"}))),
    ],
)
def test_what_operations_need(name: str, expected: Requirements) -> None:
    assert requirements_of(OPERATIONS[name]) == expected


@pytest.mark.parametrize(
    ("name", "lacks", "words"),
    [
        ("exp", {"dtypes": frozenset({i64})}, "f32"),
        ("exp", {"operations": frozenset({"log"})}, "the scalar operation exp"),
        ("sum", {"combiners": frozenset({"max"})}, "the combiner sum"),
        ("combine", {"combiners": frozenset({"sum"})}, "the combiner user"),
        ("scan_sum", {"scans": False}, "scans"),
        ("take", {"faults": False}, "reports of values that it refuses"),
        ("scatter", {"combining_stores": frozenset({"max"})}, "stores that combine by add"),
        ("scatter", {"max_tile_elements": 64}, "atomic add of f32"),
        ("scatter", {"max_tile_elements": 64, "atomics": frozenset({f32})}, ""),
        ("exp", {"scans": False, "faults": False, "combining_stores": frozenset()}, ""),
    ],
)
def test_what_a_device_lacks(name: str, lacks: dict[str, Any], words: str) -> None:
    assert requirements_of(OPERATIONS[name]).lacking(PLAIN) == ""
    assert requirements_of(OPERATIONS[name]).lacking(replace(PLAIN, **lacks)) == words


def test_kernels_need_what_their_statements_do() -> None:
    cases = {case.name: requirements_of(case.kernel) for case in conformance_cases()}
    assert cases["sorted_rows"].sorted_row == 77
    assert cases["sorted_rows"].lacking(PLAIN) == "sorts of 77 elements"
    assert cases["sorted_rows"].lacking(replace(PLAIN, max_sorted_row=77)) == ""
    assert any(each.scans for each in cases.values())
    assert any(each.faults for each in cases.values())
    assert not all(each.faults or each.scans for each in cases.values())
