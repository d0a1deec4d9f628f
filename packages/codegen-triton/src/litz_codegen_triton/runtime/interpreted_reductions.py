"""Reductions and scans of Triton's interpreter by whole tensors.

Triton's own combine one element after another in Python, which takes most of the time of kernels that have some.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from triton.runtime.interpreter import ReduceOps, ScanOps

Arrays = list[np.ndarray[Any, Any]]
"""The data of operands, with the axis of the reduction first."""


@contextmanager
def whole_tensors() -> Iterator[None]:
    """Have reductions and scans combine whole tensors inside a ``with`` block.

    Elements keep their order, and are combined in pairs, as on a GPU.
    """
    before = ReduceOps.generic_reduce, ScanOps.generic_scan
    ReduceOps.generic_reduce, ScanOps.generic_scan = _reduce, _scan
    try:
        yield
    finally:
        ReduceOps.generic_reduce, ScanOps.generic_scan = before


def _reduce(ops: ReduceOps, operands: Sequence[Any]) -> list[Any]:
    """Return the reductions of operands of one shape: neighbours are combined until one element is left.

    Sizes of Triton's tensors are powers of two.
    """
    shape = operands[0].handle.data.shape
    given = [each.handle.data.ravel() if ops.axis is None else each.handle.data for each in operands]
    found = [np.moveaxis(data, ops.axis or 0, 0) for data in given]
    while len(found[0]) > 1:
        found = _combined(ops, operands, [data[0::2] for data in found], [data[1::2] for data in found])
    results: list[Any] = [data[0] for data in found]
    if ops.keep_dims:
        kept = [1] * len(shape) if ops.axis is None else [*shape[: ops.axis], 1, *shape[ops.axis + 1 :]]
        results = [data.reshape(kept) for data in results]
    return [ops.to_tensor(data, each.dtype) for data, each in zip(results, operands, strict=True)]


def _scan(ops: ScanOps, operands: Sequence[Any]) -> list[Any]:
    """Return the inclusive scans of operands of one shape: each element is combined with those 1, 2, 4 ... before it.

    W. D. Hillis and G. L. Steele, "Data parallel algorithms", 1986.
    """
    found = [np.moveaxis(each.handle.data, ops.axis, 0) for each in operands]
    distance = 1
    while distance < len(found[0]):
        pairs = _combined(ops, operands, [np.roll(data, distance, 0) for data in found], found)
        for pair, data in zip(pairs, found, strict=True):
            pair[:distance] = data[:distance]  # there is no element so far before these
        found, distance = pairs, 2 * distance
    results = (np.moveaxis(data, 0, ops.axis) for data in found)
    return [ops.to_tensor(data, each.dtype) for data, each in zip(results, operands, strict=True)]


def _combined(ops: ReduceOps | ScanOps, operands: Sequence[Any], first: Arrays, second: Arrays) -> Arrays:
    """Return what the combiner makes of two arrays of elements for each operand, in the operands' dtypes."""
    given = (
        ops.to_tensor(data, each.dtype)
        for arrays in (first, second)
        for data, each in zip(arrays, operands, strict=True)
    )
    made = ops.combine_fn.fn(*given)
    values = made if isinstance(made, tuple) else (made,)
    return [
        np.broadcast_to(value.handle.data if hasattr(value, "handle") else value, data.shape).astype(
            data.dtype
        )
        for value, data in zip(values, first, strict=True)
    ]
