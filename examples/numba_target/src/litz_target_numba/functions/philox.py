"""Random numbers by seed and counter: Philox4x32-10 (Salmon et al., 2011)."""

from __future__ import annotations

import math

import numpy as np

from litz_target_numba.functions.instructions import jit

_LOW, _HALF, _ALL = np.uint64(0xFFFFFFFF), np.uint64(32), np.uint64(2**64 - 1)
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)


@jit
def philox(seed: int, counter: int) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """Four 32-bit words, the block at a counter; the seed is the key."""
    low, high = np.uint64(seed) & _LOW, np.uint64(seed) >> _HALF
    a, b = np.uint64(counter) & _LOW, np.uint64(counter) >> _HALF
    c, d = np.uint64(0), np.uint64(0)
    for _ in range(10):
        first, second = a * _MULTIPLIERS[0], c * _MULTIPLIERS[1]
        a, b, c, d = (second >> _HALF) ^ b ^ low, second & _LOW, (first >> _HALF) ^ d ^ high, first & _LOW
        low, high = (low + _WEYL[0]) & _LOW, (high + _WEYL[1]) & _LOW
    return a, b, c, d


@jit
def unit(low: np.uint64, high: np.uint64, digits: int) -> float:
    """Float in ``[0, 1)`` from the top ``digits`` bits of one or two words."""
    word = low << _HALF if digits <= 32 else (high << _HALF) | low
    return np.float64(word >> np.uint64(64 - digits)) * math.pow(2.0, -digits)


@jit
def random_bits(seed: int, counter: int, bits: int) -> np.uint64:
    """Integer of ``bits`` random bits."""
    a, b, _, _ = philox(seed, counter)
    return (a | (b << _HALF)) & (_ALL >> np.uint64(64 - bits))


@jit
def random_uniform(seed: int, counter: int, digits: int) -> float:
    """Float in ``[0, 1)`` of ``digits`` random digits."""
    a, b, _, _ = philox(seed, counter)
    return unit(a, b, digits)


@jit
def random_normal(seed: int, counter: int, bits: int) -> float:
    """Standard normal value for a float of ``bits`` bits, by Box and Muller from two uniform ``f32`` or
    ``f64``."""
    a, b, c, d = philox(seed, counter)
    if bits == 64:
        u, v = unit(a, b, 53), unit(c, d, 53)
    else:
        u, v = unit(a, b, 24), unit(b, a, 24)
    return math.sqrt(-2 * math.log1p(-u)) * math.cos(2 * math.pi * v)
