"""Kinds of reductions that NumPy computes faster than their definitions, or nearer to the exact value.

Arrays are reduced and scanned along their last axis. Floats are added and multiplied in ``f64``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from litz_ir.dtypes import DType, extreme_value
from litz_ir.interp.encoding import Array, compute_type

ArrayFunction = Callable[[Sequence[Array], Sequence[DType]], list[Array]]
"""Function from the values of elements, and their dtypes, to the results."""


def _extreme(dtype: DType, largest: bool) -> Array:
    return np.asarray(extreme_value(dtype, largest=largest), compute_type(dtype))


def _widened(x: Array, dtype: DType) -> Array:
    """The operand as sums use it: floats in ``f64``, bools as integers, integers at their own width."""
    if dtype.is_float:
        return x.astype(np.float64)
    return x.astype(np.int64) if dtype.is_bool else x


def _arithmetic_reduction(ufunc: np.ufunc) -> ArrayFunction:
    def reduce(values: Sequence[Array], sources: Sequence[DType]) -> list[Array]:
        wide = _widened(values[0], sources[0])
        return [np.asarray(ufunc.reduce(wide, axis=-1, dtype=wide.dtype))]

    return reduce


def _extremal_reduction(ufunc: np.ufunc, identity_is_largest: bool) -> ArrayFunction:
    def reduce(values: Sequence[Array], sources: Sequence[DType]) -> list[Array]:
        identity = _extreme(sources[0], identity_is_largest)
        return [np.asarray(ufunc.reduce(values[0], axis=-1, initial=identity))]

    return reduce


def _position(largest: bool) -> ArrayFunction:
    """The extreme value and the smallest position at which it occurs; NaN wins over numbers."""
    ufunc = np.maximum if largest else np.minimum

    def reduce(values: Sequence[Array], sources: Sequence[DType]) -> list[Array]:
        x, position = values
        best = ufunc.reduce(x, axis=-1, initial=_extreme(sources[0], not largest))
        tied = x == best[..., None]
        if sources[0].is_float:
            tied |= np.isnan(x) & np.isnan(best)[..., None]
        last = np.iinfo(position.dtype).max
        return [best, np.minimum.reduce(np.where(tied, position, last), axis=-1, initial=last)]

    return reduce


def _welford(values: Sequence[Array], sources: Sequence[DType]) -> list[Array]:
    """The mean first, then the squared differences from it."""
    wide = values[0].astype(np.float64)
    count = np.full(wide.shape[:-1], float(wide.shape[-1]))
    mean = wide.sum(axis=-1) / np.maximum(count, 1)
    return [mean, ((wide - mean[..., None]) ** 2).sum(axis=-1), count]


def _relative_sums(values: Sequence[Array], sources: Sequence[DType]) -> list[Array]:
    """The maximum, the sum of exponentials relative to it, and the sums of these times each further value."""
    x, *weighted = values
    peak = np.maximum.reduce(x, axis=-1, initial=_extreme(sources[0], False))
    weights = np.exp(x.astype(np.float64) - np.where(np.isneginf(peak), 0, peak)[..., None])
    return [
        peak,
        weights.sum(axis=-1),
        *((weights * each.astype(np.float64)).sum(axis=-1) for each in weighted),
    ]


NUMPY_REDUCTIONS: Mapping[str, ArrayFunction] = MappingProxyType(
    {
        "sum": _arithmetic_reduction(np.add),
        "prod": _arithmetic_reduction(np.multiply),
        "min": _extremal_reduction(np.minimum, True),
        "max": _extremal_reduction(np.maximum, False),
        "any": lambda values, sources: [np.asarray(np.logical_or.reduce(values[0] != 0, axis=-1))],
        "all": lambda values, sources: [np.asarray(np.logical_and.reduce(values[0] != 0, axis=-1))],
        "xor": lambda values, sources: [np.asarray(np.bitwise_xor.reduce(values[0], axis=-1))],
        "argmin": _position(False),
        "argmax": _position(True),
        "welford": _welford,
        "online_softmax": _relative_sums,
        "softmax_sum": _relative_sums,
    }
)
"""Functions that reduce, by kind; they give the identity for an empty axis."""

NUMPY_SCANS: Mapping[str, ArrayFunction] = MappingProxyType(
    {
        "sum": lambda values, sources: [np.add.accumulate(_widened(values[0], sources[0]), axis=-1)],
        "prod": lambda values, sources: [np.multiply.accumulate(_widened(values[0], sources[0]), axis=-1)],
        "min": lambda values, sources: [np.minimum.accumulate(values[0], axis=-1)],
        "max": lambda values, sources: [np.maximum.accumulate(values[0], axis=-1)],
        "any": lambda values, sources: [np.logical_or.accumulate(values[0] != 0, axis=-1)],
        "all": lambda values, sources: [np.logical_and.accumulate(values[0] != 0, axis=-1)],
        "xor": lambda values, sources: [np.bitwise_xor.accumulate(values[0], axis=-1)],
        "sort": lambda values, sources: [np.sort(values[0], axis=-1)[..., ::-1]],
    }
)
"""Functions that scan, by kind."""
