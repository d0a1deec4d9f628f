"""Compiled kernels compute the results of the reference interpreter, on every instruction set and vector axis."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from cpp_kernels import Array, Case, all_cases, decoded
from cpp_units import runnable

from litz_codegen_cpp.runtime.call import CpuModule
from litz_codegen_cpp.target import CpuTarget
from litz_codegen_cpp.toolchain.build import BuildOptions
from litz_ir.device import CPU
from litz_ir.interp.kernel import run_kernel
from litz_ir.plan import Kernel, Plan
from litz_ir.symbols import SymbolTable

CASES = all_cases()


def plan_of(kernels: list[Kernel]) -> Plan:
    return Plan("tests", CPU, "any", SymbolTable(), (), (), (), (), tuple(kernels), (), ())


def load_all(target: CpuTarget, kernels: list[Kernel], folder: Path) -> CpuModule:
    units = target.emit(plan_of(kernels))
    binaries = [target.build(unit, folder) for unit in units]
    return target.load(units, binaries, {kernel.name: kernel for kernel in kernels})


@pytest.fixture(scope="module", params=runnable())
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> CpuModule:
    target = CpuTarget(isa=request.param, build_options=BuildOptions(optimize="-O1"))
    return load_all(target, [case.kernel for case in CASES], tmp_path_factory.mktemp(request.param))


def launch(
    module: CpuModule, case: Case, buffers: Mapping[str, Array], symbols: Mapping[str, int | float]
) -> None:
    kernel = case.kernel
    addresses = [buffers[parameter.name].ctypes.data for parameter in kernel.parameters]
    module.function(kernel.name)(addresses, [symbols[info.name] for info in kernel.symbols])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.kernel.name)
def test_equals_the_interpreter(compiled: CpuModule, case: Case) -> None:
    for number, symbols in enumerate(case.sizes):
        wanted, found = case.buffers(symbols, number), case.buffers(symbols, number)
        run_kernel(case.kernel, wanted, symbols)
        launch(compiled, case, found, symbols)
        for parameter in case.kernel.parameters:
            a, b = (
                decoded(found[parameter.name], parameter.dtype),
                decoded(wanted[parameter.name], parameter.dtype),
            )
            exact = not parameter.dtype.is_float
            np.testing.assert_allclose(
                a, b, rtol=0 if exact else case.tolerance, atol=0 if exact else case.tolerance,
                err_msg=f"{parameter.name} at {dict(symbols)}",
            )  # fmt: skip
