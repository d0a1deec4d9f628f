"""The check of passes: correct passes are accepted, and the first pass that changed a value is named."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from litz_ir.device import CPU
from litz_ir.dtypes import bf16, f32, i64
from litz_ir.errors import PassError
from litz_ir.interp.encoding import encode
from litz_ir.loops.nodes import (
    Axis,
    ContractionCall,
    Extern,
    LoopGraph,
    Mutation,
    NamedCombiner,
    Operation,
    Pointwise,
    Reduction,
    Ref,
    Value,
    View,
    tensor_type,
)
from litz_ir.origin import Origin
from litz_ir.passes.base import PassContext, Timings
from litz_ir.passes.check import check_hook, check_hook_for, check_pass, difference
from litz_ir.passes.pipeline import Pipeline, run_passes
from litz_ir.passes.samples import draw
from litz_ir.plan.kernel import Kernel, Parameter, Phase, Store
from litz_ir.plan.program import Allocate, Launch, Placement, Plan, Storage
from litz_ir.plan.schedule import CpuLoops
from litz_ir.scalar.build import cast, const, load, op
from litz_ir.scalar.expr import Indirect
from litz_ir.scalar.node import Expr
from litz_ir.symbols.table import SymbolInfo, SymbolTable
from litz_ir.symbols.term import symbol

i, j, s = symbol("i"), symbol("j"), symbol("s")
ROWS = SymbolTable((SymbolInfo("s", "int", low=1, divisor=2),))
X = Value("x", tensor_type(f32, s, 4))
AXES = (Axis("i", s), Axis("j", 4))
ORIGIN = Origin(node="add", file="model.py", line=3)


def pointwise(name: str, body: Expr) -> Pointwise:
    return Pointwise(
        results=(Value(name, tensor_type(body.dtype, s, 4)),), axes=AXES, bodies=(body,), origin=ORIGIN
    )


def graph(
    *operations: Operation, inputs: tuple[Any, ...] = (X,), outputs: tuple[str, ...] = ("o",)
) -> LoopGraph:
    return LoopGraph("g", ROWS, inputs, (), operations, tuple(map(Ref, outputs)))


x = load("x", (i, j), f32)
PLUS = graph(pointwise("o", op("add", x, const(1.0, f32))))


def test_equal_graphs_pass_and_a_changed_value_names_pass_output_and_line() -> None:
    two_steps = graph(pointwise("t", op("add", x, const(1.0, f32))), pointwise("o", load("t", (i, j), f32)))
    assert check_pass(two_steps, PLUS, name="inline")
    wrong = graph(pointwise("o", op("add", x, const(2.0, f32))))
    with pytest.raises(
        PassError, match=r"pass inline changed output 0 \(%o\): element \(0, 0\)(.|\n)*model.py:3(.|\n)*s = "
    ):
        check_pass(PLUS, wrong, name="inline")


@dataclass(frozen=True)
class Multiply:
    """Multiplies the constant of ``o = x + c``."""

    factor: float
    name: str = "multiply"
    ulp: int = 0

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        (operation,) = data.operations
        assert isinstance(operation, Pointwise)
        return data.with_operations((replace(operation, bodies=(op("add", x, const(self.factor, f32)),)),))


def test_the_hook_runs_between_passes_and_honours_their_bounds() -> None:
    context = PassContext({}, hooks=[check_hook])
    assert run_passes([Multiply(1.0)], PLUS, context) == PLUS
    with pytest.raises(PassError, match="pass multiply changed output 0"):
        run_passes([Multiply(1.0), Multiply(1.001)], PLUS, context)
    loose = Multiply(1.0000001, ulp=4)
    assert run_passes([loose], PLUS, PassContext({}, hooks=[check_hook_for([loose])])) != PLUS


def test_hooks_and_timings_see_a_pipeline_and_each_of_its_passes() -> None:
    seen: list[str] = []
    timings = Timings()
    hooks = [lambda name, before, after: seen.append(name)]
    inner = Pipeline[LoopGraph, LoopGraph]("inner", (Multiply(2.0, ulp=1), Multiply(3.0, "again", ulp=2)))
    whole = Pipeline[LoopGraph, LoopGraph]("whole", (inner, Multiply(1.0, "last")))
    assert whole.ulp == 3
    run_passes([whole], PLUS, PassContext({}, hooks=hooks, timings=timings))
    assert seen == list(timings.seconds) == ["multiply", "again", "inner", "last", "whole"]


def test_an_exception_in_a_pass_of_a_pipeline_names_that_pass() -> None:
    broken = Multiply("no number", "broken")  # type: ignore[arg-type]
    with pytest.raises(PassError, match="pass broken failed: "):
        Pipeline[LoopGraph, LoopGraph]("whole", (Multiply(1.0), broken)).apply(PLUS, PassContext({}))


def test_a_graph_that_fails_afterwards_is_the_passes_fault() -> None:
    outside = graph(pointwise("o", load("x", (i, j + 1), f32)))
    with pytest.raises(PassError, match=r"the output of pass shift fails to run(.|\n)*out of bounds"):
        check_pass(PLUS, outside, name="shift")


def test_random_indices_stay_in_bounds() -> None:
    k, table = Value("k", tensor_type(i64, 3)), Value("table", tensor_type(f32, 5))
    viewed = View(
        results=(Value("v", tensor_type(i64, 3)),), base="k", axes=(Axis("a", 3),), index=(symbol("a"),)
    )
    row = Indirect(load("v", (i,), i64), 5)
    taken = Pointwise(
        results=(Value("o", tensor_type(f32, 3)),), axes=(Axis("i", 3),), bodies=(load("table", (row,), f32),)
    )
    g = graph(viewed, taken, inputs=(k, table))
    for seed in range(20):
        sample = draw(g, np.random.default_rng(seed))
        assert sample.inputs[0].min() >= 0 and sample.inputs[0].max() < 5
        assert check_pass(g, g, name="nothing", seed=seed)


def test_random_symbols_satisfy_their_facts() -> None:
    facts = SymbolTable(
        (
            SymbolInfo("s", low=4, high=64, divisor=4),
            SymbolInfo("t"),
            SymbolInfo("f", "float"),
            SymbolInfo("b", "bool"),
        )
    ).add_equality(symbol("t"), s + 1)
    for seed in range(20):
        drawn = draw(replace(PLUS, symbols=facts), np.random.default_rng(seed)).symbols
        assert drawn["s"] % 4 == 0 and 4 <= drawn["s"] <= 64 and drawn["t"] == drawn["s"] + 1
        assert isinstance(drawn["f"], float) and isinstance(drawn["b"], bool)


def call_graph(scale: float, target: str = "some.library.call") -> LoopGraph:
    scaled = pointwise("t", op("mul", x, const(scale, f32)))
    call = Extern(results=(Value("o", tensor_type(f32, s)),), target=target, arguments=(Ref("t"),))
    return graph(scaled, call)


def test_missing_routines_give_equal_results_in_both_runs() -> None:
    assert check_pass(call_graph(2.0), call_graph(2.0), name="keep")
    with pytest.raises(PassError, match="arguments that it was not called with before the pass"):
        check_pass(call_graph(2.0), call_graph(3.0), name="scale")


def test_known_calls_run_and_mutations_are_compared() -> None:
    product = ContractionCall(
        results=(Value("o", tensor_type(f32, s, s)),),
        target="matmul",
        arguments=(Ref("x"), Ref("y")),
        kind="matmul",
    )
    y = Value("y", tensor_type(f32, 4, s))
    assert check_pass(graph(product, inputs=(X, y)), graph(product, inputs=(X, y)), name="keep")
    target = Value("x1", X.type, replaces="x")

    def overwrite(value: float) -> LoopGraph:
        new = pointwise("t", op("mul", x, const(value, f32)))
        return graph(new, Mutation(results=(target,), target="x", source="t"), outputs=())

    assert check_pass(overwrite(2.0), overwrite(2.0), name="keep")
    with pytest.raises(PassError, match="pass scale changed input %x in place"):
        check_pass(overwrite(2.0), overwrite(3.0), name="scale")


def test_plans_are_checked_against_their_graph() -> None:
    def plan(constant: float) -> Plan:
        p = symbol("p")
        body = op("add", load("a", (p,), f32), const(constant, f32))
        kernel = Kernel(
            "k",
            (Parameter("a", f32, "in"), Parameter("b", f32, "out")),
            (SymbolInfo("s"),),
            (Axis("p", s * 4),),
            (),
            (Phase((), (Store("b", p, body),)),),
            CpuLoops(),
        )
        placements = (("x", Placement(X.type)), ("o", Placement(X.type, "m")))
        steps = (Allocate("m"), Launch("k", ("x", "o"), (s,)))
        return Plan(
            "g",
            CPU,
            "reference",
            ROWS,
            (X,),
            (),
            placements,
            (Storage("m", s * 16, CPU),),
            (kernel,),
            steps,
            (Ref("o"),),
        )

    check_hook("plan", PLUS, plan(1.0))
    with pytest.raises(PassError, match="pass plan changed output 0"):
        check_hook("plan", PLUS, plan(1.5))


def test_a_graph_that_is_too_large_is_not_checked() -> None:
    huge = Reduction(
        results=(Value("o", tensor_type(f32)),),
        axes=(),
        reduce_axes=(Axis("i", 1 << 20), Axis("j", 1 << 20)),
        combiner=NamedCombiner("sum"),
        bodies=(cast(const(1, i64), f32),),
    )
    g = graph(huge)
    assert not check_pass(g, g, name="nothing")


def test_differences_count_units_of_the_largest_value() -> None:
    a = np.array([1.0, np.nan, -2.0, np.inf], np.float32)
    assert difference(a, a.copy(), f32, 0) == ""
    near = np.nextafter(a, np.sign(a) * np.float32(np.inf))
    assert difference(a, near, f32, 2) == "" and "2 of 4 differ" in difference(a, near, f32, 0)
    assert difference(a[:2], a, f32, 0) == "its shape was (2,) and is (4,)"
    assert difference(3, 4, i64, 0) == "it was 3 and is 4"
    one, more = encode(np.array([1.0]), bf16), encode(np.array([1.0078125]), bf16)
    assert difference(one, more, bf16, 1) == "" and difference(one, more, bf16, 0) != ""
