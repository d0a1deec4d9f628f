"""Attention calls as loops: calls that are replaced, results of the loops, and fusion with their kernels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scheduler_builder import GPU_LIKE, plan_of

from litz_ir.host import Executor
from litz_ir.plan import CallStep, Launch
from litz_ir.target import Capabilities
from litz_ir.text import parse_graph
from litz_scheduler import SchedulerOptions

Array = npt.NDArray[Any]

EVERY = SchedulerOptions(generated_matmuls=frozenset({"all"}))
MACHINE = GPU_LIKE

FLASH, EFFICIENT, CUDNN = (
    f"aten._scaled_dot_product_{name}_attention.default" for name in ("flash", "efficient", "cudnn")
)

OPERANDS = (
    "%q: f16[2, 4, 40, 16] strides(2560, 16, 64, 1) fixed, %k: f16[2, {heads}, 200, 16] fixed,"
    " %v: f16[2, {heads}, 200, {wide}] fixed, %b: f16[2, 1, 40, 200] fixed"
)
OTHERS = "f32[0], f32[0], f32[0], f32[0]"


def flash(arguments: str = "", heads: int = 4) -> str:
    """A graph that calls flash attention, and returns its random state too."""
    return (
        f"graph flash({OPERANDS.format(heads=heads, wide=16)}) -> (%o, %l, %s, %t) {{\n"
        "  %o, %l, %c, %d, %e, %f, %s, %t, %m = contraction.attention "
        f"{FLASH}(%q, %k, %v{arguments}) -> f16[2, 4, 40, 16] strides(2560, 16, 64, 1) fixed, f32[2, 4, 40] fixed,"
        f" {OTHERS}, u64[2] fixed, u64[] fixed, f16[0] fixed need exact unpack flops 1\n}}\n"
    )


def efficient(arguments: str = ", %b, true") -> str:
    """A graph that calls memory-efficient attention."""
    return (
        f"graph efficient({OPERANDS.format(heads=4, wide=24)}) -> (%o, %l) {{\n"
        "  %o, %l, %s, %t = contraction.attention "
        f"{EFFICIENT}(%q, %k, %v{arguments}) -> f16[2, 4, 40, 24] strides(3840, 24, 96, 1) fixed,"
        " f32[2, 4, 64] fixed, i64[] fixed, i64[] fixed need exact unpack flops 1\n}\n"
    )


def cudnn(arguments: str = ", none, true") -> str:
    """A graph that calls cuDNN's attention, followed by further operations."""
    return (
        f"graph cudnn({OPERANDS.format(heads=2, wide=24)}) -> (%r, %l) {{\n"
        "  %o, %l, %c, %d, %e, %f, %s, %t, %m = contraction.attention "
        f"{CUDNN}(%q, %k, %v{arguments}) -> f16[2, 4, 40, 24] strides(3840, 24, 96, 1) fixed,"
        f" f32[2, 4, 40, 1] fixed, {OTHERS}, i64[] fixed, i64[] fixed, f32[0] need exact unpack flops 1\n"
        "  %r = pointwise f16[i0: 2, i1: 4, i2: 40, i3: 24] fixed { maximum(%o[i0, i1, i2, i3], 0.0) }\n}\n"
    )


def gradient(name: str = "flash", arguments: str = "", heads: int = 4, result: str = "(%x, %y, %z)") -> str:
    """A graph that calls the gradient of an attention routine."""
    lengths = {"flash": "[2, 4, 40]", "efficient": "[2, 4, 64]", "cudnn": "[2, 4, 40, 1]"}[name]
    middle = {
        "flash": "%o, %l, none, none, 40, 200, 0.0, true, %s, %t",
        "efficient": "%b, %o, %l, %s, %t, 0.0, [true, true, true, false], true",
        "cudnn": "%o, %l, %s, %t, none, none, none, 40, 200, 0.0, true",
    }[name]
    key = f"f16[2, {heads}, 200, 16]"
    more = ("%w", "f32[0]") if name == "efficient" else ()
    values = ", ".join(("%x", "%y", "%z", *more[:1]))
    types = ", ".join(
        ("f16[2, 4, 40, 16] strides(2560, 16, 64, 1) fixed", f"{key} fixed", f"{key} fixed", *more[1:])
    )
    return (
        f"graph gradient({OPERANDS.format(heads=heads, wide=16)}, %g: f16[2, 4, 40, 16] fixed, %s: u64[2] fixed,"
        f" %t: u64[] fixed, %o: f16[2, 4, 40, 16] fixed, %l: f32{lengths} fixed) -> {result} {{\n"
        f"  {values} = contraction.attention aten._scaled_dot_product_{name}_attention_backward.default"
        f"(%g, %q, %k, %v, {arguments or middle}) -> {types} need exact unpack flops 1\n}}\n"
    )


def calls(text: str, options: SchedulerOptions = EVERY, machine: Capabilities = MACHINE) -> list[str]:
    plan = plan_of(parse_graph(text), machine, options)
    return [step.target for step in plan.steps if isinstance(step, CallStep)]


@pytest.mark.parametrize(
    "text",
    [
        flash(", 0.1"),
        flash(", 0.0, true, true"),
        flash(heads=3),
        efficient(", %b, true, 0.5"),
        efficient(", %q, true"),
        efficient().replace("%b: f16", "%b: f32"),
        cudnn(", %b, true"),
        efficient(", none, true").replace("f16", "f64"),
        gradient(arguments="%o, %l, none, none, 40, 200, 0.5, true, %s, %t"),
        gradient("efficient", "%b, %o, %l, %s, %t, 0.0, [true, true, true, true], true"),
        gradient().replace("%o: f16", "%o: f32"),
        gradient().replace("%l: f32", "%l: f16"),
        efficient(", none, true").replace("16] ", "512] ").replace("2560, 16, 64, 1", "81920, 512, 2048, 1"),
    ],
    ids=[
        "drops", "mask", "heads", "drops_too", "bias", "wider_bias", "biased_cudnn", "dtype", "backward_drops",
        "of_bias", "out", "logarithm", "wide",
    ],
)  # fmt: skip
def test_calls_that_are_not_replaced(text: str) -> None:
    assert len(calls(text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        flash(), flash(heads=2), efficient(), efficient(", none, false"), cudnn(),
        *map(gradient, ("flash", "efficient", "cudnn")),
    ],
)  # fmt: skip
def test_calls_are_loops_where_that_is_asked_for_and_bodies_may_hold_sums(text: str) -> None:
    assert calls(text) == []
    assert calls(text, replace(EVERY, generated_matmuls=frozenset({"o", "x"}))) == []
    assert len(calls(text, replace(EVERY, generated_matmuls=frozenset({"p"})))) == 1
    assert len(calls(text, SchedulerOptions())) == 1
    assert len(calls(text, machine=replace(MACHINE, nested_reductions=False))) == 1


def test_operands_that_would_be_rounded_stay_with_the_library() -> None:
    text = efficient().replace("f16", "f32")
    assert calls(text) == []
    assert len(calls(text, replace(EVERY, matmul_precision="tf32"))) == 1


def launches(text: str) -> list[int]:
    """The number of buffers of each launch of a plan."""
    plan = plan_of(parse_graph(text), MACHINE, EVERY)
    return [len(step.buffers) for step in plan.steps if isinstance(step, Launch)]


def test_an_epilogue_at_the_same_point_is_fused() -> None:
    assert launches(cudnn()) == [5], "queries, keys, values, the epilogue's result, logarithms"
    assert launches(efficient()) == [7, 3], "the padding of logarithms has no rows in the sum"
    assert launches(efficient(", none, false").replace("(%o, %l)", "(%o)")) == [4]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads", [4, 2])
def test_the_loops_compute_attention(causal: bool, heads: int) -> None:
    plan = plan_of(parse_graph(flash(f", 0.0, {str(causal).lower()}", heads)), MACHINE, EVERY)
    generator = np.random.default_rng(0)
    shapes = (2, 40, 4, 16), (2, heads, 200, 16), (2, heads, 200, 16), (2, 1, 40, 200)
    q, k, v, bias = (generator.standard_normal(shape).astype(np.float16) for shape in shapes)
    q = q.transpose(0, 2, 1, 3)
    values, logarithms, *state = Executor(plan).run([q, k, v, bias])
    wide, key, value = (each.astype(np.float64) for each in (q, k, v))
    scores = wide @ np.repeat(key, 4 // heads, 1).swapaxes(2, 3) / 4
    if causal:
        scores = np.where(np.tri(40, 200, 160, dtype=bool), scores, -np.inf)
    total = np.exp(scores).sum(-1)
    wanted = np.exp(scores) @ np.repeat(value, 4 // heads, 1) / total[..., None]
    np.testing.assert_allclose(values, wanted, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(logarithms, np.log(total), rtol=1e-5, atol=1e-5)
    assert values.strides == (5120, 32, 128, 2)
    assert [(each.dtype, each.shape) for each in state] == [(np.uint64, (2,)), (np.uint64, ())]
    assert not any(each.any() for each in state)


@pytest.mark.parametrize("heads", [4, 2])
def test_the_loops_of_gradients_compute_gradients(heads: int) -> None:
    forward = plan_of(parse_graph(flash(", 0.0, true", heads)), MACHINE, EVERY)
    backward = plan_of(parse_graph(gradient(heads=heads)), MACHINE, EVERY)
    assert len(backward.kernels) == 3, (
        "kernels for the row sums, the gradients of queries, and those of keys and values"
    )
    generator = np.random.default_rng(0)
    shapes = (2, 40, 4, 16), (2, heads, 200, 16), (2, heads, 200, 16), (2, 1, 40, 200), (2, 4, 40, 16)
    q, k, v, bias, given = (generator.standard_normal(shape).astype(np.float16) for shape in shapes)
    q = q.transpose(0, 2, 1, 3)
    values, logarithms, *state = Executor(forward).run([q, k, v, bias])
    found = Executor(backward).run([q, k, v, bias, given, *state, np.ascontiguousarray(values), logarithms])
    for own, exact in zip(found, exact_gradients(q, k, v, given), strict=True):
        assert own.dtype == np.float16
        np.testing.assert_allclose(own, exact, rtol=5e-3, atol=5e-3 * np.abs(exact).max())


def exact_gradients(*operands: Array) -> tuple[Array, Array, Array]:
    """The gradients of queries, keys and values in f64, with a causal mask aligned to the last query and key."""
    q, k, v, given = (each.astype(np.float64) for each in operands)
    group, scale = q.shape[1] // k.shape[1], q.shape[-1] ** -0.5
    key, value = (np.repeat(each, group, 1) for each in (k, v))
    scores = q @ key.swapaxes(2, 3) * scale
    mask = np.tri(*scores.shape[2:], scores.shape[3] - scores.shape[2], dtype=bool)
    weights = np.exp(np.where(mask, scores, -np.inf))
    weights /= weights.sum(-1, keepdims=True)
    of_weights = given @ value.swapaxes(2, 3)
    of_scores = weights * (of_weights - (of_weights * weights).sum(-1, keepdims=True)) * scale
    grouped = (*k.shape[:2], group, *k.shape[2:])
    of_keys = (of_scores.swapaxes(2, 3) @ q).reshape(grouped).sum(2)
    return of_scores @ key, of_keys, (weights.swapaxes(2, 3) @ given).reshape(grouped).sum(2)
