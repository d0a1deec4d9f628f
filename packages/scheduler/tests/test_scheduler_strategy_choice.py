"""Strategies for contractions: prices next to one another, tables and cost models that change the choice."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest
from scheduler_builder import GPU_LIKE, ROUTINES, with_numbers

from litz_ir.device import CPU
from litz_ir.fused import Decision, Reason
from litz_ir.loops import ContractionCall, LoopGraph, Operation
from litz_ir.passes import PassContext
from litz_ir.target import Capabilities
from litz_ir.text import parse_graph
from litz_scheduler import SchedulerOptions, ThresholdCosts, default_passes, schedule
from litz_scheduler.library import (
    Candidate,
    Choice,
    ChooseStrategies,
    Prices,
    Rewriting,
    contraction_strategies,
    convolution_strategies,
    matmul_strategies,
)

H200 = with_numbers(GPU_LIKE, matrix_rate=989e12, memory_rate=4.8e12, flop_rate=67e12)

GROUPS = """
graph groups(%x: bf16[64, 48, 28, 28] strides(37632, 1, 1344, 48) fixed, %w: bf16[48, 24, 3, 3] fixed) -> (%c) {
  %c = contraction.convolution aten.convolution.default(%x, %w, none, [1, 1], [1, 1], [1, 1], false, [0, 0], 2)
    -> bf16[64, 48, 28, 28] strides(37632, 1, 1344, 48) fixed need exact flops 1040449536
}
"""
NARROW = """
graph narrow(%x: bf16[64, 3, 224, 224] strides(150528, 1, 672, 3) fixed, %w: bf16[64, 3, 7, 7] fixed) -> (%y) {
  %y = contraction.convolution aten.convolution.default(%x, %w, none, [2, 2], [3, 3], [1, 1], false, [0, 0], 1)
    -> bf16[64, 64, 112, 112] strides(802816, 1, 7168, 64) fixed need exact
}
"""
PATCHES = """
graph patches(%x: bf16[64, 3, 224, 224] fixed, %w: bf16[768, 3, 16, 16] fixed, %b: bf16[768] fixed) -> (%y) {
  %y = contraction.convolution aten.convolution.default(%x, %w, %b, [16, 16], [0, 0], [1, 1], false, [0, 0], 1)
    -> bf16[64, 768, 14, 14] fixed
}
"""
LOGITS = """
graph logits(%x: bf16[2048, 256] fixed, %w: bf16[256, 50257] strides(1, 256) fixed) -> (%y) {
  %y = contraction.matmul aten.mm.default(%x, %w) -> bf16[2048, 50257] fixed flops 52697235456
}
"""
OPTIONS = SchedulerOptions()
ALL = (*matmul_strategies(OPTIONS), *contraction_strategies(OPTIONS), *convolution_strategies())


def chosen(
    text: str, machine: Capabilities = H200, choose: ChooseStrategies | None = None
) -> tuple[LoopGraph, Decision]:
    """Return the graph after the choice, and the first decision about its only call."""
    context = PassContext({CPU: machine})
    graph = (choose or ChooseStrategies(ALL, "all")).apply(parse_graph(text), context)
    decision = context.decisions[0]
    return graph, decision


@pytest.mark.parametrize(
    ("text", "verdict", "reason", "names"),
    [
        (GROUPS, "pad", "library.groups", ["padded-groups"]),
        (NARROW, "generate", "library.narrow", ["narrow-loops"]),
        (PATCHES, "call", "library.patches", ["patches", "unfused-convolution-bias"]),
        (LOGITS, "generate", "library.unaligned", ["aligned-matmul"]),
    ],
)
def test_all_candidates_are_priced_next_to_the_call(
    text: str, verdict: str, reason: str, names: list[str]
) -> None:
    _, decision = chosen(text)
    assert (decision.verdict, decision.reason.key) == (verdict, reason)
    parts = decision.note.split("; ")
    assert [part.split()[0] for part in parts] == names
    strategy, call = (float(part.split()[-2]) for part in parts[0].split(", "))
    assert 0 < strategy < call


@pytest.mark.parametrize(
    ("text", "change"),
    [
        (GROUPS, {"group_slowness": 1}),
        (GROUPS, {"grouped_share": 1e-4}),
        (NARROW, {"gathered_flops": 10_000}),
        (NARROW, {"narrow_share": 0.9, "narrow_slowness": 0}),
        (LOGITS, {"matmul_loop_share": 0.05}),
    ],
)
def test_plans_change_with_a_wrong_table_as_the_prices_say(text: str, change: dict[str, float]) -> None:
    graph, decision = chosen(text, replace(H200, routines=replace(ROUTINES, **change)))
    assert graph == parse_graph(text)
    assert (decision.verdict, decision.reason.key) == ("call", "library.cheapest")
    assert decision.note.endswith("us")


@pytest.mark.parametrize("text", [GROUPS, NARROW, PATCHES, LOGITS])
def test_without_a_table_calls_remain(text: str) -> None:
    context = PassContext({CPU: replace(H200, routines=None)})
    choose = ChooseStrategies(tuple(each for each in ALL if each.name != "unfused-convolution-bias"), "all")
    assert choose.apply(parse_graph(text), context) == parse_graph(text)
    assert not context.decisions


@dataclass(frozen=True)
class Without(ThresholdCosts):
    """Cost model that leaves a strategy out, and has no opinion of the rest."""

    left_out: str = ""

    def contraction_seconds(self, strategy: str, call: ContractionCall, seconds: float) -> float:
        return math.inf if strategy == self.left_out else seconds


def test_a_cost_model_overrides_prices() -> None:
    costs = Without(left_out="padded-groups")
    context = PassContext({CPU: H200})
    assert ChooseStrategies(ALL, "all", costs).apply(parse_graph(GROUPS), context) == parse_graph(GROUPS)
    plan = schedule(parse_graph(GROUPS), context, passes=default_passes(costs=costs))
    assert "library.groups" not in {each.reason.key for each in plan.decisions}
    _, decision = chosen(PATCHES, choose=ChooseStrategies(ALL, "all", Without(left_out="patches")))
    assert decision.reason.key == "library.convolution_bias"


def test_a_cost_model_leaves_out_what_has_no_price() -> None:
    options = SchedulerOptions(generated_matmuls=frozenset({"all"}))
    strategies, context = contraction_strategies(options), PassContext({CPU: H200})
    choose = ChooseStrategies(strategies, "all", Without(left_out="generated-matmuls"))
    assert choose.apply(parse_graph(LOGITS), context) == parse_graph(LOGITS)


@dataclass(frozen=True)
class Own:
    """Strategy of a stranger: another routine for every convolution, at a price."""

    seconds: float
    name: str = "own"

    def candidate(self, call: ContractionCall, rewriting: Rewriting) -> Candidate | None:
        if call.target != "aten.convolution.default":
            return None
        reason = Reason("own.routine", "the stranger's routine takes less time")

        def rewrite() -> tuple[Operation, ...]:
            return (replace(call, target="own.convolution"),)

        return Candidate((Choice(call.name, "call", reason),), rewrite, Prices(self.seconds, 1.0))


@pytest.mark.parametrize(("seconds", "target"), [(0.5, "own.convolution"), (2.0, "aten.convolution.default")])
def test_a_strategy_of_somebody_else_competes(seconds: float, target: str) -> None:
    graph, _ = chosen(GROUPS, choose=ChooseStrategies((Own(seconds), *ALL), "all"))
    (call,) = (each for each in graph.operations if isinstance(each, ContractionCall))
    assert call.target == target
    assert (call.results[0].name == "c") == (seconds < 1)


def test_what_a_strategy_leaves_is_offered_to_the_others() -> None:
    text = GROUPS.replace("none,", "%b,").replace(
        "%w: bf16[48, 24, 3, 3] fixed)", "%w: bf16[48, 24, 3, 3] fixed, %b: bf16[48] fixed)"
    )
    context = PassContext({CPU: H200})
    ChooseStrategies(ALL, "all").apply(parse_graph(text), context)
    reasons = [each.reason.key for each in context.decisions]
    assert reasons == ["library.convolution_bias", "library.groups"]


def test_options_are_taken_without_a_comparison() -> None:
    options = SchedulerOptions(generated_matmuls=frozenset({"all"}))
    strategies = (*matmul_strategies(options), *contraction_strategies(options), *convolution_strategies())
    choose = ChooseStrategies(strategies, "all")
    decisions = [chosen(text, choose=choose)[1] for text in (GROUPS, NARROW, PATCHES, LOGITS)]
    assert {each.reason.key for each in decisions} == {"library.generated"}
