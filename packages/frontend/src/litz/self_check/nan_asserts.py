"""NaN checks of a compiled graph's inputs and results; imported where ``config.nan_asserts`` asks for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from litz.host.runtime.load import HostFunction
from litz.profiling.values import has_nan
from litz_ir.errors import NanFound
from litz_ir.origin import UNKNOWN, Origin
from litz_lowering import origin_of

_GIVEN = "the code that computes this input runs before the graph"
"""Hint of an error about an input."""

_MADE = "the graph's inputs contain none; config.self_check compares its kernels with ATen's"
"""Hint of an error about a result."""


@dataclass(frozen=True, slots=True)
class _Checked:
    """An input or result that is checked for NaN."""

    position: int
    """Position among inputs or results."""

    what: str
    """Description of the value in the error."""

    origin: Origin
    """The user's line that computes the value, or first reads it."""

    def check(self, values: Sequence[Any] | Mapping[int, Any], name: str, hint: str) -> None:
        """Raise ``NanFound`` if the value, in graph ``name``, contains NaN."""
        value = values[self.position]
        if isinstance(value, torch.Tensor) and has_nan(value):
            raise NanFound(f"{self.what} of {name} contains NaN", origin=self.origin, hint=hint)


def with_nan_checks(gm: GraphModule, name: str, call: HostFunction) -> HostFunction:
    """Return the call of graph ``name``, compiled from ``gm``, with NaN checks.

    Inputs are checked before the call; results and overwritten inputs after it. It waits for the device and raises
    ``NanFound``.
    """
    inputs = [node for node in gm.graph.nodes if node.op == "placeholder"]
    given = [_Checked(k, f"the input {node.name}", _first_use(node)) for k, node in enumerate(inputs)]
    results = list(_results(gm))
    positions = {node: k for k, node in enumerate(inputs)}
    written = [
        _Checked(positions[target], f"the overwritten input {target.name}", origin_of(node))
        for target, node in _written(gm)
    ]

    def run(args: list[Any]) -> Sequence[Any]:
        for each in given:
            each.check(args, name, _GIVEN)
        # The call empties the list and drops its arguments: only those that it overwrites are referenced here.
        overwritten = {each.position: args[each.position] for each in written}
        found = call(args)
        for each in results:
            each.check(found, name, _MADE)
        for each in written:
            each.check(overwritten, name, _MADE)
        return found

    return run


def _results(gm: GraphModule) -> Iterator[_Checked]:
    """Yield the results that nodes compute; returned inputs are checked as inputs."""
    (returned,) = next(iter(reversed(gm.graph.nodes))).args
    for position, node in enumerate(returned if isinstance(returned, list | tuple) else (returned,)):
        if isinstance(node, Node) and node.op != "placeholder":
            yield _Checked(position, f"the result {node.name}", origin_of(node))


def _written(gm: GraphModule) -> Iterator[tuple[Node, Node]]:
    """Yield the inputs that a graph overwrites, each with the node that does."""
    for node in gm.graph.nodes:
        if node.target is torch.ops.aten.copy_.default and node.args[0].op == "placeholder":
            yield node.args[0], node


def _first_use(node: Node) -> Origin:
    """Return the origin of the first node that reads an input."""
    return next((origin_of(user) for user in node.users if user.op != "output"), UNKNOWN)
