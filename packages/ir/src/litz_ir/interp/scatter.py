"""Combination of values into elements of an array in memory, in the given order."""

from __future__ import annotations

import numpy as np

from litz_ir.dtypes import DType
from litz_ir.interp.encoding import Array, decode, encode
from litz_ir.loops.nodes import ScatterMode

_UFUNCS = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def scatter_into(flat: Array, dtype: DType, offsets: Array, values: Array, mode: ScatterMode) -> None:
    """Set ``flat[offsets] = values``, or combine them with the present elements; ``flat`` is a 1-d array in memory
    form.

    Equal offsets are visited in order: the last one wins under ``set``. Floats below 32 bits are combined in ``f32``
    and rounded once at the end.
    """
    if mode == "set":
        flat[offsets] = encode(values, dtype)
        return
    touched, positions = np.unique(offsets, return_inverse=True)
    current = decode(flat[touched], dtype)
    with np.errstate(all="ignore"):
        _UFUNCS[mode].at(current, positions.reshape(-1), values)
    flat[touched] = encode(current, dtype)
