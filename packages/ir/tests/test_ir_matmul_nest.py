"""Matmuls among loop nests, near misses, and the dtypes in which operands are multiplied."""

from __future__ import annotations

import pytest

from litz_ir.contraction import (
    MatmulNest,
    as_multiplied,
    axes_by_operand,
    cast_from,
    matmul_nest,
    narrow_float,
    operands,
)
from litz_ir.contraction.multiplied_operands import uncast
from litz_ir.dtypes import DType, bf16, f8e4m3fn, f8e5m2, f16, f32, i8, i16, i32, u8
from litz_ir.loops.nodes import Axis, Combiner, NamedCombiner, Reduction
from litz_ir.scalar.node import Expr
from litz_ir.text import parse_graph
from litz_ir.text.parsing.bodies import parse_expr

SUM = NamedCombiner("sum")
B, M, N, K, UNIT = Axis("b", 3), Axis("i", 12), Axis("j", 16), Axis("k", 20), Axis("u", 1)


def nest_of(value: str, outer: tuple[Axis, ...] = (B, M, N), combiner: Combiner = SUM) -> MatmulNest | None:
    """The matmul of the reduction of expressions, separated by ``;``, over ``k``."""
    return matmul_nest(combiner, [parse_expr(each) for each in value.split(";")], outer, (K,))


def axis_names(nest: MatmulNest | None) -> tuple[str, str, str]:
    """Names of the axes of batch, M and N."""
    assert nest is not None
    batch, m, n = ("".join(axis.name for axis in axes) for axes in (nest.batch, nest.m, nest.n))
    return batch, m, n


AXES_OF: dict[str, tuple[str, tuple[str, str, str]]] = {
    "plain": ("%x[i, k]:f32 * %y[k, j]:f32", ("b", "i", "j")),
    "batched": ("%x[b, i, k]:f32 * %y[b, k, j]:f32", ("b", "i", "j")),
    "both transposed": ("%x[k, i]:f32 * %y[j, k]:f32", ("b", "i", "j")),
    "exchanged": ("%x[j, k]:f32 * %y[k, i]:f32", ("b", "j", "i")),
    "several axes of M": ("%x[b, i, k]:f32 * %y[k, j]:f32", ("", "bi", "j")),
    "cast": ("f32(%x[i, k]:bf16) * f32(%y[k, j]:bf16)", ("b", "i", "j")),
    "computed operands": ("exp(%x[i, k]:f32) * (%y[k, j]:f32 + %c[j]:f32)", ("b", "i", "j")),
    "convolution": ("masked(index(b) < 2, %x[i + k]:f32, 0.0) * %y[k, j]:f32", ("", "bi", "j")),
    "TF32": ("mul_tf32(%x[i, k]:f32, %y[k, j]:f32)", ("b", "i", "j")),
    "integers": ("i32(%x[i, k]:i8) * i32(%y[k, j]:i8)", ("b", "i", "j")),
}


@pytest.mark.parametrize("name", AXES_OF)
def test_axes_belong_to_the_operand_that_depends_on_them(name: str) -> None:
    value, expected = AXES_OF[name]
    assert axis_names(nest_of(value)) == expected


def test_operands_accumulator_and_multiplication_are_named() -> None:
    nest = nest_of("mul_tf32(%x[i, k]:f32, exp(%y[k, j]:f32))")
    assert nest is not None and nest.b is not None
    assert (nest.a, nest.b) == (parse_expr("%x[i, k]:f32"), parse_expr("exp(%y[k, j]:f32)"))
    assert (nest.accumulator, nest.multiply, nest.weights, nest.nested) == (f32, "mul_tf32", "none", False)
    assert nest.k == (K,) and nest.outer == (B, M, N)
    assert nest.summand == parse_expr("mul_tf32(%x[i, k]:f32, exp(%y[k, j]:f32))")
    integers = nest_of("i32(%x[i, k]:i8) * i32(%y[k, j]:i8)")
    assert integers is not None and integers.accumulator == i32


NEAR_MISSES: dict[str, str] = {
    "a sum": "%x[i, k]:f32 + %y[k, j]:f32",
    "one operand": "%x[i, k]:f32",
    "A knows all of N": "%x[i, j, k]:f32 * %y[k, j]:f32",
    "B knows all of M": "%x[i, k]:f32 * %y[i, k]:f32",
    "a matrix and a vector": "%x[i, k]:f32 * %y[k]:f32",
    "elementwise": "%x[i, j, k]:f32 * %y[i, j, k]:f32",
    "f64": "%x[i, k]:f64 * %y[k, j]:f64",
    "wide integers": "%x[i, k]:i32 * %y[k, j]:i32",
    "one 8-bit operand": "i32(%x[i, k]:i8) * i32(%y[k, j]:i16)",
    "unsigned operands": "i32(%x[i, k]:u8) * i32(%y[k, j]:u8)",
    "scaled after": "(%x[i, k]:f32 * %y[k, j]:f32) + 1.0",
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses_are_none(name: str) -> None:
    assert nest_of(NEAR_MISSES[name]) is None


@pytest.mark.parametrize("kind", ["max", "prod", "min"])
def test_only_sums_are_matmuls(kind: str) -> None:
    assert nest_of("%x[i, k]:f32 * %y[k, j]:f32", combiner=NamedCombiner(kind)) is None  # type: ignore[arg-type]


def test_an_m_or_n_of_one_point_reuses_nothing() -> None:
    value = "%x[u, k]:f32 * %y[k, j]:f32"
    assert nest_of(value, (UNIT, N)) is None
    assert nest_of(value, (Axis("u", 2), N)) is not None
    wide = nest_of("%x[u, i, k]:f32 * %y[k, j]:f32", (UNIT, M, N))
    assert wide is not None and wide.m == (UNIT, M), "an axis of one point stays where its operand is"


def test_a_softmax_sum_weights_b_by_scores() -> None:
    nest = nest_of("%s[i, k]:f32; %v[k, j]:f32", combiner=NamedCombiner("softmax_sum"))
    assert nest is not None and (nest.weights, nest.nested) == ("softmax", False)
    assert axis_names(nest) == ("b", "i", "j")
    assert nest_of("%s[i, j, k]:f32; %v[k, j]:f32", combiner=NamedCombiner("softmax_sum")) is None


NESTED = "nested_reduce(e: 8 | %q[i, e]:f32 * %y[k, e]:f32)"


def test_a_nested_operand_makes_any_sum_a_matmul() -> None:
    multiplied, alone = nest_of(f"{NESTED} * %v[k, j]:f32"), nest_of(NESTED)
    assert multiplied is not None and multiplied.nested and axis_names(multiplied) == ("b", "i", "j")
    assert alone is not None and alone.b is None and alone.nested
    assert axis_names(alone) == ("bj", "i", "") and alone.summand == parse_expr(NESTED)
    assert nest_of(NESTED, combiner=NamedCombiner("max")) is None


def test_a_reduction_of_a_graph_is_found_by_its_axes() -> None:
    graph = parse_graph(
        "graph g(%x: bf16[12, 20] fixed, %y: bf16[16, 20] fixed) -> (%o) {\n"
        "  %o = reduce.sum f32[i0: 12, i1: 16 | r0: 20] fixed { f32(%x[i0, r0]) * f32(%y[i1, r0]) }\n}\n"
    )
    (operation,) = graph.operations
    assert isinstance(operation, Reduction)
    nest = matmul_nest(operation.combiner, operation.bodies, operation.axes, operation.reduce_axes)
    assert axis_names(nest) == ("", "i0", "i1")


def test_axes_are_divided_by_their_symbols() -> None:
    known = frozenset({"i.place"}), frozenset({"j"})
    assert axes_by_operand((B, M, N), *known) == ((B, M), (), (N,))
    assert axes_by_operand((B, M, N), *known, {B: "b", M: "i.place", N: "j"}.__getitem__) == (
        (B,),
        (M,),
        (N,),
    )


def element(dtype: DType, to: DType = f32) -> Expr:
    return parse_expr(f"{to}(%x[i]:{dtype})")


MULTIPLIED: list[tuple[DType, DType, str, DType]] = [
    (bf16, bf16, "mul", bf16), (f16, f16, "mul", f16), (bf16, f16, "mul", f32), (bf16, i8, "mul", bf16),
    (u8, f16, "mul", f16), (i16, bf16, "mul", f32), (f8e4m3fn, bf16, "mul", bf16), (f8e4m3fn, f8e5m2, "mul", bf16),
    (f8e4m3fn, f8e5m2, "mul_f8", f8e4m3fn), (f8e4m3fn, bf16, "mul_f8", bf16),
]  # fmt: skip


@pytest.mark.parametrize(("a", "b", "multiply", "expected"), MULTIPLIED)
def test_operands_are_multiplied_in_the_narrowest_exact_dtype(
    a: DType, b: DType, multiply: str, expected: DType
) -> None:
    own, other = as_multiplied(element(a), element(b), multiply)
    assert own.dtype == expected
    assert (own, other) == (element(a), element(b)) if expected == f32 else own != element(a)


def test_integers_are_multiplied_as_8_bit_numbers() -> None:
    own, other = as_multiplied(element(i8, i32), element(i8, i32))
    assert own.dtype == other.dtype == i8


def test_a_mask_stays_around_the_operand_of_a_cast() -> None:
    masked = parse_expr("masked(index(i) < 3, f32(%x[i]:bf16), 0.0)")
    assert uncast(masked) == parse_expr("masked(index(i) < 3, %x[i]:bf16, 0.0)") == narrow_float(masked)
    assert uncast(parse_expr("masked(index(i) < 3, f32(%x[i]:bf16), 1.0)")) is None
    assert narrow_float(element(i8)) is None
    assert (cast_from(element(bf16)), cast_from(masked), cast_from(parse_expr("%x[i]:f32"))) == (
        bf16,
        None,
        None,
    )


def test_only_multiplications_have_operands() -> None:
    x, y = parse_expr("%x[i]:f32"), parse_expr("%y[i]:f32")
    assert operands(parse_expr("%x[i]:f32 * %y[i]:f32")) == (x, y)
    assert operands(x) is None and operands(parse_expr("%x[i]:f64 * %y[i]:f64")) is None
