"""Scales of scores, which are taken out of them."""

from __future__ import annotations

import math

import pytest

from litz_codegen_triton.emit.source.powers import LOG2_E, times_log2_e, without_scale
from litz_ir.dtypes import b1, f32
from litz_ir.scalar import Expr, Load, const, masked, op, where

SCORE, SHOWN = Load("scores", (0,), f32), Load("shown", (0,), b1)
HIDDEN = const(-math.inf, f32)


def scaled(score: Expr, scale: float) -> Expr:
    return op("mul", score, const(scale, f32))


@pytest.mark.parametrize(
    ("score", "wanted"),
    [
        (scaled(SCORE, 0.5), (SCORE, 0.5)),
        (where(SHOWN, scaled(SCORE, 0.5), HIDDEN), (where(SHOWN, SCORE, HIDDEN), 0.5)),
        (masked(SHOWN, scaled(SCORE, 3.0), HIDDEN), (masked(SHOWN, SCORE, HIDDEN), 3.0)),
    ],
)
def test_a_positive_scale_is_taken_out_of_a_score(score: Expr, wanted: tuple[Expr, float]) -> None:
    assert without_scale(score) == wanted


@pytest.mark.parametrize(
    "score",
    [
        scaled(SCORE, -0.5),  # the largest score would be the smallest without it
        scaled(SCORE, 0.0),
        scaled(SCORE, math.inf),
        where(SHOWN, scaled(SCORE, 0.5), const(-1e4, f32)),
        op("add", scaled(SCORE, 0.5), SCORE),
    ],
)
def test_other_scores_stay_scaled(score: Expr) -> None:
    assert without_scale(score) == (score, 1.0)


def test_a_logarithm_in_base_2_is_not_multiplied_by_one() -> None:
    assert times_log2_e(scaled(SCORE, 1 / LOG2_E)) == SCORE
