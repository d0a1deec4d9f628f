"""Bounds of an index's growth from lane to lane, against its values, and kernels whose lanes are runs."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from litz_codegen_cpp.emit.bodies.steps import lane_steps
from litz_ir.symbols import Size, add, evaluate, free_symbols, maximum, minimum, mod, mul, symbol

I = symbol("i")  # noqa: E741 -- the axis


def stride_of(x: Size) -> Size | None:
    """Return the growth of the terms whose growth is the same everywhere."""
    if isinstance(x, int) or "i" not in free_symbols(x):
        return 0
    return 1 if x == I else None


small = st.integers(-9, 9)


def combined(parts: st.SearchStrategy[Size]) -> st.SearchStrategy[Size]:
    return st.one_of(
        st.builds(add, parts, parts),
        st.builds(mul, parts, st.integers(-2, 2)),
        st.builds(minimum, parts, parts),
        st.builds(maximum, parts, parts),
        st.builds(mod, parts, st.integers(1, 7)),
    )


terms = st.recursive(st.one_of(st.just(I), small), combined, max_leaves=6)


@given(terms)
def test_every_step_is_within_the_bounds(x: Size) -> None:
    low, high = lane_steps(x, stride_of)
    values = [evaluate(x, {"i": i}) for i in range(-20, 40)]
    steps = [after - before for before, after in itertools.pairwise(values)]
    assert low is None or low <= min(steps)
    assert high is None or high >= max(steps)


@pytest.mark.parametrize(
    ("x", "bounds"),
    [
        (I, (1, 1)),
        (maximum(add(2, mul(I, -1)), add(I, -2)), (-1, 1)),
        (minimum(I, 7), (0, 1)),
        (mod(add(I, 3), symbol("n")), (None, 1)),
        (mod(add(3, mul(I, -1)), 5), (-1, None)),
        (mul(I, 2), (2, 2)),
    ],
)
def test_reflected_clamped_and_wrapped_indices(x: Size, bounds: tuple[Any, Any]) -> None:
    assert lane_steps(x, stride_of) == bounds
