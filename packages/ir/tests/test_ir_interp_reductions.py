"""Reductions, scans, scatters and sorts in the reference interpreter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from ir_interpreted import I4, i, r, run, value, x

from litz_ir.dtypes import DType, b1, f32, i32, i64
from litz_ir.interp.encoding import Array
from litz_ir.loops.nodes import (
    Axis,
    Combiner,
    NamedCombiner,
    Reduction,
    ReductionName,
    Scan,
    Scatter,
    Sort,
    UserCombiner,
    Value,
    tensor_type,
)
from litz_ir.scalar.build import cast, const, index, load, op
from litz_ir.scalar.expr import Indirect, Param
from litz_ir.symbols.term import Size

# --- reductions ---------------------------------------------------------------------------------------------


def reduce_rows(combiner: Combiner, dtypes: tuple[DType, ...], *bodies: Any) -> Reduction:
    results = tuple(value(f"o{k}", 4, dtype=d) for k, d in enumerate(dtypes))
    return Reduction(
        results=results, axes=(I4,), reduce_axes=(Axis("r", 3),), combiner=combiner, bodies=bodies
    )


NAMED: Mapping[str, Callable[[Array], Array]] = {
    "sum": lambda a: a.sum(-1),
    "prod": lambda a: a.prod(-1),
    "min": lambda a: a.min(-1),
    "max": lambda a: a.max(-1),
}


@pytest.mark.parametrize("name", NAMED)
def test_named_reductions(name: Any) -> None:
    (found,) = run(reduce_rows(NamedCombiner(name), (f32,), load("x", (i, r), f32)))
    assert np.array_equal(found, NAMED[name](x))
    y = Value("y", tensor_type(i32, 4, 3))
    (found,) = run(
        reduce_rows(NamedCombiner(name), (i32,), load("y", (i, r), i32)),
        with_=(x.astype(np.int32),),
        inputs=(y,),
    )
    assert np.array_equal(found, NAMED[name](x.astype(np.int32)))


def test_logical_and_bit_reductions() -> None:
    positive = op("gt", load("x", (i, r), f32), const(0.0, f32))
    table: Mapping[ReductionName, Callable[..., Any]] = {"any": np.any, "all": np.all}
    for name, function in table.items():
        (found,) = run(reduce_rows(NamedCombiner(name), (b1,), positive))
        assert np.array_equal(found, function(x > 0, axis=-1))
    whole = cast(load("x", (i, r), f32), i64)
    (found,) = run(reduce_rows(NamedCombiner("xor"), (i64,), whole))
    assert np.array_equal(found, np.bitwise_xor.reduce(x.astype(np.int64), axis=-1))


def test_positions_take_the_first_of_ties_and_nan_first_of_all() -> None:
    data = np.array([[1, 3, 3], [2, np.nan, 9], [-np.inf] * 3, [5, 4, 4]], np.float32)
    body = (load("x", (i, r), f32), index(r))
    best, place = run(reduce_rows(NamedCombiner("argmax"), (f32, i64), *body), with_=(data,))
    assert place.tolist() == [1, 1, 0, 0] and np.isnan(best[1])
    _, place = run(reduce_rows(NamedCombiner("argmin"), (f32, i64), *body), with_=(data,))
    assert place.tolist() == [0, 1, 0, 1]


def test_welford_and_online_softmax() -> None:
    mean, squares, count = run(reduce_rows(NamedCombiner("welford"), (f32, f32, f32), load("x", (i, r), f32)))
    assert np.allclose(mean, x.mean(-1)) and np.allclose(squares / count, x.var(-1)) and (count == 3).all()
    peak, total = run(reduce_rows(NamedCombiner("online_softmax"), (f32, f32), load("x", (i, r), f32)))
    assert np.array_equal(peak, x.max(-1)) and np.allclose(total, np.exp(x - peak[:, None]).sum(-1))


def test_an_empty_reduction_gives_the_identity() -> None:
    empty = Value("x", tensor_type(f32, 4, 0))
    identities: Mapping[ReductionName, float] = {"sum": 0, "prod": 1, "min": np.inf, "max": -np.inf}
    for name, identity in identities.items():
        body = load("x", (i, r), f32)
        operation = Reduction(
            results=(value("o", 4),),
            axes=(I4,),
            reduce_axes=(Axis("r", 0),),
            combiner=NamedCombiner(name),
            bodies=(body,),
        )
        (found,) = run(operation, with_=(np.zeros((4, 0), np.float32),), inputs=(empty,))
        assert found.tolist() == [identity] * 4


# The last non-negative value and how many there were: associative, not commutative.
LAST = UserCombiner(
    body=(
        op("where", op("gt", Param(3, i64), const(0, i64)), Param(2, f32), Param(0, f32)),
        op("add", Param(1, i64), Param(3, i64)),
    ),
    identity=(const(-1.0, f32), const(0, i64)),
    finish=(op("neg", Param(0, f32)), Param(1, i64)),
)


def last_bodies(axis: Size) -> tuple[Any, Any]:
    v = load("x", (i, axis), f32)
    return v, cast(op("ge", v, const(0.0, f32)), i64)


def test_a_user_combiner_keeps_order_and_finishes() -> None:
    data = np.array([[1, -2, 3], [-1, -1, -1], [4, 5, -6], [7, -8, -9]], np.float32)
    last, count = run(reduce_rows(LAST, (f32, i64), *last_bodies(r)), with_=(data,))
    assert last.tolist() == [-3.0, 1.0, -5.0, -7.0] and count.tolist() == [2, 0, 2, 1]


# --- scans, scatters, sorts ---------------------------------------------------------------------------------


def scan(combiner: Combiner, dtypes: tuple[DType, ...], *bodies: Any, dimension: int = 1) -> Scan:
    shape = (4, 3) if dimension else (3, 4)
    results = tuple(value(f"o{k}", *shape, dtype=d) for k, d in enumerate(dtypes))
    return Scan(
        results=results,
        axes=(I4,),
        scan_axis=Axis("r", 3),
        dimension=dimension,
        combiner=combiner,
        bodies=bodies,
    )


def test_scans() -> None:
    v = load("x", (i, r), f32)
    assert np.array_equal(run(scan(NamedCombiner("sum"), (f32,), v))[0], np.cumsum(x, axis=1))
    assert np.array_equal(run(scan(NamedCombiner("sum"), (f32,), v, dimension=0))[0], np.cumsum(x, axis=1).T)
    assert np.array_equal(run(scan(NamedCombiner("prod"), (f32,), v))[0], np.cumprod(x, axis=1))
    data = np.array([[1, 0, 2], [0, 0, 0], [np.nan, 1, 2], [3, 1, 3]], np.float32)
    best, place = run(scan(NamedCombiner("argmax"), (f32, i64), v, index(r)), with_=(data,))
    assert place.tolist() == [[0, 0, 2], [0, 0, 0], [0, 0, 0], [0, 0, 0]] and np.isnan(best[2]).all()
    mean, squares, _ = run(scan(NamedCombiner("welford"), (f32, f32, f32), v))
    assert np.allclose(mean[:, 2], x.mean(-1)) and np.allclose(squares[:, 2] / 3, x.var(-1))
    _, total = run(scan(NamedCombiner("online_softmax"), (f32, f32), v))
    assert np.allclose(total[:, -1], np.exp(x - x.max(-1, keepdims=True)).sum(-1))


def test_a_scan_by_a_user_combiner_keeps_order() -> None:
    data = np.array([[1, -2, 3], [-1, -1, -1], [4, 5, -6], [7, -8, -9]], np.float32)
    last, count = run(scan(LAST, (f32, i64), *last_bodies(r)), with_=(data,))
    assert last.tolist()[0] == [-1.0, -1.0, -3.0] and last.tolist()[2] == [-4.0, -5.0, -5.0]
    assert count.tolist()[0] == [1, 1, 2]


@pytest.mark.parametrize("mode", ["set", "add", "mul", "min", "max"])
def test_a_scatter_visits_equal_indices_in_order(mode: Any) -> None:
    k, src = Value("k", tensor_type(i64, 5)), Value("src", tensor_type(f32, 5))
    base = Value("base", tensor_type(f32, 3))
    where, values = np.array([2, 0, 2, -1, 2]), np.array([1, 2, 3, 4, 0.5], np.float32)
    operation = Scatter(
        results=(value("o", 3),),
        base="base",
        axes=(Axis("i", 5),),
        index=(Indirect(load("k", (i,), i64), 3, True),),
        body=load("src", (i,), f32),
        mode=mode,
    )
    start = np.array([10, 20, 2], np.float32)
    (found,) = run(operation, with_=(start, where, values), inputs=(base, k, src))
    expected = start.copy()
    for place, new in zip(where, values):
        old = expected[place]
        expected[place] = {
            "set": new, "add": old + new, "mul": old * new, "min": min(old, new), "max": max(old, new)
        }[mode]  # fmt: skip
    assert np.array_equal(found, expected) and start.tolist() == [10, 20, 2]


def test_sort_is_stable_both_ways_and_puts_nan_last_ascending() -> None:
    data = np.array([[2, 1, 2], [np.nan, 0, 1], [3, 3, 3], [1, 2, 3]], np.float32)
    results = (value("o", 4, 3), value("p", 4, 3, dtype=i64))
    ordered, positions = run(Sort(results=results, source="x", dimension=1), with_=(data,))
    assert positions.tolist() == [[1, 0, 2], [1, 2, 0], [0, 1, 2], [0, 1, 2]]
    assert np.isnan(ordered[1, 2])
    _, positions = run(Sort(results=results, source="x", dimension=1, descending=True), with_=(data,))
    assert positions.tolist() == [[0, 2, 1], [0, 2, 1], [0, 1, 2], [2, 1, 0]]
