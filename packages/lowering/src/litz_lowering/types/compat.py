"""Differences between the supported versions of torch (2.11 to 2.13)."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy.symbol import SymT, symbol_is_type

from litz_ir.dtypes import DType, f8e4m3fn, f32
from litz_ir.scalar import Expr, build

_LARGEST_ROUNDED = 464.0
"""Largest f32 that rounds to 448, the largest finite ``f8e4m3fn``."""


def backed_values(shape_env: ShapeEnv) -> Mapping[Any, Any]:
    """Value of each backed symbol at tracing time (``var_to_val`` before torch 2.12)."""
    values: Mapping[Any, Any] | None = getattr(shape_env, "backed_var_to_val", None)
    if values is None:
        values = shape_env.var_to_val
    return values


def is_unbacked(leaf: Any) -> bool:
    """True for a symbol that had no value at tracing time."""
    return symbol_is_type(leaf, SymT.UNBACKED_INT)


@functools.cache
def saturates() -> bool:
    """True where torch saturates to 448 in casts to ``float8_e4m3fn``, as ``litz_ir`` does; torch 2.11 gives NaN."""
    return not bool(torch.tensor(1e9).to(torch.float8_e4m3fn).isnan())


def rounded(value: Expr, dtype: DType) -> Expr:
    """Cast ``value`` to ``dtype`` with the rounding of the installed torch."""
    if dtype != f8e4m3fn or value.dtype == dtype or saturates():
        return build.cast(value, dtype)
    single = build.cast(value, f32)
    beyond = build.op("gt", build.op("abs", single), build.const(_LARGEST_ROUNDED, f32))
    return build.cast(build.op("where", beyond, build.const(math.nan, f32), single), dtype)
