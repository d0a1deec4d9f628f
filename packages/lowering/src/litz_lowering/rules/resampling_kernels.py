"""The weights of resampling: kernels over the distance, in elements, between a position and an element."""

from __future__ import annotations

import math

from litz_lowering.rules import formula as f
from litz_lowering.rules.formula import Num


def triangle(x: Num) -> Num:
    """Linear interpolation: falls from 1 at 0 to 0 at a distance of 1."""
    return f.maximum(1 - f.absolute(x), 0)


def keys(x: Num, a: float) -> Num:
    """Cubic convolution with the free parameter ``a`` (Keys, 1981); 0 from a distance of 2 on."""
    distance = f.absolute(x)
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return f.where(distance <= 1, near, f.where(distance < 2, far, 0))


def keys_slope(x: Num, a: float) -> Num:
    """The derivative of :func:`keys`."""
    distance = f.absolute(x)
    near = (3 * (a + 2) * distance - 2 * (a + 3)) * distance
    far = (3 * a * distance - 10 * a) * distance + 8 * a
    slope = f.where(distance <= 1, near, f.where(distance < 2, far, 0))
    return f.where(x < 0, -slope, slope)


def lanczos(x: Num, lobes: int) -> Num:
    """A sine over its argument, windowed by the same ``lobes`` times as wide; 0 from a distance of ``lobes`` on."""
    angle = x * math.pi
    wave = f.sin(angle) * f.sin(angle / lobes) * lobes / (angle * angle)
    return f.where(f.absolute(x) < lobes, f.where(x.eq(0), 1, wave), 0)
