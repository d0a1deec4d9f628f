"""The scheduler's passes as a list that others edit by name, and cost models of others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from scheduler_builder import CPU_LIKE, GPU_LIKE, assert_same

from litz_ir.builder import GraphBuilder
from litz_ir.device import CPU, Device
from litz_ir.dtypes import f32
from litz_ir.errors import ConfigError, PassError, ScheduleError, VerifyError
from litz_ir.loops import LoopGraph, Pointwise, Ref
from litz_ir.passes import PassContext, Timings
from litz_ir.plan import Launch, Plan
from litz_ir.scalar import Expr
from litz_ir.target import Capabilities
from litz_ir.text import parse_graph
from litz_scheduler import (
    CostModel,
    PassList,
    ReductionWork,
    SchedulerOptions,
    ThresholdCosts,
    default_passes,
    diff,
    explain_plan,
    plan_passes,
    schedule,
)

SOFTMAX = parse_graph("""
graph softmax(%x: f32[8, 40] fixed) -> (%o) {
  %m = reduce.max f32[i0: 8 | r0: 40] { %x[i0, r0] }
  %e = pointwise f32[i0: 8, i1: 40] { exp(%x[i0, i1] - %m[i0]) }
  %s = reduce.sum f32[i0: 8 | r0: 40] { %e[i0, r0] }
  %o = pointwise f32[i0: 8, i1: 40] fixed { %e[i0, i1] / %s[i0] }
}
""")


@dataclass(frozen=True)
class CountLoops:
    """Pass of a stranger: records the pointwise loops that it sees, and changes nothing."""

    seen: list[int] = field(default_factory=list)
    name: str = "count-loops"
    ulp: int = 0

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        self.seen.append(sum(isinstance(each, Pointwise) for each in data.operations))
        return data


@dataclass(frozen=True)
class Forget:
    """Pass of a stranger that is wrong: no output is left."""

    name: str = "forget"
    ulp: int = 0

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        return replace(data, outputs=(Ref("gone"),))


@dataclass(frozen=True)
class Returns:
    """Pass of a stranger that returns something else."""

    value: Any
    name: str = "returns"
    ulp: int = 0

    def apply(self, data: LoopGraph, context: PassContext) -> Any:
        return self.value


@dataclass(frozen=True)
class Fail:
    """Pass of a stranger that raises."""

    name: str = "fail"
    ulp: int = 0

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        raise ZeroDivisionError


def untyped(value: object) -> Any:
    """The value, as a caller without a type checker gives it."""
    return value


def planned(graph: LoopGraph, passes: PassList | None = None, machine: Capabilities = CPU_LIKE) -> Plan:
    """The plan of a graph by a list of passes, which computes what the graph does."""
    plan = schedule(graph, PassContext({CPU: machine}), passes=passes)
    assert_same(graph, plan)
    return plan


def test_a_pass_runs_before_and_after_the_pass_that_is_named() -> None:
    count = CountLoops()
    passes = default_passes().before("inline", count).after("inline", replace(count, name="count-again"))
    names = passes.names()
    position = names.index("inline")
    assert names[position - 1 : position + 2] == ("count-loops", "inline", "count-again")
    planned(
        parse_graph("""
      graph two(%x: f32[8] fixed) -> (%o) {
        %a = pointwise f32[i0: 8] { %x[i0] + 1.0 }
        %o = pointwise f32[i0: 8] fixed { %a[i0] * 2.0 }
      }
    """),
        passes,
    )
    assert count.seen == [2, 1]


def test_passes_are_replaced_and_removed() -> None:
    count = CountLoops()
    passes = (
        default_passes().replaced("common-subexpressions", count).without("split-reductions", "split-scans")
    )
    assert set(default_passes().names()) - set(passes.names()) == {
        "common-subexpressions", "split-reductions", "split-scans",
    }  # fmt: skip
    assert planned(SOFTMAX, passes) == planned(SOFTMAX)
    assert count.seen == [2]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (Returns(None), "pass returns returned None, which is no form of a program"),
        (Returns("graph"), "pass returns returned a str, which is no form of a program"),
        (Forget(), "the result of pass forget is malformed: .* returns %gone, which is not defined"),
        (Fail(), "pass fail failed: ZeroDivisionError"),
    ],
)
def test_an_error_of_a_pass_of_others_names_it(edit: Any, message: str) -> None:
    with pytest.raises(PassError, match=message) as caught:
        schedule(SOFTMAX, PassContext({CPU: CPU_LIKE}), passes=default_passes().after("inline", edit))
    assert "report this" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["vertical-fusion", "storage-classes", "build-steps", "name-kernels", "plan-memory"]
)
def test_passes_that_change_the_form_are_not_removed(name: str) -> None:
    with pytest.raises(ConfigError, match=f"the pass {name} changes the form of the program"):
        default_passes().without(name)


def test_a_malformed_graph_is_refused() -> None:
    with pytest.raises(VerifyError, match=r"loopgraph\.outputs\[0\]: Ref"):
        schedule(replace(SOFTMAX, outputs=untyped(("o",))), PassContext({CPU: CPU_LIKE}))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda: default_passes().before("inlin", CountLoops()), "no pass is called 'inlin'"),
        (lambda: default_passes().without("inline", "inline"), "no pass is called 'inline'"),
        (lambda: default_passes().after("inline", CountLoops(), CountLoops()), "two passes are called 'count-loops'"),
        (lambda: default_passes().after("inline", untyped(CountLoops)), "the class CountLoops is no pass"),
        (lambda: default_passes().after("inline", untyped(print)), "has no name, ulp, apply"),
        (lambda: default_passes().before("inline"), "no pass is given"),
        (lambda: default_passes().without(untyped(CountLoops())), "is no name of a pass"),
        (lambda: default_passes().after("inline", untyped(replace(CountLoops(), ulp=untyped("0")))), "bound '0'"),
        (lambda: default_passes().after("inline", replace(CountLoops(), name="")), "a pass has the name ''"),
        (lambda: default_passes(untyped("fast")), "options is a str, but a SchedulerOptions belongs there"),
        (lambda: default_passes(costs=untyped(3)), "an int is no cost model: it has no is_cheap"),
        (lambda: default_passes(costs=untyped(NeverAgain)), "the class NeverAgain is no cost model"),
    ],
)  # fmt: skip
def test_wrong_edits_are_errors(edit: object, message: str) -> None:
    assert callable(edit)
    with pytest.raises(ConfigError, match=message):
        edit()


def test_passes_that_build_a_plan_say_what_context_they_need() -> None:
    named = next(each for each in plan_passes(SchedulerOptions()) if each.name == "name-kernels")
    with pytest.raises(PassError, match="the source graph and the names of kernels"):
        named.apply(None, PassContext({CPU: CPU_LIKE}))


CONTEXT = PassContext({CPU: CPU_LIKE})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: schedule(untyped(None), CONTEXT), "the graph is None, but a LoopGraph belongs there"),
        (lambda: schedule(untyped(GraphBuilder("g")), CONTEXT), r"(?s)a GraphBuilder, but.*call build\(\)"),
        (lambda: schedule(SOFTMAX, untyped({CPU: CPU_LIKE})), "the context is a dict"),
        (lambda: schedule(SOFTMAX, PassContext({})), "the context has a dict for capabilities"),
        (lambda: schedule(SOFTMAX, PassContext(untyped({"cpu": CPU_LIKE}))), "a Capabilities for a str"),
        (lambda: schedule(SOFTMAX, PassContext({CPU: untyped("avx2")})), "the context has a str for a Device"),
        (
            lambda: schedule(SOFTMAX, PassContext({CPU: replace(CPU_LIKE, device=Device("gpu"))})),
            "the capabilities avx512 of gpu for cpu",
        ),
        (lambda: schedule(SOFTMAX, CONTEXT, untyped({"fuse": False})), "options is a dict"),
        (lambda: schedule(SOFTMAX, CONTEXT, passes=untyped([])), "passes is a list, but a PassList"),
        (
            lambda: schedule(SOFTMAX, CONTEXT, SchedulerOptions(fuse=False), passes=default_passes()),
            "options are given besides passes",
        ),
        (lambda: schedule(SOFTMAX, CONTEXT, fuel=-1), "fuel is -1"),
        (lambda: schedule(SOFTMAX, CONTEXT, fuel=untyped("3")), "fuel is '3'"),
        (lambda: schedule(SOFTMAX, CONTEXT, hooks=untyped(print)), "hooks is a builtin_function_or_method"),
        (lambda: schedule(SOFTMAX, CONTEXT, timings=untyped({})), "timings is a dict, but a Timings"),
        (lambda: diff(untyped(SOFTMAX), untyped(None)), "the first argument is a LoopGraph, but a Plan"),
        (lambda: explain_plan(untyped(SOFTMAX)), "the argument is a LoopGraph, but a Plan belongs there"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_errors(call: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        call()


def test_hooks_and_timings_of_the_context_are_used_and_decisions_are_of_one_run() -> None:
    seen: list[str] = []
    context = PassContext({CPU: CPU_LIKE}, hooks=[lambda name, a, b: seen.append(name)], timings=Timings())
    first, second = schedule(SOFTMAX, context), schedule(SOFTMAX, context)
    assert seen.count("inline") == 2
    assert context.timings is not None and "inline" in context.timings.seconds
    assert first.decisions == second.decisions
    assert context.decisions == [*first.decisions, *second.decisions]


# --- cost models -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NeverAgain(ThresholdCosts):
    """Cost model of a stranger: nothing is computed twice, nothing is split."""

    def is_cheap(self, body: Expr) -> bool:
        return False

    def duplicates(self, body: Expr, loads: int) -> bool:
        return False

    def uses_scratch(self, bodies: Sequence[Expr]) -> bool:
        return True

    def splits(self, work: ReductionWork, machine: Capabilities) -> int:
        if work.outer > 1:
            return 0
        assert work == ReductionWork(outer=1, inner=1 << 20, loaded_bytes=4, cost_bytes=4, along_outer=False)
        return 7 if machine.is_gpu else 0


def kernels(plan: Plan) -> int:
    return sum(isinstance(step, Launch) for step in plan.steps)


def test_a_cost_model_decides_what_is_inlined() -> None:
    graph = parse_graph("""
      graph shared(%x: f32[64] fixed, %g: i64[4096] fixed) -> (%o, %p) {
        %a = pointwise f32[i0: 64] { %x[i0] + 1.0 }
        %o = pointwise f32[i0: 4096] fixed { %a[i0 // 64] * 2.0 }
        %p = reduce.sum f32[i0: 64 | r0: 64] fixed { %a[r0] * %x[i0] }
      }
    """)
    default, own = planned(graph), planned(graph, default_passes(costs=NeverAgain()))
    assert kernels(own) == kernels(default) + 1


def test_a_cost_model_decides_how_reductions_are_split() -> None:
    graph = parse_graph("""
      graph total(%x: f32[1048576] fixed) -> (%o) {
        %o = reduce.sum f32[ | r0: 1048576] fixed { %x[r0] * 0.0 }
      }
    """)
    # Splits are equal, so that the number is a divisor of the length, at most the one that the model gives.
    for machine, expected in ((CPU_LIKE, []), (GPU_LIKE, ["4 splits"])):
        plan = planned(graph, default_passes(costs=NeverAgain()), machine)
        assert [each.note for each in plan.decisions if each.stage == "split"] == expected


@dataclass(frozen=True)
class Halves(ThresholdCosts):
    """Cost model of a stranger that is wrong: parts are no integers."""

    def splits(self, work: ReductionWork, machine: Capabilities) -> Any:
        return 2.5


def test_a_cost_model_of_wrong_answers_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"the cost model splits m into 2\.5 parts"):
        schedule(SOFTMAX, PassContext({CPU: CPU_LIKE}), passes=default_passes(costs=Halves()))


def test_the_default_cost_model_is_one() -> None:
    assert isinstance(ThresholdCosts(), CostModel)


# --- capabilities ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lacking", "message"),
    [
        ({"dtypes": CPU_LIKE.dtypes - {f32}}, "needs f32, which kernels of avx512 lack"),
        ({"operations": frozenset({"sub", "div", "maximum", "add"})}, "%?e needs the scalar operation exp"),
        ({"combiners": frozenset({"sum"})}, "m needs the combiner max"),
    ],
)  # fmt: skip
def test_what_the_device_lacks_is_named_with_the_operation(lacking: dict[str, Any], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        schedule(SOFTMAX, PassContext({CPU: replace(CPU_LIKE, **lacking)}))


def test_indices_too_large_for_the_device_are_refused_when_sizes_are_known() -> None:
    graph = parse_graph("""
      graph large(%x: f32[2147483648] fixed) -> (%o) {
        %o = reduce.max f32[ | r0: 2147483648] fixed { %x[r0] }
      }
    """)
    machine = replace(CPU_LIKE, index_bits=32)
    with pytest.raises(ScheduleError, match="x has 2147483648 elements; indices of avx512 have 32 bits"):
        schedule(graph, PassContext({CPU: machine}))


def test_dead_code_that_no_pass_removes_is_not_launched() -> None:
    graph = parse_graph("""
    graph dead(%x: f32[4] fixed) -> (%o) {
      %unused = pointwise f32[i0: 4] { 2.0 }
      %o = pointwise f32[i0: 4] fixed { %x[i0] + 1.0 }
    }
    """)
    passes = default_passes().without("dead-code", "dead-code-2", "inline")
    plan = schedule(graph, PassContext({CPU: CPU_LIKE}), passes=passes)
    assert [step.buffers for step in plan.steps if isinstance(step, Launch)] == [("x", "o")]
