"""A pytest plugin: lowering's own tests, their graphs run as C++ kernels of an emulated CPU instead of by the reference
interpreter.

Every graph is scheduled for the CPU that `EMULATED_CPU` names, by default `neon under qemu`, and its kernels run in an
emulator; what is compared with eager is what they computed. Buffers end at memory that is not mapped.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from litz_ir.device import CPU, Device
from litz_ir.host import Executor
from litz_ir.loops import LoopGraph
from litz_ir.passes import PassContext
from litz_ir.plan import plans_in
from litz_scheduler import schedule

sys.path.append(str(Path(__file__).parents[1] / "packages" / "lowering" / "tests"))
sys.path.append(str(Path(__file__).parents[1] / "packages" / "codegen-cpp" / "tests"))
import lowering_check
from emulated_cpu import EMULATIONS, EmulatedCpu

from litz_codegen_cpp.toolchain.build import BuildOptions

EMULATION = EMULATIONS[os.environ.get("EMULATED_CPU") or "neon under qemu"]
if obstacle := EMULATION.obstacle():
    pytest.exit(obstacle, 0)
FOLDER = tempfile.TemporaryDirectory(prefix="litz-emulated-")
TARGET = EmulatedCpu(EMULATION, Path(FOLDER.name), BuildOptions(optimize="-O1"))
CAPABILITIES = TARGET.capabilities()
# Some graphs are captured for a GPU.
MACHINES = {device: dataclasses.replace(CAPABILITIES, device=device) for device in (CPU, Device("cuda"))}


def run_emulated(
    graph: LoopGraph, inputs: Sequence[Any], constants: Mapping[str, Any] | None = None, externs: Any = None
) -> list[Any]:
    """Return the outputs of ``graph``, computed by kernels in the emulator."""
    plan = schedule(graph, PassContext(MACHINES))
    launchers = {}
    for part in plans_in(plan):
        units = TARGET.emit(part)
        binaries = [TARGET.build(unit, Path(FOLDER.name)) for unit in units]
        module = TARGET.load(units, binaries, {kernel.name: kernel for kernel in part.kernels})
        launchers.update({kernel.name: module.function(kernel.name) for kernel in part.kernels})
    return Executor(plan, launchers, externs=externs, constants=constants).run(inputs)


lowering_check.run_graph = run_emulated

NOT_FOR_A_CPU = {
    "test_an_index_out_of_range_raises_as_in_eager": "the reference names the index that is outside, a kernel does not",
    "test_advanced_indexing_outside_raises": "the reference names the size, a kernel does not",
    "test_scatter_outside_raises": "the reference names the index that is outside, a kernel does not",
}
"""Tests of errors of the reference interpreter."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out tests that are not about values."""
    for item in items:
        reason = NOT_FOR_A_CPU.get(getattr(item, "originalname", None) or item.name)
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_unconfigure() -> None:
    """End the emulator."""
    TARGET.emulator.close()
