"""Patterns over ATen graphs: matches, their order, and mismatches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node
from torch.fx.experimental.proxy_tensor import make_fx

from litz_lowering.fx_passes.patterns import (
    HERE,
    AnyNode,
    CallPattern,
    Either,
    Match,
    Mismatch,
    NumberPattern,
    OptionalSteps,
    Row,
    find,
)

SINE = CallPattern(("aten.sin.default",), (AnyNode("x"),))
SCALED = Row("scale", CallPattern(("aten.mul.Tensor",), (HERE, NumberPattern("by"))))
MOVED = Row("move", CallPattern(("aten.add.Tensor",), (HERE, AnyNode("to")), commutes=True))


def nodes(function: Callable[..., Any], count: int = 2) -> dict[str, Node]:
    """Nodes of a traced function of vectors, by name."""
    graph = make_fx(function, tracing_mode="fake")(*(torch.ones(3) for _ in range(count))).graph
    return {node.name: node for node in graph.nodes}


def test_a_call_binds_its_arguments() -> None:
    found = nodes(lambda x, y: x.sin() + y)
    match = find(CallPattern(("aten.add.Tensor",), (SINE, AnyNode("y")), name="sum"), found["add"])
    assert isinstance(match, Match)
    assert match.calls == (found["add"], found["sin"])
    assert match.bound == {"sum": found["add"], "x": found["x_1"], "y": found["y_1"]}


def test_arguments_are_swapped_where_the_operator_commutes() -> None:
    found = nodes(lambda x, y: y + x.sin())
    pattern = CallPattern(("aten.add.Tensor",), (SINE, AnyNode("y")))
    assert isinstance(find(pattern, found["add"]), Mismatch)
    commuting = CallPattern(("aten.add.Tensor",), (SINE, AnyNode("y")), commutes=True)
    match = find(commuting, found["add"])
    assert isinstance(match, Match) and match.node("y") is found["y_1"]


def test_steps_are_in_order_and_optional() -> None:
    found = nodes(lambda x, y: y + (y + x.sin() * 2) * 3)
    pattern = OptionalSteps("steps", (SCALED, MOVED), SINE)
    match = find(pattern, found["add_1"])
    assert isinstance(match, Match)
    assert [(step.row, step.inner.name) for step in match.steps_of("steps")] == [
        ("move", "mul_1"), ("scale", "add"), ("move", "mul"), ("scale", "sin"),
    ]  # fmt: skip
    assert [step.bound.get("by") for step in match.steps_of("steps")] == [None, 3, None, 2]
    alone = find(pattern, found["sin"])
    assert isinstance(alone, Match) and alone.steps_of("steps") == ()


def test_other_users_stop_a_pattern_with_once() -> None:
    found = nodes(lambda x, y: (x.sin() * 2, x.sin().cos() + x.sin() * y))
    shared = nodes(lambda x, y: (lambda s: (s * 2, s.cos()))(x.sin()))
    pattern = OptionalSteps("steps", (SCALED,), SINE)
    assert isinstance(find(pattern, found["mul"]), Match)
    assert find(pattern, shared["mul"]) == Mismatch(shared["sin"], readers=True)
    relaxed = OptionalSteps("steps", (SCALED,), CallPattern(SINE.targets, SINE.arguments, once=False))
    assert isinstance(find(relaxed, shared["mul"]), Match)


def test_the_node_that_stopped_the_furthest_attempt_is_named() -> None:
    found = nodes(lambda x, y: x.cos() * 2 + y)
    mismatch = find(OptionalSteps("steps", (SCALED, MOVED), SINE), found["add"])
    assert mismatch == Mismatch(found["cos"])


def test_alternatives_and_conditions() -> None:
    found = nodes(lambda x, y: x.sin() * y)
    is_vector: Callable[[Node], bool] = lambda node: node.meta["val"].dim() == 1  # noqa: E731
    by = Either((NumberPattern("by"), AnyNode("by", where=is_vector)))
    assert isinstance(find(CallPattern(("aten.mul.Tensor",), (SINE, by)), found["mul"]), Match)
    never = CallPattern(("aten.mul.Tensor",), (SINE, by), where=lambda node: False)
    assert find(never, found["mul"]) == Mismatch(found["mul"])
