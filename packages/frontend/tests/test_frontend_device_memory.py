"""Memory of torch's tensors for the executor: graphs of the conformance suite on the CPU, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from litz.host.runtime.device_memory import TorchMemory
from litz_ir.device import CPU
from litz_ir.dtypes import b1, bf16, f8e5m2, f32, i64
from litz_ir.errors import DTypeError, GraphError, TargetError
from litz_ir.target import load_target
from litz_scheduler.conformance import graph_cases, run_graph_conformance

MEMORY = TorchMemory("cpu")


def test_graphs_run_on_torchs_tensors(tmp_path: Path) -> None:
    wanted = {"bfloat", "overwritten", "transposed", "zero_dimensions", "empty", "casts"}
    cases = [case for case in graph_cases() if case.name in wanted]
    report = run_graph_conformance(load_target("cpu"), tmp_path, MEMORY, cases=cases)
    assert set(report.passed) == wanted, report.describe()


@pytest.mark.parametrize(
    ("dtype", "array"),
    [
        (f32, np.arange(12, dtype=np.float32).reshape(3, 4).T),
        (b1, np.array([True, False])),
        (bf16, np.array([0x3F80, 0xC000], np.uint16)),
        (f8e5m2, np.array([0x3C, 0x7F], np.uint8)),
        (i64, np.array(-(2**60))),
    ],
)
def test_elements_come_back_bit_by_bit(dtype: object, array: np.ndarray) -> None:
    storage = MEMORY.empty(array.nbytes + 64, CPU)
    strides = [step // array.itemsize for step in array.strides]
    tensor = MEMORY.view(storage, dtype, array.shape, strides, 64)
    MEMORY.write(tensor, array)
    assert MEMORY.address(tensor) == storage.data_ptr() + 64 and MEMORY.dtypes(tensor) == {dtype}
    assert MEMORY.geometry(tensor) == (array.shape, tuple(strides))
    np.testing.assert_array_equal(MEMORY.read(MEMORY.copy(tensor), dtype), array)
    np.testing.assert_array_equal(MEMORY.read(MEMORY.stack([tensor, tensor]), dtype), np.stack([array] * 2))


def test_what_is_no_tensor_of_the_device_is_refused() -> None:
    x = torch.ones(3)
    with pytest.raises(GraphError, match="expected a tensor on privateuseone, got cpu"):
        TorchMemory("privateuseone").geometry(x)
    with pytest.raises(GraphError, match="got ndarray"):
        MEMORY.geometry(np.ones(3))
    with pytest.raises(DTypeError, match=r"a tensor of torch.float32 is read as i64"):
        MEMORY.read(x, i64)
    with pytest.raises(TargetError, match="on addresses, not on buffers"):
        MEMORY.buffer(x, 0, 12)
