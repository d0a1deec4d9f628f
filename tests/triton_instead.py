"""A pytest plugin: lowering's own tests, their graphs run as Triton kernels instead of by the reference interpreter.

Every graph is scheduled for a GPU and its kernels run in Triton's interpreter; what is compared with eager is what they
computed. Sources of kernels are left in the folder `TRITON_INSTEAD_SOURCES`, if one is named, for another process to
compile; their names begin with that of the test's module.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from interpreted_gpu import GPU

from litz_codegen_triton.emit import emit_kernel
from litz_codegen_triton.runtime.interpret import run_plan
from litz_codegen_triton.schedule import schedule_plan
from litz_ir.device import CPU
from litz_ir.loops import LoopGraph
from litz_ir.passes import PassContext
from litz_scheduler import schedule

sys.path.insert(0, str(Path(__file__).parents[1] / "packages" / "lowering" / "tests"))
import lowering_check

# Most graphs are captured on the CPU, so a GPU's traits are given to that device too.
MACHINES = {GPU.device: GPU, CPU: dataclasses.replace(GPU, device=CPU)}
FOLDER = tempfile.TemporaryDirectory(prefix="litz-triton-")
SOURCES = Path(os.environ.get("TRITON_INSTEAD_SOURCES") or FOLDER.name)


def run_as_triton(
    graph: LoopGraph, inputs: Sequence[Any], constants: Mapping[str, Any] | None = None, externs: Any = None
) -> list[Any]:
    """Return the outputs of ``graph``, computed by Triton kernels."""
    plan = schedule_plan(schedule(graph, PassContext(MACHINES)), GPU)
    module = Path(os.environ["PYTEST_CURRENT_TEST"].partition("::")[0]).stem
    for kernel in plan.kernels:
        source = dataclasses.replace(emit_kernel(kernel), grid_size=0)
        text = json.dumps(dataclasses.asdict(source), sort_keys=True)
        (SOURCES / f"{module}-{sha256(text.encode()).hexdigest()[:16]}.json").write_text(text)
    return run_plan(plan, inputs, Path(FOLDER.name), externs=externs, constants=constants)


lowering_check.run_graph = run_as_triton

OF_THE_REFERENCE = {
    "test_an_index_out_of_range_raises_as_in_eager": "the reference names the index that is outside, a kernel does not",
    "test_advanced_indexing_outside_raises": "the reference names the size, a kernel does not",
    "test_scatter_outside_raises": "the reference names the index that is outside, a kernel does not",
}
"""Tests of errors of the reference interpreter; kernels' errors are tested in test_triton_plans.py."""

TOO_LONG = {
    "test_gradients_of_captured_tensors_of_any_shape": "Triton's interpreter takes minutes for what is drawn; "
    "the same forms run at the sizes of other tests",
}
"""Tests that the reference interpreter alone runs."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out tests that are not about values."""
    for item in items:
        reason = (OF_THE_REFERENCE | TOO_LONG).get(getattr(item, "originalname", None) or item.name)
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))
