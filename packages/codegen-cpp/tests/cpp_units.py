"""Test units of the header and toolchain tests, compiled once for each instruction set that this CPU runs."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from litz_codegen_cpp.toolchain import isa
from litz_codegen_cpp.toolchain.build import BuildOptions, compile_source
from litz_codegen_cpp.toolchain.compilers import find_compiler
from litz_ir.errors import CompilerNotFound

Array = np.ndarray[Any, Any]


def runnable() -> list[str]:
    """Names of the instruction sets that this CPU runs, best first."""
    names = []
    present: isa.Isa | None = isa.detect()
    while present is not None:
        if present.name not in names:
            names.append(present.name)
        present = isa.step_down(present)
    return names


def build_unit(source: str, name: str, folder: Path, *, widen: int = 1, quick: bool = False) -> ctypes.CDLL:
    """Compile a unit for the set called ``name``, with ``widen`` times its lanes, and load it.

    ``quick`` optimises less, for units of many functions whose speed is of no interest.

    Skips the test where there is no compiler.
    """
    try:
        compiler = find_compiler()
    except CompilerNotFound as error:
        pytest.skip(str(error))
    out = folder / f"{name}.so"
    chosen = isa.by_name(name)
    widened = replace(chosen, lanes=chosen.lanes * widen)
    options = BuildOptions(optimize="-O1" if quick else "-O2")
    compile_source(source, isa=widened, compiler=compiler, out=out, options=options)
    return ctypes.CDLL(str(out))


def call(unit: ctypes.CDLL, name: str, *args: Array | int) -> None:
    """Call a function of pointers and 64-bit integers."""
    entry = unit[name]
    entry.restype = None
    entry(*(ctypes.c_int64(a) if isinstance(a, int) else ctypes.c_void_p(a.ctypes.data) for a in args))


def ulps(got: Array, want: Array, dtype: type[np.floating[Any]]) -> Array:
    """Distance of ``got`` from the exact ``want`` (float64 or wider) in units of the last place of ``dtype``.

    Zero where both are NaN, or the same infinity; infinite where only one is, or where a zero has the wrong sign.
    """
    info = np.finfo(dtype)
    with np.errstate(all="ignore"):
        wide = np.asarray(got).astype(np.longdouble)
        exact = np.asarray(want).astype(np.longdouble)
        _, exponent = np.frexp(exact)
        exponent = np.maximum(exponent, info.minexp + 1)
        unit = np.ldexp(np.longdouble(1), exponent - (info.nmant + 1))
        distance = np.abs(wide - exact) / unit
        rounded = exact.astype(dtype)
        both_nan = np.isnan(wide) & np.isnan(exact)
        distance = np.where(both_nan | (got == rounded) & np.isinf(rounded), 0, distance)
        distance = np.where(np.isinf(got) & ~np.isinf(exact) & np.isinf(rounded), 0, distance)
        wrong_sign = (got == 0) & (exact == 0) & (np.signbit(got) != np.signbit(exact))
        distance = np.where(np.isnan(distance) | wrong_sign, np.inf, distance)
    return np.asarray(distance, np.float64)
