"""Scalar operations at the edges of their dtypes, whose results are those of the reference interpreter to the
bit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from opencl_device import Array, graph_of, needs_device, on_device, plan_of

from litz_ir.dtypes import DType, dtype
from litz_ir.interp import run_graph, storage_dtype
from litz_ir.target import requirements_of

pytestmark = needs_device

FLOATS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    2.5,
    -2.5,
    3.0,
    -7.0,
    1e-39,
    -1e-45,
    16777217.0,
    3e38,
    np.inf,
    -np.inf,
    np.nan,
]
UNARY = "neg abs sign reciprocal floor ceil trunc round sqrt isnan isinf signbit".split()
BINARY = "add sub mul div remainder fmod floor_div copysign eq ne lt le gt ge".split()
INTEGER_UNARY = "neg abs sign bit_not".split()
INTEGER_BINARY = (
    "add sub mul floor_div remainder trunc_div fmod minimum maximum bit_and bit_or bit_xor "
    "shift_left shift_right pow"
).split()
CASTS = "i8 i16 i32 i64 u8 u16 u32 u64 b1 f32 f64".split()


def edges(of: DType) -> Array:
    """Values at the edges of a dtype."""
    if of.is_float:
        with np.errstate(over="ignore"):
            return np.array(FLOATS).astype(storage_dtype(of))
    limits = np.iinfo(storage_dtype(of))
    values = {
        limits.min,
        limits.min + 1,
        limits.max - 1,
        limits.max,
        0,
        1,
        2,
        3,
        7,
        limits.bits - 1,
        limits.bits,
    }
    signed = {-1, -2, -3, -7} if of.kind == "int" else set()
    return np.array(sorted(values | signed), storage_dtype(of))


def results(of: DType, bodies: Sequence[str], folder: Path) -> tuple[list[Array], list[Array]]:
    """Results of the device and of the reference interpreter for expressions over all pairs ``x``, ``y``."""
    x, y = (np.ravel(each) for each in np.meshgrid(edges(of), edges(of)))
    count = len(x)
    values = [f"  %o{k} = pointwise {each.replace('#', f'[i0: {count}]')}" for k, each in enumerate(bodies)]
    names = ", ".join(f"%o{k}" for k in range(len(bodies)))
    head = f"graph edges on opencl (%x: {of}[{count}] fixed, %y: {of}[{count}] fixed) -> ({names}) {{"
    graph = graph_of("\n".join([head, *values, "}"]))
    plan = plan_of(graph)
    assert all(of in requirements_of(kernel).dtypes for kernel in plan.kernels)
    return on_device(plan, [x, y], folder), [np.asarray(each) for each in run_graph(graph, [x, y])]


def same(bodies: Sequence[str], found: Sequence[Array], expected: Sequence[Array]) -> None:
    """Compare results, and the signs of zeros and of all numbers; NaN equals NaN."""
    for body, a, b in zip(bodies, found, expected, strict=True):
        np.testing.assert_array_equal(a, b, err_msg=body)
        if a.dtype.kind == "f":
            number = ~np.isnan(a)
            np.testing.assert_array_equal(np.signbit(a[number]), np.signbit(b[number]), err_msg=body)


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_floats(name: str, tmp_path: Path) -> None:
    tests = {"isnan", "isinf", "signbit", "eq", "ne", "lt", "le", "gt", "ge"}
    bodies = [f"{'b1' if op in tests else name}# {{ {op}(%x[i0]) }}" for op in UNARY]
    bodies += [f"{'b1' if op in tests else name}# {{ {op}(%x[i0], %y[i0]) }}" for op in BINARY]
    same(bodies, *results(dtype(name), bodies, tmp_path))


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_maximum_and_minimum_propagate_nan_and_fmax_and_fmin_do_not(name: str, tmp_path: Path) -> None:
    bodies = [f"{name}# {{ {op}(%x[i0], %y[i0]) }}" for op in ("maximum", "minimum", "fmax", "fmin")]
    found, expected = results(dtype(name), bodies, tmp_path)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)
    assert np.isnan(found[0]).sum() == 2 * len(FLOATS) - 1 and np.isnan(found[2]).sum() == 1


@pytest.mark.parametrize("name", ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"])
def test_integers_wrap_and_divide_as_the_reference_does(name: str, tmp_path: Path) -> None:
    bodies = [f"{name}# {{ {op}(%x[i0]) }}" for op in INTEGER_UNARY]
    bodies += [f"{name}# {{ {op}(%x[i0], %y[i0]) }}" for op in INTEGER_BINARY]
    same(bodies, *results(dtype(name), bodies, tmp_path))


@pytest.mark.parametrize("name", ["f32", "f64", "i64", "u64"])
def test_casts(name: str, tmp_path: Path) -> None:
    bodies = [f"{to}# {{ {to}(%x[i0]) }}" for to in CASTS if to != name]
    same(bodies, *results(dtype(name), bodies, tmp_path))
