"""Conversion between complex NumPy arrays and their memory form, (real, imaginary) pairs on a last
dimension of two.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from litz_ir.errors import DTypeError
from litz_ir.interp.encoding import Array

_COMPLEX: Mapping[np.dtype[Any], np.dtype[Any]] = MappingProxyType(
    {np.dtype(np.float32): np.dtype(np.complex64), np.dtype(np.float64): np.dtype(np.complex128)}
)
_REAL = MappingProxyType({complex_dtype: real_dtype for real_dtype, complex_dtype in _COMPLEX.items()})


def as_complex(pairs: Array) -> Array:
    """The complex array over the memory of pairs; raises :class:`DTypeError` if NumPy has no such dtype."""
    dtype = _COMPLEX.get(pairs.dtype)
    if dtype is None:
        raise DTypeError(f"NumPy has no complex dtype with parts of {pairs.dtype}")
    return np.asarray(pairs.view(dtype)[..., 0])


def as_pairs(array: Array) -> Array:
    """The memory of a complex array as pairs; raises :class:`DTypeError` for an array that is not complex."""
    dtype = _REAL.get(array.dtype)
    if dtype is None:
        raise DTypeError(f"a complex array is expected, got {array.dtype}")
    return np.asarray(array[..., np.newaxis].view(dtype))
