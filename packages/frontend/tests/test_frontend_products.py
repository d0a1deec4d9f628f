"""Products that are generated where that takes less time: what is timed, what becomes of it, what is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing import assert_close
from tuning_target import Stopwatch, TunableCpu

import litz.pipeline
from litz.cache.artifacts import ArtifactCache
from litz.cache.products import FILE, ProductChoices
from litz.cache.store import Store
from litz.host.load import HostFunction
from litz.loading import Compiled
from litz.pipeline import Compilation
from litz.settings import Config
from litz.targets import TargetSet
from litz.tuning.products import better_generated, may_be_generated
from litz.tuning.tuned import load
from litz_ir.device import CPU
from litz_ir.errors import CodegenError
from litz_ir.loops.nodes import LoopGraph
from litz_ir.passes.base import PassContext
from litz_ir.plan.program import CallStep, Launch, Plan
from litz_ir.target.capabilities import Capabilities
from litz_ir.text import parse_graph
from litz_scheduler import SchedulerOptions, schedule

GPU_LIKE = Capabilities("sm_90", CPU, processors=4, block_limit=1024)

LAYER = """
graph layer(%x: bf16[64, 96] fixed, %w: bf16[96, 128] fixed, %b: bf16[128] fixed, %v: bf16[96, 32] fixed,
  %at: i64[64] fixed) -> (%o, %q) {
  %p = contraction.matmul aten.addmm.default(%b, %x, %w) -> bf16[64, 128] flops 1572864
  %o = pointwise bf16[i0: 64, i1: 128] fixed { tanh(%p[i0, i1]) }
  %r = contraction.matmul aten.mm.default(%x, %v) -> bf16[64, 32] flops 1572864
  %q = pointwise bf16[i0: 64, i1: 32] fixed { %r[i0, i1] * %b[indirect(%at[i0], size=128, raised)] }
}
"""


def planned(graph: LoopGraph, products: frozenset[str]) -> Plan:
    return schedule(graph, PassContext({CPU: GPU_LIKE}), SchedulerOptions(generated_products=products))


def chosen(seconds: Callable[[Plan], float], has_time: bool = True) -> frozenset[str]:
    """What is better generated where a plan takes so many seconds; its calls get what its graph takes."""
    running: list[Plan] = []

    def loaded(plan: Plan) -> HostFunction:
        def call(args: list[Any]) -> Sequence[Any]:
            types = [each.type for each in plan.inputs]  # type: ignore[union-attr]
            assert [tuple(each.shape) for each in args] == [type_.shape for type_ in types]
            assert [each.stride() for each in args] == [type_.layout.strides for type_ in types]
            running.append(plan)
            return []

        return call

    def sample(call: Callable[[], object]) -> float:
        call()
        return seconds(running[-1])

    return better_generated(parse_graph(LAYER), planned, loaded, sample, lambda: has_time)


def work(plan: Plan) -> float:
    """The calls and launches of a plan."""
    return float(sum(isinstance(step, Launch | CallStep) for step in plan.steps))


def test_what_is_quicker_with_its_surroundings_is_generated() -> None:
    assert chosen(work) == {"p"}, "what %r is multiplied by is looked up where numbers made up say"
    assert chosen(lambda plan: -work(plan)) == frozenset()


def test_without_time_and_where_it_fails_products_are_called() -> None:
    def fails(plan: Plan) -> float:
        if len(plan.kernels) == 1:
            raise CodegenError("no")
        return 1.0

    assert chosen(work, has_time=False) == frozenset()
    assert chosen(fails) == frozenset()


def test_what_may_be_generated() -> None:
    assert may_be_generated(parse_graph(LAYER))
    assert not may_be_generated(
        parse_graph(LAYER.replace("aten.addmm", "aten.f").replace("aten.mm", "aten.g"))
    )


def layer(x: Tensor, w: Tensor) -> Sequence[Tensor]:
    return [torch.tanh(x @ w)]


class Processes:
    """The same graph compiled as if by one process after another."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, seconds: float = 100.0) -> None:
        self.asked = 0
        self.config = Config(fallback="error", cache_dir=str(folder), autotune=True, autotune_seconds=seconds)
        target = TunableCpu(())
        monkeypatch.setattr(litz.pipeline, "targets_for", lambda *_: TargetSet({"cpu": target}))
        monkeypatch.setattr(litz.pipeline, "load", partial(load, clock=Stopwatch(target, {1: 1.0})))
        monkeypatch.setattr(litz.pipeline, "better_generated", self._better)
        monkeypatch.setattr(Compilation, "_chooses", lambda *_: True)

    def _better(self, *_: object) -> frozenset[str]:
        self.asked += 1
        return frozenset({"mm"})

    def compiled(self, *args: Tensor) -> Compiled:
        gm = make_fx(layer, tracing_mode="fake")(*args)
        return Compilation(gm, "graph", self.config, ArtifactCache.open(self.config), free=True).run()


def test_the_choice_is_made_after_the_first_call_and_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    processes = Processes(monkeypatch, tmp_path)
    args = torch.randn(8, 8), torch.randn(8, 8)
    first = processes.compiled(*args)
    assert not first.settled
    for asked in (0, 1, 1):
        assert_close(first.call(list(args)), layer(*args))
        assert processes.asked == asked
    second = processes.compiled(*args)
    assert second.settled and second.artifact is not None and second.artifact.cached
    assert second.artifact.key != first.artifact.key  # type: ignore[union-attr]
    assert_close(second.call(list(args)), layer(*args))
    assert processes.asked == 1


def test_a_choice_that_ran_out_of_time_is_not_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    processes = Processes(monkeypatch, tmp_path, seconds=0.0)
    args = torch.randn(8, 8), torch.randn(8, 8)
    for asked in (1, 2):
        made = processes.compiled(*args)
        assert not made.settled
        for _ in range(3):
            assert_close(made.call(list(args)), layer(*args))
        assert processes.asked == asked


def test_choices_of_products_are_json(tmp_path: Path) -> None:
    store = Store(tmp_path / "products")
    ProductChoices(store).write("0" * 64, frozenset({"b", "a"}))
    assert store.read("0" * 64) == {FILE: b'["a", "b"]'}
    assert ProductChoices(store).read("0" * 64) == {"a", "b"}
    assert ProductChoices(store).read("1" * 64) is None
    store.write("2" * 64, {FILE: b'{"a": 1}'})
    assert ProductChoices(store).read("2" * 64) is None
