"""Kernels of instruction sets that this machine may not have compute the interpreter's results, under qemu, and those
of its own access nothing past the end of a buffer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cpp_kernels import all_cases, decoded
from emulated_cpu import EMULATIONS, EmulatedCpu
from test_cpp_emit import plan_of

from litz_codegen_cpp.toolchain.build import BuildOptions
from litz_ir.errors import KernelError
from litz_ir.host.launch import BufferArgument
from litz_ir.interp.kernel import run_kernel
from litz_ir.target import KernelModule
from litz_ir.target.conformance import run_conformance

CASES = all_cases()


@pytest.fixture(scope="module", params=EMULATIONS)
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatedCpu]:
    """The target of each set, where its emulator is installed."""
    emulation = EMULATIONS[request.param]
    if obstacle := emulation.obstacle():
        pytest.skip(obstacle)
    folder = tmp_path_factory.mktemp(emulation.isa)
    made = EmulatedCpu(emulation, folder, BuildOptions(optimize="-O1"))
    yield made
    made.emulator.close()


@pytest.fixture(scope="module")
def compiled(target: EmulatedCpu, tmp_path_factory: pytest.TempPathFactory) -> KernelModule:
    """All cases as kernels of the target."""
    kernels = [case.kernel for case in CASES]
    units, folder = target.emit(plan_of(kernels)), tmp_path_factory.mktemp("kernels")
    binaries = [target.build(unit, folder) for unit in units]
    return target.load(units, binaries, {kernel.name: kernel for kernel in kernels})


def test_hand_built_kernels_equal_the_interpreter(compiled: KernelModule) -> None:
    wrong = []
    for case in CASES:
        for number, symbols in enumerate(case.sizes):
            wanted, found = case.buffers(symbols, number), case.buffers(symbols, number)
            run_kernel(case.kernel, wanted, symbols)
            names = [parameter.name for parameter in case.kernel.parameters]
            buffers = [BufferArgument(found[name], 0, found[name].nbytes) for name in names]
            launch = compiled.function(case.kernel.name)
            launch.run(buffers, [symbols[info.name] for info in case.kernel.symbols])  # type: ignore[union-attr]
            for parameter in case.kernel.parameters:
                bound = 0 if not parameter.dtype.is_float else case.tolerance
                pair = (decoded(each[parameter.name], parameter.dtype) for each in (found, wanted))
                if not np.allclose(*pair, rtol=bound, atol=bound, equal_nan=True):
                    wrong.append(f"{case.kernel.name} at {dict(symbols)}: {parameter.name}")
    assert not wrong


def test_conforms(target: EmulatedCpu, tmp_path: Path) -> None:
    if not target.emulator.emulation.command:
        pytest.skip("test_cpp_target.py runs them on this CPU")
    report = run_conformance(target, tmp_path)
    assert not report.failed and len(report.passed) > 20, report.describe()


def test_accesses_past_the_end_end_the_process_alone(compiled: KernelModule) -> None:
    """An access that values do not show is reported."""
    case = next(each for each in CASES if each.kernel.name == "softmax_inner")
    symbols = {"n": 33, "m": 64}
    found = case.buffers(symbols)
    buffers = [
        BufferArgument(found[each.name], 0, found[each.name].nbytes) for each in case.kernel.parameters
    ]
    short = [*buffers[:-1], BufferArgument(buffers[-1].memory, 0, buffers[-1].nbytes - 4)]
    run = compiled.function(case.kernel.name).run  # type: ignore[union-attr]
    values = [symbols[info.name] for info in case.kernel.symbols]
    with pytest.raises(KernelError, match="ended its process"):
        run(short, values)
    run(buffers, values)
