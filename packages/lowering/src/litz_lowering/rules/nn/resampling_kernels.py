"""Resampling kernels: weights as functions of the distance, in elements, between a position and an element."""

from __future__ import annotations

import math

from litz_lowering.expressions import formula as f
from litz_lowering.expressions.formula import Num


def triangle(x: Num) -> Num:
    """Linear interpolation: falls from 1 at distance 0 to 0 at distance 1."""
    return f.maximum(1 - f.absolute(x), 0)


def keys(x: Num, a: float) -> Num:
    """Cubic convolution with parameter ``a`` (Keys, 1981); 0 from distance 2, NaN at NaN."""
    distance = f.absolute(x)
    inner = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    outer = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return f.where(distance <= 1, inner, f.where(distance >= 2, 0, outer))


def keys_slope(x: Num, a: float) -> Num:
    """Derivative of :func:`keys`."""
    distance = f.absolute(x)
    inner = (3 * (a + 2) * distance - 2 * (a + 3)) * distance
    outer = (3 * a * distance - 10 * a) * distance + 8 * a
    slope = f.where(distance <= 1, inner, f.where(distance >= 2, 0, outer))
    return f.where(x < 0, -slope, slope)


def lanczos(x: Num, lobes: int) -> Num:
    """Lanczos kernel: sinc windowed by a sinc ``lobes`` times as wide; 0 from distance ``lobes``."""
    angle = x * math.pi
    wave = f.sin(angle) * f.sin(angle / lobes) * lobes / (angle * angle)
    return f.where(f.absolute(x) < lobes, f.where(x.eq(0), 1, wave), 0)
