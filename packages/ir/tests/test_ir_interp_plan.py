"""Kernels in the reference interpreter: phases, scratch arrays, accumulators, and conflicting outer points."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from litz_ir.dtypes import DType, bf16, f32, i64
from litz_ir.errors import DTypeError, GraphError, IndexOutOfRange
from litz_ir.interp.encoding import decode, encode
from litz_ir.interp.kernel import run_kernel
from litz_ir.loops.nodes import Axis, NamedCombiner
from litz_ir.plan.kernel import (
    Accumulate,
    Kernel,
    Parameter,
    Phase,
    ScanStore,
    ScratchArray,
    Statement,
    Store,
)
from litz_ir.plan.schedule import CpuLoops
from litz_ir.scalar.build import cast, const, index, load, masked, op
from litz_ir.scalar.expr import Indirect, Scalar
from litz_ir.symbols.table import SymbolInfo
from litz_ir.symbols.term import Size, symbol

i, j, s = symbol("i"), symbol("j"), symbol("s")


def kernel(
    *phases: Phase,
    outer: tuple[Axis, ...] = (),
    parameters: tuple[Parameter, ...] = (Parameter("x", f32, "in"), Parameter("o", f32, "out")),
    scratch: tuple[ScratchArray, ...] = (),
    symbols: tuple[SymbolInfo, ...] = (),
) -> Kernel:
    return Kernel("k", parameters, symbols, outer, scratch, phases, CpuLoops())


def phase(*statements: Statement, axes: tuple[Axis, ...] = ()) -> Phase:
    return Phase(axes, statements)


def read(buffer: str, offset: Size, dtype: DType = f32) -> Any:
    return load(buffer, (offset,), dtype)


def softmax(rows: Size, columns: Size, scratch: bool) -> Kernel:
    """Three phases over a row: maximum, sum of exponentials (stored in scratch or recomputed), quotient."""
    x, axis = read("x", i * columns + j), Axis("j", columns)
    e = op("exp", op("sub", x, Scalar("m", f32)))
    again = read("e", j) if scratch else e
    stores = (Store("e", j, e),) if scratch else ()
    total = Accumulate((("z", f32),), NamedCombiner("sum"), (again,))
    return kernel(
        phase(Accumulate((("m", f32),), NamedCombiner("max"), (x,)), axes=(axis,)),
        *([phase(*stores, axes=(axis,))] if stores else []),
        phase(total, axes=(axis,)),
        phase(Store("o", i * columns + j, op("div", again, Scalar("z", f32))), axes=(axis,)),
        outer=(Axis("i", rows),),
        scratch=(ScratchArray("e", f32, 16),) if scratch else (),
        symbols=(SymbolInfo("s"),) if isinstance(columns, type(s)) else (),
    )


@pytest.mark.parametrize("scratch", [False, True])
@pytest.mark.parametrize("columns", [16, s], ids=["static", "symbolic"])
def test_softmax(columns: Size, scratch: bool) -> None:
    x = np.random.default_rng(0).normal(size=(5, 16)).astype(np.float32)
    o = np.zeros(80, np.float32)
    run_kernel(softmax(5, columns, scratch), {"x": x.reshape(-1), "o": o}, {"s": 16})
    expected = np.exp(x - x.max(1, keepdims=True))
    assert np.allclose(o.reshape(5, 16), expected / expected.sum(1, keepdims=True), rtol=1e-6)


def test_a_million_points_are_interpreted_quickly() -> None:
    x = np.random.default_rng(0).normal(size=(1024, 1024)).astype(np.float32)
    o = np.zeros(x.size, np.float32)
    start = time.perf_counter()
    run_kernel(softmax(1024, 1024, scratch=False), {"x": x.reshape(-1), "o": o}, {})
    assert time.perf_counter() - start < 20
    assert np.allclose(o.reshape(x.shape).sum(1), 1, atol=1e-5)


def test_a_kernel_may_overwrite_its_input() -> None:
    buffer = np.arange(6, dtype=np.float32)
    first, second = buffer[:], buffer[:]
    both = kernel(phase(Store("o", i, op("mul", read("x", i), const(2.0, f32)))), outer=(Axis("i", 6),))
    run_kernel(both, {"x": first, "o": second}, {})
    assert buffer.tolist() == [0, 2, 4, 6, 8, 10]


def test_values_of_a_phase_come_before_its_stores() -> None:
    swap = kernel(
        phase(Store("x", i, read("o", i)), Store("o", i, read("x", i))),
        outer=(Axis("i", 3),),
        parameters=(Parameter("x", f32, "inout"), Parameter("o", f32, "inout")),
    )
    x, o = np.arange(3, dtype=np.float32), np.arange(3, dtype=np.float32) + 10
    run_kernel(swap, {"x": x, "o": o}, {})
    assert x.tolist() == [10, 11, 12] and o.tolist() == [0, 1, 2]


def test_conflicting_outer_points_run_one_by_one() -> None:
    # Each point reads what the one before it stored: a running sum, if the points run in order.
    running_sum = kernel(
        phase(Store("o", i + 1, op("add", read("o", i), read("x", i)))),
        outer=(Axis("i", 5),),
        parameters=(Parameter("x", f32, "in"), Parameter("o", f32, "inout")),
    )
    x, o = np.arange(1, 6, dtype=np.float32), np.zeros(6, np.float32)
    run_kernel(running_sum, {"x": x, "o": o}, {})
    assert o.tolist() == [0, 1, 3, 6, 10, 15]


def test_a_phase_reads_what_an_earlier_one_stored() -> None:
    # Phase 1 reverses what phase 0 of the same outer point stored.
    axis = Axis("j", 4)
    twice = kernel(
        phase(Store("t", i * 4 + j, op("neg", read("x", i * 4 + j))), axes=(axis,)),
        phase(Store("o", i * 4 + j, read("t", i * 4 + 3 - j)), axes=(axis,)),
        outer=(Axis("i", 2),),
        parameters=(Parameter("x", f32, "in"), Parameter("t", f32, "inout"), Parameter("o", f32, "out")),
    )
    x = np.arange(8, dtype=np.float32)
    t, o = np.zeros(8, np.float32), np.zeros(8, np.float32)
    run_kernel(twice, {"x": x, "t": t, "o": o}, {})
    assert np.array_equal(o.reshape(2, 4), -x.reshape(2, 4)[:, ::-1])


def test_scan_store_restarts_on_every_row() -> None:
    axes = (Axis("i", 3), Axis("j", 4))
    scan = ScanStore(NamedCombiner("sum"), (read("x", i * 4 + j),), (("o", i * 4 + j),))
    x, o = np.arange(12, dtype=np.float32), np.zeros(12, np.float32)
    run_kernel(kernel(phase(scan, axes=axes)), {"x": x, "o": o}, {})
    assert np.array_equal(o.reshape(3, 4), np.cumsum(x.reshape(3, 4), axis=1))


@pytest.mark.parametrize("mode", ["set", "add", "mul", "min", "max"])
def test_store_modes_visit_points_in_order(mode: Any) -> None:
    place = Indirect(read("k", i, i64), 3, True)
    parameters = (Parameter("k", i64, "in"), Parameter("x", f32, "in"), Parameter("o", f32, "inout"))
    scatter = kernel(
        phase(Store("o", place, read("x", i), mode)), outer=(Axis("i", 4),), parameters=parameters
    )
    k, x, o = np.array([1, -1, 1, 2]), np.array([2, 3, 4, 5], np.float32), np.full(3, 3, np.float32)
    run_kernel(scatter, {"k": k, "x": x, "o": o}, {})
    expected = {"set": [3, 4, 5], "add": [3, 9, 11], "mul": [3, 24, 45], "min": [3, 2, 3], "max": [3, 4, 5]}[
        mode
    ]
    assert o.tolist() == expected


def test_masks_and_bounds() -> None:
    shifted = masked(op("ge", index(i), const(1, i64)), read("x", i - 1), const(0.0, f32))
    x, o = np.arange(4, dtype=np.float32), np.zeros(5, np.float32)
    run_kernel(kernel(phase(Store("o", i, shifted)), outer=(Axis("i", 5),)), {"x": x, "o": o}, {})
    assert o.tolist() == [0, 0, 1, 2, 3]
    with pytest.raises(IndexOutOfRange, match="index 4 is out of bounds"):
        run_kernel(kernel(phase(Store("o", i, read("x", i))), outer=(Axis("i", 5),)), {"x": x, "o": o}, {})
    with pytest.raises(IndexOutOfRange, match="index 5 is out of bounds"):
        run_kernel(
            kernel(phase(Store("o", i + 2, read("x", i))), outer=(Axis("i", 4),)), {"x": x, "o": o}, {}
        )


def test_empty_loops_give_identities_and_store_nothing() -> None:
    axis = Axis("j", 0)
    total = kernel(
        phase(Accumulate((("z", f32),), NamedCombiner("sum"), (read("x", j),)), axes=(axis,)),
        phase(Store("o", i, Scalar("z", f32))),
        outer=(Axis("i", 2),),
    )
    o = np.full(2, 7, np.float32)
    run_kernel(total, {"x": np.zeros(0, np.float32), "o": o}, {})
    assert o.tolist() == [0, 0]
    run_kernel(kernel(phase(Store("o", i, read("x", i))), outer=(Axis("i", 0),)), {"x": o[:0], "o": o}, {})
    assert o.tolist() == [0, 0]


def test_narrow_floats_and_symbols() -> None:
    parameters = (Parameter("x", bf16, "in"), Parameter("o", bf16, "out"))
    wide = op("mul", cast(read("x", i, bf16), f32), Scalar("alpha", f32))
    scaled = kernel(
        phase(Store("o", i, cast(wide, bf16))),
        outer=(Axis("i", 3),),
        parameters=parameters,
        symbols=(SymbolInfo("alpha", "float"),),
    )
    x, o = encode(np.array([1.0, 257.0, -3.0]), bf16), np.zeros(3, np.uint16)
    run_kernel(scaled, {"x": x, "o": o}, {"alpha": 1.5})
    assert decode(o, bf16).tolist() == [1.5, 384.0, -4.5]


def test_wrong_buffers_are_refused_by_name() -> None:
    copy = kernel(phase(Store("o", i, read("x", i))), outer=(Axis("i", 2),))
    o = np.zeros(2, np.float32)
    with pytest.raises(GraphError, match="kernel k has no buffer for the parameter x"):
        run_kernel(copy, {"o": o}, {})
    with pytest.raises(
        DTypeError, match="buffer x is f32 and must be stored as a float32 array, got float64"
    ):
        run_kernel(copy, {"x": np.zeros(2), "o": o}, {})
