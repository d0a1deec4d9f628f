"""A graph with frozen copies of weights on a GPU, compiled without one: the cache stores it, and reads it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

import litz.pipeline
from litz.artifact import Artifact
from litz.cache.artifacts import ArtifactCache
from litz.compilation import Compilation
from litz.loading import Compiled
from litz.settings import Config
from litz.targets import devices_of

pytest.importorskip("triton")
CudaTarget = pytest.importorskip("litz_codegen_triton.target").CudaTarget
COPY_KERNELS = 2


def layers(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.linear(x.bfloat16(), w.bfloat16(), b.bfloat16()).relu()


def test_a_graph_with_frozen_copies_is_read_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(artifact: Artifact, *_: Any, **__: Any) -> Compiled:
        return Compiled(lambda args: (), artifact)

    monkeypatch.setattr(litz.pipeline, "load_tuned", load)
    monkeypatch.setattr(CudaTarget, "prepare", lambda _: 1)
    with FakeTensorMode():
        shapes = ((8, 1024), (2048, 1024), (2048,))
        gm = make_fx(functionalize(layers))(*(torch.empty(shape, device="cuda") for shape in shapes))
    weights = [node.name for node in gm.graph.nodes if node.op == "placeholder"][1:]
    config = Config(cache_dir=str(tmp_path / "cache"), fallback="error")

    def compiled() -> Artifact:
        found = Compilation(gm, "layers", config, ArtifactCache.open(config), frozen=frozenset(weights)).run()
        assert found.artifact is not None
        return found.artifact

    first, again = compiled(), compiled()
    assert not first.cached and again.cached
    assert again.units == first.units and again.binaries == first.binaries
    helpers = [unit for unit in again.units if not unit.kernels]
    assert len(helpers) == COPY_KERNELS
    assert {at for devices in devices_of(helpers, again.plan) for at in devices} == {again.plan.device}
