"""The conformance suite, run on the reference interpreter and on targets that are wrong on purpose."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from litz_ir.device import Device
from litz_ir.dtypes import ALL, DType, f32
from litz_ir.errors import CodegenError, IndexOutOfRange
from litz_ir.host.memory import NumpyMemory
from litz_ir.interp.encoding import storage_dtype
from litz_ir.interp.kernel import run_kernel
from litz_ir.loops import REDUCTION_KINDS, NamedCombiner
from litz_ir.plan.kernel import Accumulate, Kernel, ScanStore, Store
from litz_ir.plan.program import Plan
from litz_ir.scalar.expr import Op
from litz_ir.scalar.node import walk
from litz_ir.scalar.ops_table import OPS
from litz_ir.target import LaunchFunction, SourceUnit, Target
from litz_ir.target.capabilities import Capabilities
from litz_ir.target.conformance import Report, conformance_cases, lacking, run_conformance
from litz_ir.target.device_model import DeviceModel


class RememberingMemory(NumpyMemory):
    """Knows the array that begins at an address, as kernels are given nothing else."""

    def __init__(self) -> None:
        super().__init__(fill=0xA5)
        self.arrays: dict[int, npt.NDArray[Any]] = {}

    def view(
        self, storage: Any, dtype: DType, shape: Sequence[int], strides: Sequence[int], offset: int
    ) -> npt.NDArray[Any]:
        array = super().view(storage, dtype, shape, strides, offset)
        self.arrays[self.address(array)] = array
        return array

    def flat(self, address: int, dtype: DType) -> npt.NDArray[Any]:
        return self.arrays.get(address, np.zeros(0, storage_dtype(dtype)))


@dataclass
class ReferenceTarget:
    """Its launchers are the interpreter."""

    name: str = "reference"
    device: Capabilities = field(
        default_factory=lambda: Capabilities(
            "reference",
            scratch_bytes=1 << 20,
            model=DeviceModel(vector_bytes=64, threads=4),
            nested_reductions=True,
            fp8_matmul=True,
            max_sorted_row=128,
            max_subkernels=8,
        )
    )
    memory: RememberingMemory = field(default_factory=RememberingMemory)

    def capabilities(self) -> Capabilities:
        return self.device

    def seconds(self, traffic: int, flops: int, launches: int) -> float:
        return float(traffic + flops + launches)

    def emit(self, plan: Plan) -> tuple[SourceUnit, ...]:
        names = tuple(kernel.name for kernel in plan.kernels)
        return (SourceUnit(plan.name, "json", json.dumps(names), names),)

    def build(self, unit: SourceUnit, folder: Path) -> Path:
        path = folder / unit.name
        path.write_text(unit.text, encoding="utf-8")
        return path

    def load(
        self, units: Sequence[SourceUnit], binaries: Sequence[Path], kernels: Mapping[str, Kernel]
    ) -> ReferenceTarget:
        assert [json.loads(binary.read_text(encoding="utf-8")) for binary in binaries] == [list(kernels)]
        self.kernels = kernels
        return self

    def function(self, kernel: str) -> LaunchFunction:
        return lambda addresses, symbols: self.launch(self.kernels[kernel], addresses, symbols)

    def launch(self, kernel: Kernel, addresses: Sequence[int], symbols: Sequence[int | float]) -> None:
        buffers = {
            p.name: self.memory.flat(a, p.dtype) for p, a in zip(kernel.parameters, addresses, strict=True)
        }
        run_kernel(kernel, buffers, {info.name: v for info, v in zip(kernel.symbols, symbols, strict=True)})


class Careless(ReferenceTarget):
    """Swallows errors, and adds one to the first element of its last buffer."""

    def launch(self, kernel: Kernel, addresses: Sequence[int], symbols: Sequence[int | float]) -> None:
        try:
            super().launch(kernel, addresses, symbols)
        except IndexOutOfRange:
            return
        last = self.memory.flat(addresses[-1], kernel.parameters[-1].dtype)
        last[:1] += 1


class Mute(ReferenceTarget):
    """Cannot emit anything."""

    def emit(self, plan: Plan) -> tuple[SourceUnit, ...]:
        raise CodegenError("no words", node=plan.name)


def run(target: ReferenceTarget, folder: Path, names: Sequence[str] = ()) -> Report:
    cases = [case for case in conformance_cases() if not names or case.name in names]
    return run_conformance(target, folder, target.memory, cases=cases)


def test_the_reference_conforms(tmp_path: Path) -> None:
    target = ReferenceTarget()
    assert isinstance(target, Target)
    report = run(target, tmp_path)
    assert report.failed == () and report.skipped == ()
    assert report.passed == tuple(case.name for case in conformance_cases())


def test_wrong_results_and_swallowed_errors_are_reported(tmp_path: Path) -> None:
    report = run(Careless(), tmp_path, ["copy_with_tail", "gather_out_of_range"])
    reasons = dict(report.failed)
    assert (
        report.passed == ()
        and "1 of 1037 elements of o0 differ, the first is element 0" in reasons["copy_with_tail"]
    )
    assert reasons["gather_out_of_range"] == "it does not report the index out of range"
    assert report.describe().startswith("0 passed, 2 failed, 0 skipped\n  failed   copy_with_tail: 1 of 1037")


def test_a_code_generator_that_refuses_is_reported(tmp_path: Path) -> None:
    report = run(Mute(), tmp_path, ["softmax"])
    assert "CodegenError: codegen: no words" in dict(report.failed)["softmax"]


def test_missing_capabilities_skip() -> None:
    cases = {case.name: case for case in conformance_cases()}
    full = Capabilities(
        "full",
        scratch_bytes=1 << 20,
        nested_reductions=True,
        fp8_matmul=True,
        max_sorted_row=77,
        max_subkernels=8,
    )
    narrow = replace(full, dtypes=frozenset(d for d in ALL if d.bits != 16))
    assert lacking(cases["rounding_to_bf16"], narrow) == "needs bf16"
    assert lacking(cases["softmax_with_scratch"], replace(full, scratch_bytes=0)).startswith(
        "needs 564 bytes"
    )
    blocks = replace(full, device=Device("cuda"), max_tile_elements=1024)
    assert lacking(cases["scatter_add"], blocks) == "needs atomic add of f32"
    assert lacking(cases["scatter_add"], replace(blocks, atomics=frozenset({f32}))) == ""
    assert (
        lacking(cases["attention_bf16"], replace(full, nested_reductions=False)) == "needs nested reductions"
    )
    assert lacking(cases["sorted_rows"], replace(full, max_sorted_row=76)) == "needs sorts of 77 elements"
    assert lacking(cases["matmul_f8_by_mul_f8"], replace(full, fp8_matmul=False)).startswith(
        "needs fp8 matmuls"
    )
    assert lacking(cases["lists"], replace(full, max_subkernels=4)) == "needs horizontal fusion"
    assert not any(lacking(case, full) for case in cases.values())


def test_the_suite_covers_every_operation_kind_and_mode() -> None:
    operations: set[str] = set()
    kinds: set[str] = set()
    modes: set[str] = set()
    for case in conformance_cases():
        for phase in case.kernel.phases:
            for statement in phase.statements:
                roots = (statement.value,) if isinstance(statement, Store) else statement.values
                operations |= {node.name for node in walk(*roots) if isinstance(node, Op)}
                if isinstance(statement, Store):
                    modes.add(statement.mode)
                elif isinstance(statement, (Accumulate, ScanStore)) and isinstance(
                    statement.combiner, NamedCombiner
                ):
                    kinds.add(statement.combiner.name)
    assert operations == OPS.keys()
    assert modes == {"set", "add", "mul", "min", "max"}
    assert kinds == REDUCTION_KINDS.keys()


def test_cases_are_named_once_and_repeat() -> None:
    first, second = conformance_cases(), conformance_cases()
    assert len({case.name for case in first}) == len(first)
    for a, b in zip(first, second, strict=True):
        assert a.kernel == b.kernel
        assert all(
            np.array_equal(a.buffers[x].view(np.uint8), b.buffers[x].view(np.uint8)) for x in a.buffers
        )


def test_exact_cases_compare_the_sign_of_zeros() -> None:
    (case,) = (case for case in conformance_cases() if case.name == "copy_with_tail")
    a, b = np.array([1.0, 0.0, np.nan], np.float32), np.array([1.0, -0.0, -np.nan], np.float32)
    assert "1 of 3 elements of o0 differ, the first is element 1: expected 0.0, got -0.0" in case.difference(
        "o0", a, b
    )
    assert case.difference("o0", a, a) == ""
    assert replace(case, signed_zeros=False).difference("o0", a, b) == ""
    assert replace(case, ulp=1).difference("o0", a, b) == ""


def test_only_cases_of_equal_zeros_leave_their_sign_open() -> None:
    assert {case.name for case in conformance_cases() if not case.signed_zeros} == {
        "extremes_of_special_values"
    }


@pytest.mark.parametrize("ulp", [0, 1])
def test_comparison_counts_units_of_each_value(ulp: int) -> None:
    (case,) = (case for case in conformance_cases() if case.name == "copy_with_tail")
    strict = replace(case, ulp=ulp)
    a = np.array([1.0, 1e-30, np.nan, np.inf], np.float32)
    b = np.array([np.nextafter(np.float32(1), np.float32(2)), 1e-30, np.nan, np.inf], np.float32)
    assert bool(strict.difference("o0", a, b)) == (ulp == 0)
    assert strict.difference("o0", a, np.roll(a, 1)) != ""
