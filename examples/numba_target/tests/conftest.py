"""Fixtures for tests of the Numba target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from litz_ir import from_text
from litz_ir.host import Executor
from litz_ir.interp import run_graph
from litz_ir.loops import LoopGraph
from litz_ir.passes import PassContext
from litz_scheduler import schedule
from litz_target_numba.target import NumbaTarget

Array = npt.NDArray[Any]
Arrays = Sequence[Array]
RunTwice = Callable[[str, Sequence[Any]], tuple[Arrays, Arrays]]


@pytest.fixture
def run_twice(tmp_path: Path) -> RunTwice:
    """Function from the text of a graph and its inputs to the interpreter's results and the target's."""

    def run(text: str, inputs: Sequence[Any]) -> tuple[Arrays, Arrays]:
        graph = from_text(text)
        assert isinstance(graph, LoopGraph)
        target = NumbaTarget()
        capabilities = target.capabilities()
        plan = schedule(graph, PassContext({capabilities.device: capabilities}))
        units = target.emit(plan)
        kernels = {kernel.name: kernel for kernel in plan.kernels}
        module = target.load(units, [target.build(unit, tmp_path) for unit in units], kernels)
        executor = Executor(plan, {name: module.function(name) for name in kernels})
        found = executor.run([_copied(each) for each in inputs])  # first: its errors are tested
        expected = run_graph(graph, inputs)
        return [np.asarray(each) for each in expected], [np.asarray(each) for each in found]

    return run


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value
