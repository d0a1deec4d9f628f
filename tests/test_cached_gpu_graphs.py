"""Graphs of a GPU, compiled without one: a second process finds every kind of them in the cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.source import ConstantSource
from torch._subclasses import FakeTensorMode
from torch.func import functionalize
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import litz.pipeline
from litz.artifact import Artifact, TunedTiles
from litz.cache.artifacts import ArtifactCache
from litz.compilation import Compilation
from litz.host.emit.source import host_program
from litz.loading import Compiled
from litz.settings import Config
from litz.tuning.applied import applied
from litz.tuning.tunable_kernels import tunable_kernels
from litz_ir.plan import schedules_of

pytest.importorskip("triton")
CudaTarget = pytest.importorskip("litz_codegen_triton.target").CudaTarget

Shape = tuple[int, ...]
Program = Callable[..., Any]


@dataclass
class Machine:
    """A machine with a cache folder, on which each compilation stands for a process."""

    config: Config
    """Options, with the folder."""

    built: list[str]
    """Kernels that were compiled so far."""

    def compiled(self, gm: GraphModule, **named: Any) -> Artifact:
        """Compile a graph, or find it in the cache."""
        found = Compilation(gm, "graph", self.config, ArtifactCache.open(self.config), **named).run()
        assert found.artifact is not None
        return found.artifact

    def cache_hit(self, gm: GraphModule, **named: Any) -> Artifact:
        """Compile a graph twice, the second time without work, and return what was found."""
        first = self.compiled(gm, **named)
        count = len(self.built)
        again = self.compiled(gm, **named)
        assert not first.cached and count and len(self.built) == count
        assert again.cached and again.plan == first.plan
        assert again.units == first.units and again.binaries == first.binaries
        assert host_program(again.plan) == host_program(first.plan)
        return again


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    built: list[str] = []
    build = CudaTarget.build

    def counted(target: Any, unit: Any, folder: Path) -> Path:
        built.append(unit.name)
        path: Path = build(target, unit, folder)
        return path

    def load(artifact: Artifact, *_: Any, **__: Any) -> Compiled:
        return Compiled(lambda args: (), artifact)

    monkeypatch.setattr(litz.pipeline, "load_tuned", load)
    monkeypatch.setattr(CudaTarget, "prepare", lambda _: 1)
    monkeypatch.setattr(CudaTarget, "build", counted)
    return Machine(Config(cache_dir=str(tmp_path / "cache"), fallback="error"), built)


def traced(program: Program, *shapes: Shape, rows: int = 0) -> GraphModule:
    """Return the graph of a program over tensors of a GPU that this machine does not have; ``rows`` is the number that
    is symbolic, 0 for none."""
    environment = ShapeEnv()
    sizes: dict[int, Any] = {}
    if rows:
        number = environment.create_symbol(rows, ConstantSource("rows"))
        sizes[rows] = environment.create_symintnode(number, hint=rows)
    with FakeTensorMode(shape_env=environment):
        given = [torch.empty([sizes.get(k, k) for k in shape], device="cuda") for shape in shapes]
        return make_fx(functionalize(program), tracing_mode="symbolic" if rows else "real")(*given)


def normalised(x: Tensor, w: Tensor) -> Sequence[Tensor]:
    return (torch.softmax(x * w, -1), x.relu())


def test_an_inference_graph(machine: Machine) -> None:
    machine.cache_hit(traced(normalised, (64, 512), (512,)))


def forward(x: Tensor, w: Tensor) -> Sequence[Tensor]:
    """A layer norm, with the tensors that its backward reads."""
    scale = torch.rsqrt(x.var(-1, keepdim=True, correction=0) + 1e-5)
    rows = (x - x.mean(-1, keepdim=True)) * scale
    return rows * w, rows, scale


def backward(rows: Tensor, scale: Tensor, w: Tensor, tangent: Tensor) -> Sequence[Tensor]:
    inner = tangent * w
    of_x = scale * (inner - inner.mean(-1, keepdim=True) - rows * (inner * rows).mean(-1, keepdim=True))
    return of_x, (tangent * rows).sum(0)


def test_a_training_graph_with_saved_tensors(machine: Machine) -> None:
    half = traced(forward, (64, 512), (512,))
    output = next(node for node in half.graph.nodes if node.op == "output")
    machine.cache_hit(half, saved=frozenset(node.name for node in output.args[0][1:]))
    half = traced(backward, (64, 512), (64, 1), (512,), (64, 512))
    donated = frozenset([next(iter(half.graph.nodes)).name])
    machine.cache_hit(half, donated=donated)
    # What may be overwritten is part of the key.
    assert not machine.compiled(half).cached
    assert machine.compiled(half, donated=donated).cached


def test_a_graph_of_symbolic_sizes(machine: Machine) -> None:
    gm = traced(normalised, (64, 512), (512,), rows=64)
    found = machine.cache_hit(gm)
    assert [each.name for each in found.plan.symbols]
    other = traced(normalised, (48, 512), (512,), rows=48)
    assert host_program(machine.compiled(other).plan) == host_program(found.plan)


def test_tuned_tiles(machine: Machine) -> None:
    gm = traced(lambda x: (x * 2 + 1,), (4096, 4096))
    artifact, target = machine.cache_hit(gm), CudaTarget()
    (subject,) = tunable_kernels(artifact.plan, target)
    other = target.candidates(subject.kernel)[1]
    choice = TunedTiles(schedules_of(other), 1.0, 2.0, schedules_of(subject.kernel))
    ArtifactCache.open(machine.config).tiles.write(subject.key, choice)

    def process() -> Artifact:
        cache = ArtifactCache.open(machine.config)
        found = machine.compiled(gm)
        known = cache.tiles.read(tunable_kernels(found.plan, target)[0].key)
        assert known == choice
        return applied(found, {subject.kernel.name: known}, target, cache)

    first = process()
    count = len(machine.built)
    again = process()
    assert count > 1 and len(machine.built) == count
    assert again.plan == first.plan != artifact.plan and again.binaries == first.binaries
