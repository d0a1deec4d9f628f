"""Counter-based random numbers: Philox4x32-10 (Salmon et al., 2011).

The seed is the key: its low and its high 32 bits. The counter's low and high 32 bits are the first two words of the
block, the other two are zero. A block gives four words ``w0 .. w3``:

- *bits*: the low bits of ``w0`` for types of up to 32 bits (the lowest one for ``b1``), ``w0 | w1 << 32`` for 64 bits;
- *uniform* in ``[0, 1)``: the top ``m + 1`` bits of ``w0`` (of ``w1 << 32 | w0`` for ``f64``) times ``2**-(m + 1)``,
  where ``m`` is the mantissa width of the requested type, so that no value rounds up to one;
- *normal*: ``sqrt(-2 log(1 - u)) * cos(2 pi v)`` (Box and Muller), where ``u`` and ``v`` are uniform ``f32`` values
  from ``w0`` and ``w1`` (``f64`` values from ``w1 << 32 | w0`` and ``w3 << 32 | w2`` for ``f64``), then rounded.
"""

from __future__ import annotations

import numpy as np

from litz_ir.dtypes import DType
from litz_ir.interp.encoding import Array, storage_dtype

_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)


def philox(seed: Array, counter: Array) -> tuple[Array, Array, Array, Array]:
    """The four 32-bit words of the block at each counter, as ``uint64`` arrays."""
    seed, counter = np.broadcast_arrays(
        np.asarray(seed).astype(np.uint64), np.asarray(counter).astype(np.uint64)
    )
    key = [seed & _LOW, seed >> np.uint64(32)]
    zero = np.zeros_like(counter)
    words = (counter & _LOW, counter >> np.uint64(32), zero, zero)
    for _ in range(_ROUNDS):
        first = words[0] * np.uint64(_MULTIPLIERS[0])
        second = words[2] * np.uint64(_MULTIPLIERS[1])
        words = (
            (second >> np.uint64(32)) ^ words[1] ^ key[0],
            second & _LOW,
            (first >> np.uint64(32)) ^ words[3] ^ key[1],
            first & _LOW,
        )
        key = [(k + np.uint64(w)) & _LOW for k, w in zip(key, _WEYL)]
    return words


def random_bits(seed: Array, counter: Array, dtype: DType) -> Array:
    """Random integers or bools of ``dtype``."""
    words = philox(seed, counter)
    if dtype.is_bool:
        return (words[0] & np.uint64(1)).astype(bool)
    bits = words[0] | (words[1] << np.uint64(32)) if dtype.bits == 64 else words[0]
    return bits.astype(storage_dtype(dtype))


def random_uniform(seed: Array, counter: Array, dtype: DType) -> Array:
    """Floats in ``[0, 1)``, as ``float64`` values that are exact in ``dtype``."""
    words = philox(seed, counter)
    return _unit(words[0], words[1], dtype.mantissa)


def random_normal(seed: Array, counter: Array, dtype: DType) -> Array:
    """Standard normal values, as ``float64``, not yet rounded to ``dtype``."""
    words = philox(seed, counter)
    if dtype.bits == 64:
        u, v = _unit(words[0], words[1], 52), _unit(words[2], words[3], 52)
    else:
        u, v = _unit(words[0], words[1], 23), _unit(words[1], words[0], 23)
    return np.asarray(np.sqrt(-2 * np.log1p(-u)) * np.cos(2 * np.pi * v))


def _unit(low: Array, high: Array, mantissa: int) -> Array:
    digits = mantissa + 1
    if digits > 32:
        bits = ((high << np.uint64(32)) | low) >> np.uint64(64 - digits)
    else:
        bits = low >> np.uint64(32 - digits)
    return bits.astype(np.float64) * 2.0**-digits
