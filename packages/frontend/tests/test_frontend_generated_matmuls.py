"""Choice between generated and called matmuls: inputs, times, results and cache entries."""

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

import litz.compilation.cached
import litz.compilation.compilation
import litz.compilation.generated
import litz.pipeline
from litz.cache.artifacts import ArtifactCache
from litz.cache.name_sets import MATMULS, NameSets
from litz.cache.store import Store
from litz.compilation import Compilation
from litz.host.runtime.load import HostFunction
from litz.loading import Compiled
from litz.settings import Config
from litz.targets import TargetSet
from litz.tuning.generated_matmuls import faster_generated, may_be_generated
from litz.tuning.tuned_graph import load_tuned
from litz_ir.device import CPU
from litz_ir.errors import CodegenError
from litz_ir.loops import LoopGraph
from litz_ir.passes import PassContext
from litz_ir.plan import CallStep, Launch, Plan
from litz_ir.target import Capabilities, DeviceModel
from litz_ir.text import parse_graph
from litz_lowering import torch_dtype
from litz_scheduler import SchedulerOptions, schedule

GPU_LIKE = Capabilities("sm_90", CPU, DeviceModel(sm_count=4), max_tile_elements=1024, nested_reductions=True)

LAYER = """
graph layer(%x: bf16[64, 96] fixed, %w: bf16[96, 128] fixed, %b: bf16[128] fixed, %v: bf16[96, 32] fixed,
  %at: i64[64] fixed) -> (%o, %q) {
  %p = contraction.matmul aten.addmm.default(%b, %x, %w) -> bf16[64, 128] flops 1572864
  %o = pointwise bf16[i0: 64, i1: 128] fixed { tanh(%p[i0, i1]) }
  %r = contraction.matmul aten.mm.default(%x, %v) -> bf16[64, 32] flops 1572864
  %q = pointwise bf16[i0: 64, i1: 32] fixed { %r[i0, i1] * %b[indirect(%at[i0], size=128, raised)] }
}
"""


SCALED = """
graph scaled(%x: f8e4m3fn[64, 96] fixed, %w: f8e4m3fn[96, 128] strides(1, 96) fixed, %s: f32[], %t: f32[],
  %q: i8[64, 96] fixed, %v: i8[96, 32] fixed) -> (%o, %r) {
  %p = contraction.matmul aten._scaled_mm.default(%x, %w, %s, %t, out_dtype=bf16) -> bf16[64, 128] flops 1572864
  %o = pointwise bf16[i0: 64, i1: 128] fixed { tanh(%p[i0, i1]) }
  %r = contraction.matmul aten._int_mm.default(%q, %v) -> i32[64, 32] flops 393216
}
"""


GROUPED = """
graph grouped(%x: bf16[64, 96] fixed, %w: bf16[4, 96, 128] fixed, %e: i32[4] fixed) -> (%o) {
  %p = contraction.matmul aten._grouped_mm.default(%x, %w, %e) -> bf16[64, 128] flops 1572864
  %o = pointwise bf16[i0: 64, i1: 128] fixed { tanh(%p[i0, i1]) }
}
"""


SLOPES = """
graph slopes(%x: bf16[2, 16, 8, 8] fixed, %w: bf16[24, 16, 3, 3] fixed, %g: bf16[2, 24, 8, 8] fixed)
  -> (%gx, %gw, %o) {
  %gx, %gw, %gb = contraction.convolution aten.convolution_backward.default(%g, %x, %w, [0], [1, 1], [1, 1], [1, 1],
      false, [0, 0], 1, [true, true, false]) -> bf16[2, 16, 8, 8] fixed, bf16[24, 16, 3, 3] fixed, bf16[0] fixed
  %y = contraction.convolution aten.convolution.default(%g, %w, none, [2, 2], [0, 0], [1, 1], true, [0, 0], 1)
    -> bf16[2, 16, 17, 17]
  %o = pointwise bf16[i0: 2, i1: 16, i2: 17, i3: 17] fixed { tanh(%y[i0, i1, i2, i3]) }
}
"""


ATTENTION = """
graph attention(%q: bf16[2, 4, 64, 16] fixed, %k: bf16[2, 4, 64, 16] fixed, %b: bf16[2, 1, 1, 64] fixed) -> (%o, %l) {
  %a, %l, %s, %t = contraction.attention aten._scaled_dot_product_efficient_attention.default(%q, %k, %k, %b, true)
    -> bf16[2, 4, 64, 16] fixed, f32[2, 4, 64] fixed, i64[] fixed, i64[] fixed need exact unpack flops 1048576
  %o = pointwise bf16[i0: 2, i1: 4, i2: 64, i3: 16] fixed { tanh(%a[i0, i1, i2, i3]) }
}
"""


def planned(graph: LoopGraph, generated: frozenset[str]) -> Plan:
    return schedule(graph, PassContext({CPU: GPU_LIKE}), SchedulerOptions(generated_matmuls=generated))


def chosen(
    seconds: Callable[[Plan], float], has_time: bool = True, graph: str = LAYER, gain: float = 1.0
) -> frozenset[str]:
    """Return the matmuls that are generated where ``seconds`` gives the time of a plan, and ``gain`` its share after
    tuning.

    Checks that calls get the inputs of their subgraph.
    """
    running: list[Plan] = []
    shares: dict[int, float] = {}

    def loaded(plan: Plan) -> HostFunction:
        def call(args: list[Any]) -> Sequence[Any]:
            types = [each.type for each in plan.inputs]  # type: ignore[union-attr]
            assert [tuple(each.shape) for each in args] == [type_.shape for type_ in types]
            assert [each.dtype for each in args] == [torch_dtype(type_.dtype) for type_ in types]
            assert [each.stride() for each in args] == [type_.layout.strides for type_ in types]
            ends = [each.tolist() for each in args if each.dtype == torch.int32]
            assert all(each == [16, 32, 48, 64] for each in ends)
            running.append(plan)
            return []

        return call

    def tuned(plan: Plan) -> HostFunction:
        shares[id(plan)] = gain
        return loaded(plan)

    def sample(call: Callable[[], object]) -> float:
        call()
        return seconds(running[-1]) * shares.get(id(running[-1]), 1.0)

    return faster_generated(parse_graph(graph), planned, loaded, tuned, sample, lambda: has_time)


def work(plan: Plan) -> float:
    """Return the number of calls and launches of a plan."""
    return float(sum(isinstance(step, Launch | CallStep) for step in plan.steps))


def test_matmuls_that_are_faster_with_their_epilogue_are_generated() -> None:
    assert chosen(work) == {"p"}, "the epilogue of %r has indirect indices, which random inputs are not"
    assert chosen(lambda plan: -work(plan)) == frozenset()


def test_low_precision_matmuls_are_timed_too() -> None:
    assert chosen(work, graph=SCALED) == {"p"}, "%r has no epilogue"
    assert chosen(lambda plan: float(bool(calls(plan))), graph=SCALED) == {"p", "r"}


def test_convolutions_and_their_gradients_are_timed() -> None:
    assert may_be_generated(parse_graph(SLOPES))
    assert may_be_generated(parse_graph(SLOPES.replace("aten.convolution.default", "aten.f")))
    assert chosen(lambda plan: float(bool(calls(plan))), graph=SLOPES) == {"gx", "y"}
    assert chosen(lambda plan: float(not calls(plan)), graph=SLOPES) == frozenset()
    assert chosen(work, graph=SLOPES) == frozenset(), "one call for both gradients becomes two kernels"


def test_random_inputs_have_groups_of_equal_size() -> None:
    assert chosen(lambda plan: float(bool(calls(plan))), graph=GROUPED) == {"p"}
    computed = (
        GROUPED.replace("%e, ", "")
        .replace("%x, %w, %e)", "%x, %w, %f)")
        .replace("  %p =", "  %f = pointwise i32[i0: 4] { %e[i0] * 16 }\n  %p =")
    )
    assert chosen(lambda plan: float(bool(calls(plan))), graph=computed) == {"p"}, (
        "%f is an input of the subgraph"
    )


def test_attention_is_timed_with_its_epilogue() -> None:
    assert chosen(work, graph=ATTENTION) == {"a"}
    assert chosen(lambda plan: -work(plan), graph=ATTENTION) == frozenset()


def test_close_matmuls_are_timed_with_other_schedules_too() -> None:
    def close(plan: Plan) -> float:
        return 1.0 if calls(plan) else 1.1

    assert chosen(close, gain=0.9) == frozenset(), "one percent is no gain"
    assert chosen(close, gain=0.8) == {"p"}
    assert chosen(lambda plan: 1.0 if calls(plan) else 2.0, gain=0.3) == frozenset(), "it was not close"


def calls(plan: Plan) -> int:
    return sum(isinstance(step, CallStep) for step in plan.steps)


def test_without_time_or_after_a_failure_matmuls_are_called() -> None:
    def fails(plan: Plan) -> float:
        if len(plan.kernels) == 1:
            raise CodegenError("no")
        return 1.0

    assert chosen(work, has_time=False) == frozenset()
    assert chosen(fails) == frozenset()


def test_graphs_that_may_be_generated() -> None:
    assert may_be_generated(parse_graph(LAYER))
    assert may_be_generated(parse_graph(ATTENTION))
    assert not may_be_generated(
        parse_graph(LAYER.replace("aten.addmm", "aten.f").replace("aten.mm", "aten.g"))
    )


def layer(x: Tensor, w: Tensor) -> Sequence[Tensor]:
    return [torch.tanh(x @ w)]


class Processes:
    """The same graph, compiled in one simulated process after another."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, seconds: float = 100.0) -> None:
        self.asked = 0
        self.config = Config(fallback="error", cache_dir=str(folder), autotune=True, autotune_seconds=seconds)
        target = TunableCpu(())
        monkeypatch.setattr(
            litz.compilation.compilation, "targets_for", lambda *_: TargetSet({"cpu": target})
        )
        monkeypatch.setattr(
            litz.pipeline, "load_tuned", partial(load_tuned, clock=Stopwatch(target, {1: 1.0}))
        )
        monkeypatch.setattr(litz.compilation.generated, "faster_generated", self._better)
        monkeypatch.setattr(litz.compilation.cached, "chooses_matmuls", lambda *_: True)

    def _better(self, *_: object) -> frozenset[str]:
        self.asked += 1
        return frozenset({"mm"})

    def compiled(self, *args: Tensor) -> Compiled:
        gm = make_fx(layer, tracing_mode="fake")(*args)
        return Compilation(gm, "graph", self.config, ArtifactCache.open(self.config)).run()


def test_the_choice_is_made_after_the_first_call_and_cached(
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


def test_a_choice_that_ran_out_of_time_is_not_cached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    processes = Processes(monkeypatch, tmp_path, seconds=0.0)
    args = torch.randn(8, 8), torch.randn(8, 8)
    for asked in (1, 2):
        made = processes.compiled(*args)
        assert not made.settled
        for _ in range(3):
            assert_close(made.call(list(args)), layer(*args))
        assert processes.asked == asked


def test_choices_of_matmuls_are_json(tmp_path: Path) -> None:
    store = Store(tmp_path / "matmuls")
    NameSets(store).write("0" * 64, frozenset({"b", "a"}))
    assert store.read("0" * 64) == {MATMULS: b'["a", "b"]'}
    assert NameSets(store).read("0" * 64) == {"a", "b"}
    assert NameSets(store).read("1" * 64) is None
    mine, theirs = NameSets(store), NameSets(store)
    assert mine.read("3" * 64) is None and theirs.read("3" * 64) is None
    mine.add("3" * 64, frozenset({"a"}))
    theirs.add("3" * 64, frozenset({"b"}))
    assert NameSets(store).read("3" * 64) == {"a", "b"}
    store.write("2" * 64, {MATMULS: b'{"a": 1}'})
    assert NameSets(store).read("2" * 64) is None
