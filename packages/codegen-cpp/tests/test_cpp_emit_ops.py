"""Every row of the operation table has a spelling that compiles for its dtypes and computes its meaning."""

from __future__ import annotations

import numpy as np
import pytest
from cpp_kernels import I0, Case, N, decoded, ints, kernel, modes
from test_cpp_emit import launch, load_all

from litz_codegen_cpp.emit.source.ops_table import SPELLINGS
from litz_codegen_cpp.runtime.call import CpuModule
from litz_codegen_cpp.target import CpuTarget
from litz_codegen_cpp.toolchain.build import BuildOptions
from litz_ir.dtypes import (
    DType,
    b1,
    bf16,
    f8e4m3fn,
    f8e5m2fnuz,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    u8,
    u32,
    u64,
)
from litz_ir.errors import DTypeError
from litz_ir.interp.kernel import run_kernel
from litz_ir.plan import Statement, Store
from litz_ir.scalar import Expr
from litz_ir.scalar.build import cast, load, op
from litz_ir.scalar.ops_table import OPS, ScalarOp
from litz_ir.symbols import Size

DTYPES = (f32, f64, f16, bf16, f8e4m3fn, f8e5m2fnuz, i64, i32, i16, i8, u64, u32, u8, b1)
TOLERANCE = {f32: 4e-6, f64: 1e-12, f16: 2e-3, bf16: 2e-2, f8e4m3fn: 0.13, f8e5m2fnuz: 0.26}
BITCASTS = {
    f32: i32, f64: i64, f16: i16, i64: f64, i32: u32, u32: f32, u8: f8e4m3fn, f8e4m3fn: f8e5m2fnuz, f8e5m2fnuz: i8,
}  # fmt: skip


def applied(row: ScalarOp, dtype: DType) -> Expr:
    """The operation over loads of ``dtype``; raises ``DTypeError`` where it does not accept it."""
    x, y, z = (load(name, (I0,), dtype) for name in "xyz")
    match row.rule:
        case "random":
            if dtype.is_float != (row.name != "random_bits"):
                raise DTypeError("not a result of this operation")
            return op(row.name, load("s", (0,), i64), load("t", (I0,), i64), dtype=dtype)
        case "cast":
            return cast(x, f32 if dtype != f32 else i64)
        case "bitcast":
            if dtype not in BITCASTS:
                raise DTypeError("no partner of the same width")
            return op("bitcast", x, dtype=BITCASTS[dtype])
        case "where":
            return op("where", load("c", (I0,), b1), x, y)
    return op(row.name, *((x, y, z) * 3)[: row.arity])


def cases() -> list[Case]:
    """One kernel per dtype and vector mode, with a store for each operation."""
    found = []
    for dtype in DTYPES:
        stores: list[Statement] = []
        dtypes = {**dict.fromkeys("xyz", dtype), "c": b1, "s": i64, "t": i64}
        for row in OPS.values():
            try:
                value = applied(row, dtype)
            except DTypeError:
                continue
            dtypes[row.name] = value.dtype
            stores.append(Store(row.name, I0, value))
        outputs = " ".join(name for name in dtypes if len(name) > 1)
        made = kernel(
            f"ops_{dtype}", f"x y z c s t : {outputs}", [("i0", N)], [([], stores)], dtypes=dtypes, symbols=ints("n"),
        )  # fmt: skip
        lengths: dict[str, Size] = {**dict.fromkeys(dtypes, N), "s": 1}
        fill = (
            {"y": lambda random, length: np.abs(random.standard_normal(length)) + 0.25}
            if dtype.is_float
            else {}
        )
        if dtype.is_float:
            fill["x"] = lambda random, length: random.uniform(-0.95, 0.95, length)
        elif dtype.is_integer:
            fill["y"] = lambda random, length: random.integers(0, 9, length)
        found += modes(
            Case(made, lengths, ({"n": 37},), fill, TOLERANCE.get(dtype, 0.0)), scalar=None, outer="i0"
        )
    return found


CASES = cases()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> CpuModule:
    target = CpuTarget(build_options=BuildOptions(optimize="-O1"))
    return load_all(target, [case.kernel for case in CASES], tmp_path_factory.mktemp("ops"))


def test_no_row_is_missing() -> None:
    assert SPELLINGS.keys() == OPS.keys()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.kernel.name)
def test_every_operation_means_what_the_interpreter_says(compiled: CpuModule, case: Case) -> None:
    symbols = case.sizes[0]
    wanted, found = case.buffers(symbols), case.buffers(symbols)
    run_kernel(case.kernel, wanted, symbols)
    launch(compiled, case, found, symbols)
    for parameter in case.kernel.parameters:
        if parameter.access == "in":
            continue
        a, b = (decoded(each[parameter.name], parameter.dtype) for each in (found, wanted))
        tolerance = (
            max(case.tolerance, TOLERANCE.get(parameter.dtype, 0.0)) if parameter.dtype.is_float else 0.0
        )
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=parameter.name)
