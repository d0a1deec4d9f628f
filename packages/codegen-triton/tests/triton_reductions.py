"""Hand-built reductions, in one CTA and in clusters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from triton_cases import I0, I1, I2, R0, R1, Case, below, kernel, row_element, scalar

from litz_ir.dtypes import DType, b1, bf16, f32, f64, i32, i64, u8
from litz_ir.loops import NamedCombiner, ReductionName, UserCombiner
from litz_ir.plan import Accumulate, Kernel, Parameter, Store, TileRequest, can_use_cluster, workspace_words
from litz_ir.scalar import Indirect, Param
from litz_ir.scalar.build import cast, const, index, load, masked, op, where
from litz_ir.symbols import SymbolInfo, evaluate, symbol


def reductions() -> Iterator[Case]:
    """Yield reductions of rows by every combiner, with persistent tiles and with loops of tiles, and others."""
    loop = TileRequest(blocks=(("r0", 16),), warps=1)
    loop_x = TileRequest(blocks=(("i0", 4), ("r0", 16)), warps=1)
    for label, schedule in (("", None), ("_loop", loop), ("_loop_x", loop_x)):
        yield _softmax(f"softmax{label}", schedule)
        yield _layernorm(f"layernorm{label}", schedule)
        yield _welford(f"welford{label}", schedule)
        yield _online(f"online_softmax{label}", schedule)
        yield _positions(f"argmax{label}", schedule)
        yield _combine(f"combine{label}", schedule)
        yield _latest(f"combine_latest{label}", schedule)
        for dtype in (f32, f64, i64, i32, u8, bf16):
            yield _kinds(f"kinds_{dtype}{label}", dtype, schedule)
        yield _logic(f"logic{label}", schedule)
    for length, rows in ((128, 2), (150, 2), (151, 1)):
        groups = TileRequest(blocks=(("i0", rows), ("r0", 64)), warps=1)
        yield _total(f"online_softmax_of_groups_{length}", length, groups)
    yield classes("classes")
    yield classes("classes_loop", loop)
    yield _columns("columns", 90, 300)
    yield _symbolic()
    yield _full()
    yield _point_phase()
    yield _read_back()
    yield _empty_row()


def windows() -> Iterator[Case]:
    """Yield reductions of windows, whose points each thread visits one by one, by every combiner."""
    for dtype in (f32, bf16, i64, u8):
        yield _windows(f"windows_{dtype}", dtype)
    yield _columns("few_columns", 90, 20)
    yield _nearest()


def clusters() -> Iterator[Case]:
    """Yield the reductions with a cluster of CTAs for each tile; the workspace has arbitrary contents."""
    for case in reductions():
        if can_use_cluster(case.kernel.phases) and not _in_order(case.kernel) and case.name != "empty_row":
            yield in_cluster(case, 2)
    yield in_cluster(_two_barriers(), 2)
    yield in_cluster(_written_before_barrier(), 2)
    yield in_cluster(_columns("columns", 90, 300), 4)
    yield in_cluster(_columns("tall_columns", 40, 2100), 4)


def _in_order(kernel: Kernel) -> bool:
    """True for a kernel with a user's combiner, which need not be commutative."""
    statements = (each for phase in kernel.phases for each in phase.statements)
    return any(
        isinstance(each, Accumulate) and isinstance(each.combiner, UserCombiner) for each in statements
    )


def in_cluster(case: Case, size: int) -> Case:
    """Return the case with clusters of ``size`` CTAs, whose kernel gets a workspace."""
    parameters = (*case.kernel.parameters, Parameter("w_scratch", i64, "workspace", 16))
    schedule = replace(case.kernel.schedule, cluster=size)
    name = f"{case.name}_in_cluster_of_{size}"
    made = replace(case.kernel, name=name, parameters=parameters, schedule=schedule)
    words = evaluate(workspace_words(made), {name: int(value) for name, value in case.symbols.items()})
    return replace(case, kernel=made, sizes={**case.sizes, "w_scratch": words})


def _two_barriers() -> Case:
    """Return a softmax in place, of rows that a cluster divides evenly, that also updates a value for each row."""
    offset, row_offset = I0 * 192 + I1 * 96 + R0, I0 * 2 + I1
    x = load("x", (offset,), f32)
    e = op("exp", op("sub", x, scalar("m")))
    row = [("r0", 96)]
    return Case(
        kernel(
            "two_barriers",
            [("x", f32, "inout"), ("maximum", f32, "inout")],
            [("i0", 3), ("i1", 2)],
            (row, [Accumulate((("m", f32),), NamedCombiner("max"), (x,))]),
            (row, [Accumulate((("z", f32),), NamedCombiner("sum"), (e,))]),
            (row, [Store("x", offset, op("div", e, scalar("z")))]),
            (
                (),
                [Store("maximum", row_offset, op("add", load("maximum", (row_offset,), f32), scalar("m")))],
            ),
        ),
        {"x": 576, "maximum": 6},
    )


def _written_before_barrier() -> Case:
    """Return squares in place, and their sums over columns."""
    offset = R0 * 90 + I0
    square = op("mul", load("x", (offset,), f32), load("x", (offset,), f32))
    return Case(
        kernel(
            "written_before_barrier",
            [("x", f32, "inout"), ("total", f32, "out")],
            [("i0", 90)],
            (
                [("r0", 96)],
                [Accumulate((("s", f32),), NamedCombiner("sum"), (square,)), Store("x", offset, square)],
            ),
            ((), [Store("total", I0, scalar("s"))]),
        ),
        {"x": 90 * 96, "total": 90},
    )


def _softmax(name: str, schedule: TileRequest | None) -> Case:
    x = load("x", (row_element(),), f32)
    e = op("exp", op("sub", x, scalar("m")))
    row = [("r0", 70)]
    return Case(
        kernel(
            name,
            [("x", f32, "in"), ("o", f32, "out")],
            [("i0", 5)],
            (row, [Accumulate((("m", f32),), NamedCombiner("max"), (x,))]),
            (row, [Accumulate((("z", f32),), NamedCombiner("sum"), (e,))]),
            (row, [Store("o", row_element(), op("div", e, scalar("z")))]),
            schedule=schedule,
        ),
        {"x": 350, "o": 350},
    )


def _layernorm(name: str, schedule: TileRequest | None) -> Case:
    x = cast(load("x", (row_element(),), bf16), f32)
    mean = op("div", scalar("s"), const(70.0, f32))
    centred = op("sub", x, mean)
    rate = op("rsqrt", op("add", op("div", scalar("v"), const(70.0, f32)), const(1e-5, f32)))
    y = op("add", op("mul", op("mul", centred, rate), load("w", (R0,), f32)), load("b", (R0,), f32))
    row = [("r0", 70)]
    return Case(
        kernel(
            name,
            [("x", bf16, "in"), ("w", f32, "in"), ("b", f32, "in"), ("o", bf16, "out"), ("mean", f32, "out")],
            [("i0", 5)],
            (row, [Accumulate((("s", f32),), NamedCombiner("sum"), (x,))]),
            (row, [Accumulate((("v", f32),), NamedCombiner("sum"), (op("mul", centred, centred),))]),
            (row, [Store("o", row_element(), cast(y, bf16))]),
            ((), [Store("mean", I0, mean)]),
            schedule=schedule,
        ),
        {"x": 350, "w": 70, "b": 70, "o": 350, "mean": 5},
        rtol=1e-2,
    )


def _welford(name: str, schedule: TileRequest | None) -> Case:
    x = load("x", (row_element(),), f32)
    results = (("mean", f32), ("squares", f32), ("count", f32))
    return Case(
        kernel(
            name,
            [("x", f32, "in"), ("a", f32, "out"), ("b", f32, "out"), ("c", f32, "out")],
            [("i0", 5)],
            ([("r0", 70)], [Accumulate(results, NamedCombiner("welford"), (x,))]),
            ((), [Store(b, I0, scalar(n)) for b, (n, _) in zip("abc", results)]),
            schedule=schedule,
        ),
        {"x": 350, "a": 5, "b": 5, "c": 5},
        rtol=1e-5,
    )


def _online(name: str, schedule: TileRequest | None) -> Case:
    x = load("x", (row_element(),), f32)
    return Case(
        kernel(
            name,
            [("x", f32, "in"), ("o", f32, "out")],
            [("i0", 5)],
            ([("r0", 70)], [Accumulate((("m", f32), ("z", f32)), NamedCombiner("online_softmax"), (x,))]),
            (
                [("r0", 70)],
                [Store("o", row_element(), op("div", op("exp", op("sub", x, scalar("m"))), scalar("z")))],
            ),
            schedule=schedule,
        ),
        {"x": 350, "o": 350},
    )


def _total(name: str, length: int, schedule: TileRequest) -> Case:
    """Return the maximum of rows and the sum relative to it: one of minus infinity, one with NaN, one with infinity."""

    def scores(rng: np.random.Generator, count: int) -> Any:
        found = rng.standard_normal((5, count // 5)).astype(np.float32)
        found[:, ::3] = -np.inf
        found[1], found[2, 5], found[3, 6] = -np.inf, np.nan, np.inf
        return found.reshape(-1)

    results = (("m", f32), ("z", f32))
    x = load("x", (I0 * length + R0,), f32)
    return Case(
        kernel(
            name,
            [("x", f32, "in"), ("a", f32, "out"), ("b", f32, "out")],
            [("i0", 5)],
            ([("r0", length)], [Accumulate(results, NamedCombiner("online_softmax"), (x,))]),
            ((), [Store("a", I0, scalar("m")), Store("b", I0, scalar("z"))]),
            schedule=schedule,
        ),
        {"x": 5 * length, "a": 5, "b": 5},
        {"x": scores},
        rtol=1e-5,
    )


def classes(name: str, schedule: TileRequest | None = None) -> Case:
    """Return how far the score of each row's class is below the row's maximum. The class and its score depend on no
    phase."""
    x = load("x", (row_element(),), f32)
    found = load("c", (I0,), i64)
    known = op("ne", found, const(-100, i64))
    score = load("x", (I0 * 70 + Indirect(where(known, found, const(0, i64)), 70),), f32)
    return Case(
        kernel(
            name,
            [("x", f32, "in"), ("c", i64, "in"), ("o", f32, "out")],
            [("i0", 5)],
            ([("r0", 70)], [Accumulate((("m", f32),), NamedCombiner("max"), (x,))]),
            ((), [Store("o", I0, where(known, op("sub", score, scalar("m")), const(0.0, f32)))]),
            schedule=schedule,
        ),
        {"x": 350, "c": 5, "o": 5},
        {"c": lambda rng, count: np.where(np.arange(count) == 2, -100, rng.integers(0, 70, count))},
    )


def _positions(name: str, schedule: TileRequest | None) -> Case:
    x = load("x", (row_element(),), f32)
    n = load("n", (row_element(),), i32)
    return Case(
        kernel(
            name,
            [("x", f32, "in"), ("n", i32, "in"), ("v", f32, "out"), ("p", i64, "out"), ("q", i64, "out")],
            [("i0", 5)],
            (
                [("r0", 70)],
                [
                    Accumulate((("best", f32), ("place", i64)), NamedCombiner("argmax"), (x, index(R0))),
                    Accumulate((("least", i32), ("where", i64)), NamedCombiner("argmin"), (n, index(R0))),
                ],
            ),
            (
                (),
                [
                    Store("v", I0, scalar("best")),
                    Store("p", I0, scalar("place", i64)),
                    Store("q", I0, scalar("where", i64)),
                ],
            ),
            schedule=schedule,
        ),
        {"x": 350, "n": 350, "v": 5, "p": 5, "q": 5},
        {"x": _with_nans, "n": below(9)},
    )


def _with_nans(rng: np.random.Generator, count: int) -> Any:
    values = np.round(rng.standard_normal(count) * 2)
    values[[75, 80, 300]] = np.nan
    return values


def _combine(name: str, schedule: TileRequest | None) -> Case:
    """Return a reduction that composes affine maps, which is associative and not commutative."""
    a, b, c, d = (Param(k, f32) for k in range(4))
    affine = UserCombiner(
        (op("mul", a, c), op("add", op("mul", b, c), d)),
        (const(1.0, f32), const(0.0, f32)),
        (op("add", a, b),),
    )
    x, y = load("x", (row_element(),), f32), load("y", (row_element(),), f32)
    return Case(
        kernel(
            name,
            [("x", f32, "in"), ("y", f32, "in"), ("o", f32, "out")],
            [("i0", 5)],
            ([("r0", 70)], [Accumulate((("t", f32),), affine, (op("sin", x), y))]),
            ((), [Store("o", I0, scalar("t"))]),
            schedule=schedule,
        ),
        {"x": 350, "y": 350, "o": 5},
        rtol=1e-4,
        atol=1e-4,
    )


def _latest(name: str, schedule: TileRequest | None) -> Case:
    """Return a reduction to the last value, whose combiner has an identity on the left alone."""
    latest = UserCombiner((Param(1, f32),), (const(0.0, f32),), (Param(0, f32),))
    return Case(
        kernel(
            name,
            [("x", f32, "in"), ("o", f32, "out")],
            [("i0", 5)],
            ([("r0", 70)], [Accumulate((("t", f32),), latest, (load("x", (row_element(),), f32),))]),
            ((), [Store("o", I0, scalar("t"))]),
            schedule=schedule,
        ),
        {"x": 350, "o": 5},
    )


def _kinds(name: str, dtype: DType, schedule: TileRequest | None) -> Case:
    names: tuple[ReductionName, ...] = ("sum", "prod", "min", "max")
    names += ("xor",) if dtype.is_integer else ()
    x = load("x", (row_element(),), dtype)
    return Case(
        kernel(
            name,
            [("x", dtype, "in"), *((f"o_{n}", dtype, "out") for n in names)],
            [("i0", 5)],
            ([("r0", 70)], [Accumulate(((n, dtype),), NamedCombiner(n), (x,)) for n in names]),
            ((), [Store(f"o_{n}", I0, scalar(n, dtype)) for n in names]),
            schedule=schedule,
        ),
        {"x": 350, **{f"o_{n}": 5 for n in names}},
        {"x": (lambda rng, count: rng.uniform(0.9, 1.1, count)) if dtype.is_float else below(100)},
        rtol=1e-2 if dtype == bf16 else 1e-5,
    )


def _logic(name: str, schedule: TileRequest | None) -> Case:
    x = load("x", (row_element(),), b1)
    names: tuple[ReductionName, ...] = ("any", "all", "min", "max")
    return Case(
        kernel(
            name,
            [("x", b1, "in"), *((f"o_{n}", b1, "out") for n in names), ("count", i64, "out")],
            [("i0", 5)],
            (
                [("r0", 70)],
                [
                    *(Accumulate(((n, b1),), NamedCombiner(n), (x,)) for n in names),
                    Accumulate((("n", i64),), NamedCombiner("sum"), (cast(x, i64),)),
                ],
            ),
            (
                (),
                [*(Store(f"o_{n}", I0, scalar(n, b1)) for n in names), Store("count", I0, scalar("n", i64))],
            ),
            schedule=schedule,
        ),
        {"x": 350, **{f"o_{n}": 5 for n in names}, "count": 5},
        {"x": lambda rng, count: (np.arange(count) // 70) * rng.random(count) > 0.01},
    )


def _columns(name: str, columns: int, rows: int) -> Case:
    x = load("x", (R0 * columns + I0,), f32)
    return Case(
        kernel(
            name,
            [("x", f32, "in"), ("o", f32, "out")],
            [("i0", columns)],
            ([("r0", rows)], [Accumulate((("s", f32),), NamedCombiner("sum"), (x,))]),
            ((), [Store("o", I0, scalar("s"))]),
        ),
        {"x": columns * rows, "o": columns},
        rtol=1e-5,
        atol=1e-4,
    )


def _windows(name: str, dtype: DType) -> Case:
    """Return windows of 2 x 3 of three activations of 9 x 20, every second along rows, reduced in several ways."""
    names: tuple[ReductionName, ...] = ("sum", "prod", "min", "max")
    x = load("x", (I0 * 180 + (I1 + R0) * 20 + I2 * 2 + R1,), dtype)
    at = I0 * 72 + I1 * 9 + I2
    variance = (("mean", f32), ("squares", f32), ("count", f32))
    return Case(
        kernel(
            name,
            [
                ("x", dtype, "in"),
                *((f"o_{n}", dtype, "out") for n in names),
                ("best", dtype, "out"),
                ("place", i64, "out"),
                ("spread", f32, "out"),
            ],
            [("i0", 3), ("i1", 8), ("i2", 9)],
            (
                [("r0", 2), ("r1", 3)],
                [
                    *(Accumulate(((n, dtype),), NamedCombiner(n), (x,)) for n in names),
                    Accumulate((("b", dtype), ("p", i64)), NamedCombiner("argmax"), (x, index(R0 * 3 + R1))),
                    Accumulate(variance, NamedCombiner("welford"), (cast(x, f32),)),
                ],
            ),
            (
                (),
                [
                    *(Store(f"o_{n}", at, scalar(n, dtype)) for n in names),
                    Store("best", at, scalar("b", dtype)),
                    Store("place", at, scalar("p", i64)),
                    Store("spread", at, scalar("squares")),
                ],
            ),
        ),
        {"x": 540, **{f"o_{n}": 216 for n in names}, "best": 216, "place": 216, "spread": 216},
        {"x": (lambda rng, count: rng.uniform(0.9, 1.1, count)) if dtype.is_float else below(5)},
        rtol=1e-2 if dtype == bf16 else 1e-5,
        atol=1e-5,
    )


def _nearest() -> Case:
    """Return the last value of each window that is inside the activation, by a combiner that is not commutative."""
    latest = UserCombiner((Param(1, f32),), (const(0.0, f32),), (Param(0, f32),))
    inside = op("lt", index(I1 + R0), index(20))
    x = masked(inside, load("x", (I0 * 20 + I1 + R0,), f32), const(-1.0, f32))
    return Case(
        kernel(
            "nearest",
            [("x", f32, "in"), ("o", f32, "out")],
            [("i0", 30), ("i1", 20)],
            ([("r0", 3)], [Accumulate((("t", f32),), latest, (x,))]),
            ((), [Store("o", I0 * 20 + I1, scalar("t"))]),
        ),
        {"x": 600, "o": 600},
    )


def _symbolic() -> Case:
    s0, s1 = symbol("s0"), symbol("s1")
    x = load("x", (I0 * s1 + R0,), f32)
    scaled = op("mul", x, cast(scalar("alpha", f64), f32))
    return Case(
        kernel(
            "symbolic",
            [("x", f32, "in"), ("o", f32, "out")],
            [("i0", s0)],
            ([("r0", s1)], [Accumulate((("s", f32),), NamedCombiner("sum"), (scaled,))]),
            (
                [("r0", s1)],
                [Store("o", I0 * s1 + R0, where(scalar("flag", b1), op("sub", x, scalar("s")), x))],
            ),
            symbols=[
                SymbolInfo("s0", low=0),
                SymbolInfo("s1", low=1, hint=70),
                SymbolInfo("alpha", "float"),
                SymbolInfo("flag", "bool"),
            ],
        ),
        {"x": 350, "o": 350},
        symbols={"s0": 5, "s1": 70, "alpha": 0.25, "flag": True},
        rtol=1e-5,
        atol=1e-5,
    )


def _full() -> Case:
    x = load("x", (R0 * 33 + R1,), f32)
    return Case(
        kernel(
            "full_sum",
            [("x", f32, "in"), ("o", f32, "out")],
            [],
            ([("r0", 31), ("r1", 33)], [Accumulate((("s", f32),), NamedCombiner("sum"), (op("mul", x, x),))]),
            ((), [Store("o", 0, op("sqrt", scalar("s")))]),
        ),
        {"x": 1023, "o": 1},
        rtol=1e-5,
    )


def _point_phase() -> Case:
    """Return a kernel with a phase of one point before a reduction."""
    x = load("x", (row_element(),), f32)
    w = op("exp", load("w", (I0,), f32))
    return Case(
        kernel(
            "point_phase",
            [("x", f32, "in"), ("w", f32, "in"), ("o", f32, "out")],
            [("i0", 5)],
            ((), [Accumulate((("one", f32),), NamedCombiner("sum"), (w,))]),
            ([("r0", 70)], [Accumulate((("s", f32), ), NamedCombiner("sum"), (op("mul", x, scalar("one")),))]),
            ([("r1", 3)], [Store("o", I0 * 3 + R1, op("add", scalar("s"), cast(index(R1), f32)))]),
        ),
        {"x": 350, "w": 5, "o": 15},
        rtol=1e-5,
        atol=1e-5,
    )  # fmt: skip


def _read_back() -> Case:
    """Return a kernel whose second phase loads, at other points, elements that the first one stored."""
    x = load("x", (row_element(),), f32)
    return Case(
        kernel(
            "read_back",
            [("x", f32, "in"), ("t", f32, "inout"), ("o", f32, "out")],
            [("i0", 5)],
            ([("r0", 70)], [Store("t", row_element(), op("exp", x))]),
            (
                [("r0", 70)],
                [
                    Store(
                        "o",
                        row_element(),
                        op("add", load("t", (I0 * 70 + 69 - R0,), f32), load("t", (row_element(),), f32)),
                    )
                ],
            ),
        ),
        {"x": 350, "t": 350, "o": 350},
    )


def _empty_row() -> Case:
    x = load("x", (I0,), f32)
    return Case(
        kernel(
            "empty_row",
            [("x", f32, "in"), ("o", f32, "out"), ("p", f32, "out")],
            [("i0", 5)],
            (
                [("r0", 0)],
                [
                    Accumulate((("s", f32),), NamedCombiner("sum"), (x,)),
                    Accumulate((("m", f32),), NamedCombiner("max"), (x,)),
                ],
            ),
            ((), [Store("o", I0, scalar("s")), Store("p", I0, scalar("m"))]),
        ),
        {"x": 5, "o": 5, "p": 5},
    )
