"""The conformance suite on the target, and whole graphs against the reference interpreter."""

from __future__ import annotations

import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from litz_ir.errors import CodegenError, IndexOutOfRange
from litz_ir.host import Executor
from litz_ir.interp import run_graph
from litz_ir.passes import PassContext
from litz_ir.target import Target
from litz_ir.target.conformance import case_plan, conformance_cases, run_conformance
from litz_ir.text import parse_graph
from litz_scheduler import schedule
from litz_scheduler.conformance import run_graph_conformance
from litz_target_mine.target import MineTarget

PROJECT = Path(__file__).resolve().parent.parent
PASSED = 79
"""Cases of the conformance suite within the capabilities. It grows with them."""
CORPUS = 110
"""Graphs of the scheduler's corpus within the capabilities."""

SOFTMAX = """
graph softmax on mine (%x: f32[8, 100] fixed) -> (%o) {
  %m = reduce.max f32[i0: 8, i1: 1 | r0: 100] { %x[i0, r0] }
  %e = pointwise f32[i0: 8, i1: 100] { exp(%x[i0, i1] - %m[i0, 0]) }
  %z = reduce.sum f32[i0: 8, i1: 1 | r0: 100] { %e[i0, r0] }
  %o = pointwise f32[i0: 8, i1: 100] fixed { %e[i0, i1] / %z[i0, 0] }
}"""
LAYER_NORM = """
graph layer_norm on mine (%x: f32[s0, 50] fixed, %y: f32[s0, 50] fixed, %w: f32[50] fixed, %b: f32[50] fixed)
  -> (%o, %h) {
  symbols { s0: int from 1 hint 9 }
  %h = pointwise f32[i0: s0, i1: 50] fixed { %x[i0, i1] + %y[i0, i1] }
  %mean, %squares, %count = reduce.welford [i0: s0 | r0: 50] -> f32[s0], f32[s0], f32[s0] { %h[i0, r0] }
  %o = pointwise f32[i0: s0, i1: 50] fixed {
    (%h[i0, i1] - %mean[i0]) * rsqrt(%squares[i0] / %count[i0] + 1e-05) * %w[i1] + %b[i1]
  }
}"""
EMBEDDING = """
graph embedding on mine (%w: f32[11, 6] fixed, %ids: i64[8] fixed) -> (%o) {
  %o = pointwise f32[i0: 8, i1: 6] fixed { %w[indirect(%ids[i0], size=11, wrap, raised), i1] * 2.0 }
}"""
IDS = np.array([0, 10, -1, 3, 3, -11, 5, 3])

Array = npt.NDArray[Any]
RNG = np.random.default_rng(0)


def floats(*shape: int) -> Array:
    """Return normal values."""
    return RNG.standard_normal(shape, np.float32)


def run(text: str, inputs: list[Array], folder: Path) -> list[Array]:
    """Schedule, emit, build and run a graph."""
    target, graph = MineTarget(), parse_graph(text)
    capabilities = target.capabilities()
    plan = schedule(graph, PassContext({capabilities.device: capabilities}))
    units = target.emit(plan)
    kernels = {kernel.name: kernel for kernel in plan.kernels}
    module = target.load(units, [target.build(unit, folder) for unit in units], kernels)
    return Executor(plan, {name: module.function(name) for name in kernels}).run(inputs)


def test_conforms(tmp_path: Path) -> None:
    report = run_conformance(MineTarget(), tmp_path)
    assert not report.failed, report.describe()
    assert len(report.passed) == PASSED, report.describe()


GRAPHS = {
    "softmax": (SOFTMAX, [floats(8, 100)]),
    "layer_norm": (LAYER_NORM, [floats(7, 50), floats(7, 50), floats(50), floats(50)]),
    "embedding": (EMBEDDING, [floats(11, 6), IDS]),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_give_the_results_of_the_interpreter(name: str, tmp_path: Path) -> None:
    text, inputs = GRAPHS[name]
    expected = run_graph(parse_graph(text), inputs)
    for a, b in zip(expected, run(text, inputs, tmp_path), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)


def test_an_index_out_of_range_is_an_index_error(tmp_path: Path) -> None:
    with pytest.raises(IndexOutOfRange):
        run(EMBEDDING, [floats(11, 6), IDS + 1], tmp_path)


def test_a_kernel_beyond_the_capabilities_is_refused() -> None:
    (case,) = (each for each in conformance_cases() if each.name == "rounding_to_f8e4m3fn")
    with pytest.raises(CodegenError, match="needs f8e4m3fn"):
        MineTarget().emit(case_plan(case, MineTarget().capabilities()))


def test_the_entry_point_is_a_target_of_its_own_device_kind() -> None:
    with open(PROJECT / "pyproject.toml", "rb") as file:
        ((name, entry_point),) = tomllib.load(file)["project"]["entry-points"]["litz.targets"].items()
    module, _, attribute = entry_point.partition(":")
    target = getattr(import_module(module), attribute)()
    assert isinstance(target, Target)
    assert target.name == name == target.capabilities().device.kind


def test_graphs_of_the_corpus_are_right_or_beyond_the_capabilities(tmp_path: Path) -> None:
    report = run_graph_conformance(MineTarget(), tmp_path)
    assert report.failed == (), report.describe()
    assert len(report.passed) >= CORPUS
