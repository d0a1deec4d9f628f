"""Updates of the accumulators of reductions. Arguments are the accumulators, then the values of an
element."""

from __future__ import annotations

import math

import numpy as np

from litz_target_numba.functions.arithmetic import maximum
from litz_target_numba.functions.instructions import jit


@jit
def argmin(best: float, position: int, value: float, index: int) -> tuple[float, int]:
    """Smaller value and its position: NaN beats numbers, and among equals the smaller position wins."""
    wins = value < best or (value != value and best == best)
    ties = value == best or (value != value and best != best)
    if wins or (ties and index < position):
        return value, index
    return best, position


@jit
def argmax(best: float, position: int, value: float, index: int) -> tuple[float, int]:
    """Larger value and its position: NaN beats numbers, and among equals the smaller position wins."""
    wins = value > best or (value != value and best == best)
    ties = value == best or (value != value and best != best)
    if wins or (ties and index < position):
        return value, index
    return best, position


@jit
def welford(mean: float, squares: float, count: float, value: float) -> tuple[float, float, float]:
    """Mean, sum of squared differences from it, and count."""
    count += 1
    difference = value - mean
    mean += difference / count
    return mean, squares + difference * (value - mean), count


@jit
def online_softmax(peak: float, total: float, value: float) -> tuple[float, float]:
    """Maximum, and sum of exponentials relative to it, which is 0 below a maximum of minus infinity."""
    x = np.float64(value)
    if x > peak:
        return x, total * math.exp(peak - x) + math.exp(x - x)  # NaN for infinity
    return maximum(peak, x), total + math.exp(x - (0.0 if peak == -np.inf else peak))
