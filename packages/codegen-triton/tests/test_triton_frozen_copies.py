"""Copies of memory that are made again where the memory has changed: the kernels, and their launches."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import triton_assembly

from litz_codegen_triton.capabilities import COPY_KINDS, chip_capabilities
from litz_codegen_triton.emit import KernelSource
from litz_codegen_triton.runtime.compiled_kernel import CompiledKernel
from litz_codegen_triton.runtime.driver import INVALID_CONTEXT
from litz_codegen_triton.runtime.frozen_copies import COMPARE, COPY, CopyLauncher, copying_sources, table_row
from litz_codegen_triton.target import CudaTarget
from litz_ir.dtypes import bf16, f32, f64
from litz_ir.errors import KernelError
from litz_ir.target import CopyingTarget, MemoryCopy

WEIGHT = MemoryCopy(1000, 2000, (f32, bf16), (6, 4), ((4, 1), (1, 6)))


@pytest.mark.timeout(120)
def test_kernels_copy_again_what_changed_and_leave_the_rest(tmp_path: Path) -> None:
    program = Path(__file__).with_name("triton_frozen_copies.py")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    run = subprocess.run(
        [sys.executable, str(program), str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    seen = json.loads(run.stdout)
    assert seen["noted"][0] and not any(seen["noted"][1:]), "the first comparison notes the words alone"
    assert not any(seen["unchanged"])
    assert all(seen["changed"]), "all copies are made again where one word has changed"
    assert seen["later"] == [False, True, False, True, True, True]
    assert seen["padding"] == [True]


@pytest.mark.parametrize("chip", ["sm_80", "sm_90", "sm_100"])
def test_kernels_compile_without_spills(chip: str, tmp_path: Path) -> None:
    for source in copying_sources(KernelSource):
        outcome = triton_assembly.compiled(source, chip, tmp_path)
        assert (outcome.refused, outcome.spilled) == ("", 0)


def test_the_target_offers_units_without_kernels_of_a_plan() -> None:
    target = CudaTarget("sm_90")
    assert isinstance(target, CopyingTarget)
    assert [(each.name, each.kernels) for each in target.copying_units()] == [(COMPARE, ()), (COPY, ())]
    assert chip_capabilities("sm_90").copies == frozenset(COPY_KINDS)


def test_rows_of_the_table() -> None:
    assert table_row(WEIGHT) == [1000, 2000, 24, 2, 1, 6, 4, 0, 0, 4, 1, 0, 0, 1, 6, 0]
    with pytest.raises(KeyError):
        table_row(MemoryCopy(0, 0, (f64, f32), (2,), ((1,), (1,))))


class Driver:
    """A driver that notes launches: the handle, the thread blocks, the stream and the leading arguments."""

    def __init__(self, codes: Sequence[int] = ()) -> None:
        self.codes = list(codes)
        self.launches: list[tuple[int, int, int, list[int]]] = []
        self.made_current = 0

    def load(self, cubin: bytes, entry: str, shared_bytes: int, name: str) -> int:
        return {COMPARE: 1, COPY: 2}[name]

    def launch(self, handle: int, count: int, *rest: Any) -> int:
        *_, stream, block, _ = rest
        values = [ctypes.c_int64.from_address(each).value for each in block]
        self.launches.append((handle, count, stream, values))
        return self.codes.pop(0) if self.codes else 0

    def make_current(self) -> None:
        self.made_current += 1

    def describe_error(self, code: int) -> str:
        return f"error {code}"


def launcher(driver: Driver) -> CopyLauncher:
    """Return a launcher whose binaries have two hidden pointers each."""
    compiled = {
        name: CompiledKernel(name, b"", name, warps=4, shared_bytes=0, parameters=count + 2)
        for name, count in ((COMPARE, 5), (COPY, 4))
    }
    return CopyLauncher(compiled, driver, lambda: 77)  # type: ignore[arg-type]  # a driver of tests


def test_the_first_call_compares_and_later_ones_copy_too() -> None:
    driver = Driver()
    again = launcher(driver).copies(list(range(0, 8400, 4)), [WEIGHT, WEIGHT], torch.tensor)
    again()
    again()
    (first, second, third) = driver.launches
    assert [each[0] for each in driver.launches] == [1, 1, 2]
    assert [each[2] for each in driver.launches] == [77] * 3
    assert first[1] == 3, "a thread block compares 1,024 words"
    assert (first[3][3:], second[3][3:]) == ([1, 2100, 0, 0], [2, 2100, 0, 0])
    assert third[3][2:] == [2, 2, 0, 0], "the stamp is that of the comparison before it"
    assert third[3][1] == second[3][2], "both kernels use one flag"


def test_errors_of_the_driver() -> None:
    lost = Driver([INVALID_CONTEXT])
    launcher(lost).copies([0], [WEIGHT], torch.tensor)()
    assert (len(lost.launches), lost.made_current) == (2, 1)
    with pytest.raises(KernelError, match="launching litz_compare_words: error 9"):
        launcher(Driver([9])).copies([0], [WEIGHT], torch.tensor)()
