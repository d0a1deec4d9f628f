"""Loop graphs in the reference interpreter: bodies, views, mutations, calls and regions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from ir_interpreted import I4, J3, X, graph, i, j, run, s, value, x

from litz_ir.dtypes import b1, bf16, f32, i64
from litz_ir.errors import AssertionFailed, ExternNotFound, GraphError, IndexOutOfRange, VerifyError
from litz_ir.interp.encoding import Array, decode, encode
from litz_ir.interp.graph import run_graph
from litz_ir.loops.layout import Layout
from litz_ir.loops.nodes import (
    Assert,
    Axis,
    ComplexRef,
    ComplexValue,
    Extern,
    HostScalar,
    LoopGraph,
    Mutation,
    Pointwise,
    Ref,
    Region,
    ScalarInput,
    ScalarRef,
    StridedRef,
    TensorType,
    Value,
    View,
    tensor_type,
)
from litz_ir.loops.verify import verify_graph
from litz_ir.origin import Origin
from litz_ir.scalar.build import cast, const, index, load, masked, op
from litz_ir.scalar.expr import Indirect, Scalar
from litz_ir.scalar.node import Expr
from litz_ir.symbols.table import SymbolInfo, SymbolTable
from litz_ir.symbols.term import symbol


def test_pointwise_broadcasts_and_gives_tuples() -> None:
    v = load("x", (i, j), f32)
    found = run(
        Pointwise(
            results=(value("a", 4, 3), value("b", 4, 3)),
            axes=(I4, J3),
            bodies=(op("mul", v, const(2.0, f32)), cast(index(j), f32)),
        )
    )
    assert np.array_equal(found[0], x * 2)
    assert np.array_equal(found[1], np.broadcast_to(np.arange(3, dtype=np.float32), (4, 3)))


def test_a_zero_dimensional_graph() -> None:
    y = Value("y", tensor_type(f32))
    body = op("add", load("y", (), f32), Scalar("alpha", f32))
    g = graph(
        Pointwise(results=(value("o"),), axes=(), bodies=(body,)),
        inputs=(y, ScalarInput("alpha", "float", "alpha")),
    )
    (found,) = run_graph(g, [np.array(2.0, np.float32), 0.5])
    assert found.shape == () and found == 2.5


def test_masked_loads_nothing_where_the_mask_is_false() -> None:
    shifted = masked(
        op("ge", index(j), const(1, i64)), load("x", (i, j - 1), f32), const(-1.0, f32)
    )  # a pad on the left
    (found,) = run(Pointwise(results=(value("o", 4, 4),), axes=(I4, Axis("j", 4)), bodies=(shifted,)))
    assert np.array_equal(found, np.pad(x, ((0, 0), (1, 0)), constant_values=-1))


def test_an_access_out_of_bounds_names_the_users_line() -> None:
    origin = Origin(node="take", file="model.py", line=7)
    with pytest.raises(
        IndexOutOfRange, match=r"index -1 is out of bounds for dimension 1 with size 3(.|\n)*model.py:7"
    ):
        run(
            Pointwise(
                results=(value("o", 4, 3),),
                axes=(I4, J3),
                bodies=(load("x", (i, j - 1), f32),),
                origin=origin,
            )
        )


def gather(wrap: bool, check: Any) -> Pointwise:
    row = Indirect(load("k", (i,), i64), 4, wrap, check)
    return Pointwise(results=(value("o", 4, 3),), axes=(I4, J3), bodies=(load("x", (row, j), f32),))


def test_indirect_indices_wrap_clamp_and_raise() -> None:
    k = Value("k", tensor_type(i64, 4))
    negative, outside = np.array([0, -1, 3, -4]), np.array([0, 4, 1, -9])
    (found,) = run(gather(True, "raised"), with_=(x, negative), inputs=(X, k))
    assert np.array_equal(found, x[negative])
    (found,) = run(gather(False, "clamped"), with_=(x, outside), inputs=(X, k))
    assert np.array_equal(found, x[np.clip(outside, 0, 3)])
    with pytest.raises(IndexOutOfRange, match="index 4 is out of bounds"):
        run(gather(True, "raised"), with_=(x, outside), inputs=(X, k))
    with pytest.raises(IndexError):
        run(gather(False, "assumed"), with_=(x, outside), inputs=(X, k))


def test_deep_bodies_need_no_stack() -> None:
    body: Expr = load("x", (i, j), f32)
    for _ in range(5000):
        body = op("add", body, const(1.0, f32))
    (found,) = run(Pointwise(results=(value("o", 4, 3),), axes=(I4, J3), bodies=(body,)))
    assert np.array_equal(found, x + 5000)


def test_bf16_is_stored_as_bits_and_rounds_per_operation() -> None:
    y = Value("y", tensor_type(bf16, 2))
    v = load("y", (i,), bf16)
    exact = cast(op("add", cast(v, f32), const(1.0, f32)), f32)
    g = Pointwise(
        results=(value("a", 2, dtype=bf16), value("b", 2)),
        axes=(Axis("i", 2),),
        bodies=(op("add", v, const(1.0, bf16)), exact),
    )
    stored = encode(np.array([256.0, 1.5]), bf16)
    rounded, wide = run(g, with_=(stored,), inputs=(y,))
    assert rounded.dtype == np.uint16 and decode(rounded, bf16).tolist() == [256.0, 2.5]
    assert wide.tolist() == [257.0, 2.5]


# --- structure ----------------------------------------------------------------------------------------------


def test_views_and_fixed_strides() -> None:
    transposed = TensorType(f32, (3, 4), Layout((1, 3), fixed=True))
    axes = (Axis("a", 3), Axis("b", 4))
    (found,) = run(
        View(results=(Value("v", transposed),), base="x", axes=axes, index=(symbol("b"), symbol("a")))
    )
    assert np.array_equal(found, x.T) and found.strides == (4, 12)


def test_mutation_writes_into_the_callers_array() -> None:
    mine = x.copy()
    doubled = Pointwise(
        results=(value("d", 4, 3),),
        axes=(I4, J3),
        bodies=(op("add", load("x", (i, j), f32), load("x", (i, j), f32)),),
    )
    new = Value("x1", X.type, replaces="x")
    (found,) = run(doubled, Mutation(results=(new,), target="x", source="d"), with_=(mine,))
    assert found is mine and np.array_equal(mine, 2 * x)
    (found,) = run(replace(doubled, results=(new,)), with_=(mine,))
    assert found is mine and np.array_equal(mine, 4 * x)


def test_calls_take_refs_terms_and_attributes() -> None:
    def routine(tensor: Array, size: int, *, scale: float, into: Array) -> tuple[Array, Array]:
        into[...] = size
        return tensor * scale, tensor.sum(axis=1)

    seen = {"my.routine": routine}
    extern = Extern(
        results=(value("a", 4, 3), value("b", 4), Value("w1", tensor_type(f32, 2), replaces="w")),
        target="my.routine",
        arguments=(Ref("x"), 7),
        attributes=(("scale", 0.5), ("into", Ref("w"))),
        mutates=(("w", "w1"),),
        unreturned=("w1",),
        unpack=True,
    )
    w = Value("w", tensor_type(f32, 2))
    scratch = np.zeros(2, np.float32)
    a, b, w1 = run_graph(graph(extern, inputs=(X, w)), [x, scratch], externs=seen)
    assert (
        np.array_equal(a, x * 0.5)
        and np.array_equal(b, x.sum(1))
        and w1 is scratch
        and scratch.tolist() == [7, 7]
    )
    with pytest.raises(ExternNotFound, match=r"my.routine(.|\n)*did you mean my.rutine"):
        run_graph(graph(extern, inputs=(X, w)), [x, scratch], externs={"my.rutine": routine})


def test_a_call_overwrites_a_strided_view() -> None:
    def increment(column: Array) -> None:
        column += 1

    extern = Extern(
        results=(Value("w1", tensor_type(f32, 2, 3), replaces="w"),),
        target="increment",
        arguments=(StridedRef("w", (symbol("k"),), Layout((3,), 1)),),
        mutates=(("w", "w1"),),
        unreturned=("w1",),
    )
    w = Value("w", tensor_type(f32, 2, 3))
    scratch = np.zeros((2, 3), np.float32)
    symbols = SymbolTable((SymbolInfo("k"),))
    whole = replace(graph(extern, inputs=(w, ScalarInput("k", "int", "k"))), symbols=symbols)
    verify_graph(whole)
    (found,) = run_graph(whole, [scratch, 2], externs={"increment": increment})
    assert found is scratch and scratch.tolist() == [[0, 1, 0], [0, 1, 0]]
    with pytest.raises(VerifyError, match="free-symbols"):
        verify_graph(graph(extern, inputs=(w,)))


def test_a_call_takes_and_returns_complex_arrays() -> None:
    pairs = tensor_type(f32, 2, 3, 2)
    extern = Extern(results=(ComplexValue("y", pairs),), target="conjugate", arguments=(ComplexRef("z"), 2j))
    whole = graph(extern, inputs=(ComplexValue("z", pairs),), outputs=(ComplexRef("y"),))
    verify_graph(whole)
    given = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    (found,) = run_graph(whole, [given], externs={"conjugate": lambda x, by: x.conj() * np.complex64(by)})
    assert np.array_equal(found, np.stack([given[..., 1] * 2, given[..., 0] * 2], -1))
    with pytest.raises(VerifyError, match="pairs"):
        verify_graph(graph(extern, inputs=(X, ComplexValue("z", tensor_type(f32, 2, 3)))))


def test_results_of_calls_bind_symbols_and_assertions_hold() -> None:
    u = symbol("u")
    many = Extern(results=(value("n", u, dtype=i64),), target="nonzero", arguments=(Ref("x"),))
    total = HostScalar(results=(), symbol="t", body=cast(index(u * 2), i64))
    check = Assert(results=(), condition=op("lt", index(symbol("t")), const(9, i64)), message="too many")
    g = graph(many, total, check, outputs=(symbol("t"),))
    externs = {"nonzero": lambda t: np.flatnonzero(t)}
    assert run_graph(g, [np.eye(4, 3, dtype=np.float32)], externs=externs) == [6]
    for error in (RuntimeError, IndexError, AssertionError):
        raising = graph(many, total, replace(check, error=error.__name__), outputs=(symbol("t"),))
        with pytest.raises(error, match="too many") as caught:
            run_graph(raising, [np.ones((4, 3), np.float32)], externs=externs)
        assert isinstance(caught.value, AssertionFailed)


def test_symbolic_sizes_bind_from_inputs() -> None:
    table = SymbolTable((SymbolInfo("s", "int", low=1),))
    a, b = Value("a", tensor_type(f32, s)), Value("b", tensor_type(f32, 2 * s + 1))
    body = masked(op("lt", index(i), index(s)), load("a", (i,), f32), load("b", (i,), f32))
    o = Pointwise(results=(value("o", 2 * s + 1),), axes=(Axis("i", 2 * s + 1),), bodies=(body,))
    g = LoopGraph("g", table, (a, b), (), (o,), (Ref("o"), s, ScalarRef("s"), None, 1.5))
    found = run_graph(g, [np.ones(3, np.float32), np.zeros(7, np.float32)])
    assert found[0].tolist() == [1, 1, 1, 0, 0, 0, 0] and found[1:] == [3, 3, None, 1.5]
    with pytest.raises(GraphError, match=r"input b has shape \(6,\), expected \(s\*2 \+ 1,\) = \(7,\)"):
        run_graph(g, [np.ones(3, np.float32), np.zeros(6, np.float32)])


def constant_graph(name: str, offset: float) -> LoopGraph:
    body = op("add", load("y", (), f32), const(offset, f32))
    y = Value("y", tensor_type(f32))
    return graph(Pointwise(results=(value(name),), axes=(), bodies=(body,)), inputs=(y,))


def test_regions() -> None:
    flag, y = Value("c", tensor_type(b1)), Value("y", tensor_type(f32))
    up, down = constant_graph("u", 1.0), constant_graph("d", -1.0)
    branch = Region(results=(value("o"),), kind="cond", subgraphs=(up, down), arguments=(Ref("c"), Ref("y")))
    for truth in (True, False):
        (found,) = run(branch, with_=(np.array(truth), np.array(3.0, np.float32)), inputs=(flag, y))
        assert found == (4 if truth else 2)
    small = graph(
        Pointwise(
            results=(value("t", dtype=b1),), axes=(), bodies=(op("lt", load("y", (), f32), const(10.0, f32)),)
        ),
        inputs=(y,),
    )
    loop = Region(results=(value("o"),), kind="while_loop", subgraphs=(small, up), arguments=((Ref("y"),),))
    assert run(loop, with_=(np.array(3.5, np.float32),), inputs=(y,))[0] == 10.5
    row = Value("row", tensor_type(f32, 3))
    both = op("add", load("y", (), f32), load("row", (0,), f32))
    step = graph(
        Pointwise(results=(value("n"),), axes=(), bodies=(both,)),
        inputs=(y, row),
        outputs=(Ref("n"), Ref("n")),
    )
    results = (value("o"), value("all", 4))
    along = Region(results=results, kind="scan", subgraphs=(step,), arguments=((Ref("y"),), (Ref("x"),)))
    last, every = run(along, with_=(x, np.array(0.0, np.float32)), inputs=(X, y))
    assert every.tolist() == np.cumsum(x[:, 0]).tolist() and last == every[-1]


def test_regions_inside_regions_read_constants_of_their_own() -> None:
    y, k = Value("y", tensor_type(f32)), Value("k", tensor_type(f32))
    both = Pointwise(
        results=(value("o"),), axes=(), bodies=(op("add", load("y", (), f32), load("k", (), f32)),)
    )
    invoked = replace(graph(both, inputs=(y,)), constants=(k,))
    for _ in range(2):
        region = Region(results=(value("o"),), kind="invoke", subgraphs=(invoked,), arguments=(Ref("y"),))
        invoked = graph(region, inputs=(y,))
    one, two = np.array(1.0, np.float32), np.array(2.0, np.float32)
    assert run_graph(invoked, [one], {"k": two}) == [3]
