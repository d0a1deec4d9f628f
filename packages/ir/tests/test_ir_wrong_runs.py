"""Runs on what does not fit: each is an error of litz that says what is wrong and what belongs there."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from litz_ir import host, interp
from litz_ir.builder import GraphBuilder
from litz_ir.dtypes import bf16, f8e4m3fn, f32, i64
from litz_ir.errors import DTypeError, GraphError, LitzError
from litz_ir.loops import LoopGraph, ScalarInput
from litz_ir.plan import Plan
from litz_ir.symbols import SymbolTable
from litz_ir.text import from_text


def graph() -> Any:
    g = GraphBuilder("wrong")
    n = g.size("n")
    x, y = g.input("x", f32, (n, 8)), g.input("y", f32, (4, n))
    return g.build(x + 1.0, y + 1.0)


def plan() -> Any:
    found = from_text("""
plan small on cpu "plain" (%x: f32[8] fixed) -> (%x) {
  buffer %x: f32[8] fixed
  kernel k(inout %p: f32) { outer [i0: 8] phase [] { %p[i0] = %p[i0] + 1.0; } }
  launch k(%x)
}
""")
    assert isinstance(found, Plan)
    return found


X, Y = np.ones((2, 8), np.float32), np.ones((4, 2), np.float32)
G, P = graph(), plan()
run_graph: Any = interp.run_graph
Executor: Any = host.Executor
WRONG: Sequence[tuple[str, Callable[[], object], str]] = [
    ("another rank", lambda: run_graph(G, [X[0], Y]), "input x has shape (8,), expected (n, 8)"),
    ("another size", lambda: run_graph(G, [X, Y[:3]]), "input y has shape (3, 2), expected (4, n) = (4, 2)"),
    ("sizes that disagree", lambda: run_graph(G, [X, Y[:, :1]]), "input y has shape (4, 1), expected (4, n) = (4, 2)"),
    ("a constant size", lambda: run_graph(G, [X[:, :4], Y]), "input x has shape (2, 4), expected (n, 8) = (2, 8)"),
    ("too few inputs", lambda: run_graph(G, [X]), "takes 2 inputs, got 1"),
    ("no inputs", lambda: run_graph(G, None), "the inputs are None, but a list belongs there"),
    ("inputs by name", lambda: run_graph(G, {"x": X, "y": Y}), "the inputs are of type dict, but a list"),
    ("an array for the list", lambda: run_graph(G, X), "the inputs are of type ndarray, but a list"),
    ("text for the list", lambda: run_graph(G, "xy"), "the inputs are of type str, but a list"),
    ("a list for an array", lambda: run_graph(G, [X, [1.0]]), "input y: expected a NumPy array, got list"),
    ("nothing for an array", lambda: run_graph(G, [None, Y]), "input x: expected a NumPy array, got NoneType"),
    ("a number for symbols", lambda: run_graph(G, [X, Y], symbols=3), "symbols is of type int, but a dict"),
    ("a list of constants", lambda: run_graph(G, [X, Y], [X]), "constants is of type list, but a dict"),
    ("routines in a list", lambda: run_graph(G, [X, Y], {}, [len]), "externs is of type list, but a dict"),
    ("a plan to interpret", lambda: run_graph(P, [X]), "run_graph takes a LoopGraph, got a value of type Plan"),
    ("nothing to interpret", lambda: run_graph(None, [X]), "run_graph takes a LoopGraph, got a value of type No"),
    ("a graph to execute", lambda: Executor(G), "an Executor runs a Plan, got a value of type LoopGraph"),
    ("nothing to execute", lambda: Executor(None), "an Executor runs a Plan, got a value of type NoneType"),
    ("launchers in a list", lambda: Executor(P, [len]), "launchers is of type list, but a dict"),
    ("constants in a list", lambda: Executor(P, constants=[X]), "constants is of type list, but a dict"),
    ("a plan without inputs", lambda: Executor(P).run(None), "the inputs are None, but a list belongs there"),
    ("a plan's symbols", lambda: Executor(P).run([X[0]], symbols=3), "symbols is of type int, but a dict"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_a_wrong_run(call: Callable[[], object], message: str) -> None:
    with pytest.raises(GraphError, match=re.escape(message)):
        call()


def test_the_right_runs() -> None:
    assert [each.shape for each in run_graph(G, (X, Y))] == [(2, 8), (4, 2)]
    assert Executor(P).run([X[0].copy()])[0].tolist() == [2.0] * 8


def test_a_number_of_another_kind() -> None:
    scalars = (ScalarInput("q", "int"), ScalarInput("f", "float"), ScalarInput("b", "bool"))
    g = LoopGraph("g", SymbolTable(()), scalars, (), (), ())
    assert run_graph(g, [np.int64(2), 1, True]) == []
    for position, wrong in ((0, "2"), (0, 2.5), (0, None), (0, float("nan")), (1, None), (1, "x"), (2, [])):
        given: list[Any] = [1, 1.0, False]
        given[position] = wrong
        name, kind = scalars[position].name, scalars[position].kind
        with pytest.raises(
            GraphError, match=f"argument {name} is .* but a number of kind {kind} belongs there"
        ):
            run_graph(g, given)


def test_an_array_of_another_dtype() -> None:
    def hint(dtype: Any, array: Any) -> str:
        g = GraphBuilder("g")
        built = g.build(g.input("x", dtype, (4,)) + 1)
        with pytest.raises(DTypeError) as caught:
            run_graph(built, [array])
        assert caught.value.message.startswith(f"x is {dtype}") or "input x is" in caught.value.message
        return caught.value.hint

    four = np.ones(4, np.int32)
    assert hint(i64, four) == "convert it by numpy.asarray(value, numpy.int64)"
    assert hint(f32, four) == "convert it by numpy.asarray(value, numpy.float32)"
    for dtype in (bf16, f8e4m3fn):
        assert "unsigned integers of their bits" in hint(dtype, four)
    with pytest.raises(DTypeError) as caught:
        Executor(P).run([np.ones(8)])
    assert caught.value.hint == "convert the tensor to float32"


def test_each_error_says_what_to_do() -> None:
    for name, call, _ in WRONG:
        with pytest.raises(LitzError) as caught:
            call()
        assert caught.value.hint or "expected" in caught.value.message or "belongs" in caught.value.message, (
            name
        )
