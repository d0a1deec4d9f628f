"""Simplification under ranges: values are preserved, and the index maps of reshapes become simple."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from ir_term_strategies import term_of, trees

from litz_ir.errors import SymbolError
from litz_ir.symbols.extrema import maximum, minimum
from litz_ir.symbols.facts import Facts
from litz_ir.symbols.polynomials import add, mul, product
from litz_ir.symbols.quotients import cdiv, floordiv, mod
from litz_ir.symbols.ranges import bounds, extent
from litz_ir.symbols.simplification import Simplifier, simplify
from litz_ir.symbols.term import Range, Size, Term, evaluate, symbol

i, j, k, s, t = (symbol(name) for name in "ijkst")
fixed = settings(max_examples=400, derandomize=True, deadline=None)

open_low = st.sampled_from([Range(0), Range(1), Range(2), Range(0, 6), Range(1, 6)])
index_ranges = st.one_of(
    st.sampled_from([1, 4, 8]).map(extent),
    st.sampled_from([s, t, s * t, s + t, s * 4, s // 2]).map(extent),
    st.sampled_from([Range(), Range(-3, 5)]),
)
all_ranges = st.fixed_dictionaries({"i": index_ranges, "j": index_ranges, "s": open_low, "t": open_low})


@st.composite
def environments_within(draw: st.DrawFn, ranges: Mapping[str, Range]) -> dict[str, int]:
    """Values that obey the ranges: sizes first, then the indices that they limit."""
    env: dict[str, int] = {}
    for name in ("s", "t", "i", "j"):
        known = ranges[name]
        low = -9 if known.low is None else known.low
        high = 9 if known.high is None else known.high
        if known.below is not None:
            high = evaluate(known.below, env) - 1
        assume(low <= high)
        env[name] = draw(st.one_of(st.integers(low, high), st.just(high)))
    return env


@st.composite
def terms_within(draw: st.DrawFn) -> tuple[Term, Mapping[str, Range], dict[str, int], int]:
    """A term, ranges, an environment within them, and the term's value there."""
    ranges = draw(all_ranges)
    try:
        term = term_of(draw(trees))
        assume(isinstance(term, Term))
        env = draw(environments_within(ranges))
        value = evaluate(term, env)
    except (ValueError, SymbolError):
        assume(False)
    assert isinstance(term, Term)
    return term, ranges, env, value


@fixed
@given(terms_within())
def test_simplifying_keeps_the_value(sample: tuple[Term, Mapping[str, Range], dict[str, int], int]) -> None:
    term, ranges, env, value = sample
    assert evaluate(simplify(term, ranges), env) == value


@fixed
@given(terms_within())
def test_simplifying_twice_changes_nothing(
    sample: tuple[Term, Mapping[str, Range], dict[str, int], int],
) -> None:
    term, ranges, _, _ = sample
    once = simplify(term, ranges)
    assert simplify(once, ranges) == once


@fixed
@given(terms_within())
def test_bounds_and_signs_hold(sample: tuple[Term, Mapping[str, Range], dict[str, int], int]) -> None:
    term, ranges, _, value = sample
    known = bounds(term, ranges)
    assert known.low is None or known.low <= value
    assert known.high is None or known.high >= value
    facts = Facts(ranges)
    if facts.nonnegative(term):
        assert value >= 0
    if facts.nonnegative(-term - 1):
        assert value <= -1


def strides(shape: Sequence[Size]) -> list[Size]:
    """Strides in elements of a contiguous shape."""
    return [product(shape[axis + 1 :]) for axis in range(len(shape))]


def flatten(index: Sequence[Size], shape: Sequence[Size]) -> Size:
    return add(*[mul(x, stride) for x, stride in zip(index, strides(shape))])


def unflatten(flat: Size, shape: Sequence[Size]) -> list[Size]:
    parts = [floordiv(flat, stride) for stride in strides(shape)]
    return [part if axis == 0 else mod(part, size) for axis, (part, size) in enumerate(zip(parts, shape))]


def indices(shape: Sequence[Size]) -> list[Size]:
    return [symbol(f"x{axis}") for axis in range(len(shape))]


def ranges_of(shape: Sequence[Size], sizes: Mapping[str, Range]) -> dict[str, Range]:
    return {**sizes, **{f"x{axis}": extent(size) for axis, size in enumerate(shape)}}


def expected(index: Sequence[Size], shape: Sequence[Size]) -> list[Size]:
    """An index as it should come out: along an axis of size 1 it is 0."""
    return [0 if size == 1 else x for x, size in zip(index, shape)]


static_shapes = st.lists(st.sampled_from([1, 2, 3, 4, 7, 64]), min_size=1, max_size=5)
symbolic_shapes = st.lists(
    st.sampled_from([s, t, k, 1, 4, 3, s * 4, s + t, t + 1, cdiv(s, 4), k // 2]), min_size=1, max_size=4
)
sizes_from = st.sampled_from([0, 1, 2]).map(lambda low: {name: Range(low) for name in "stk"})
shapes = st.one_of(static_shapes, symbolic_shapes)


@fixed
@given(shapes, sizes_from)
def test_unflatten_undoes_flatten(shape: list[Size], sizes: Mapping[str, Range]) -> None:
    index, ranges = indices(shape), ranges_of(shape, sizes)
    back = [simplify(x, ranges) for x in unflatten(flatten(index, shape), shape)]
    assert back == expected(index, shape)


@fixed
@given(shapes, sizes_from)
def test_flatten_undoes_unflatten(shape: list[Size], sizes: Mapping[str, Range]) -> None:
    flat = symbol("flat")
    total = product(shape)
    back = simplify(flatten(unflatten(flat, shape), shape), {**sizes, "flat": extent(total)})
    assert back == (0 if total == 1 else flat), str(back)


@fixed
@given(
    shapes.flatmap(lambda shape: st.tuples(st.just(shape), st.permutations(range(len(shape))))), sizes_from
)
def test_permuted_views_round_trip(sample: tuple[list[Size], list[int]], sizes: Mapping[str, Range]) -> None:
    shape, order = sample
    index, ranges = indices(shape), ranges_of(shape, sizes)
    # Reading a permuted tensor through a flat view of it, and back through the permutation.
    permuted_shape = [shape[axis] for axis in order]
    permuted = unflatten(flatten([index[axis] for axis in order], permuted_shape), permuted_shape)
    back = [simplify(permuted[order.index(axis)], ranges) for axis in range(len(shape))]
    assert back == expected(index, shape)


@fixed
@given(shapes, sizes_from, st.data())
def test_merging_and_splitting_axes_round_trips(
    shape: list[Size], sizes: Mapping[str, Range], data: st.DataObject
) -> None:
    index, ranges = indices(shape), ranges_of(shape, sizes)
    cut = data.draw(st.integers(0, len(shape) - 1))
    merged_shape = [*shape[:cut], product(shape[cut : cut + 2]), *shape[cut + 2 :]]
    merged = [simplify(x, ranges) for x in unflatten(flatten(index, shape), merged_shape)]
    simple_merge = [*index[:cut], flatten(index[cut : cut + 2], shape[cut : cut + 2]), *index[cut + 2 :]]
    assert merged == [simplify(x, ranges) for x in simple_merge]
    split = [simplify(x, ranges) for x in unflatten(flatten(merged, merged_shape), shape)]
    assert split == expected(index, shape)


@fixed
@given(shapes, sizes_from)
def test_flipped_indices_round_trip(shape: list[Size], sizes: Mapping[str, Range]) -> None:
    index, ranges = indices(shape), ranges_of(shape, sizes)
    flipped = [add(size, -1, mul(x, -1)) for x, size in zip(index, shape)]
    back = [simplify(x, ranges) for x in unflatten(flatten(flipped, shape), shape)]
    assert back == expected(flipped, shape)


sizes_1: dict[str, Range] = {"s": Range(1), "t": Range(1)}


@pytest.mark.parametrize(
    ("term", "ranges", "simple"),
    [
        ((i * 64 + j) // 64, {"j": extent(64)}, i),
        ((i * 64 + j) % 64, {"j": extent(64)}, j),
        ((i * 64 + j) // 16, {"j": extent(64)}, i * 4 + j // 16),
        ((i * 128 + j * 4 + k) // 4, {"k": extent(4)}, i * 32 + j),
        ((i * 8 + j) % 16, {"j": extent(8)}, (i % 2) * 8 + j),
        ((i * 8 + j) // 16, {"j": extent(8)}, i // 2),
        (i // 10, {"i": Range(20, 29)}, 2),
        (i % 10, {"i": Range(20, 29)}, i - 20),
        (i // 10, {"i": Range(-10, -1)}, -1),
        ((i * s + j) // s, {**sizes_1, "j": extent(s)}, i),
        ((i * s + j) % s, {"j": extent(s)}, j),
        ((i * s * t + j * t + k) // t, {**sizes_1, "k": extent(t)}, i * s + j),
        ((i // s) // t, sizes_1, i // (s * t)),
        ((i % (s * 4)) % s, sizes_1, i % s),
        ((i % (s * t)) // t, sizes_1, (i // t) % s),
        (i // 4 * 4 + i % 4, {}, i),
        (i - i // 4 * 4, {}, i % 4),
        ((i // 4) % 8 * 4 + i % 4, {}, i % 32),
        ((i // s) * s + i % s, {}, i),
        ((i // 4) % 8 * 4 + i % 4 + i // 32 * 32, {}, i),
        (i + j, {"j": Range(3, 3)}, i + 3),
        (minimum(i, 10), {"i": extent(8)}, i),
        (maximum(i, 0), {"i": extent(8)}, i),
        (maximum(s, 1), sizes_1, s),
        (minimum(i, s), {"i": extent(s)}, i),
        (minimum(i + j, s * 2), {"i": extent(s), "j": extent(s)}, i + j),
        (i // j, {"i": extent(4), "j": Range(0, 0)}, i // j),
    ],
)
def test_rules(term: Size, ranges: Mapping[str, Range], simple: Size) -> None:
    assert simplify(term, ranges) == simple


def test_terms_of_unknown_range_stay() -> None:
    assert simplify((i * s + j) // s, {**sizes_1, "j": Range(0)}) == i + j // s
    assert simplify(i % 4, {"i": Range(0)}) == i % 4
    assert simplify(minimum(i, s), {}) == minimum(i, s)


def test_polynomials_are_left_alone() -> None:
    assert simplify(i * s + j, {"i": extent(8)}) is i * s + j
    assert simplify(7, {}) == 7


def test_one_simplifier_serves_many_terms() -> None:
    simplifier = Simplifier({"i": extent(s), "j": extent(t)})
    assert simplifier.simplify((i * t + j) // t) == i
    assert simplifier.simplify((i * t + j) % t) == j
    assert simplifier.simplify((i * t + j) // t) == i


def test_an_axis_of_size_zero_has_no_wrong_index() -> None:
    assert extent(0) == Range(0, 0)
    assert simplify((i * 4 + j) // 4, {"i": extent(0), "j": extent(4)}) == 0
