"""Layout propagation: the cheapest minimum cut, the chosen layouts, and that no other values change layout."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from scheduler_builder import CPU_LIKE, verify_stage

from litz_ir.device import CPU
from litz_ir.loops import LoopGraph, Ref
from litz_ir.passes import PassContext
from litz_ir.text import parse_graph
from litz_scheduler import SchedulerOptions, schedule
from litz_scheduler.library import PropagateChannelsLast
from litz_scheduler.library.layout.minimum_cut import INFINITE_COST, MinimumCut

ONEDNN = SchedulerOptions(prepack_convolutions=True)
ROUNDED = SchedulerOptions(convolution_precision="tf32")

FORWARD = """
graph forward(
  %x: f32[4, 32, 56, 56] fixed, %w: f32[32, 1, 3, 3] fixed, %v: f32[512, 32, 3, 3] fixed,
  %u: f32[512, 512, 3, 3] fixed
) -> (%seen, %c, %r, %g) saved (%c, %r) {
  %c = contraction.convolution aten.convolution.default(%x, %w, none, [1, 1], [1, 1], [1, 1], false, [0, 0], 32)
    -> f32[4, 32, 56, 56] fixed need exact
  %r = pointwise f32[i0: 4, i1: 32, i2: 56, i3: 56] fixed { where(%c[i0, i1, i2, i3] < 0.0, 0.0, %c[i0, i1, i2, i3]) }
  %d = contraction.convolution aten.convolution.default(%r, %w, none, [1, 1], [1, 1], [1, 1], false, [0, 0], 32)
    -> f32[4, 32, 56, 56] fixed need exact
  %seen = pointwise f32[i0: 4, i1: 32, i2: 56, i3: 56] fixed { %d[i0, i1, i2, i3] + %r[i0, i1, i2, i3] }
  %p = reduce.max f32[i0: 4, i1: 32, i2: 8, i3: 8 | r0: 7, r1: 7] { %d[i0, i1, i2*7 + r0, i3*7 + r1] }
  %e = contraction.convolution aten.convolution.default(%p, %v, none, [2, 2], [1, 1], [1, 1], false, [0, 0], 1)
    -> f32[4, 512, 4, 4] fixed need exact
  %f = contraction.convolution aten.convolution.default(%e, %u, none, [1, 1], [1, 1], [1, 1], false, [0, 0], 1)
    -> f32[4, 512, 4, 4] fixed need exact
  %g = reduce.sum f32[i0: 4, i1: 512 | r0: 4, r1: 4] fixed { %f[i0, i1, r0, r1] }
}
"""
"""Large activations and depthwise convolutions first, then small activations and large weights."""

BACKWARD = """
graph backward(
  %tangent: f32[4, 72] fixed, %x: f32[4, 72, 40, 40] strides(115200, 1, 2880, 72) fixed, %w: f32[72, 1, 5, 5] fixed,
  %v: f32[72, 72, 3, 3] fixed, %c: f32[4, 72, 40, 40] strides(115200, 1, 2880, 72) fixed
) -> (%gw, %gv, %gx) {
  %t = pointwise f32[i0: 4, i1: 72, i2: 40, i3: 40] { %tangent[i0, i1] / 1600.0 }
  %gc, %gv, %gb = contraction.convolution aten.convolution_backward.default(%t, %c, %v, [0], [1, 1], [1, 1], [1, 1],
    false, [0, 0], 1, [true, true, false])
    -> f32[4, 72, 40, 40] fixed, f32[72, 72, 3, 3] fixed, f32[0] fixed need exact unpack
  %s = pointwise f32[i0: 4, i1: 72, i2: 40, i3: 40] { where(%c[i0, i1, i2, i3] <= 0.0, 0.0, %gc[i0, i1, i2, i3]) }
  %gx, %gw, %gb2 = contraction.convolution aten.convolution_backward.default(%s, %x, %w, [0], [1, 1], [2, 2], [1, 1],
    false, [0, 0], 72, [true, true, false])
    -> f32[4, 72, 40, 40] fixed, f32[72, 1, 5, 5] fixed, f32[0] fixed need exact unpack
}
"""
"""Saved tensors are channels-last; the layouts of the gradients of the input and of weights are promised."""


def propagated(graph: LoopGraph, options: SchedulerOptions = ONEDNN) -> tuple[LoopGraph, PassContext]:
    context = PassContext({CPU: CPU_LIKE})
    after = PropagateChannelsLast(options).apply(graph, context)
    verify_stage("channels-last", graph, after)
    return after, context


@pytest.mark.parametrize("text", [FORWARD, BACKWARD], ids=["forward", "backward"])
def test_promised_layouts_stay(text: str) -> None:
    graph = parse_graph(text)
    after, _ = propagated(graph)
    promised = {name: value.type for name, value in graph.values().items()}
    kept = {name: value.type for name, value in after.values().items()}
    for output in graph.outputs:
        name = getattr(output, "name", "")
        assert name in graph.saved or kept[name] == promised[name]
    again, _ = propagated(after)
    assert again == after, "a second propagation changes nothing"


def test_a_call_that_is_faster_in_eager_s_layout_gets_a_copy_of_a_saved_tensor() -> None:
    graph = parse_graph(
        """
        graph late(
          %t: f32[2, 640, 5, 5] fixed, %x: f32[2, 640, 5, 5] strides(16000, 1, 3200, 640) fixed,
          %w: f32[640, 1, 5, 5] fixed
        ) -> (%gw) {
          %gx, %gw, %gb = contraction.convolution aten.convolution_backward.default(%t, %x, %w, [0], [1, 1], [2, 2],
            [1, 1], false, [0, 0], 640, [false, true, false])
            -> f32[0] fixed, f32[640, 1, 5, 5] fixed, f32[0] fixed need exact unpack
          %y = contraction.convolution aten.convolution.default(%x, %w, none, [1, 1], [2, 2], [1, 1], false, [0, 0],
            640) -> f32[2, 640, 5, 5] fixed need exact
        }
        """
    )
    after, _ = propagated(replace(graph, outputs=(*graph.outputs, Ref("y")), saved=("y",)))
    assert after.values()["x.eager"].type.layout.strides == (16000, 25, 5, 1)
    assert after.values()["y"].type.layout.strides == (16000, 1, 3200, 640)


def test_every_stage_of_channels_last_convolutions() -> None:
    for text in (FORWARD, BACKWARD):
        plan = schedule(parse_graph(text), PassContext({CPU: CPU_LIKE}), ONEDNN, hooks=[verify_stage])
        assert any(decision.reason.key == "library.channels_last" for decision in plan.decisions)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (FORWARD, replace(ONEDNN, channels_last=False)),
        (FORWARD, SchedulerOptions()),
        (FORWARD.replace("f32", "f64"), ONEDNN),
        (
            FORWARD.replace("graph forward(", "graph forward on cuda("),
            ONEDNN,
        ),
    ],
    ids=["turned off", "no oneDNN", "f64", "exact f32 on a GPU"],
)
def test_graphs_without_a_gain_are_unchanged(text: str, options: SchedulerOptions) -> None:
    graph = parse_graph(text)
    assert propagated(graph, options)[0] is graph


@pytest.mark.parametrize(("dtype", "precision"), [("bf16", "ieee"), ("f16", "ieee"), ("f32", "tf32")])
def test_tensor_cores_of_a_gpu_prefer_channels_last(dtype: str, precision: str) -> None:
    text = (
        FORWARD.replace("f32", dtype)
        .replace("0.0", f"0.0:{dtype}")
        .replace("graph forward(", "graph forward on cuda(")
    )
    options = ROUNDED if precision == "tf32" else SchedulerOptions()
    after, _ = propagated(parse_graph(text), options)
    strides = after.values()["r"].type.layout.strides
    assert strides == (32 * 56 * 56, 1, 32 * 56, 32)


SMALL = """
graph small on cuda(
  %x: bf16[8, 256, 8, 8] strides(16384, 1, 2048, 256) fixed,
  %w: f32[256, 256, 3, 3] fixed, %v: f32[256, 256, 3, 3] fixed
) -> (%o) {
  %wb = pointwise bf16[i0: 256, i1: 256, i2: 3, i3: 3] { bf16(%w[i0, i1, i2, i3]) }
  %vb = pointwise bf16[i0: 256, i1: 256, i2: 3, i3: 3] { bf16(%v[i0, i1, i2, i3]) }
  %c = contraction.convolution aten.convolution.default(%x, %wb, none, [1, 1], [1, 1], [1, 1], false, [0, 0], 1)
    -> bf16[8, 256, 8, 8] fixed need exact
  %r = pointwise bf16[i0: 8, i1: 256, i2: 8, i3: 8] { abs(%c[i0, i1, i2, i3]) }
  %d = contraction.convolution aten.convolution.default(%r, %vb, none, [1, 1], [1, 1], [1, 1], false, [0, 0], 1)
    -> bf16[8, 256, 8, 8] fixed need exact
  %o = reduce.max bf16[i0: 8, i1: 256 | r0: 8, r1: 8] fixed { %d[i0, i1, r0, r1] }
}
"""
"""Weights of 1.2 MB, which loops cast, and activations of 0.3 MB."""


def test_loops_write_large_weights_in_channels_last_so_that_no_call_reorders_them() -> None:
    values = propagated(parse_graph(SMALL), SchedulerOptions())[0].values()
    for name in ("wb", "vb", "r"):
        assert values[name].type.layout.strides[1] == 1, name


def test_saved_tensors_may_change_layout_and_outputs_may_not() -> None:
    graph = parse_graph(FORWARD)
    values = propagated(graph)[0].values()
    assert values["r"].type.layout.strides[1] == values["c"].type.layout.strides[1] == 1
    unsaved = propagated(replace(graph, saved=()))[0].values()
    for name in ("r", "c", "seen"):
        assert unsaved[name].type == graph.values()[name].type


def test_the_cut_is_the_cheapest_partition() -> None:
    generator = random.Random(0)
    for _ in range(60):
        nodes = list(range(generator.randint(1, 7)))
        inside = [generator.choice((0, generator.randint(0, 9))) for _ in nodes]
        outside = [generator.choice((0, generator.randint(0, 9), INFINITE_COST)) for _ in nodes]
        drawn = (pair for pair in itertools.combinations(nodes, 2) if generator.random() < 0.6)
        pairs = {pair: generator.randint(0, 6) for pair in drawn}
        cut = MinimumCut()
        for node in nodes:
            cut.inside(node, inside[node])
            cut.outside(node, outside[node])
        for (one, other), cost in pairs.items():
            cut.same_partition(one, other, cost)
        found = [node in cut.found() for node in nodes]
        divisions = itertools.product((False, True), repeat=len(nodes))
        assert price(found, inside, outside, pairs) == min(
            price(division, inside, outside, pairs) for division in divisions
        )


def price(
    division: Sequence[bool], inside: list[int], outside: list[int], pairs: dict[tuple[int, int], int]
) -> int:
    alone = sum(out if is_in else into for is_in, into, out in zip(division, inside, outside, strict=True))
    return alone + sum(cost for (a, b), cost in pairs.items() if division[a] != division[b])
