"""Hand-built kernels of every kind, with inputs, for compiled code and for the reference interpreter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from litz_ir.dtypes import ALL, DType, b1, bf16, f16, f32, f64, i8, i32, i64, u8
from litz_ir.interp.encoding import decode, encode, storage_dtype
from litz_ir.loops import Axis, NamedCombiner, ReductionName, ScatterMode, UserCombiner
from litz_ir.plan import (
    Access,
    Accumulate,
    CpuLoops,
    Kernel,
    Parameter,
    Phase,
    ScanStore,
    ScratchArray,
    Statement,
    Store,
)
from litz_ir.scalar import Expr, Indirect, Param, Scalar
from litz_ir.scalar.build import cast, const, index, load, masked, op, where
from litz_ir.symbols import Size, SymbolInfo, cdiv, evaluate, floordiv, maximum, minimum, mod, symbol

Array = npt.NDArray[Any]
I0, I1, I2, R0, R1 = (symbol(name) for name in ("i0", "i1", "i2", "r0", "r1"))
N, M = symbol("n"), symbol("m")


@dataclass(frozen=True)
class Case:
    """A kernel, the lengths of its buffers, and the sizes at which to run it."""

    kernel: Kernel
    lengths: Mapping[str, Size]
    sizes: tuple[Mapping[str, int | float], ...] = ({},)
    fill: Mapping[str, Callable[[np.random.Generator, int], Array]] = field(default_factory=dict)
    tolerance: float = 2e-6

    def buffers(self, symbols: Mapping[str, int | float], seed: int = 0) -> dict[str, Array]:
        """New arrays in memory form: random inputs, and outputs filled with a pattern."""
        random = np.random.default_rng(seed)
        integers = {name: int(value) for name, value in symbols.items() if not isinstance(value, float)}
        found = {}
        for parameter in self.kernel.parameters:
            length = evaluate(self.lengths[parameter.name], integers)
            if parameter.name in self.fill:
                values = self.fill[parameter.name](random, length)
            else:
                values = values_of(parameter.dtype, random, length)
            found[parameter.name] = encode(values, parameter.dtype).astype(storage_dtype(parameter.dtype))
        return found


def values_of(dtype: DType, random: np.random.Generator, length: int) -> Array:
    """Moderate random values of a dtype."""
    if dtype.is_float:
        return np.asarray(random.standard_normal(length))
    if dtype.is_bool:
        return np.asarray(random.random(length) < 0.5)
    return random.integers(0 if dtype.kind == "uint" else -100, 100, length).astype(storage_dtype(dtype))


def not_negative(dtype: DType, random: np.random.Generator, length: int) -> Array:
    """Moderate random values of a dtype that unsigned integers hold too."""
    values = values_of(dtype, random, length)
    return values if dtype.is_bool else np.abs(values)


def ints(*names: str) -> tuple[SymbolInfo, ...]:
    return tuple(SymbolInfo(name, "int", 0) for name in names)


Axes = list[tuple[str, Size]]
SERIAL = CpuLoops()


def kernel(
    name: str,
    parameters: str,
    outer: Axes,
    phases: list[tuple[Axes, list[Statement]]],
    *,
    dtypes: Mapping[str, DType] | None = None,
    symbols: tuple[SymbolInfo, ...] = (),
    locals: tuple[ScratchArray, ...] = (),
    schedule: CpuLoops = SERIAL,
) -> Kernel:
    """``parameters`` lists buffers, outputs after a colon, those read too with a ``+``; all ``f32`` but ``dtypes``."""
    inputs, _, outputs = parameters.partition(":")
    known = dtypes or {}
    made = [Parameter(each, known.get(each, f32), "in") for each in inputs.split()]
    for each in outputs.split():
        access: Access = "inout" if each.endswith("+") else "out"
        made.append(Parameter(each.rstrip("+"), known.get(each.rstrip("+"), f32), access))
    return Kernel(
        name, tuple(made), symbols, tuple(Axis(*each) for each in outer), locals,
        tuple(Phase(tuple(Axis(*each) for each in axes), tuple(statements)) for axes, statements in phases), schedule,
    )  # fmt: skip


def modes(case: Case, **vectors: str | None) -> list[Case]:
    """The case once per schedule: ``suffix=vector axis``, with ``None`` for scalar code."""
    return [
        replace(case, kernel=replace(
            case.kernel, name=f"{case.kernel.name}_{suffix}", schedule=replace(case.kernel.schedule, vector=vector)))
        for suffix, vector in vectors.items()
    ]  # fmt: skip


SIZES = tuple({"n": n, "m": m} for n, m in ((3, 1), (5, 7), (2, 1000), (0, 4), (4, 0), (33, 64), (1, 150)))


def softmax() -> list[Case]:
    x = load("x", (I0 * M + R0,), f32)
    e = op("exp", op("sub", x, Scalar("m_", f32)))
    made = kernel(
        "softmax", "x : o e", [("i0", N)],
        [
            ([("r0", M)], [Accumulate((("m_", f32),), NamedCombiner("max"), (x,))]),
            ([("r0", M)], [Accumulate((("z", f32),), NamedCombiner("sum"), (e,)), Store("e", I0 * M + R0, e)]),
            ([("r0", M)], [Store("o", I0 * M + R0, op("div", load("e", (I0 * M + R0,), f32), Scalar("z", f32)))]),
        ],
        symbols=ints("n", "m"), schedule=CpuLoops(parallel=("i0",), grain=1),
    )  # fmt: skip
    # "e" is an output too, so that a local is not the only way between phases; it is written before it is read.
    made = replace(
        made, parameters=tuple(replace(p, access="inout") if p.name == "e" else p for p in made.parameters)
    )
    return modes(Case(made, {"x": N * M, "o": N * M, "e": N * M}, SIZES), scalar=None, inner="r0", outer="i0")


def softmax_local() -> list[Case]:
    x = load("x", (I0 * 72 + R0,), f32)
    e = op("exp", op("sub", x, Scalar("m_", f32)))
    made = kernel(
        "softmax_local", "x : o", [("i0", N)],
        [
            ([("r0", 72)], [Accumulate((("m_", f32),), NamedCombiner("max"), (x,))]),
            ([("r0", 72)], [Accumulate((("z", f32),), NamedCombiner("sum"), (e,)), Store("e", R0, e)]),
            ([("r0", 72)], [Store("o", I0 * 72 + R0, op("div", load("e", (R0,), f32), Scalar("z", f32)))]),
        ],
        symbols=ints("n"), locals=(ScratchArray("e", f32, 72),), schedule=CpuLoops(parallel=("i0",), grain=1),
    )  # fmt: skip
    case = Case(made, {"x": N * 72, "o": N * 72}, ({"n": 1}, {"n": 37}, {"n": 0}))
    big = replace(
        made, name="softmax_heap", scratch=(ScratchArray("e", f32, 20000), ScratchArray("unused", f64, 20000))
    )
    return [
        *modes(case, scalar=None, inner="r0", outer="i0"),
        *modes(replace(case, kernel=big), inner="r0", outer="i0"),
    ]


def layer_norm() -> list[Case]:
    x = load("x", (I0 * M + R0,), f32)
    mean, squares, count = Scalar("mean", f32), Scalar("m2", f32), Scalar("count", f32)
    scale = op("rsqrt", op("add", op("div", squares, count), cast(Scalar("eps", f64), f32)))
    normal = op("mul", op("sub", x, mean), scale)
    out = op("add", op("mul", normal, load("w", (R0,), f32)), load("b", (R0,), f32))
    made = kernel(
        "layer_norm", "x w b : o s", [("i0", N)],
        [
            ([("r0", M)], [Accumulate((("mean", f32), ("m2", f32), ("count", f32)), NamedCombiner("welford"), (x,))]),
            ([], [Store("s", I0, scale)]),
            ([("r0", M)], [Store("o", I0 * M + R0, out)]),
        ],
        symbols=(*ints("n", "m"), SymbolInfo("eps", "float")), schedule=CpuLoops(parallel=("i0",)),
    )  # fmt: skip
    sizes = tuple({**each, "eps": 1e-5} for each in SIZES if each["m"])
    lengths = {"x": N * M, "w": M, "b": M, "o": N * M, "s": N}
    return modes(Case(made, lengths, sizes, tolerance=2e-5), scalar=None, inner="r0", outer="i0")


def column_sum() -> list[Case]:
    x = load("x", (R0 * M + I0,), f32)
    results = (("s", f32),)
    made = kernel(
        "column_sum", "x : o", [("i0", M)],
        [([("r0", N)], [Accumulate(results, NamedCombiner("sum"), (x,))]), ([], [Store("o", I0, Scalar("s", f32))])],
        symbols=ints("n", "m"), schedule=CpuLoops(parallel=("i0",)),
    )  # fmt: skip
    positive = {"x": lambda random, length: random.random(length)}
    case = Case(made, {"x": N * M, "o": M}, (*SIZES, {"n": 3000, "m": 90}), positive)
    return modes(case, scalar=None, inner="r0", outer="i0")


def reductions() -> list[Case]:
    """Every named combination of every kind of dtype, over two axes, one of them symbolic."""
    cases = []
    offset = I0 * (M * 3) + R0 * M + R1
    table: tuple[tuple[DType, tuple[ReductionName, ...]], ...] = (
        (f32, ("sum", "prod", "min", "max", "welford", "online_softmax", "argmin", "argmax")),
        (f64, ("sum", "min", "argmax")), (i32, ("sum", "prod", "min", "max", "xor", "argmin")), (i64, ("sum", "max")),
        (u8, ("max", "min")), (i8, ("min", "argmax")), (b1, ("any", "all", "sum", "min", "max")),
    )  # fmt: skip
    for dtype, names in table:
        for name in names:
            kind = NamedCombiner(name)
            x = load("x", (offset,), dtype)
            values: tuple[Expr, ...] = (x, index(R0 * M + R1)) if kind.inputs == 2 else (x,)
            first = i64 if dtype.is_bool and name == "sum" else dtype
            dtypes = (first, i64) if kind.inputs == 2 else (first,) * kind.results
            results = tuple((f"s{k}", each) for k, each in enumerate(dtypes))
            stores: list[Statement] = [
                Store(f"o{k}", I0, Scalar(f"s{k}", each)) for k, each in enumerate(dtypes)
            ]
            made = kernel(
                f"{name}_{dtype}", "x : " + " ".join(f"o{k}" for k in range(len(dtypes))), [("i0", N)],
                [([("r0", 3), ("r1", M)], [Accumulate(results, kind, values)]), ([], stores)],
                dtypes={"x": dtype, **{f"o{k}": each for k, each in enumerate(dtypes)}}, symbols=ints("n", "m"),
            )  # fmt: skip
            fill = {"x": with_nan} if dtype.is_float and name in ("argmin", "argmax", "min", "max") else {}
            if name == "prod":
                fill = {"x": lambda random, length: random.choice([1.0, -1.0, 2.0, 0.5, -0.5], length)}
            sizes = tuple(each for each in SIZES if each["m"] or name != "welford")
            lengths = {"x": N * M * 3, **{f"o{k}": N for k in range(len(dtypes))}}
            cases += modes(
                Case(made, lengths, sizes, fill, tolerance=1e-5), scalar=None, inner="r1", outer="i0"
            )
    return cases


def with_nan(random: np.random.Generator, length: int) -> Array:
    """Few distinct values, so that there are ties, and now and then a NaN or an infinity."""
    values = random.integers(-3, 3, length).astype(np.float64)
    values[random.random(length) < 0.002] = np.nan
    values[random.random(length) < 0.01] = -np.inf
    return values


def combine() -> list[Case]:
    """Composition of affine maps, which is associative and not commutative, as a reduction and as a scan."""
    a, b, c, d = (Param(k, f32) for k in range(4))
    maps = UserCombiner(
        (op("mul", c, a), op("add", op("mul", c, b), d)), (const(1.0, f32), const(0.0, f32)), (a, b)
    )
    x, y = load("x", (I0 * M + R0,), f32), load("y", (I0 * M + R0,), f32)
    results = (("p", f32), ("q", f32))
    made = kernel(
        "affine", "x y : o0 o1", [("i0", N)],
        [
            ([("r0", M)], [Accumulate(results, maps, (x, y))]),
            ([], [Store("o0", I0, Scalar("p", f32)), Store("o1", I0, Scalar("q", f32))]),
        ],
        symbols=ints("n", "m"),
    )  # fmt: skip
    scan = kernel(
        "affine_scan", "x y : o0 o1", [("i0", N)],
        [([("r0", M)], [ScanStore(maps, (x, y), (("o0", I0 * M + R0), ("o1", I0 * M + R0)))])], symbols=ints("n", "m"),
    )  # fmt: skip
    lengths = {"x": N * M, "y": N * M}
    small = {name: (lambda random, length: random.uniform(-0.9, 0.9, length)) for name in "xy"}
    reduced = Case(made, {**lengths, "o0": N, "o1": N}, SIZES, small, tolerance=1e-5)
    scanned = Case(scan, {**lengths, "o0": N * M, "o1": N * M}, SIZES, small, tolerance=1e-5)
    return [
        *modes(reduced, scalar=None, inner="r0", outer="i0"),
        *modes(scanned, scalar=None, inner="r0", outer="i0"),
    ]


def scans() -> list[Case]:
    cases = []
    at = I0 * (M * 3) + R0 * M + R1
    x = load("x", (at,), f32)
    for name in ("sum", "prod", "max", "argmax", "online_softmax"):
        kind = NamedCombiner(name)
        values: tuple[Expr, ...] = (x, index(R1)) if kind.inputs == 2 else (x,)
        targets = tuple((f"o{k}", at) for k in range(kind.results))
        dtypes = {"o1": i64} if kind.inputs == 2 else {}
        made = kernel(
            f"cum_{name}", "x : " + " ".join(buffer for buffer, _ in targets), [("i0", N)],
            [([("r0", 3), ("r1", M)], [ScanStore(kind, values, targets)])], symbols=ints("n", "m"), dtypes=dtypes,
        )  # fmt: skip
        fill = {"x": lambda random, length: random.uniform(0.5, 1.5, length)}
        lengths = {"x": N * M * 3, **{buffer: N * M * 3 for buffer, _ in targets}}
        cases += modes(Case(made, lengths, SIZES, fill, tolerance=1e-5), scalar=None, inner="r1", outer="i0")
    return cases


def lane_scans() -> list[Case]:
    """Scans whose lanes are points of a row, of every kind and width of elements."""
    cases = []
    at = I0 * M + R0
    for name, dtype, result in (
        ("sum", f64, f64), ("sum", bf16, f32), ("sum", i64, i64), ("sum", b1, i64), ("prod", i32, i32),
        ("prod", f64, f64),
        ("min", f32, f32), ("min", i8, i8), ("min", b1, b1), ("max", f64, f64), ("max", b1, b1), ("max", i64, i64),
        ("any", f32, b1), ("all", b1, b1), ("xor", i32, i32), ("xor", u8, u8),
    ):  # fmt: skip
        made = kernel(
            f"lanes_{name}_{dtype}", "x : o", [("i0", N)],
            [([("r0", M)], [ScanStore(NamedCombiner(name), (load("x", (at,), dtype),), (("o", at),))])],
            symbols=ints("n", "m"), dtypes={"x": dtype, "o": result}, schedule=CpuLoops(vector="r0"),
        )  # fmt: skip
        cases.append(Case(made, {"x": N * M, "o": N * M}, SIZES, tolerance=1e-5))
    return cases


def last_extremes() -> list[Case]:
    """Running maxima and their last positions; a scan read by a later phase out of scratch; a scan with neighbours."""
    at = I0 * M + R0
    x = load("x", (at,), f32)
    best, where, new, here = Param(0, f32), Param(1, i64), Param(2, f32), Param(3, i64)
    wins = op("ge", new, best)
    last = UserCombiner(
        body=(op("where", wins, new, best), op("where", wins, here, where)),
        identity=(const(float("-inf"), f32), const(0, i64)),
        finish=(best, where),
    )
    sizes = {"x": N * M, "o": N * M}
    extremes = kernel(
        "last_extremes", "x : o at", [("i0", N)],
        [([("r0", M)], [ScanStore(last, (x, index(R0)), (("o", at), ("at", at)))])],
        symbols=ints("n", "m"), dtypes={"at": i64},
    )  # fmt: skip
    scratch = kernel(
        "scan_then_where", "x : o", [("i0", N)],
        [
            ([("r0", M)], [ScanStore(NamedCombiner("sum"), (op("mul", x, x),), (("l", R0),))]),
            ([("r0", M)], [Store("o", at, op("where", op("gt", x, const(0.0, f32)), load("l", (R0,), f32), x))]),
        ],
        symbols=ints("n", "m"), locals=(ScratchArray("l", f32, M),),
    )  # fmt: skip
    return [
        *modes(Case(extremes, {**sizes, "at": N * M}, SIZES), scalar=None, inner="r0", outer="i0"),
        *modes(Case(scratch, sizes, SIZES, tolerance=1e-5), scalar=None, inner="r0", outer="i0"),
    ]


def gathers() -> list[Case]:
    row = Indirect(load("at", (I0,), i64), 11, True, "raised")
    lookup = kernel(
        "lookup", "w at : o", [("i0", N), ("i1", M)],
        [([], [Store("o", I0 * M + I1, load("w", (row * M + I1,), f32))])], dtypes={"at": i64}, symbols=ints("n", "m"),
        schedule=CpuLoops(parallel=("i0", "i1"), grain=64),
    )  # fmt: skip
    fill = {"at": lambda random, length: random.integers(-11, 11, length)}
    cases = modes(Case(lookup, {"w": 11 * M, "at": N, "o": N * M}, SIZES, fill), scalar=None, outer="i1")
    clamped = Indirect(cast(load("at", (I1,), i32), i64), N, False, "clamped")
    take = kernel(
        "take", "x at : o", [("i1", M)], [([], [Store("o", I1, load("x", (clamped * 2 + 1,), bf16))])],
        dtypes={"at": i32, "x": bf16, "o": bf16}, symbols=ints("n", "m"),
    )  # fmt: skip
    sizes = tuple(each for each in SIZES if each["n"])
    cases += modes(Case(take, {"x": N * 2, "at": M, "o": M}, sizes), scalar=None, outer="i1")
    inner = kernel(
        "take_sum", "x at : o", [("i0", N)],
        [
            ([("r0", M)], [Accumulate((("s", f32),), NamedCombiner("sum"), (
                load("x", (I0 * 11 + Indirect(load("at", (R0,), i64), 11, True, "raised"),), f32),))]),
            ([], [Store("o", I0, Scalar("s", f32))]),
        ],
        dtypes={"at": i64}, symbols=ints("n", "m"),
    )  # fmt: skip
    cases += modes(
        Case(inner, {"x": N * 11, "at": M, "o": N}, SIZES, fill, tolerance=1e-5),
        scalar=None,
        inner="r0",
        outer="i0",
    )
    return cases


def scatters() -> list[Case]:
    row = Indirect(load("at", (R0,), i64), 5, False, "raised")
    fill = {"at": lambda random, length: random.integers(0, 5, length)}
    cases = []
    # Narrow floats are rounded after every addition here and once by the interpreter.
    tolerance = {f32: 1e-5, bf16: 0.05, i32: 0.0}
    rows: tuple[tuple[ScatterMode, DType], ...] = (
        ("add", f32), ("add", bf16), ("mul", f32), ("min", f32), ("max", i32), ("set", f32),
    )  # fmt: skip
    for mode, dtype in rows:
        made = kernel(
            f"scatter_{mode}_{dtype}", "x at : o+", [],
            [([("r0", N), ("r1", M)], [Store("o", row * M + R1, load("x", (R0 * M + R1,), dtype), mode)])],
            dtypes={"x": dtype, "o": dtype, "at": i64}, symbols=ints("n", "m"),
        )  # fmt: skip
        cases += modes(
            Case(made, {"x": N * M, "at": N, "o": 5 * M}, SIZES, fill, tolerance[dtype]),
            scalar=None,
            inner="r1",
        )
        spread = kernel(
            f"scatter_lanes_{mode}_{dtype}", "x at : o+", [],
            [([("r0", N)], [Store("o", row, load("x", (R0,), dtype), mode)])],
            dtypes={"x": dtype, "o": dtype, "at": i64}, symbols=ints("n", "m"),
        )  # fmt: skip
        sizes = ({"n": 0, "m": 1}, {"n": 9, "m": 1}, {"n": 21, "m": 1})
        cases += modes(Case(spread, {"x": N, "at": N, "o": 5}, sizes, fill, tolerance[dtype]), inner="r0")
    return cases


def choices() -> list[Case]:
    """cat along both axes, pad, and choices that nest."""
    left = load("a", (I0 * 10 + I1,), f32)
    right = load("b", (I0 * (M + 3) + I1 - 10,), f32)
    first = op("lt", index(I1), const(10, i64))
    joined = masked(first, left, masked(op("bit_not", first), right, const(0.0, f32)))
    cat = kernel(
        "cat", "a b : o", [("i0", N), ("i1", M + 13)], [([], [Store("o", I0 * (M + 13) + I1, joined)])],
        symbols=ints("n", "m"), schedule=CpuLoops(parallel=("i0", "i1"), grain=8),
    )  # fmt: skip
    lengths = {"a": N * 10, "b": N * (M + 3), "o": N * (M + 13)}
    cases = modes(Case(cat, lengths, SIZES), scalar=None, outer="i1")
    above = op("lt", index(I0), const(2, i64))
    below = masked(op("bit_not", above), load("b", (I0 * M + I1 - M * 2,), f32), const(0.0, f32))
    rows = masked(above, load("a", (I0 * M + I1,), f32), below)
    stack = kernel(
        "cat_rows", "a b : o", [("i0", N + 2), ("i1", M)], [([], [Store("o", I0 * M + I1, rows)])],
        symbols=ints("n", "m"), schedule=CpuLoops(parallel=("i0",)),
    )  # fmt: skip
    cases += modes(Case(stack, {"a": 2 * M, "b": N * M, "o": (N + 2) * M}, SIZES), scalar=None, outer="i1")
    inside = op("bit_and", op("ge", index(R0), const(2, i64)), op("lt", index(R0), index(M + 2)))
    positive = op("gt", load("a", (I0 * M + R0 - 2,), f32), const(0.0, f32))
    deep = masked(inside, masked(positive, load("b", (R0 - 2,), f32), const(-1.0, f32)), const(0.5, f32))
    pad = kernel(
        "pad",
        "a b : o s",
        [("i0", N)],
        [
            (
                [("r0", M + 5)],
                [
                    Store("o", I0 * (M + 5) + R0, deep),
                    Accumulate((("t", f32),), NamedCombiner("sum"), (deep,)),
                ],
            ),
            ([], [Store("s", I0, Scalar("t", f32))]),
        ],
        symbols=ints("n", "m"),
    )
    lengths = {"a": N * M, "b": M, "o": N * (M + 5), "s": N}
    cases += modes(Case(pad, lengths, SIZES, tolerance=1e-5), scalar=None, inner="r0", outer="i0")
    uniform = masked(op("lt", index(I0), const(1, i64)), load("a", (I0,), f32), const(7.0, f32))
    hoisted = kernel(
        "hoisted_choice", "a x : o", [("i0", N), ("i1", M)],
        [([], [Store("o", I0 * M + I1, op("mul", load("x", (I0 * M + I1,), f32), uniform))])], symbols=ints("n", "m"),
        schedule=CpuLoops(parallel=("i0",)),
    )  # fmt: skip
    return cases + modes(Case(hoisted, {"a": 1, "x": N * M, "o": N * M}, SIZES), scalar=None, outer="i1")


def layouts() -> list[Case]:
    """Strided, transposed, reversed, broadcast, divided and remaindered indices, and strided stores."""
    exprs = {
        "transposed": load("x", (I1 * N + I0,), f32),
        "reversed": load("x", (I0 * M + M - 1 - I1,), f32),
        "broadcast": op("add", load("x", (I0,), f32), load("x", (I1,), f32)),
        "divided": load("x", (floordiv(I1, 7) * 3 + mod(I1, 7) + I0,), f32),
        "aligned": load("x", (floordiv(I1, 64) * 64 + mod(I1 + 128, 64) + I0,), f32),
        "bounded": load("x", (minimum(I1, 4) + maximum(I0 - 3, 0),), f32),
        "symbolic": load("x", (floordiv(I1, N + 1) + mod(I1, N + 2),), f32),
        "values": op(
            "add", cast(index(floordiv(I1, 3) + I0), f32), cast(op("mul", index(I1), index(I0)), f32)
        ),
    }
    cases = []
    for name, value in exprs.items():
        made = kernel(
            name, "x : o", [("i0", N), ("i1", M)], [([], [Store("o", I0 * M + I1, value)])], symbols=ints("n", "m"),
            schedule=CpuLoops(parallel=("i0",)),
        )  # fmt: skip
        cases += modes(Case(made, {"x": N * M + N + M + 8, "o": N * M}, SIZES), scalar=None, outer="i1")
        both = replace(made, name=f"{name}_both", schedule=CpuLoops(parallel=("i0", "i1"), grain=50))
        cases += modes(Case(both, {"x": N * M + N + M + 8, "o": N * M}, SIZES), outer="i1")
    for name, offset in {
        "store_transposed": I1 * N + I0,
        "store_last_wins": I0 + floordiv(I1, 5),
        "store_same": I0,
    }.items():
        made = kernel(
            name, "x : o", [("i0", N), ("i1", M)], [([], [Store("o", offset, load("x", (I0 * M + I1,), f32))])],
            symbols=ints("n", "m"),
        )  # fmt: skip
        cases += modes(Case(made, {"x": N * M, "o": N * M + N + M}, SIZES), scalar=None, outer="i1")
    return cases


def tiles() -> list[Case]:
    """Transposed loads and stores of every element size, in tiles of two axes with tails on both."""
    cases = []
    at = I0 * (N * M) + I2 * N + I1
    flat = I0 * (N * M) + I1 * M + I2
    length = 3 * N * M
    for dtype in (u8, b1, bf16, f16, f32, i32, f64, i64):
        x, y = load("x", (at,), dtype), load("y", (flat,), dtype)
        value = op("add", x, y) if not dtype.is_bool and not dtype.is_low_precision else x
        made = kernel(
            f"tiles_{dtype}", "x y : o p", [("i0", 3), ("i1", N), ("i2", M)],
            [([], [Store("o", flat, value), Store("p", at, y)])], symbols=ints("n", "m"),
            dtypes=dict.fromkeys("xyop", dtype), schedule=CpuLoops(parallel=("i0", "i1"), vector="i2", grain=20),
        )  # fmt: skip
        shared = dict.fromkeys("xyop", length)
        cases.append(Case(made, shared, SIZES))
        both = replace(
            made, name=f"tiles_{dtype}_both", schedule=CpuLoops(("i0", "i1", "i2"), "i2", grain=99)
        )
        cases.append(Case(both, shared, SIZES))
    lazy = masked(op("lt", index(I1), const(5, i64)), load("x", (I2 * N + I1,), f32), const(1.0, f32))
    made = kernel(
        "tiles_lazy", "x : o", [("i1", N), ("i2", M)], [([], [Store("o", I1 * M + I2, lazy)])],
        symbols=ints("n", "m"), schedule=CpuLoops(parallel=("i1",), vector="i2"),
    )  # fmt: skip
    return [*cases, Case(made, {"x": N * M, "o": N * M}, SIZES)]


def outer_shapes() -> list[Case]:
    """Three outer axes, divided among threads in every way."""
    at = I0 * (M * 3) + I1 * M + I2
    value = op("add", load("x", (at,), f32), op("exp", load("c", (I1,), f32)))
    cases = []
    for count in range(4):
        made = kernel(
            f"outer_{count}", "x c : o", [("i0", N), ("i1", 3), ("i2", M)], [([], [Store("o", at, value)])],
            symbols=ints("n", "m"), schedule=CpuLoops(parallel=("i0", "i1", "i2")[:count], grain=10),
        )  # fmt: skip
        cases += modes(Case(made, {"x": N * M * 3, "c": 3, "o": N * M * 3}, SIZES), scalar=None, outer="i2")
    unrolled = replace(cases[-1], kernel=replace(cases[-1].kernel, name="outer_unrolled"))
    schedule = replace(unrolled.kernel.schedule, unroll=3)
    cases.append(replace(unrolled, kernel=replace(unrolled.kernel, schedule=schedule)))
    for size in (1, 7, 16, 48, 64, 1000):
        made = kernel(
            f"static_{size}", "x : o", [("i0", 3), ("i2", size)],
            [([], [Store("o", I0 * size + I2, op("neg", load("x", (I0 * size + I2,), f32)))])],
            schedule=CpuLoops(parallel=("i0", "i2"), grain=32),
        )  # fmt: skip
        cases += modes(Case(made, {"x": size * 3, "o": size * 3}), outer="i2")
        total = kernel(
            f"static_sum_{size}", "x : o", [],
            [([("r0", size)], [Accumulate((("s", f32),), NamedCombiner("sum"), (load("x", (R0,), f32),))]),
             ([], [Store("o", 0, Scalar("s", f32))])],
        )  # fmt: skip
        cases += modes(Case(total, {"x": size, "o": 1}, tolerance=1e-5), scalar=None, inner="r0")
    return cases


def dtype_pairs() -> list[Case]:
    """Loads, casts and stores between all dtypes of kernels but 8-bit floats."""
    cases = []
    dtypes = [dtype for dtype in ALL if not (dtype.is_float and dtype.bits == 8)]
    for source in dtypes:
        x = load("x", (I0,), source)
        made = kernel(
            f"casts_{source}", "x : " + " ".join(f"to_{dtype}" for dtype in dtypes), [("i0", N)],
            [([], [Store(f"to_{dtype}", I0, cast(x, dtype)) for dtype in dtypes])],
            dtypes={"x": source, **{f"to_{dtype}": dtype for dtype in dtypes}}, symbols=ints("n"),
        )  # fmt: skip
        lengths = {"x": N, **{f"to_{dtype}": N for dtype in dtypes}}
        fill = {"x": partial(not_negative, source)}
        cases += modes(Case(made, lengths, ({"n": 37}, {"n": 0}), fill), scalar=None, outer="i0")
    gate, up = (cast(load(name, (I0,), bf16), f32) for name in "gu")
    silu = op("mul", op("mul", gate, op("sigmoid", gate)), up)
    made = kernel(
        "silu_mul", "g u : o", [("i0", N)], [([], [Store("o", I0, cast(silu, bf16))])],
        dtypes=dict.fromkeys("guo", bf16), symbols=ints("n"), schedule=CpuLoops(parallel=("i0",), grain=4096),
    )  # fmt: skip
    cases += modes(
        Case(made, dict.fromkeys("guo", N), ({"n": 1}, {"n": 333}), tolerance=1e-2), scalar=None, outer="i0"
    )
    rounded = op("add", op("mul", load("x", (I0,), f16), load("x", (I0,), f16)), const(0.1, f16))
    made = kernel("narrow_arithmetic", "x : o", [("i0", N)], [([], [Store("o", I0, rounded)])],
                  dtypes=dict.fromkeys("xo", f16), symbols=ints("n"))  # fmt: skip
    return cases + modes(
        Case(made, dict.fromkeys("xo", N), ({"n": 50},), tolerance=0), scalar=None, outer="i0"
    )


def in_place() -> list[Case]:
    """Phases that read a buffer before they store to it."""
    x = load("x", (I0 * M + I1,), f32)
    made = kernel(
        "in_place", "y : x+ o", [("i0", N), ("i1", M)],
        [
            ([], [
                Store("x", I0 * M + I1, op("add", x, load("y", (I1,), f32))),
                Store("o", I0 * M + I1, op("mul", x, const(2.0, f32))),
            ]),
            ([], [Store("o", I0 * M + I1, op("add", load("o", (I0 * M + I1,), f32), x))]),
        ],
        symbols=ints("n", "m"), schedule=CpuLoops(parallel=("i0",)),
    )  # fmt: skip
    made = replace(made, parameters=tuple(replace(p, access="inout") for p in made.parameters))
    return modes(Case(made, {"x": N * M, "o": N * M, "y": M}, SIZES), scalar=None, outer="i1")


def scalars() -> list[Case]:
    """Float, bool and int symbols as values, with the dtype asked for."""
    chosen = where(Scalar("on", b1), cast(Scalar("a", f64), f32), cast(index(M), f32))
    value = op("mul", load("x", (I0,), f32), chosen)
    made = kernel(
        "scalars", "x : o", [("i0", N)], [([], [Store("o", I0, value)])],
        symbols=(*ints("n", "m"), SymbolInfo("a", "float"), SymbolInfo("on", "bool")),
    )  # fmt: skip
    sizes = tuple({"n": 20, "m": 3, "a": 0.1, "on": on} for on in (0, 1))
    size = kernel(
        "tiles",
        "x : o",
        [("i0", cdiv(N, 4))],
        [([], [Store("o", I0, load("x", (I0 * 4,), f32))])],
        symbols=ints("n"),
    )
    return [
        *modes(Case(made, {"x": N, "o": N}, sizes), scalar=None, outer="i0"),
        *modes(Case(size, {"x": N + 4, "o": N}, ({"n": 70}, {"n": 1})), scalar=None, outer="i0"),
    ]


def all_cases() -> list[Case]:
    """Every kernel, each with a name of its own."""
    makers = (
        softmax, softmax_local, layer_norm, column_sum, reductions, combine, scans, lane_scans, last_extremes, gathers,
        scatters, choices, layouts, tiles, outer_shapes, dtype_pairs, in_place, scalars,
    )  # fmt: skip
    return [case for maker in makers for case in maker()]


def decoded(values: Array, dtype: DType) -> Array:
    """An array in memory as numbers to compare."""
    return decode(values, dtype).astype(np.float64)
