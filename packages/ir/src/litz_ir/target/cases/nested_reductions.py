"""Cases of nested reductions: attention forward and backward, whose scores are in no buffer."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from litz_ir.dtypes import DType, bf16, f32, i32
from litz_ir.loops.nodes import NamedCombiner
from litz_ir.plan.kernel import Accumulate, Store
from litz_ir.scalar.build import cast, const, index, op
from litz_ir.scalar.expr import Indirect, Masked, NestedReduction, Scalar
from litz_ir.scalar.node import Expr
from litz_ir.symbols.quotients import floordiv, mod
from litz_ir.symbols.term import Size, symbol
from litz_ir.target.cases.case import Array, Case, at, axes, case, i, j, k, phase, values

HEADS, QUERIES, KEYS, DEPTH, WIDTH = 4, 23, 41, 19, 21
h, e = symbol("h"), symbol("e")
_FORWARD = (("top", f32), ("total", f32), ("weighted", f32))
_RESULT = op("div", Scalar("weighted", f32), Scalar("total", f32))
_HIDDEN = const(-math.inf, f32)


def nested_reduction_cases() -> Iterator[Case]:
    """Yield the cases."""
    yield _norms()
    for dtype in (f32, bf16):
        yield _attention(f"attention_{dtype}", _score(dtype), dtype)
    causal = op("ge", index(i + KEYS - QUERIES), index(k))
    yield _attention("attention_causal", op("where", causal, _score(bf16), _HIDDEN), bf16)
    capped = op("mul", op("tanh", op("mul", _score(bf16), const(0.25, f32))), const(4.0, f32))
    biased = op("add", capped, at("bias", h * KEYS + k, f32))
    bias = {"bias": (f32, values("bias", f32, HEADS * KEYS))}
    yield _attention("attention_capped_and_biased", biased, bf16, bias)
    yield _attention("attention_of_groups", _score(bf16, 2), bf16, group=2)
    yield _listed_blocks()
    yield _query_gradient()
    yield _key_gradients()


def _norms() -> Case:
    """``o[i, j]`` of a sum that each point computes on its own."""
    x = at("x", i * DEPTH + e, f32)
    value = op("sqrt", NestedReduction((("e", DEPTH),), op("mul", x, x)))
    return case(
        "nested_reduction_in_a_point",
        phase(Store("o", i * WIDTH + j, op("add", value, at("y", j, f32)))),
        inputs={"x": (f32, values("x", f32, QUERIES * DEPTH)), "y": (f32, values("y", f32, WIDTH))},
        outputs={"o": (f32, QUERIES * WIDTH)},
        outer=axes(i=QUERIES, j=WIDTH),
        ulp=64,
        relative_to_largest=True,
    )


def _query(dtype: DType, row: Size = i, along: Size = e, buffer: str = "q") -> Expr:
    return cast(at(buffer, (h * QUERIES + row) * DEPTH + along, dtype), f32)


def _key(dtype: DType, row: Size = k, along: Size = e, group: int = 1, keys: int = KEYS) -> Expr:
    return cast(at("k", (floordiv(h, group) * keys + row) * DEPTH + along, dtype), f32)


def _score(dtype: DType, group: int = 1, row: Size = k, keys: int = KEYS) -> Expr:
    multiplied = op("mul", _query(dtype), _key(dtype, row, group=group, keys=keys))
    return op("mul", NestedReduction((("e", DEPTH),), multiplied), const(0.25, f32))


def _attention(
    name: str,
    score: Expr,
    dtype: DType,
    more: dict[str, tuple[DType, Array]] | None = None,
    group: int = 1,
) -> Case:
    """``o[h, i, j]``: the values ``v[h, k, j]`` weighted by the softmax of the scores over ``k``."""
    value = cast(at("v", (floordiv(h, group) * KEYS + k) * WIDTH + j, dtype), f32)
    return case(
        name,
        phase(Accumulate(_FORWARD, NamedCombiner("softmax_sum"), (score, value)), over=axes(k=KEYS)),
        phase(Store("o", (h * QUERIES + i) * WIDTH + j, cast(_RESULT, dtype))),
        inputs={
            "q": (dtype, values("q", dtype, HEADS * QUERIES * DEPTH)),
            "k": (dtype, values("k", dtype, HEADS // group * KEYS * DEPTH)),
            "v": (dtype, values("v", dtype, HEADS // group * KEYS * WIDTH)),
            **(more or {}),
        },
        outputs={"o": (dtype, HEADS * QUERIES * WIDTH)},
        outer=axes(h=HEADS, i=QUERIES, j=WIDTH),
        ulp=4 if dtype == bf16 else 256,
        relative_to_largest=True,
    )


def _listed_blocks() -> Case:
    """Keys in blocks of 16; each block of 16 queries attends to the blocks that are listed for it."""
    block, blocks, keys = 16, 4, 64
    query_block, b, t = floordiv(i, block), symbol("b"), symbol("t")
    listed = at("listed", query_block * blocks + b, i32)
    row = Indirect(listed, blocks, False, "assumed") * block + t
    inside = op("lt", cast(index(b), i32), at("count", query_block, i32))
    score = Masked(inside, _score(bf16, row=row, keys=keys), _HIDDEN)
    value = Masked(inside, cast(at("v", (h * keys + row) * WIDTH + j, bf16), f32), const(0.0, f32))
    return case(
        "attention_of_listed_blocks",
        phase(
            Accumulate(_FORWARD, NamedCombiner("softmax_sum"), (score, value)), over=axes(b=blocks, t=block)
        ),
        phase(Store("o", (h * QUERIES + i) * WIDTH + j, cast(_RESULT, bf16))),
        inputs={
            "q": (bf16, values("q", bf16, HEADS * QUERIES * DEPTH)),
            "k": (bf16, values("k", bf16, HEADS * keys * DEPTH)),
            "v": (bf16, values("v", bf16, HEADS * keys * WIDTH)),
            "listed": (i32, np.array([2, 0, 0, 0, 3, 1, 0, 0], np.int32)),
            "count": (i32, np.array([1, 3], np.int32)),
        },
        outputs={"o": (bf16, HEADS * QUERIES * WIDTH)},
        outer=axes(h=HEADS, i=QUERIES, j=WIDTH),
        ulp=4,
        relative_to_largest=True,
    )


def _weight() -> Expr:
    return op("exp", op("sub", _score(bf16), at("lse", h * QUERIES + i, f32)))


def _gradient() -> Expr:
    """The gradient of a score: its weight, times the difference of its own gradient and the row's ``delta``."""
    given = cast(at("do", (h * QUERIES + i) * WIDTH + symbol("c"), bf16), f32)
    value = cast(at("v", (h * KEYS + k) * WIDTH + symbol("c"), bf16), f32)
    share = NestedReduction((("c", WIDTH),), op("mul", given, value))
    above = op("sub", share, at("delta", h * QUERIES + i, f32))
    return op("mul", op("mul", _weight(), above), const(0.25, f32))


def _saved() -> dict[str, tuple[DType, Array]]:
    rows = HEADS * QUERIES
    return {
        "q": (bf16, values("q", bf16, rows * DEPTH)),
        "k": (bf16, values("k", bf16, HEADS * KEYS * DEPTH)),
        "v": (bf16, values("v", bf16, HEADS * KEYS * WIDTH)),
        "do": (bf16, values("do", bf16, rows * WIDTH)),
        "lse": (f32, values("lse", f32, rows, 18, 20)),
        "delta": (f32, values("delta", f32, rows)),
    }


def _query_gradient() -> Case:
    weighted = op("mul", _gradient(), _key(bf16, along=j))
    return case(
        "attention_query_gradient",
        phase(Accumulate((("s", f32),), NamedCombiner("sum"), (weighted,)), over=axes(k=KEYS)),
        phase(Store("dq", (h * QUERIES + i) * DEPTH + j, cast(Scalar("s", f32), bf16))),
        inputs=_saved(),
        outputs={"dq": (bf16, HEADS * QUERIES * DEPTH)},
        outer=axes(h=HEADS, i=QUERIES, j=DEPTH),
        ulp=8,
        relative_to_largest=True,
    )


def _key_gradients() -> Case:
    """Gradients of keys and values in one kernel, since both need the scores; the head dimensions differ."""
    given = cast(at("do", (h * QUERIES + i) * WIDTH + j, bf16), f32)
    inside = op("lt", index(j), index(DEPTH))
    query = Masked(inside, _query(bf16, along=mod(j, DEPTH)), const(0.0, f32))
    return case(
        "attention_key_gradients",
        phase(
            Accumulate((("dv", f32),), NamedCombiner("sum"), (op("mul", _weight(), given),)),
            Accumulate((("dk", f32),), NamedCombiner("sum"), (op("mul", _gradient(), query),)),
            over=axes(i=QUERIES),
        ),
        phase(
            Store("gv", (h * KEYS + k) * WIDTH + j, cast(Scalar("dv", f32), bf16)),
            Store("gk", (h * KEYS + k) * WIDTH + j, cast(Scalar("dk", f32), bf16)),
        ),
        inputs=_saved(),
        outputs={"gv": (bf16, HEADS * KEYS * WIDTH), "gk": (bf16, HEADS * KEYS * WIDTH)},
        outer=axes(h=HEADS, k=KEYS, j=WIDTH),
        ulp=8,
        relative_to_largest=True,
    )
