"""Test cases: hand-built kernels with the data of a run, and their comparison with the reference interpreter."""

from __future__ import annotations

import json
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from triton_scheduled import scheduled

from litz_codegen_triton.emit.indexing.statements import values_of
from litz_ir.dtypes import DType, f32, f64
from litz_ir.interp.encoding import decode, encode, storage_dtype
from litz_ir.interp.kernel import run_kernel as run_reference
from litz_ir.loops import Axis
from litz_ir.plan import Access, Kernel, Parameter, Phase, Statement, TileRequest
from litz_ir.scalar import Expr, Op, Scalar, walk
from litz_ir.symbols import Size, SymbolInfo, symbol

Make = Callable[[np.random.Generator, int], Any]


@dataclass(frozen=True)
class Case:
    """A kernel and the data of a run."""

    kernel: Kernel
    """The kernel, with a request for a schedule."""
    sizes: Mapping[str, int]
    """The elements of each buffer."""
    fill: Mapping[str, Make] = field(default_factory=dict)
    """Functions that make the contents of buffers that are read; the others have random contents."""
    symbols: Mapping[str, int | float] = field(default_factory=dict)
    """The value of each symbol."""
    rtol: float = 2e-6
    """The relative tolerance of the comparison."""
    atol: float = 1e-6
    """The absolute tolerance of the comparison."""

    @property
    def name(self) -> str:
        return self.kernel.name

    def multiplies(self, by: str) -> bool:
        """True where values use an operation whose name begins with ``by``, such as ``mul_f8`` or ``mul_tf32``."""
        statements = (each for phase in self.kernel.phases for each in phase.statements)
        values = (value for each in statements for value in values_of(each))
        return any(isinstance(node, Op) and node.name.startswith(by) for node in walk(*values))


def normal(rng: np.random.Generator, count: int) -> Any:
    return rng.standard_normal(count) * 2


def special(rng: np.random.Generator, count: int) -> Any:
    """Return normal values with zeros, infinities, NaN, ties of rounding, large and tiny values among them."""
    values = rng.standard_normal(count) * 3
    odd = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        np.inf,
        -np.inf,
        np.nan,
        0.5,
        -0.5,
        2.5,
        3.5,
        1e-7,
        -1e-7,
        20.0,
        -20.0,
        0.9999,
        88.0,
    ]
    chosen = rng.permutation(count)[: min(count, 4 * len(odd))]
    values[chosen] = np.resize(odd, len(chosen))
    return values


def below(limit: int, low: int = 0) -> Make:
    return lambda rng, count: rng.integers(low, limit, count)


def kernel(
    name: str,
    parameters: Sequence[tuple[str, DType, Access]],
    outer: Sequence[tuple[str, Size]],
    *phases: tuple[Sequence[tuple[str, Size]], Sequence[Statement]],
    symbols: Sequence[SymbolInfo] = (),
    schedule: TileRequest | None = None,
) -> Kernel:
    return Kernel(
        name,
        tuple(Parameter(n, d, access, 16) for n, d, access in parameters),
        tuple(symbols),
        tuple(Axis(*axis) for axis in outer),
        (),
        tuple(Phase(tuple(Axis(*axis) for axis in axes), tuple(statements)) for axes, statements in phases),
        schedule or TileRequest(),
    )


I0, I1, I2, R0, R1, R2 = map(symbol, ("i0", "i1", "i2", "r0", "r1", "r2"))


def scalar(name: str, dtype: DType = f32) -> Expr:
    return Scalar(name, dtype)


def row_element(length: int = 70) -> Size:
    """Return the offset of an element in rows of a length."""
    return I0 * length + R0


def buffers_of(case: Case) -> dict[str, Any]:
    """Return the filled buffers of a case, as they are in memory; the same in every process."""
    rng = np.random.default_rng(zlib.crc32(case.name.encode()))
    filled = {}
    for parameter in case.kernel.parameters:
        count = case.sizes[parameter.name]
        default = normal if parameter.dtype.is_float else below(2 if parameter.dtype.is_bool else 100)
        values = np.asarray(case.fill.get(parameter.name, default)(rng, count))
        if parameter.access == "out":
            values = np.zeros(count)
        cast_values = (
            values.astype(np.float64 if parameter.dtype == f64 else np.float32)
            if parameter.dtype.is_float
            else values
        )
        filled[parameter.name] = np.ascontiguousarray(encode(cast_values, parameter.dtype)).astype(
            storage_dtype(parameter.dtype)
        )
    return filled


def difference(case: Case, got: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Return the first difference between the written buffers of two runs; empty where there is none."""
    for parameter in case.kernel.parameters:
        if parameter.access in ("in", "workspace"):
            continue
        a, b = got[parameter.name], wanted[parameter.name]
        if parameter.dtype.is_float:
            a, b = decode(a, parameter.dtype), decode(b, parameter.dtype)
            close = np.isclose(a, b, rtol=case.rtol, atol=case.atol, equal_nan=True)
        else:
            close = a == b
        if not close.all():
            at = int(np.flatnonzero(~close)[0])
            return f"{parameter.name}[{at}] is {a[at]}, not {b[at]} ({(~close).sum()} of {close.size} differ)"
    return ""


def reference(case: Case) -> dict[str, Any]:
    """Return the case's buffers after a run of the reference interpreter."""
    buffers = buffers_of(case)
    run_reference(case.kernel, buffers, case.symbols)
    return buffers


def interpreted(case: Case, folder: Path) -> dict[str, Any]:
    """Return the case's buffers after a run in Triton's interpreter."""
    from litz_codegen_triton.runtime.interpret import run_kernel

    buffers = buffers_of(case)
    run_kernel(scheduled(case.kernel), buffers, case.symbols, folder)
    return buffers


def main(chosen: Sequence[Case], names: Sequence[str]) -> None:
    """Compare these cases (or the named ones of them) and print one line of JSON for each."""
    with tempfile.TemporaryDirectory() as folder:
        for case in chosen:
            if names and case.name not in names:
                continue
            try:
                found = difference(case, interpreted(case, Path(folder)), reference(case))
            except Exception as error:
                found = f"{type(error).__name__}: {error}"
            print(json.dumps({"case": case.name, "difference": found}), flush=True)
