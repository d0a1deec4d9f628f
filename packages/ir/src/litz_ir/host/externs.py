"""The table of routines that a plan calls, and the routines that NumPy can run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from litz_ir.dtypes import DType, bf16, f16
from litz_ir.errors import DTypeError
from litz_ir.interp.calls import find_extern
from litz_ir.interp.encoding import Array, decode, encode
from litz_ir.interp.graph import sort_positions


class ExternTable(Mapping[str, Callable[..., Any]]):
    """Routines by name; ``litz_ir.interp.calls.Externs`` defines their arguments."""

    def __init__(self, routines: Mapping[str, Callable[..., Any]]) -> None:
        self._routines = dict(routines)

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """The routine called ``name``; raises :class:`ExternNotFound` with similar names."""
        return find_extern(self._routines, name)

    def __contains__(self, name: object) -> bool:
        return name in self._routines

    def __iter__(self) -> Iterator[str]:
        return iter(self._routines)

    def __len__(self) -> int:
        return len(self._routines)

    def extended(self, routines: Mapping[str, Callable[..., Any]]) -> ExternTable:
        """The table with further ``routines``, which take precedence."""
        return ExternTable({**self._routines, **routines})


def numpy_externs() -> ExternTable:
    """Matmuls and sorts over NumPy arrays in memory form.

    A ``uint16`` array counts as ``bf16``, since no library has matmuls of unsigned 16-bit integers.
    """
    return ExternTable(
        {
            "matmul": _matmul,
            "aten.mm.default": _matmul,
            "aten.bmm.default": _matmul,
            "aten.mv.default": _matmul,
            "aten.dot.default": _matmul,
            "aten.addmm.default": _matmul_plus,
            "aten.baddbmm.default": _matmul_plus,
            "aten.addmv.default": _matmul_plus,
            "linear": _linear,
            "sort": _sort,
        }
    )


def _narrow(array: Array) -> DType | None:
    """The 16-bit float that an array stores, or ``None``."""
    if array.dtype == np.uint8:
        raise DTypeError(
            "a matmul of 8-bit arrays is ambiguous in NumPy",
            hint="cast 8-bit floats to f32 before the matmul",
        )
    return {np.dtype(np.uint16): bf16, np.dtype(np.float16): f16}.get(array.dtype)


def _values(array: Array) -> Array:
    narrow = _narrow(array)
    return array if narrow is None else decode(array, narrow)


def _as(values: Array, like: Array) -> Array:
    narrow = _narrow(like)
    return np.asarray(values, like.dtype) if narrow is None else encode(values, narrow)


def _matmul(a: Array, b: Array) -> Array:
    return _as(np.matmul(_values(a), _values(b)), a)


def _matmul_plus(bias: Array, a: Array, b: Array, *, beta: float = 1, alpha: float = 1) -> Array:
    result = np.matmul(_values(a), _values(b))
    if alpha != 1:
        result = result * result.dtype.type(alpha)
    if beta == 0:  # the bias is not read, so it may be NaN
        return _as(np.asarray(result), a)
    added = _values(bias)
    return _as(np.asarray(result + (added if beta == 1 else added * added.dtype.type(beta))), a)


def _linear(x: Array, weight: Array, bias: Array | None) -> Array:
    transposed = np.swapaxes(weight, 0, 1)
    return _matmul(x, transposed) if bias is None else _matmul_plus(bias, x, transposed)


def _sort(source: Array, dimension: int, descending: bool, stable: bool) -> tuple[Array, Array]:
    """Sort by decoded values; NumPy's sort is always stable."""
    narrow = {np.dtype(np.uint16): bf16}.get(source.dtype)
    positions = sort_positions(source if narrow is None else decode(source, narrow), dimension, descending)
    ordered = np.take_along_axis(source, positions, dimension) if source.ndim else source.copy()
    return ordered, positions
