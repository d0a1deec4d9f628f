"""Cases of reductions: every combiner, along and across rows, and kernels of several phases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from litz_ir.dtypes import DType, b1, bf16, f32, f64, i32, i64
from litz_ir.interp.encoding import encode
from litz_ir.loops.nodes import Axis, Combiner, NamedCombiner, UserCombiner
from litz_ir.plan.kernel import Accumulate, ScratchArray, Statement, Store
from litz_ir.scalar.build import cast, const, index, op
from litz_ir.scalar.expr import Param, Scalar
from litz_ir.scalar.node import Expr
from litz_ir.symbols.term import Size
from litz_ir.target.cases.case import Array, Case, at, axes, case, i, j, m, n, phase, values

ROWS, COLUMNS = 23, 141
_X = at("x", i * COLUMNS + j, f32)


def reduction_cases() -> Iterator[Case]:
    """Yield the cases."""
    yield from _kinds()
    yield from _shapes()
    yield from _fused()


def _rows(
    name: str,
    combiner: Combiner,
    values_: Sequence[Expr],
    results: Sequence[DType],
    *,
    content: Array | None = None,
    dtype: DType = f32,
    rows: Size = ROWS,
    columns: Size = COLUMNS,
    counts: tuple[int, int] = (ROWS, COLUMNS),
    symbols: dict[str, int | float] | None = None,
    vector: str = "j",
    ulp: int = 0,
) -> Case:
    """One reduction over each row of ``x``; result ``r`` of row ``i`` is stored to ``o{r}[i]``."""
    scalars = tuple((f"r{number}", d) for number, d in enumerate(results))
    stores = [Store(f"o{number}", i, Scalar(scalar, d)) for number, (scalar, d) in enumerate(scalars)]
    total = counts[0] * counts[1]
    return case(
        name,
        phase(Accumulate(scalars, combiner, tuple(values_)), over=axes(j=columns)),
        phase(*stores),
        inputs={"x": (dtype, values("x", dtype, total) if content is None else content)},
        outputs={f"o{number}": (d, counts[0]) for number, d in enumerate(results)},
        outer=axes(i=rows),
        symbols=symbols,
        vector=vector,
        ulp=ulp,
        relative_to_largest=True,
    )


def _kinds() -> Iterator[Case]:
    yield _rows("sum_f32", NamedCombiner("sum"), [_X], [f32], ulp=64)
    near_one = encode(values("ones", f32, ROWS * COLUMNS, 0.9, 1.1), f32)
    yield _rows("prod_f32", NamedCombiner("prod"), [_X], [f32], content=near_one, ulp=64)
    with_nan = values("x", f32, ROWS * COLUMNS)
    with_nan[COLUMNS * 3 + 17] = np.nan
    with_nan[COLUMNS * 5 : COLUMNS * 6] = -np.inf
    for kind in ("min", "max"):
        yield _rows(f"{kind}_f32", NamedCombiner(kind), [_X], [f32], content=with_nan)
    coarse = np.rint(values("x", f32, ROWS * COLUMNS)).astype(np.float32)
    coarse[COLUMNS * 3 + 17] = np.nan
    for position in (NamedCombiner("argmin"), NamedCombiner("argmax")):
        yield _rows(position.name, position, [_X, index(j)], [f32, i64], content=coarse)
    yield _rows("welford", NamedCombiner("welford"), [_X], [f32, f32, f32], ulp=256)
    hidden = with_nan.copy()
    hidden[COLUMNS * 3 + 17] = 1.0
    hidden[COLUMNS * 5] = 0.5  # a row that starts with one number and is masked off after it
    hidden[COLUMNS * 6 : COLUMNS * 7 - 1] = -np.inf  # and one that ends with one
    yield _rows("online_softmax", NamedCombiner("online_softmax"), [_X], [f32, f32], content=hidden, ulp=64)
    yield _softmax_sum()
    positive = op("gt", _X, const(3.9, f32))
    yield _rows("any", NamedCombiner("any"), [positive], [b1])
    yield _rows("all", NamedCombiner("all"), [op("lt", _X, const(3.95, f32))], [b1])
    whole = at("x", i * COLUMNS + j, i32)
    numbers = values("numbers", i32, ROWS * COLUMNS, -(2**30), 2**30)
    yield _rows("sum_i32_wraps", NamedCombiner("sum"), [whole], [i32], content=numbers, dtype=i32)
    yield _rows("sum_i64_of_i32", NamedCombiner("sum"), [cast(whole, i64)], [i64], content=numbers, dtype=i32)
    yield _rows("xor_i32", NamedCombiner("xor"), [whole], [i32], content=numbers, dtype=i32)
    yield _rows("max_i32", NamedCombiner("max"), [whole], [i32], content=numbers, dtype=i32)
    yield _rows("count_of_true", NamedCombiner("sum"), [cast(positive, i64)], [i64])
    wide = at("x", i * COLUMNS + j, f64)
    yield _rows("sum_f64", NamedCombiner("sum"), [wide], [f64], dtype=f64, ulp=64)
    narrow = cast(at("x", i * COLUMNS + j, bf16), f32)
    yield _rows("sum_f32_of_bf16", NamedCombiner("sum"), [narrow], [f32], dtype=bf16, ulp=64)
    yield _rows("complex_product", _complex_product(), [op("cos", _X), op("sin", _X)], [f32, f32], ulp=1024)


def _softmax_sum() -> Case:
    """Rows of weighted values; every score of the third row is minus infinity."""
    scores = values("scores", f32, ROWS * COLUMNS)
    scores[2 * COLUMNS : 3 * COLUMNS] = -np.inf
    results = (("top", f32), ("total", f32), ("weighted", f32))
    return case(
        "softmax_sum",
        phase(Accumulate(results, NamedCombiner("softmax_sum"), (_X, at("y", j, f32))), over=axes(j=COLUMNS)),
        phase(*(Store(name, i, Scalar(name, dtype)) for name, dtype in results)),
        inputs={"x": (f32, scores), "y": (f32, values("y", f32, COLUMNS))},
        outputs={name: (dtype, ROWS) for name, dtype in results},
        outer=axes(i=ROWS),
        vector="j",
        ulp=64,
        relative_to_largest=True,
    )


def _complex_product() -> UserCombiner:
    a, b, c, d = (Param(number, f32) for number in range(4))
    real = op("sub", op("mul", a, c), op("mul", b, d))
    imaginary = op("add", op("mul", a, d), op("mul", b, c))
    return UserCombiner((real, imaginary), (const(1.0, f32), const(0.0, f32)), (a, op("neg", b)))


def _shapes() -> Iterator[Case]:
    across = at("x", j * ROWS + i, f32)
    yield _rows("sum_of_columns", NamedCombiner("sum"), [across], [f32], vector="i", ulp=64)
    yield _rows("max_of_columns", NamedCombiner("max"), [across], [f32], vector="i")
    dynamic = at("x", i * m + j, f32)
    for columns in (0, 1, 5, 300):
        yield _rows(
            f"symbolic_sum_of_{columns}",
            NamedCombiner("sum"),
            [dynamic],
            [f32],
            rows=n,
            columns=m,
            counts=(4, columns),
            symbols={"n": 4, "m": columns},
            ulp=64,
        )
    yield _rows("max_of_nothing", NamedCombiner("max"), [_X], [f32], columns=0, counts=(ROWS, 0))
    whole = Accumulate((("r", f32),), NamedCombiner("sum"), (_X,))
    yield case(
        "sum_of_everything",
        phase(whole, over=axes(i=ROWS, j=COLUMNS)),
        phase(Store("o", 0, Scalar("r", f32))),
        inputs={"x": (f32, values("x", f32, ROWS * COLUMNS))},
        outputs={"o": (f32, 1)},
        vector="j",
        ulp=512,
    )


def _over_rows(
    name: str,
    *phases: tuple[Statement, ...],
    inputs: dict[str, tuple[DType, Array]] | None = None,
    outputs: dict[str, tuple[DType, int]] | None = None,
    scratch: Sequence[ScratchArray] = (),
    inout: Sequence[str] = (),
    columns: Size = COLUMNS,
) -> Case:
    over: tuple[Axis, ...] = axes(j=columns)
    total = ROWS * COLUMNS
    return case(
        name,
        *(phase(*statements, over=over) for statements in phases),
        inputs={"x": (f32, values("x", f32, total)), **(inputs or {})},
        outputs={"o": (f32, total)} if outputs is None else outputs,
        outer=axes(i=ROWS),
        scratch=scratch,
        inout=inout,
        symbols={} if isinstance(columns, int) else {"n": COLUMNS},
        vector="j",
        ulp=64,
        relative_to_largest=True,
    )


def _fused() -> Iterator[Case]:
    offset = i * COLUMNS + j
    peak, total = Scalar("peak", f32), Scalar("total", f32)
    e = op("exp", op("sub", _X, peak))
    find_peak = (Accumulate((("peak", f32),), NamedCombiner("max"), (_X,)),)
    yield _over_rows(
        "softmax",
        find_peak,
        (Accumulate((("total", f32),), NamedCombiner("sum"), (e,)),),
        (Store("o", offset, op("div", e, total)),),
    )
    stored = at("e", j, f32)
    add_up = (Store("e", j, e), Accumulate((("total", f32),), NamedCombiner("sum"), (e,)))
    for kind, columns in (("", COLUMNS), ("_of_unknown_size", n)):
        yield _over_rows(
            f"softmax_with_scratch{kind}",
            find_peak,
            add_up,
            (Store("o", offset, op("div", stored, total)),),
            scratch=(ScratchArray("e", f32, columns),),
            columns=columns,
        )
    online = Accumulate((("peak", f32), ("total", f32)), NamedCombiner("online_softmax"), (_X,))
    yield _over_rows(
        "softmax_in_place",
        (online,),
        (Store("x", offset, op("div", e, total)),),
        outputs={},
        inout=("x",),
    )
    names = (("mean", f32), ("squares", f32), ("count", f32))
    variance = op("div", Scalar("squares", f32), Scalar("count", f32))
    scale = op("rsqrt", op("add", variance, const(1e-5, f32)))
    normal = op("mul", op("sub", _X, Scalar("mean", f32)), scale)
    weighted = op("add", op("mul", normal, at("w", j, f32)), at("b", j, f32))
    parameters = {name: (f32, values(name, f32, COLUMNS)) for name in ("w", "b")}
    yield _over_rows(
        "layer_norm",
        (Accumulate(names, NamedCombiner("welford"), (_X,)),),
        (Store("o", offset, weighted),),
        inputs=parameters,
    )
