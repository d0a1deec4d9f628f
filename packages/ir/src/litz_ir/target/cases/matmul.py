"""Cases of matmuls: sums of ``a * b`` over operands without a common outer axis, which some targets tile."""

from __future__ import annotations

from collections.abc import Iterator

from litz_ir.dtypes import DType, bf16, f8e4m3fn, f16, f32, i8, i32
from litz_ir.loops.nodes import NamedCombiner
from litz_ir.plan.kernel import Accumulate, Store
from litz_ir.scalar.build import cast, const, op
from litz_ir.scalar.expr import Scalar
from litz_ir.scalar.node import Expr
from litz_ir.symbols.term import Size, symbol
from litz_ir.target.cases.case import Array, Case, at, axes, case, i, j, k, m, n, phase, values

ROWS, COLUMNS, SUMMED = 23, 37, 41
SUM = Scalar("s", f32)

ULP = {"mul_tf32": 64 << 13, "mul_f8": 64 << 11, "mul_f8_fast": 64 << 11}
"""Accuracy by multiplication, in units in the last place of f32.

TF32 operands have 11 significant bits, 13 fewer than f32; devices add fp8 terms with about 13 bits.
"""


def matmul_cases() -> Iterator[Case]:
    """Yield the cases."""
    for dtype in (f32, bf16, f16):
        yield _matmul(f"matmul_{dtype}", _left(dtype), at("b", k * COLUMNS + j, dtype), dtype)
    yield _matmul("matmul_tf32", _left(f32), at("b", k * COLUMNS + j, f32), f32, multiply="mul_tf32")
    right = at("b", k * COLUMNS + j, f8e4m3fn)
    for multiply in ("mul", "mul_f8", "mul_f8_fast"):
        name = f"matmul_f8_by_{multiply}"
        yield _matmul(name, _left(f8e4m3fn), right, f8e4m3fn, multiply=multiply)
    yield _of_bytes()
    transposed = at("b", j * SUMMED + k, bf16)
    yield _matmul("matmul_of_transposed", at("a", k * ROWS + i, bf16), transposed, bf16)
    scaled = cast(op("mul", cast(at("q", k * COLUMNS + j, i8), f32), at("c", j, f32)), bf16)
    weights = {"q": (i8, values("q", i8, SUMMED * COLUMNS)), "c": (f32, values("c", f32, COLUMNS))}
    yield _matmul("matmul_of_dequantised", _left(bf16), scaled, bf16, weights)
    biased = op("maximum", op("add", SUM, at("c", j, f32)), const(0.0, f32))
    bias = {"b": (f16, values("b", f16, SUMMED * COLUMNS)), "c": (f32, values("c", f32, COLUMNS))}
    yield _matmul("matmul_with_bias", _left(f16), at("b", k * COLUMNS + j, f16), f16, bias, biased)
    yield from _shapes()


def _left(dtype: DType) -> Expr:
    return at("a", i * SUMMED + k, dtype)


def _summed(left: Expr, right: Expr, multiply: str = "mul") -> Accumulate:
    return Accumulate((("s", f32),), NamedCombiner("sum"), (op(multiply, cast(left, f32), cast(right, f32)),))


def _matmul(
    name: str,
    left: Expr,
    right: Expr,
    dtype: DType,
    inputs: dict[str, tuple[DType, Array]] | None = None,
    value: Expr = SUM,
    multiply: str = "mul",
) -> Case:
    """``o[i, j] = value`` of the sum over ``k``; ``multiply`` is the operation that multiplies A and B."""
    right_alone = {"b": (dtype, values("b", dtype, SUMMED * COLUMNS))}
    return case(
        name,
        phase(_summed(left, right, multiply), over=axes(k=SUMMED)),
        phase(Store("o", i * COLUMNS + j, value)),
        inputs={"a": (dtype, values("a", dtype, ROWS * SUMMED)), **(inputs or right_alone)},
        outputs={"o": (f32, ROWS * COLUMNS)},
        outer=axes(i=ROWS, j=COLUMNS),
        ulp=ULP.get(multiply, 64),
        relative_to_largest=True,
    )


def _of_bytes() -> Case:
    """A matmul of 8-bit integers, which is exact."""
    left, right = cast(_left(i8), i32), cast(at("b", j * SUMMED + k, i8), i32)
    return case(
        "matmul_of_bytes",
        phase(
            Accumulate((("s", i32),), NamedCombiner("sum"), (op("mul", left, right),)), over=axes(k=SUMMED)
        ),
        phase(Store("o", i * COLUMNS + j, Scalar("s", i32))),
        inputs={
            "a": (i8, values("a", i8, ROWS * SUMMED)),
            "b": (i8, values("b", i8, SUMMED * COLUMNS)),
        },
        outputs={"o": (i32, ROWS * COLUMNS)},
        outer=axes(i=ROWS, j=COLUMNS),
    )


def _shapes() -> Iterator[Case]:
    """Yield batched matmuls, and matmuls of symbolic sizes, including an empty sum."""
    batch: Size = symbol("h")
    left = at("a", batch * (ROWS * SUMMED) + i * SUMMED + k, bf16)
    yield case(
        "matmul_of_batches",
        phase(
            _summed(left, at("b", batch * (SUMMED * COLUMNS) + k * COLUMNS + j, bf16)), over=axes(k=SUMMED)
        ),
        phase(Store("o", batch * (ROWS * COLUMNS) + i * COLUMNS + j, SUM)),
        inputs={
            "a": (bf16, values("a", bf16, 3 * ROWS * SUMMED)),
            "b": (bf16, values("b", bf16, 3 * SUMMED * COLUMNS)),
        },
        outputs={"o": (f32, 3 * ROWS * COLUMNS)},
        outer=axes(h=3, i=ROWS, j=COLUMNS),
        ulp=64,
        relative_to_largest=True,
    )
    for summed in (0, 1, 70):
        yield case(
            f"symbolic_matmul_of_{summed}",
            phase(_summed(at("a", i * m + k, f32), at("b", j * m + k, f32)), over=axes(k=m)),
            phase(Store("o", i * COLUMNS + j, SUM)),
            inputs={
                "a": (f32, values("a", f32, ROWS * max(summed, 1))),
                "b": (f32, values("b", f32, COLUMNS * max(summed, 1))),
            },
            outputs={"o": (f32, ROWS * COLUMNS)},
            outer=axes(i=n, j=COLUMNS),
            symbols={"n": ROWS, "m": summed},
            ulp=64,
            relative_to_largest=True,
        )
