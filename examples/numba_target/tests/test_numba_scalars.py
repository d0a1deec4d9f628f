"""Each scalar operation and conversion over special values: zeros, infinities, NaN, limits of integers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from litz_ir.dtypes import (
    ALL,
    DType,
    b1,
    bf16,
    dtype,
    f8e4m3fnuz,
    f16,
    f32,
    f64,
    i8,
    i64,
    u32,
    u64,
)
from litz_ir.scalar import OPS
from litz_target_numba.ops_table import SPELLINGS

Array = npt.NDArray[Any]
RunTwice = Callable[[str, Sequence[Any]], tuple[Sequence[Array], Sequence[Array]]]

POINTS = (
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 3.0, -3.0, 7.0, 0.1, -0.3, 25.3, -25.7, 1e4,
    np.inf, -np.inf, np.nan, 2.0**31, -(2.0**31) - 1, 2.0**63, 2.0**64, -(2.0**63), 87.0, -88.0, 170.0, -7.0,
)  # fmt: skip
STORED = {bf16: np.uint16, f8e4m3fnuz: np.uint8, f16: np.float16, b1: np.bool_}
INEXACT = frozenset(name for name, row in OPS.items() if row.cost >= 10)
ULP = 64


def special_values(of: DType) -> Array:
    """Return special values of a dtype, in memory form."""
    if of.is_bool:
        return np.array([False, True])
    if of.is_integer:
        low, high = (
            (-(1 << (of.bits - 1)), (1 << (of.bits - 1)) - 1) if of.is_signed else (0, (1 << of.bits) - 1)
        )
        found = [low, low + 1, high, high - 1, *range(8), 12, 31, 40, 63, 64, -1, -2, -3, -7, -12]
        return np.array([each for each in found if low <= each <= high], dtype=of.torch_name)
    if of in (bf16, f8e4m3fnuz):  # all bits that memory may contain, or every fifth of their upper byte
        bits = np.arange(256) if of.bits == 8 else np.arange(0, 1 << 16, 5 << 8) + 0x80
        return np.random.default_rng(0).permutation(bits).astype(STORED[of])[:48]
    with np.errstate(over="ignore"):
        points = np.array([*POINTS, of.largest, -of.largest, of.smallest, -of.smallest])
        return points.astype(STORED.get(of, of.torch_name))


def accepts(name: str, of: DType) -> bool:
    """Return whether an operation of up to three equal dtypes takes this one."""
    row = OPS[name]
    if row.arity > 3 or row.rule not in ("same", "compare", "test"):
        return False
    kinds = {"any": True, "number": not of.is_bool, "float": of.is_float, "integer": of.is_integer}
    return kinds.get(row.accepts, of.is_bool or (row.accepts == "bits" and of.is_integer))


def bodies(of: DType) -> dict[str, tuple[DType, str]]:
    """Return the result's dtype and the text of each operation and conversion of operands of ``of``."""
    found = {}
    for name, row in OPS.items():
        if accepts(name, of):
            operands = ", ".join(f"%{operand}[i0]" for operand in "xyz"[: row.arity])
            found[name] = (of if row.rule == "same" else b1, f"{name}({operands})")
    for other in ALL:
        if other != of:
            found[f"cast_{other}"] = (other, f"{other}(%x[i0])")
        if other != of and other.bits == of.bits and not {other, of} & {b1}:
            found[f"bits_{other}"] = (other, f"bitcast(%x[i0], {other})")
    return found


def values_of(array: Array, of: DType) -> Array:
    """Return an array of numbers whose comparison is that of the values; all NaN of 8 bits have one code."""
    if of == bf16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    if of.is_narrow and not of.unsigned_zero:
        return np.where((array & 0x7F) > of.largest_code + (not of.finite), 0x7F, array)
    return array


def agree(name: str, of: DType, expected: Array, found: Array) -> Array:
    """Return where two results agree: in all bits, but for the accuracy of functions and the sign of equal
    zeros."""
    a, b = values_of(expected, of), values_of(found, of)
    if a.dtype.kind != "f":
        return np.asarray(a == b)
    same = np.asarray((a == b) & (np.signbit(a) == np.signbit(b)) | (np.isnan(a) & np.isnan(b)))
    if name in ("fmin", "fmax"):
        return np.asarray(same | (a == b))
    if name not in INEXACT:
        return same
    with np.errstate(all="ignore"):
        allowed = ULP * np.maximum(np.abs(a) * np.finfo(a.dtype).eps, of.smallest)
        return np.asarray(same | (np.abs(a - b) <= allowed))


@pytest.mark.parametrize("of", ["f64", "f32", "f16", "bf16", "f8e4m3fnuz", "i64", "i8", "u64", "u32", "b1"])
def test_scalars_are_those_of_the_interpreter(of: str, run_twice: RunTwice) -> None:
    given, special = dtype(of), special_values(dtype(of))
    x, y = (np.ascontiguousarray(each).reshape(-1) for each in np.meshgrid(special, special))
    z = np.roll(x, 3)
    written = bodies(given)
    operands = ", ".join(f"%{name}: {of}[{x.size}] fixed" for name in "xyz")
    lines = [f"%o.{k} = pointwise {d}[i0: {x.size}] fixed {{ {t} }}" for k, (d, t) in written.items()]
    results = ", ".join(f"%o.{name}" for name in written)
    expected, found = run_twice(
        f"graph scalars on numba ({operands}) -> ({results}) {{\n" + "\n".join(lines) + "\n}", [x, y, z]
    )
    # Programs may not rely on the gcd of the smallest integer.
    ignored = {"gcd": (x == special.min()) | (y == special.min())}
    for (name, (result, _)), a, b in zip(written.items(), expected, found, strict=True):
        wrong = ~(agree(name, result, a, b) | ignored.get(name, np.False_))
        if wrong.any():
            k = int(np.flatnonzero(wrong)[0])
            raise AssertionError(
                f"{name} of {x[k]}, {y[k]}, {z[k]}: expected {a[k]}, got {b[k]}, {wrong.sum()} wrong"
            )


def test_every_operation_is_spelled() -> None:
    assert OPS.keys() - SPELLINGS.keys() == {"cast", "bitcast"}
    assert SPELLINGS.keys() <= OPS.keys()
    assert {f64, f32, f16, i64, i8, u64, u32} <= set(ALL)
