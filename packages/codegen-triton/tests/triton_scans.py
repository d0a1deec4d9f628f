"""Hand-built scans, of rows in one CTA and with decoupled look-back."""

from __future__ import annotations

from collections.abc import Iterator

from triton_cases import I0, R0, R1, Case, below, kernel, row_element

from litz_ir.dtypes import DType, bf16, f32, f64, i32, i64
from litz_ir.loops import Combiner, NamedCombiner, ReductionName, UserCombiner
from litz_ir.plan import Access, ScanStore, TileRequest, workspace_words
from litz_ir.scalar import Expr, Param
from litz_ir.scalar.build import const, index, load, op
from litz_ir.symbols import add, evaluate, mul


def scans() -> Iterator[Case]:
    """Yield scans of rows that one CTA has whole."""
    loop = TileRequest(blocks=(("i0", 2), ("r0", 16)), warps=1)
    rows: tuple[tuple[ReductionName, DType], ...] = (
        ("sum", f32), ("prod", f32), ("max", f32), ("sum", i64), ("min", i32), ("sum", bf16),
    )  # fmt: skip
    for label, schedule in (("", None), ("_loop", loop)):
        for kind, dtype in rows:
            yield _scan(f"scan_{kind}_{dtype}{label}", kind, dtype, schedule)
        x = load("x", (row_element(),), f32)
        yield Case(
            kernel(
                f"scan_argmax{label}",
                [("x", f32, "in"), ("v", f32, "out"), ("p", i64, "out")],
                [("i0", 5)],
                (
                    [("r0", 70)],
                    [
                        ScanStore(
                            NamedCombiner("argmax"),
                            (x, index(R0)),
                            (("v", row_element()), ("p", row_element())),
                        )
                    ],
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
                ([("r0", 70)], [ScanStore(logaddexp, (x,), (("o", row_element()),))]),
                schedule=schedule,
            ),
            {"x": 350, "o": 350},
            rtol=1e-5,
        )
    yield _restarted()


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
    x = load("x", (row_element(),), dtype)
    return Case(
        kernel(
            name,
            [("x", dtype, "in"), ("o", dtype, "out")],
            [("i0", 5)],
            ([("r0", 70)], [ScanStore(NamedCombiner(kind), (x,), (("o", row_element()),))]),
            schedule=schedule,
        ),
        {"x": 350, "o": 350},
        {"x": (lambda rng, count: rng.uniform(0.9, 1.1, count)) if dtype.is_float else below(100, -100)},
        rtol=1e-2 if dtype == bf16 else 1e-5,
    )


def _restarted() -> Case:
    """Return a scan that restarts for each point of a serial axis."""
    return Case(
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
