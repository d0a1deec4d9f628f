"""Hand-built kernels, and a program that compares their results with the reference interpreter's.

Run as a program (``TRITON_INTERPRET=1 python triton_corpus.py``) it runs every case in Triton's interpreter and prints
one line of JSON per case: its name and the difference, empty where there is none.
"""

from __future__ import annotations

import json
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from triton_scheduled import scheduled

from litz_codegen_triton.emit.statements import values_of
from litz_ir.dtypes import (
    DType,
    b1,
    bf16,
    f8e4m3fn,
    f8e5m2,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
)
from litz_ir.interp.encoding import decode, encode, storage_dtype
from litz_ir.interp.kernel import run_kernel as run_reference
from litz_ir.loops import Axis, Combiner, NamedCombiner, ReductionName, ScatterMode, UserCombiner
from litz_ir.plan import (
    Access,
    Accumulate,
    Kernel,
    Parameter,
    Phase,
    ScanStore,
    Statement,
    Store,
    TileRequest,
    can_use_cluster,
    workspace_words,
)
from litz_ir.scalar import OPS, Expr, Indirect, Op, Param, Scalar, walk
from litz_ir.scalar.build import cast, const, index, load, masked, op, where
from litz_ir.symbols import Size, SymbolInfo, add, evaluate, mod, mul, symbol

Make = Callable[[np.random.Generator, int], Any]


@dataclass(frozen=True)
class Case:
    """A kernel and the data of a run."""

    kernel: Kernel
    """The kernel, with a request for a schedule."""
    sizes: Mapping[str, int]
    """The elements of each buffer."""
    fill: Mapping[str, Make] = field(default_factory=dict)
    """Functions that make the contents of buffers that are read; the others have random contents."""
    symbols: Mapping[str, int | float] = field(default_factory=dict)
    """The value of each symbol."""
    rtol: float = 2e-6
    """The relative tolerance of the comparison."""
    atol: float = 1e-6
    """The absolute tolerance of the comparison."""

    @property
    def name(self) -> str:
        return self.kernel.name

    def multiplies(self, by: str) -> bool:
        """True where values use an operation whose name begins with ``by``, such as ``mul_f8`` or ``mul_tf32``."""
        statements = (each for phase in self.kernel.phases for each in phase.statements)
        values = (value for each in statements for value in values_of(each))
        return any(isinstance(node, Op) and node.name.startswith(by) for node in walk(*values))


def normal(rng: np.random.Generator, count: int) -> Any:
    return rng.standard_normal(count) * 2


def special(rng: np.random.Generator, count: int) -> Any:
    """Return normal values with zeros, infinities, NaN, ties of rounding, large and tiny values among them."""
    values = rng.standard_normal(count) * 3
    odd = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        np.inf,
        -np.inf,
        np.nan,
        0.5,
        -0.5,
        2.5,
        3.5,
        1e-7,
        -1e-7,
        20.0,
        -20.0,
        0.9999,
        88.0,
    ]
    chosen = rng.permutation(count)[: min(count, 4 * len(odd))]
    values[chosen] = np.resize(odd, len(chosen))
    return values


def below(limit: int, low: int = 0) -> Make:
    return lambda rng, count: rng.integers(low, limit, count)


def kernel(
    name: str,
    parameters: Sequence[tuple[str, DType, Access]],
    outer: Sequence[tuple[str, Size]],
    *phases: tuple[Sequence[tuple[str, Size]], Sequence[Statement]],
    symbols: Sequence[SymbolInfo] = (),
    schedule: TileRequest | None = None,
) -> Kernel:
    return Kernel(
        name,
        tuple(Parameter(n, d, access, 16) for n, d, access in parameters),
        tuple(symbols),
        tuple(Axis(*axis) for axis in outer),
        (),
        tuple(Phase(tuple(Axis(*axis) for axis in axes), tuple(statements)) for axes, statements in phases),
        schedule or TileRequest(),
    )


I0, I1, I2, R0, R1, R2 = map(symbol, ("i0", "i1", "i2", "r0", "r1", "r2"))


def scalar(name: str, dtype: DType = f32) -> Expr:
    return Scalar(name, dtype)


# --- maps -----------------------------------------------------------------------------------------------------


def maps() -> Iterator[Case]:
    for count in (1, 7, 1000, 0):
        gelu = _gelu(load("x", (I0,), f32))
        yield Case(
            kernel(
                f"gelu_{count}",
                [("x", f32, "in"), ("o", f32, "out")],
                [("i0", count)],
                ((), [Store("o", I0, gelu)]),
            ),
            {"x": count, "o": count},
        )
    for dtype in (bf16, f16, f32):
        x, y = load("x", (I0,), dtype), load("y", (I0,), dtype)
        a, b = (cast(each, f32) for each in (x, y))
        made = [op("tanh", a), op("div", a, b), op("reciprocal", b), op("sigmoid", a)]
        rounded = [cast(each, dtype) for each in made]
        names = [f"o{k}" for k in range(len(made))]
        stores = [Store(name, I0, op("neg", cast(value, f32))) for name, value in zip(names, rounded)]
        yield Case(
            kernel(
                f"rounded_{dtype.name}",
                [("x", dtype, "in"), ("y", dtype, "in"), *((name, f32, "out") for name in names)],
                [("i0", 500)],
                ((), stores),
            ),
            {"x": 500, "y": 500, **dict.fromkeys(names, 500)},
            {"x": special, "y": special},
        )
    yield Case(
        kernel(
            "broadcast",
            [("x", f32, "in"), ("b", f32, "in"), ("o", f32, "out")],
            [("i0", 5), ("i1", 37)],
            (
                (),
                [Store("o", I0 * 37 + I1, op("add", load("x", (I0 * 37 + I1,), f32), load("b", (I1,), f32)))],
            ),
        ),
        {"x": 185, "b": 37, "o": 185},
    )
    # Axes of the phase instead of outer ones, as a scheduler may leave them.
    yield Case(
        kernel(
            "inner_map",
            [("x", f32, "in"), ("o", f32, "out")],
            [("i0", 6)],
            ([("r0", 50)], [Store("o", I0 * 50 + R0, op("neg", load("x", (I0 * 50 + R0,), f32)))]),
        ),
        {"x": 300, "o": 300},
    )
    yield Case(
        kernel(
            "transpose",
            [("x", f32, "in"), ("y", f32, "in"), ("o", f32, "out")],
            [("i0", 40), ("i1", 70)],
            (
                (),
                [
                    Store(
                        "o",
                        I0 * 70 + I1,
                        op("add", load("x", (I1 * 40 + I0,), f32), load("y", (I0 * 70 + I1,), f32)),
                    )
                ],
            ),
        ),
        {"x": 2800, "y": 2800, "o": 2800},
    )
    yield Case(
        kernel(
            "transpose_3d",
            [("x", bf16, "in"), ("o", bf16, "out")],
            [("i0", 3), ("i1", 33), ("i2", 34)],
            ((), [Store("o", I0 * 1122 + I1 * 34 + I2, load("x", (I0 * 1122 + I2 * 33 + I1,), bf16))]),
        ),
        {"x": 3366, "o": 3366},
    )
    yield Case(
        kernel(
            "scheduled_2d",
            [("x", f32, "in"), ("o", f32, "out")],
            [("i0", 20), ("i1", 19)],
            ((), [Store("o", I0 * 19 + I1, op("mul", load("x", (I0 * 19 + I1,), f32), const(3.0, f32)))]),
            schedule=TileRequest(blocks=(("i0", 8), ("i1", 16)), warps=2),
        ),
        {"x": 380, "o": 380},
    )
    yield Case(
        kernel(
            "zero_axes",
            [("x", f32, "in"), ("o", f32, "out")],
            [],
            ((), [Store("o", 0, op("exp", load("x", (0,), f32)))]),
        ),
        {"x": 1, "o": 1},
    )
    yield Case(
        kernel(
            "reshape",
            [("x", f32, "in"), ("o", f32, "out")],
            [("i0", 6), ("i1", 35)],
            (
                (),
                [
                    Store(
                        "o",
                        I0 * 35 + I1,
                        load("x", (((I0 * 35 + I1) // 14) * 20 + (I0 * 35 + I1) % 14,), f32),
                    )
                ],
            ),
        ),
        {"x": 400, "o": 210},
    )
    yield Case(
        kernel(
            "roll",
            [("x", f32, "in"), ("o", f32, "out")],
            [("i0", 41)],
            ((), [Store("o", I0, load("x", (mod(I0 - 5, 41),), f32))]),
        ),
        {"x": 41, "o": 41},
    )
    yield _cat()
    yield _pad()
    yield Case(
        kernel(
            "constants",
            [("o", f32, "out"), ("p", i64, "out"), ("q", b1, "out"), ("r", f64, "out")],
            [("i0", 10)],
            (
                (),
                [
                    Store("o", I0, const(float("-inf"), f32)),
                    Store("p", I0, op("mul", index(I0), const(2**40, i64))),
                    Store("q", I0, op("lt", index(I0), const(4, i64))),
                    Store("r", I0, op("add", cast(index(I0), f64), const(0.1, f64))),
                ],
            ),
        ),
        {"o": 10, "p": 10, "q": 10, "r": 10},
    )
    yield Case(
        kernel(
            "in_place",
            [("x", f32, "inout"), ("o", f32, "out")],
            [("i0", 100)],
            (
                (),
                [
                    Store("x", I0, op("add", load("x", (I0,), f32), const(1.0, f32))),
                    Store("o", I0, op("mul", load("x", (I0,), f32), const(2.0, f32))),
                ],
            ),
        ),
        {"x": 100, "o": 100},
    )


def _gelu(x: Expr) -> Expr:
    scaled = op("mul", x, const(0.7071067811865476, f32))
    half = op("mul", x, const(0.5, f32))
    return op("mul", half, op("add", op("erf", scaled), const(1.0, f32)))


def _cat() -> Case:
    first = op("lt", index(I1), const(6, i64))
    body = masked(first, load("x", (I0 * 6 + I1,), f32), load("y", (I0 * 4 + I1 - 6,), f32))
    second = op("ge", index(I1), const(6, i64))
    body = masked(
        first,
        load("x", (I0 * 6 + I1,), f32),
        masked(second, load("y", (I0 * 4 + I1 - 6,), f32), const(0.0, f32)),
    )
    return Case(
        kernel(
            "cat",
            [("x", f32, "in"), ("y", f32, "in"), ("o", f32, "out")],
            [("i0", 9), ("i1", 10)],
            ((), [Store("o", I0 * 10 + I1, op("add", body, const(1.0, f32)))]),
        ),
        {"x": 54, "y": 36, "o": 90},
    )


def _pad() -> Case:
    inside = op("bit_and", op("ge", index(I0 - 3), const(0, i64)), op("lt", index(I0 - 3), const(20, i64)))
    body = masked(inside, load("x", (I0 - 3,), bf16), const(-1.0, bf16))
    return Case(
        kernel("pad", [("x", bf16, "in"), ("o", bf16, "out")], [("i0", 27)], ((), [Store("o", I0, body)])),
        {"x": 20, "o": 27},
    )


# --- indirect -------------------------------------------------------------------------------------------------


def indirect() -> Iterator[Case]:
    at = Indirect(load("n", (I0,), i64), 50, True, "raised")
    yield Case(
        kernel(
            "gather",
            [("x", f32, "in"), ("n", i64, "in"), ("o", f32, "out")],
            [("i0", 12), ("i1", 9)],
            ((), [Store("o", I0 * 9 + I1, load("x", (at * 9 + I1,), f32))]),
        ),
        {"x": 450, "n": 12, "o": 108},
        {"n": below(50, -50)},
    )
    clamped = Indirect(load("n", (I0,), i32), 50, False, "clamped")
    yield Case(
        kernel(
            "gather_clamped",
            [("x", f32, "in"), ("n", i32, "in"), ("o", f32, "out")],
            [("i0", 30)],
            ((), [Store("o", I0, load("x", (clamped,), f32))]),
        ),
        {"x": 50, "n": 30, "o": 30},
        {"n": below(80, -20)},
    )
    # An index that is loaded under a condition may not be used outside it.
    wanted = op("lt", index(I0), const(10, i64))
    inner = Indirect(load("n", (I0,), i64), 50, False, "raised")
    yield Case(
        kernel(
            "gather_masked",
            [("x", f32, "in"), ("n", i64, "in"), ("o", f32, "out")],
            [("i0", 30)],
            ((), [Store("o", I0, masked(wanted, load("x", (inner,), f32), const(7.0, f32)))]),
        ),
        {"x": 50, "n": 10, "o": 30},
        {"n": below(50)},
    )
    for mode in SCATTER_MODES:
        for dtype in (f32, f64, bf16, f16, i64, i32, i16, i8, u8, b1):
            yield _scatter(mode, dtype)
    yield _scatter_columns()
    yield Case(
        kernel(
            "count_all",
            [("x", i32, "in"), ("o", i32, "inout")],
            [("i0", 10), ("i1", 30)],
            ((), [Store("o", 0, load("x", (I0 * 30 + I1,), i32), "add")]),
        ),
        {"x": 300, "o": 1},
        {"x": below(9), "o": below(3)},
    )


SCATTER_MODES: tuple[ScatterMode, ...] = ("add", "mul", "min", "max")


def _scatter(mode: ScatterMode, dtype: DType) -> Case:
    """Scatter small integers, whose results are exact in every dtype, so that the order of updates has no effect."""
    at = Indirect(load("n", (I0,), i64), 7, False, "raised")
    few = below(2) if dtype.is_bool else below(3, 1) if mode == "mul" else below(9)
    return Case(
        kernel(
            f"scatter_{mode}_{dtype}",
            [("x", dtype, "in"), ("n", i64, "in"), ("o", dtype, "inout")],
            [("i0", 40)],
            ((), [Store("o", at, load("x", (I0,), dtype), mode)]),
        ),
        {"x": 40, "n": 40, "o": 7},
        {"n": below(7), "x": few, "o": few},
    )


def _scatter_columns() -> Case:
    """Scatter into rows from a two-dimensional tile with a masked tail."""
    at = Indirect(load("n", (I0,), i64), 5, False, "raised")
    return Case(
        kernel(
            "scatter_rows_i8",
            [("x", i8, "in"), ("n", i64, "in"), ("o", i8, "inout")],
            [("i0", 9), ("i1", 13)],
            ((), [Store("o", at * 13 + I1, load("x", (I0 * 13 + I1,), i8), "max")]),
        ),
        {"x": 117, "n": 9, "o": 65},
        {"n": below(5), "x": below(100, -100), "o": below(9)},
    )


# --- reductions -----------------------------------------------------------------------------------------------


def reductions() -> Iterator[Case]:
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
    yield _columns("columns", 90, 300)
    yield _symbolic()
    yield _full()
    yield _point_phase()
    yield _read_back()
    yield _empty_row()


def clusters() -> Iterator[Case]:
    """Yield the reductions with a cluster of CTAs for each tile; the workspace has arbitrary contents."""
    for case in reductions():
        if can_use_cluster(case.kernel.phases) and not _in_order(case.kernel) and case.name != "empty_row":
            yield in_cluster(case, 2)
    yield in_cluster(_two_barriers(), 2)
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


def _rows(length: int = 70) -> Size:
    return I0 * length + R0


def _softmax(name: str, schedule: TileRequest | None) -> Case:
    x = load("x", (_rows(),), f32)
    e = op("exp", op("sub", x, scalar("m")))
    row = [("r0", 70)]
    return Case(
        kernel(
            name,
            [("x", f32, "in"), ("o", f32, "out")],
            [("i0", 5)],
            (row, [Accumulate((("m", f32),), NamedCombiner("max"), (x,))]),
            (row, [Accumulate((("z", f32),), NamedCombiner("sum"), (e,))]),
            (row, [Store("o", _rows(), op("div", e, scalar("z")))]),
            schedule=schedule,
        ),
        {"x": 350, "o": 350},
    )


def _layernorm(name: str, schedule: TileRequest | None) -> Case:
    x = cast(load("x", (_rows(),), bf16), f32)
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
            (row, [Store("o", _rows(), cast(y, bf16))]),
            ((), [Store("mean", I0, mean)]),
            schedule=schedule,
        ),
        {"x": 350, "w": 70, "b": 70, "o": 350, "mean": 5},
        rtol=1e-2,
    )


def _welford(name: str, schedule: TileRequest | None) -> Case:
    x = load("x", (_rows(),), f32)
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
    x = load("x", (_rows(),), f32)
    return Case(
        kernel(
            name,
            [("x", f32, "in"), ("o", f32, "out")],
            [("i0", 5)],
            ([("r0", 70)], [Accumulate((("m", f32), ("z", f32)), NamedCombiner("online_softmax"), (x,))]),
            (
                [("r0", 70)],
                [Store("o", _rows(), op("div", op("exp", op("sub", x, scalar("m"))), scalar("z")))],
            ),
            schedule=schedule,
        ),
        {"x": 350, "o": 350},
    )


def _positions(name: str, schedule: TileRequest | None) -> Case:
    x = load("x", (_rows(),), f32)
    n = load("n", (_rows(),), i32)
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
    x, y = load("x", (_rows(),), f32), load("y", (_rows(),), f32)
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
            ([("r0", 70)], [Accumulate((("t", f32),), latest, (load("x", (_rows(),), f32),))]),
            ((), [Store("o", I0, scalar("t"))]),
            schedule=schedule,
        ),
        {"x": 350, "o": 5},
    )


def _kinds(name: str, dtype: DType, schedule: TileRequest | None) -> Case:
    names: tuple[ReductionName, ...] = ("sum", "prod", "min", "max")
    names += ("xor",) if dtype.is_integer else ()
    x = load("x", (_rows(),), dtype)
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
    x = load("x", (_rows(),), b1)
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
    x = load("x", (_rows(),), f32)
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
    x = load("x", (_rows(),), f32)
    return Case(
        kernel(
            "read_back",
            [("x", f32, "in"), ("t", f32, "inout"), ("o", f32, "out")],
            [("i0", 5)],
            ([("r0", 70)], [Store("t", _rows(), op("exp", x))]),
            (
                [("r0", 70)],
                [
                    Store(
                        "o",
                        _rows(),
                        op("add", load("t", (I0 * 70 + 69 - R0,), f32), load("t", (_rows(),), f32)),
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


# --- scans ----------------------------------------------------------------------------------------------------


def scans() -> Iterator[Case]:
    loop = TileRequest(blocks=(("i0", 2), ("r0", 16)), warps=1)
    rows: tuple[tuple[ReductionName, DType], ...] = (
        ("sum", f32), ("prod", f32), ("max", f32), ("sum", i64), ("min", i32), ("sum", bf16),
    )  # fmt: skip
    for label, schedule in (("", None), ("_loop", loop)):
        for kind, dtype in rows:
            yield _scan(f"scan_{kind}_{dtype}{label}", kind, dtype, schedule)
        x = load("x", (_rows(),), f32)
        yield Case(
            kernel(
                f"scan_argmax{label}",
                [("x", f32, "in"), ("v", f32, "out"), ("p", i64, "out")],
                [("i0", 5)],
                (
                    [("r0", 70)],
                    [ScanStore(NamedCombiner("argmax"), (x, index(R0)), (("v", _rows()), ("p", _rows())))],
                ),
                schedule=schedule,
            ),
            {"x": 350, "v": 350, "p": 350},
        )
        a, b = Param(0, f32), Param(1, f32)
        top = op("maximum", a, b)
        logaddexp = UserCombiner(
            (
                op(
                    "add",
                    top,
                    op("log", op("add", op("exp", op("sub", a, top)), op("exp", op("sub", b, top)))),
                ),
            ),
            (const(-1e30, f32),),
            (a,),
        )
        yield Case(
            kernel(
                f"scan_combine{label}",
                [("x", f32, "in"), ("o", f32, "out")],
                [("i0", 5)],
                ([("r0", 70)], [ScanStore(logaddexp, (x,), (("o", _rows()),))]),
                schedule=schedule,
            ),
            {"x": 350, "o": 350},
            rtol=1e-5,
        )
    yield Case(
        kernel(
            "scan_restarted",
            [("x", f32, "in"), ("o", f32, "out")],
            [("i0", 3)],
            (
                [("r0", 4), ("r1", 20)],
                [
                    ScanStore(
                        NamedCombiner("sum"),
                        (load("x", (I0 * 80 + R0 * 20 + R1,), f32),),
                        (("o", I0 * 80 + R0 * 20 + R1),),
                    )
                ],
            ),
        ),
        {"x": 240, "o": 240},
        rtol=1e-5,
        atol=1e-5,
    )


def lookback_scans() -> Iterator[Case]:
    """Yield look-back scans, one of them with more chunks than a window."""
    kinds: tuple[tuple[ReductionName, DType], ...] = (
        ("sum", f32), ("max", f32), ("sum", i64), ("min", i32), ("sum", bf16), ("prod", f64),
    )  # fmt: skip
    for kind, dtype in kinds:
        yield _lookback(f"lookback_{kind}_{dtype}", 3, 70, NamedCombiner(kind), dtype)
    decay = UserCombiner(
        (
            op("mul", Param(0, f32), Param(2, f32)),
            op("add", op("mul", Param(1, f32), Param(2, f32)), Param(3, f32)),
        ),
        (const(1.0, f32), const(0.0, f32)),
        (Param(1, f32), Param(0, f32)),
    )
    yield _lookback("lookback_argmax", 3, 70, NamedCombiner("argmax"), f32)
    yield _lookback("lookback_average", 3, 70, decay, f32)
    yield _lookback("lookback_windows", 1, 4200, NamedCombiner("sum"), f32)


def _lookback(name: str, rows: int, length: int, combiner: Combiner, dtype: DType) -> Case:
    """Return a look-back scan with chunks of 16 points; its workspace has arbitrary contents at first."""
    at = add(mul(I0, length), R0)
    x = load("x", (at,), dtype)
    results: list[tuple[str, DType, Access]] = [("o", dtype, "out")]
    values: tuple[Expr, ...] = (x,)
    if isinstance(combiner, UserCombiner):
        values, results = (const(0.9, dtype), x), [*results, ("p", dtype, "out")]
    elif combiner.name == "argmax":
        values, results = (x, index(R0)), [*results, ("p", i64, "out")]
    made = kernel(
        name,
        [("x", dtype, "in"), *results, ("w", i64, "workspace")],
        [("i0", rows)],
        ([("r0", length)], [ScanStore(combiner, values, tuple((each, at) for each, _, _ in results))]),
        schedule=TileRequest(segment=16),
    )
    words = evaluate(workspace_words(made), {})
    content = (lambda rng, count: rng.uniform(0.9, 1.1, count)) if dtype.is_float else below(100, -100)
    return Case(
        made,
        {"x": rows * length, **{each: rows * length for each, _, _ in results}, "w": words},
        {"x": content, "w": below(1 << 62, 1)},
        rtol=2e-2 if dtype == bf16 else 1e-5,
    )


def _scan(name: str, kind: ReductionName, dtype: DType, schedule: TileRequest | None) -> Case:
    x = load("x", (_rows(),), dtype)
    return Case(
        kernel(
            name,
            [("x", dtype, "in"), ("o", dtype, "out")],
            [("i0", 5)],
            ([("r0", 70)], [ScanStore(NamedCombiner(kind), (x,), (("o", _rows()),))]),
            schedule=schedule,
        ),
        {"x": 350, "o": 350},
        {"x": (lambda rng, count: rng.uniform(0.9, 1.1, count)) if dtype.is_float else below(100, -100)},
        rtol=1e-2 if dtype == bf16 else 1e-5,
    )


# --- dtypes and operations ------------------------------------------------------------------------------------

DTYPES = (f64, f32, bf16, f16, f8e4m3fn, f8e5m2, i64, i32, i16, i8, u64, u32, u16, u8, b1)


def conversions() -> Iterator[Case]:
    for source in DTYPES:
        targets = tuple(dtype for dtype in DTYPES if dtype != source)
        x = load("x", (I0,), source)
        values: Make = special if source.is_float and source.bits > 8 else normal
        if source.is_float:
            # A GPU promises nothing about floats that do not fit an integer.
            finite = where(op("lt", op("abs", x), const(100.0, source)), op("abs", x), const(0.0, source))
        else:
            values, finite = below(120, 0 if source.kind == "uint" or source.is_bool else -120), x
        yield Case(
            kernel(
                f"casts_from_{source}",
                [("x", source, "in"), *((f"o_{d}", d, "out") for d in targets)],
                [("i0", 200)],
                (
                    (),
                    [Store(f"o_{d}", I0, cast(finite if d.is_integer else x, d)) for d in targets],
                ),
            ),
            {"x": 200, **{f"o_{d}": 200 for d in targets}},
            {"x": values},
            rtol=1e-7,
            atol=0.0,
        )
    pairs = [
        (f32, i32),
        (i32, f32),
        (f64, i64),
        (bf16, i16),
        (i16, bf16),
        (f16, u16),
        (u8, i8),
        (f8e4m3fn, u8),
    ]
    yield Case(
        kernel(
            "bitcasts",
            [
                *((f"x{k}", a, "in") for k, (a, _) in enumerate(pairs)),
                *((f"o{k}", b, "out") for k, (_, b) in enumerate(pairs)),
            ],
            [("i0", 64)],
            (
                (),
                [
                    Store(f"o{k}", I0, op("bitcast", load(f"x{k}", (I0,), a), dtype=b))
                    for k, (a, b) in enumerate(pairs)
                ],
            ),
        ),
        {f"{buffer}{k}": 64 for buffer in "xo" for k in range(len(pairs))},
    )


def operations() -> Iterator[Case]:
    """Yield every operation over each dtype that it accepts, up to ten in a kernel."""
    for dtype in (f32, f64, bf16, f16, i64, i32, i8, u8, u32, b1):
        names = [
            name
            for name, row in OPS.items()
            if _accepted(name, dtype) and row.rule not in ("cast", "bitcast")
        ]
        for first in range(0, len(names), 10):
            yield _operations(dtype, first // 10, names[first : first + 10])


def _accepted(name: str, dtype: DType) -> bool:
    row = OPS[name]
    if row.rule == "random":
        return (
            not dtype.is_bool
            if name == "random_bits" and dtype.is_integer
            else dtype.is_float and name != "random_bits"
        )
    accepted = {
        "any": True, "number": not dtype.is_bool, "float": dtype.is_float, "integer": dtype.is_integer,
        "bits": not dtype.is_float, "bool": dtype.is_bool,
    }  # fmt: skip
    return accepted[row.accepts]


_SLACK = {
    "digamma": 1e-4,
    "lgamma": 1e-4,
    "erfinv": 1e-5,
    "random_normal": 1e-5,
    "pow": 1e-5,
    "exp": 1e-5,
    "exp2": 1e-5,
}


def _operations(dtype: DType, number: int, names: Sequence[str]) -> Case:
    stores = []
    results: list[tuple[str, DType, Access]] = []
    for name in names:
        row = OPS[name]
        arguments = [load(buffer, (I0,), dtype) for buffer in ("xyz" * 3)[: row.arity]]
        if row.rule == "where":
            arguments = [
                op("lt", load("x", (I0,), dtype), load("z", (I0,), dtype)),
                arguments[0],
                arguments[1],
            ]
        if name in ("floor_div", "remainder", "trunc_div", "fmod") and dtype.is_integer:
            arguments[1] = op("maximum", arguments[1], const(1, dtype))
        if name == "pow" and dtype.is_integer:
            arguments[1] = op("remainder", arguments[1], const(7, dtype))
        if name == "three_term":
            arguments[0] = op("remainder", arguments[0], const(4, dtype))
        if name == "gamma_series":
            arguments[1] = op("minimum", arguments[1], const(20, dtype))
        if name == "gamma_fraction":
            above = op("maximum", arguments[0], const(1.0, dtype))
            arguments[1] = op("add", above, op("abs", arguments[1]))
        if row.rule == "random":
            arguments = [const(2**33 + 5, i64), index(I0)]
            value = op(name, *arguments, dtype=dtype)
        else:
            value = op(name, *arguments)
        stores.append(Store(f"o_{name}", I0, value))
        results.append((f"o_{name}", value.dtype, "out"))
    values: Make = (
        special if dtype.is_float else below(2 if dtype.is_bool else 100, 0 if dtype.kind != "int" else -100)
    )
    inputs: list[tuple[str, DType, Access]] = [(name, dtype, "in") for name in "xyz"]
    slack = max(_SLACK.get(name, 0.0) for name in names)
    precision = {f64: 1e-9, bf16: 1e-2, f16: 2e-3}.get(dtype, 3e-6)
    return Case(
        kernel(f"operations_{dtype}_{number}", [*inputs, *results], [("i0", 300)], ((), stores)),
        {name: 300 for name, _, _ in (*inputs, *results)},
        dict.fromkeys("xyz", values),
        rtol=max(precision, slack if dtype.bits < 64 else 1e-9),
        atol=max(precision, slack) / 10 if dtype.bits < 64 else 1e-9,
    )


# --- running --------------------------------------------------------------------------------------------------


def cases() -> list[Case]:
    """Return the whole corpus."""
    return [
        *maps(),
        *indirect(),
        *reductions(),
        *clusters(),
        *scans(),
        *lookback_scans(),
        *conversions(),
        *operations(),
    ]


def of_no_order() -> list[Case]:
    """Return kernels whose CTAs overwrite elements that other CTAs load.

    Their results depend on the order of the CTAs, so that no plan may have such kernels.
    """
    made = []
    for name, read, written in (("moved_down", 20000, 0), ("moved_up", 0, 20000)):
        body = Store("x", add(I0, written), load("x", (add(I0, read),), f32))
        made.append(Case(kernel(name, [("x", f32, "inout")], [("i0", 40000)], ((), [body])), {"x": 60000}))
    return made


def buffers_of(case: Case) -> dict[str, Any]:
    """Return the filled buffers of a case, as they are in memory; the same in every process."""
    rng = np.random.default_rng(zlib.crc32(case.name.encode()))
    filled = {}
    for parameter in case.kernel.parameters:
        count = case.sizes[parameter.name]
        default = normal if parameter.dtype.is_float else below(2 if parameter.dtype.is_bool else 100)
        values = np.asarray(case.fill.get(parameter.name, default)(rng, count))
        if parameter.access == "out":
            values = np.zeros(count)
        cast_values = (
            values.astype(np.float64 if parameter.dtype == f64 else np.float32)
            if parameter.dtype.is_float
            else values
        )
        filled[parameter.name] = np.ascontiguousarray(encode(cast_values, parameter.dtype)).astype(
            storage_dtype(parameter.dtype)
        )
    return filled


def difference(case: Case, got: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Return the first difference between the written buffers of two runs; empty where there is none."""
    for parameter in case.kernel.parameters:
        if parameter.access in ("in", "workspace"):
            continue
        a, b = got[parameter.name], wanted[parameter.name]
        if parameter.dtype.is_float:
            a, b = decode(a, parameter.dtype), decode(b, parameter.dtype)
            close = np.isclose(a, b, rtol=case.rtol, atol=case.atol, equal_nan=True)
        else:
            close = a == b
        if not close.all():
            at = int(np.flatnonzero(~close)[0])
            return f"{parameter.name}[{at}] is {a[at]}, not {b[at]} ({(~close).sum()} of {close.size} differ)"
    return ""


def reference(case: Case) -> dict[str, Any]:
    """Return the case's buffers after a run of the reference interpreter."""
    buffers = buffers_of(case)
    run_reference(case.kernel, buffers, case.symbols)
    return buffers


def interpreted(case: Case, folder: Path) -> dict[str, Any]:
    """Return the case's buffers after a run in Triton's interpreter."""
    from litz_codegen_triton.runtime.interpret import run_kernel

    buffers = buffers_of(case)
    run_kernel(scheduled(case.kernel), buffers, case.symbols, folder)
    return buffers


def main(chosen: Sequence[Case], names: Sequence[str]) -> None:
    """Compare these cases (or the named ones of them) and print one line of JSON for each."""
    with tempfile.TemporaryDirectory() as folder:
        for case in chosen:
            if names and case.name not in names:
                continue
            try:
                found = difference(case, interpreted(case, Path(folder)), reference(case))
            except Exception as error:
                found = f"{type(error).__name__}: {error}"
            print(json.dumps({"case": case.name, "difference": found}), flush=True)


if __name__ == "__main__":
    main([*cases(), *of_no_order()], sys.argv[1:])
