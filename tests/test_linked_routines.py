"""Libraries of routines that units of convolutions link: compiled once, and never needed for a result."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import litz_codegen_cpp.target as cpu_target
from litz.cache.libraries import expected_libraries, libraries_of
from litz.pipeline import Stages
from litz_codegen_cpp.target import CpuTarget
from litz_ir.errors import CompileFailed
from litz_ir.loops import LoopGraph
from litz_ir.plan import Plan
from litz_ir.target import SourceUnit

pytestmark = pytest.mark.sampled  # it compiles whole programs


def pointwise(channels: int) -> nn.Module:
    """Return convolutions of single pixels, with an activation."""
    torch.manual_seed(channels)
    return nn.Sequential(nn.Conv2d(8, channels, 1), nn.ReLU(), nn.Conv2d(channels, 8, 1)).eval()


def depthwise(taps: int) -> nn.Module:
    """Return a convolution of few channels and one with a filter for each channel."""
    torch.manual_seed(taps)
    first, own = nn.Conv2d(3, 40, 3, padding=1), nn.Conv2d(40, 40, taps, padding=taps // 2, groups=40)
    return nn.Sequential(first, nn.Hardswish(), own, nn.ReLU()).eval()


def check(module: nn.Module, x: torch.Tensor, folder: Path, **options: object) -> None:
    """Compare a compiled module with eager. Sizes are those of the input, not symbols for those of several."""
    torch._dynamo.reset()
    compiled = torch.compile(module, backend="litz", options={"cache_dir": str(folder), **options})
    with torch.no_grad():
        assert_close(compiled(x), module(x), rtol=1e-4, atol=1e-4)


def objects(folder: Path) -> list[Path]:
    """Return the libraries in a cache folder."""
    return sorted(folder.rglob("*.o"))


@pytest.mark.wide_vectors
def test_a_library_is_compiled_once_for_several_graphs(tmp_path: Path) -> None:
    check(pointwise(24), torch.randn(2, 8, 9, 7), tmp_path)
    (panels,) = objects(tmp_path)
    built = panels.stat().st_mtime_ns
    check(pointwise(40), torch.randn(1, 8, 5, 5), tmp_path)
    assert [each.stat().st_mtime_ns for each in objects(tmp_path)] == [built]
    check(depthwise(4), torch.randn(2, 3, 20, 20), tmp_path)  # rows of 4 points have no routine of their own
    assert len(objects(tmp_path)) == 2


@pytest.mark.parametrize("taps", [3, 4])
def test_units_contain_what_they_link(tmp_path: Path, taps: int) -> None:
    check(depthwise(taps), torch.randn(2, 3, 20, 20), tmp_path)
    for each in objects(tmp_path):
        each.unlink()
    for each in tmp_path.rglob("*.so"):
        exported = subprocess.run(["nm", "-DC", each], capture_output=True, text=True, check=True).stdout
        assert "sum_channels" not in exported and "sum_panels" not in exported
    check(depthwise(taps), torch.randn(2, 3, 20, 20), tmp_path)
    assert not objects(tmp_path)


def test_without_convolutions_there_is_no_library(tmp_path: Path) -> None:
    check(nn.Sequential(nn.GELU(), nn.LayerNorm(8)).eval(), torch.randn(4, 8), tmp_path)
    assert not objects(tmp_path) and list(tmp_path.rglob("*.so"))


@pytest.mark.parametrize("what", ["compile_object", "compile_linked"])
def test_a_unit_is_compiled_alone_where_linking_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    def refuse(*_: object, **__: object) -> Path:
        raise CompileFailed("no such option", command=("g++",), output="error: no such option")

    monkeypatch.setattr(cpu_target, what, refuse)
    check(depthwise(5), torch.randn(2, 3, 20, 20), tmp_path, fallback="error")


@pytest.mark.wide_vectors
@pytest.mark.parametrize("module", [pointwise(24), depthwise(7)])
def test_libraries_are_expected_before_the_graph_is_scheduled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: nn.Module
) -> None:
    expected: list[set[str]] = []
    linked: list[set[str]] = []
    expect, emit = Stages.expect, CpuTarget.emit

    def remembered(self: Stages, graph: LoopGraph) -> None:
        expected.append({unit.name for unit, _ in expected_libraries(graph, self.targets.by_kind.values())})
        expect(self, graph)

    def emitted(self: CpuTarget, plan: Plan) -> tuple[SourceUnit, ...]:
        units = emit(self, plan)
        linked.append({unit.name for unit, _ in libraries_of((unit, self) for unit in units)})
        return units

    monkeypatch.setattr(Stages, "expect", remembered)
    monkeypatch.setattr(CpuTarget, "emit", emitted)
    check(module, torch.randn(2, 8 if len(module) == 3 else 3, 12, 12), tmp_path)
    assert expected == linked != [set()]
