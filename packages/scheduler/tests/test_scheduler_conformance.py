"""The corpus of whole graphs: on targets that the reference interpreter stands in for, whole, lacking and wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scheduler_builder import CPU_LIKE, CRAMPED, GPU_LIKE

from litz_ir.device import Device
from litz_ir.dtypes import DType, bf16, f16, f32
from litz_ir.errors import TargetError
from litz_ir.host import NumpyMemory, numpy_externs
from litz_ir.interp import run_graph, storage_dtype
from litz_ir.interp.kernel import run_kernel
from litz_ir.plan import Kernel, Plan
from litz_ir.target import BufferArgument, BufferFunction, Capabilities, KernelModule, SourceUnit
from litz_scheduler.conformance import graph_cases, lacking, run_graph_conformance

Array = npt.NDArray[Any]
CASES = graph_cases()


@dataclass
class Interpreted:
    """A target whose kernels the reference interpreter runs, on buffers."""

    machine: Capabilities
    wrong: bool = False
    """True to add one to the first element that a kernel writes."""
    name: str = "interpreted"

    def capabilities(self) -> Capabilities:
        return self.machine

    def seconds(self, traffic: int, flops: int, launches: int) -> float:
        return 0.0

    def emit(self, plan: Plan) -> tuple[SourceUnit, ...]:
        return ()

    def build(self, unit: SourceUnit, folder: Path) -> Path:
        raise AssertionError("there is nothing to build")

    def load(
        self, units: Sequence[SourceUnit], binaries: Sequence[Path], kernels: Mapping[str, Kernel]
    ) -> KernelModule:
        return Kernels(kernels, self.wrong)


@dataclass
class Kernels:
    """Kernels as functions of the interpreter."""

    kernels: Mapping[str, Kernel]
    wrong: bool

    def function(self, kernel: str) -> BufferFunction:
        found = self.kernels[kernel]

        def run(buffers: Sequence[BufferArgument], symbols: Sequence[int | float]) -> None:
            arrays = {
                parameter.name: np.asarray(each.memory)[each.offset :][: each.nbytes].view(
                    storage_dtype(parameter.dtype)
                )
                for parameter, each in zip(found.parameters, buffers, strict=True)
            }
            run_kernel(found, arrays, {info.name: v for info, v in zip(found.symbols, symbols, strict=True)})
            for parameter in found.parameters:
                if (
                    self.wrong
                    and parameter.dtype == f32
                    and parameter.access != "in"
                    and arrays[parameter.name].size
                ):
                    arrays[parameter.name][0] += 1

        return BufferFunction(run)


@pytest.mark.parametrize("machine", [CPU_LIKE, GPU_LIKE, CRAMPED], ids=lambda each: each.name)
def test_plans_of_the_corpus_compute_what_its_graphs_do(machine: Capabilities, tmp_path: Path) -> None:
    report = run_graph_conformance(Interpreted(machine), tmp_path)
    assert report.failed == ()
    assert len(report.passed) == len(CASES) == 121
    assert report.skipped == ()


def test_a_wrong_target_fails(tmp_path: Path) -> None:
    cases = [case for case in CASES if case.name in ("softmax", "counts", "library_matmul")]
    report = run_graph_conformance(Interpreted(CPU_LIKE, wrong=True), tmp_path, cases=cases)
    assert report.passed == ("counts",), "it computes integers alone"
    assert [name for name, _ in report.failed] == ["softmax", "library_matmul"]
    assert "differ)" in dict(report.failed)["softmax"]


def test_what_the_device_lacks_is_skipped_and_counted(tmp_path: Path) -> None:
    machine = replace(
        CPU_LIKE, dtypes=CPU_LIKE.dtypes - {f16, bf16}, combiners=frozenset({"sum", "max", "user"})
    )
    report = run_graph_conformance(Interpreted(machine), tmp_path)
    assert report.failed == ()
    assert dict(report.skipped) == {
        "half": "cast needs f16",
        "bfloat": "cast needs bf16",
        "layer_norm_of_half": "cast needs f16",
        "rms_norm": "cast needs bf16",
    }
    assert "welford" in report.passed, "combiners that it lacks are written out"


def test_operations_that_the_device_lacks_are_named() -> None:
    machine = replace(CPU_LIKE, operations=frozenset({"add", "sub", "mul"}))
    (gelu,) = (case for case in CASES if case.name == "gelu")
    assert lacking(gelu.graph, machine) == "erf needs the scalar operation erf"


def test_a_target_without_members_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="object lacks name"):
        run_graph_conformance(object(), tmp_path)  # type: ignore[arg-type]


def test_the_corpus_is_the_same_each_time() -> None:
    assert [each.graph for each in graph_cases()] == [each.graph for each in CASES]
    for a, b in zip(graph_cases(), CASES, strict=True):
        for first, second in zip(a.inputs, b.inputs, strict=True):
            np.testing.assert_array_equal(first, second)


def test_results_of_the_corpus_are_numbers() -> None:
    """The comparison with NaN, or with results of one constant, would show little."""
    for case in CASES:
        results = run_graph(case.graph, case.fresh(), externs=numpy_externs().extended(case.externs))
        for result in results:
            assert not np.issubdtype(result.dtype, np.floating) or np.isfinite(result).all(), case.name


@dataclass(frozen=True)
class Boxed:
    """A tensor of a memory that NumPy does not know."""

    array: Array


class BoxedMemory(NumpyMemory):
    """NumPy's memory behind tensors that are no arrays."""

    def empty(self, nbytes: int, device: Device) -> Any:
        return Boxed(super().empty(nbytes, device))

    def view(self, storage: Any, *rest: Any) -> Any:
        return Boxed(super().view(storage.array, *rest))

    def buffer(self, tensor: Any, start: int, nbytes: int) -> BufferArgument:
        return super().buffer(tensor.array, start, nbytes)

    def geometry(self, tensor: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return super().geometry(tensor.array)

    def dtypes(self, tensor: Any) -> frozenset[DType]:
        return super().dtypes(tensor.array)

    def read(self, tensor: Any, dtype: DType) -> Array:
        return super().read(tensor.array, dtype)

    def write(self, tensor: Any, array: Array) -> None:
        super().write(tensor.array, array)

    def copy(self, tensor: Any) -> Any:
        return Boxed(super().copy(tensor.array))


def test_the_corpus_runs_in_memory_of_any_kind(tmp_path: Path) -> None:
    """Conditions and rows of regions, arguments and results of routines are tensors of the memory, not arrays."""
    report = run_graph_conformance(Interpreted(CPU_LIKE), tmp_path, BoxedMemory())
    assert (report.failed, report.skipped) == ((), ())
