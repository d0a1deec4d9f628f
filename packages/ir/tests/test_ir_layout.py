"""Layouts: strides that leave no gap, and others."""

from __future__ import annotations

import pytest

from litz_ir.loops.layout import Layout, is_dense
from litz_ir.symbols.polynomials import mul
from litz_ir.symbols.term import Size, symbol

S, T = symbol("s"), symbol("t")

DENSE: list[tuple[tuple[Size, ...], tuple[Size, ...]]] = [
    ((), ()),
    ((2, 3), (3, 1)),
    ((2, 3), (1, 2)),
    ((1, 3), (7, 1)),
    ((0, 5), (5, 1)),
    ((S, T), (T, 1)),
    ((S, T), (1, S)),
    ((S, S, S), (S, mul(S, S), 1)),
    ((2, S, 3), (1, 6, 2)),
]
NOT_DENSE: list[tuple[tuple[Size, ...], tuple[Size, ...]]] = [
    ((2, 3), (4, 1)),
    ((2, 3), (0, 1)),
    ((S, T), (mul(2, T), 1)),
    ((S, T), (0, 1)),
]


@pytest.mark.parametrize(("shape", "strides"), DENSE)
def test_strides_without_a_gap(shape: tuple[Size, ...], strides: tuple[Size, ...]) -> None:
    assert is_dense(shape, Layout(strides))
    assert not is_dense(shape, Layout(strides, offset=1))


@pytest.mark.parametrize(("shape", "strides"), NOT_DENSE)
def test_strides_with_a_gap_or_a_repeat(shape: tuple[Size, ...], strides: tuple[Size, ...]) -> None:
    assert not is_dense(shape, Layout(strides))
