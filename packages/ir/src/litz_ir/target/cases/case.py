"""A case of the conformance suite, and functions to write cases."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from litz_ir.dtypes import DType
from litz_ir.interp.encoding import decode, encode
from litz_ir.loops.nodes import Axis
from litz_ir.plan.horizontal_fusion import leaf_kernels
from litz_ir.plan.kernel import (
    Kernel,
    Parameter,
    Phase,
    ScratchArray,
    Statement,
    Store,
)
from litz_ir.plan.schedule import CpuLoops
from litz_ir.scalar.build import load
from litz_ir.scalar.expr import Op, nested_reductions
from litz_ir.scalar.node import Expr, walk
from litz_ir.symbols.table import SymbolInfo
from litz_ir.symbols.term import Size, symbol

Array = npt.NDArray[Any]

_UNWRITTEN = 0x3C
"""Every byte of an output before the kernel runs; elements that are not stored must keep it."""


@dataclass(frozen=True)
class Case:
    """A kernel with its inputs, and the accuracy required of its results."""

    name: str
    """Name, unique in the suite."""
    kernel: Kernel
    """The kernel that runs."""
    buffers: Mapping[str, Array]
    """Contents of each parameter before the run, in memory form."""
    symbols: Mapping[str, int | float] = field(default_factory=dict)
    """Values of the kernel's symbols."""
    ulp: int = 0
    """Units in the last place by which a float may differ from the reference."""
    relative_to_largest: bool = False
    """True if these are units of the largest value of the buffer instead of each value."""
    fails: bool = False
    """True if the kernel must report an index out of range."""
    signed_zeros: bool = True
    """True if the sign of a zero must be the reference's where ``ulp`` is 0; False where several are equally right."""

    @property
    def nested_reductions(self) -> bool:
        """True if a body contains a nested reduction."""
        return any(nested_reductions(*_values(each)) for each in self._statements())

    @property
    def fp8_matmul(self) -> bool:
        """True if 8-bit floats are multiplied at the device's precision."""
        values = (value for each in self._statements() for value in _values(each))
        return any(isinstance(node, Op) and node.name.startswith("mul_f8") for node in walk(*values))

    def _statements(self) -> Iterator[Statement]:
        for kernel in leaf_kernels(self.kernel):
            for phase in kernel.phases:
                yield from phase.statements

    def fresh(self) -> dict[str, Array]:
        """Copies of the buffers."""
        return {name: content.copy() for name, content in self.buffers.items()}

    def difference(self, name: str, expected: Array, found: Array) -> str:
        """A description of the differences between ``found`` and the reference's contents; empty if they agree."""
        dtype = self.kernel.parameter(name).dtype
        a, b = decode(expected, dtype), decode(found, dtype)
        wrong = a != b
        if dtype.is_float:
            with np.errstate(all="ignore"):
                wrong &= ~(np.isnan(a) & np.isnan(b))
                wide = np.abs(a.astype(np.float64))
                scale = wide[np.isfinite(wide)].max(initial=0.0) if self.relative_to_largest else wide
                allowed = self.ulp * np.maximum(scale * 2.0**-dtype.mantissa, dtype.smallest)
                wrong &= ~(np.isfinite(a) & (np.abs(a.astype(np.float64) - b.astype(np.float64)) <= allowed))
            if self.ulp == 0 and self.signed_zeros:
                wrong |= (a == b) & (np.signbit(a) != np.signbit(b))
        if not wrong.any():
            return ""
        position = int(np.flatnonzero(wrong)[0])
        count = f"{int(wrong.sum())} of {wrong.size} elements"
        return f"{count} of {name} differ, the first is element {position}: expected {a[position]}, got {b[position]}"


def _values(statement: Statement) -> tuple[Expr, ...]:
    return (statement.value,) if isinstance(statement, Store) else statement.values


# --- functions to write cases ----------------------------------------------------------------------------

i, j, k, n, m = (symbol(name) for name in "ijknm")


def values(name: str, dtype: DType, count: int, low: float = -4, high: float = 4) -> Array:
    """Random contents in memory form, which are the same on every machine for the same name."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    if dtype.is_bool:
        return np.asarray(rng.random(count) < 0.5)
    if dtype.is_float:
        return encode(rng.uniform(low, high, count), dtype)
    return encode(rng.integers(int(low), int(high), count), dtype)


def unwritten(dtype: DType, count: int) -> Array:
    """Contents of an output before the run, in memory form: a byte pattern, or false."""
    if dtype.is_bool:
        return np.zeros(count, bool)
    return np.full(count * dtype.itemsize, _UNWRITTEN, np.uint8).view(encode(np.zeros(1), dtype).dtype)


def at(buffer: str, offset: Size, dtype: DType) -> Expr:
    """An element of a flat buffer."""
    return load(buffer, (offset,), dtype)


def axes(**sizes: Size) -> tuple[Axis, ...]:
    """Axes of the given names and sizes."""
    return tuple(Axis(name, size) for name, size in sizes.items())


def case(
    name: str,
    *phases: Phase,
    inputs: Mapping[str, tuple[DType, Array]],
    outputs: Mapping[str, tuple[DType, int]],
    outer: Sequence[Axis] = (),
    inout: Sequence[str] = (),
    scratch: Sequence[ScratchArray] = (),
    symbols: Mapping[str, int | float] | None = None,
    vector: str | None = None,
    parallel: bool = True,
    ulp: int = 0,
    relative_to_largest: bool = False,
    fails: bool = False,
    signed_zeros: bool = True,
) -> Case:
    """A case whose kernel runs ``phases`` for every point of ``outer``; on a CPU the first outer axis runs
    on threads.
    """
    parameters = [Parameter(x, dtype, "inout" if x in inout else "in") for x, (dtype, _) in inputs.items()]
    parameters += [Parameter(x, dtype, "out") for x, (dtype, _) in outputs.items()]
    values = symbols or {}
    infos = tuple(
        SymbolInfo(
            s, "float" if isinstance(value, float) else "int", low=None if isinstance(value, float) else 0
        )
        for s, value in values.items()
    )
    schedule = CpuLoops(parallel=tuple(a.name for a in outer[:1]) if parallel else (), vector=vector)
    kernel = Kernel(
        f"conform_{name}", tuple(parameters), infos, tuple(outer), tuple(scratch), tuple(phases), schedule
    )
    buffers = {x: content for x, (_, content) in inputs.items()}
    buffers.update((x, unwritten(dtype, count)) for x, (dtype, count) in outputs.items())
    return Case(name, kernel, buffers, values, ulp, relative_to_largest, fails, signed_zeros)


def phase(*statements: Statement, over: Sequence[Axis] = ()) -> Phase:
    """A phase with these statements over these axes."""
    return Phase(tuple(over), statements)


def pointwise(
    name: str,
    inputs: Mapping[str, tuple[DType, Array]],
    *bodies: Expr,
    count: int,
    size: Size | None = None,
    symbols: Mapping[str, int | float] | None = None,
    ulp: int = 0,
    relative_to_largest: bool = False,
    signed_zeros: bool = True,
) -> Case:
    """``o0[i] = bodies[0]``, ``o1[i] = bodies[1]``, … for ``count`` points; ``size`` is the term for their number."""
    stores = [Store(f"o{number}", i, body) for number, body in enumerate(bodies)]
    return case(
        name,
        phase(*stores),
        inputs=inputs,
        outputs={f"o{number}": (body.dtype, count) for number, body in enumerate(bodies)},
        outer=axes(i=count if size is None else size),
        symbols=symbols,
        vector="i",
        ulp=ulp,
        relative_to_largest=relative_to_largest,
        signed_zeros=signed_zeros,
    )
