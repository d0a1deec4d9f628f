"""Inputs of the functions, in chunks that depend on their number alone: all floats, and samples of the rest.

A chunk holds :data:`CHUNK` inputs. One argument in ``f32``: every 2^14th bit pattern, so that 2^14 chunks are all of
them. Two arguments in ``f32``: a pair for each pair of signs and exponents. In ``f64``: a number for each sign and
exponent, 64 times. Mantissas are random. Every second chunk of the latter two has numbers of moderate exponents
instead, or pairs on which the function neither overflows nor vanishes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from maths.functions import DType, Function

Array = npt.NDArray[Any]

CHUNK = 1 << 18
ALL_CHUNKS = (1 << 32) // CHUNK
SEED = 20261122
_ODD = 8021
"""Coprime to the number of chunks, so that the first few lie far apart."""


def chunk(function: Function, dtype: DType, number: int) -> tuple[Array, Array]:
    """Chunk ``number`` of the inputs; the second array is the first where the function takes one argument."""
    if function.arity == 1 and dtype == "f32":
        x = patterns(number)
        return x, x
    draw = np.random.Generator(np.random.SFC64((SEED, number)))
    ordinary = number % 2 == 1
    if function.arity == 1:
        x = ordinary_doubles(draw) if ordinary else all_exponents(draw)
        return x, x
    if not ordinary:
        return exponent_pairs(draw) if dtype == "f32" else (shuffled(draw), shuffled(draw))
    return power_pairs(draw, dtype) if function.focus == "power" else near_pairs(draw, dtype)


def patterns(number: int) -> Array:
    """One float in :data:`ALL_CHUNKS`, in the order of their bits; chunk 0 has zeros, infinities and powers of two."""
    low = number * _ODD % ALL_CHUNKS
    return np.arange(low, 1 << 32, ALL_CHUNKS, dtype=np.uint32).view(np.float32)


_KEPT32: Array = np.array([0, 0x7F0000] + [0x7FFFFF] * 6, np.uint32)
_KEPT64: Array = np.array([0, 0x7F << 45] + [(1 << 52) - 1] * 6, np.uint64)


def _mantissas(draw: np.random.Generator, count: int, dtype: DType) -> Array:
    """Random ones; one in eight is zero, one in eight has a few leading digits alone, as whole numbers have."""
    unsigned, width, table = (np.uint32, 32, _KEPT32) if dtype == "f32" else (np.uint64, 64, _KEPT64)
    bits = draw.integers(0, 1 << width, count, dtype=unsigned)
    kept: Array = bits & table[np.right_shift(bits, width - 3, dtype=unsigned)]
    return kept


_EXPONENTS = np.arange(1 << 9, dtype=np.uint32) << np.uint32(23)
_FIRST, _SECOND = np.repeat(_EXPONENTS, 1 << 9), np.tile(_EXPONENTS, 1 << 9)


def exponent_pairs(draw: np.random.Generator) -> tuple[Array, Array]:
    """A pair of floats for each pair of signs and exponents: 2^9 times 2^9."""
    a, b = _FIRST | _mantissas(draw, CHUNK, "f32"), _SECOND | _mantissas(draw, CHUNK, "f32")
    return a.view(np.float32), b.view(np.float32)


def all_exponents(draw: np.random.Generator) -> Array:
    """Doubles of each sign and exponent, 64 of each."""
    exponent = np.arange(CHUNK, dtype=np.uint64) % np.uint64(1 << 12) << np.uint64(52)
    return (exponent | _mantissas(draw, CHUNK, "f64")).view(np.float64)


def shuffled(draw: np.random.Generator) -> Array:
    """The same in random order."""
    x = all_exponents(draw)
    draw.shuffle(x)
    return x


def ordinary_doubles(draw: np.random.Generator) -> Array:
    """Doubles of both signs and of sizes from 2^-30 to 2^10, as many of each binary order; one in four is within 1."""
    size = draw.uniform(1, 2, CHUNK) * np.exp2(draw.integers(-30, 10, CHUNK))
    size[::4] = draw.uniform(0, 1, CHUNK // 4)
    return np.copysign(size, draw.uniform(-1, 1, CHUNK))


def near_pairs(draw: np.random.Generator, dtype: DType) -> tuple[Array, Array]:
    """Numbers of any exponent, and others within 2^16 of them either way."""
    real, unsigned, digits, half = (
        (np.float32, np.uint32, 23, 1 << 8) if dtype == "f32" else (np.float64, np.uint64, 52, 1 << 11)
    )
    exponent = draw.integers(0, half, CHUNK, dtype=np.int16)
    other = np.clip(exponent + draw.integers(-16, 17, CHUNK, dtype=np.int16), 0, half - 1)
    made = []
    for each in (exponent, other):
        signed = each + draw.integers(0, 2, CHUNK, dtype=np.int16) * np.int16(half)
        bits: Array = np.left_shift(signed.astype(unsigned), digits, dtype=unsigned)
        made.append((bits | _mantissas(draw, CHUNK, dtype)).view(real))
    return made[0], made[1]


def power_pairs(draw: np.random.Generator, dtype: DType) -> tuple[Array, Array]:
    """Bases of any size, half of them near 1, and exponents under which the power is neither zero nor infinite."""
    lowest, highest, digits = (-151.0, 129.0, 24) if dtype == "f32" else (-1080.0, 1025.0, 53)
    logarithm = draw.uniform(lowest + 25, highest - 2, CHUNK)
    small = np.exp2(draw.uniform(-digits, 0, CHUNK // 2)) * draw.choice((-0.5, 1.0), CHUNK // 2)
    logarithm[::2] = np.log2(1 + small)
    base = np.exp2(logarithm).astype(np.float32 if dtype == "f32" else np.float64)
    exact = np.log2(base, dtype=np.float64)
    exact[exact == 0] = 1
    exponent = (draw.uniform(lowest, highest, CHUNK) / exact).astype(base.dtype)
    whole = draw.integers(0, 8, CHUNK) == 0
    exponent[whole] = np.rint(exponent[whole])
    base[whole] *= draw.choice((-1, 1), int(whole.sum())).astype(base.dtype)
    return base, exponent
