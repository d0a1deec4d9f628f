"""Common refinements of iteration spaces, on which the fusion of loops depends."""

from __future__ import annotations

from itertools import product
from math import prod

from hypothesis import given
from hypothesis import strategies as st

from litz_ir.loops import Axis
from litz_ir.symbols import Size, evaluate, symbol
from litz_scheduler.analysis.iteration_space import CommonSpace, collapsed_axes, refine

N = symbol("n")


def factored(draw: st.DrawFn, divisors: list[int]) -> list[int]:
    """``divisors`` with some neighbours multiplied together."""
    sizes: list[int] = []
    for divisor in divisors:
        if sizes and draw(st.booleans()):
            sizes[-1] *= divisor
        else:
            sizes.append(divisor)
    return sizes


@st.composite
def refinable(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Two lists of sizes that have a common refinement."""
    divisors = draw(st.lists(st.sampled_from((1, 2, 3, 4, 5)), max_size=5))
    return factored(draw, divisors), factored(draw, divisors)


def flat(sizes: list[int], point: list[int]) -> int:
    number = 0
    for size, index in zip(sizes, point, strict=True):
        assert 0 <= index < size
        number = number * size + index
    return number


def check_fit(fit: CommonSpace, first: list[int], second: list[int]) -> None:
    """Check that every point of the refinement has the same position in both lists, and that all points occur."""
    sizes = [size for size in fit.axes if isinstance(size, int)]
    assert len(sizes) == len(fit.axes)
    assert prod(sizes) == prod(first) == prod(second)
    for point in product(*(range(size) for size in sizes)):
        names = {f"i{k}": index for k, index in enumerate(point)}
        for own, terms in ((first, fit.first), (second, fit.second)):
            assert flat(own, [evaluate(term, names) for term in terms]) == flat(sizes, list(point))


@given(refinable())
def test_a_refinement_numbers_points_alike(lists: tuple[list[int], list[int]]) -> None:
    first, second = lists
    fit = refine(first, second, "i")
    if fit is not None:
        check_fit(fit, first, second)


@given(
    st.lists(st.sampled_from((1, 2, 3, 4, 6)), max_size=4),
    st.lists(st.sampled_from((1, 2, 3, 4, 6)), max_size=4),
)
def test_any_common_refinement_is_correct(first: list[int], second: list[int]) -> None:
    fit = refine(first, second, "i")
    if fit is not None:
        check_fit(fit, first, second)
    else:
        assert first != second


@given(st.lists(st.sampled_from((0, 1, 2, 5)), max_size=4))
def test_a_list_refines_itself_without_ones(sizes: list[int]) -> None:
    fit = refine(sizes, sizes, "i")
    assert fit is not None
    assert list(fit.axes) == [size for size in sizes if size != 1]
    assert fit.first == fit.second


@given(refinable())
def test_either_order_gives_the_same_axes(lists: tuple[list[int], list[int]]) -> None:
    one, other = refine(lists[0], lists[1], "i"), refine(lists[1], lists[0], "i")
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        assert one.axes == other.axes and one.first == other.second


def test_rows_split_in_two_ways() -> None:
    fit = refine([128, 512], [2, 64, 512], "i")
    assert fit is not None
    assert fit.axes == (2, 64, 512)
    assert fit.first == (symbol("i0") * 64 + symbol("i1"), symbol("i2"))


def test_sizes_without_a_common_factor_do_not_fit() -> None:
    assert refine([6], [4], "i") is None
    assert refine([2, 3], [3, 2], "i") is None
    assert refine([4], [], "i") is None
    assert refine([0], [2, 0], "i") is None


def test_symbolic_sizes_fit_when_they_are_the_same_term() -> None:
    both: list[Size] = [N, 4]
    fit = refine(both, [N, 2, 2], "i")
    assert fit is not None
    assert fit.axes == (N, 2, 2)
    assert refine([N], [symbol("m")], "i") is None


def test_axes_of_one_point_stand_at_zero() -> None:
    assert collapsed_axes([Axis("a", 1), Axis("b", 3), Axis("c", N)]) == {"a": 0}
