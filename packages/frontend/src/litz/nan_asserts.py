"""Checks that a compiled graph neither is given nor gives NaN; loaded where ``config.nan_asserts`` asks for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from litz.host.load import HostFunction
from litz_ir.errors import NanFound
from litz_ir.origin import UNKNOWN, Origin
from litz_lowering import origin_of

GIVEN = "look at what the graph is given: whatever computes this runs before it"
MADE = "the graph's inputs hold none; config.self_check compares its kernels with ATen's"


@dataclass(frozen=True, slots=True)
class _Checked:
    """A value at a ``position`` among inputs or results: ``what`` it is, and the user's line that made or reads it."""

    position: int
    what: str
    origin: Origin

    def check(self, values: Sequence[Any] | Mapping[int, Any], name: str, hint: str) -> None:
        """Raise ``NanFound`` for the value in graph ``name`` if it holds NaN."""
        if _holds_nan(values[self.position]):
            raise NanFound(f"{self.what} of {name} holds NaN", origin=self.origin, hint=hint)


def without_nan(gm: GraphModule, name: str, call: HostFunction) -> HostFunction:
    """The call of graph ``name``, compiled from ``gm``, that looks for NaN among its inputs before it, and among its
    results and the inputs that it overwrites after it. It waits for the device and raises ``NanFound``."""
    inputs = [node for node in gm.graph.nodes if node.op == "placeholder"]
    given = [_Checked(k, f"the input {node.name}", _first_use(node)) for k, node in enumerate(inputs)]
    results = list(_results(gm))
    places = {node: k for k, node in enumerate(inputs)}
    written = [
        _Checked(places[target], f"the overwritten input {target.name}", origin_of(node))
        for target, node in _written(gm)
    ]

    def run(args: list[Any]) -> Sequence[Any]:
        for each in given:
            each.check(args, name, GIVEN)
        # The call empties the list, and lets go of what it was given: none but what it writes is held here.
        kept = {each.position: args[each.position] for each in written}
        found = call(args)
        for each in results:
            each.check(found, name, MADE)
        for each in written:
            each.check(kept, name, MADE)
        return found

    return run


def _results(gm: GraphModule) -> Iterator[_Checked]:
    """The results that nodes compute: an input that is returned has been looked at."""
    (returned,) = next(iter(reversed(gm.graph.nodes))).args
    for position, node in enumerate(returned if isinstance(returned, list | tuple) else (returned,)):
        if isinstance(node, Node) and node.op != "placeholder":
            yield _Checked(position, f"the result {node.name}", origin_of(node))


def _written(gm: GraphModule) -> Iterator[tuple[Node, Node]]:
    """The inputs that a graph overwrites, each with the node that does."""
    for node in gm.graph.nodes:
        if node.target is torch.ops.aten.copy_.default and node.args[0].op == "placeholder":
            yield node.args[0], node


def _first_use(node: Node) -> Origin:
    return next((origin_of(user) for user in node.users if user.op != "output"), UNKNOWN)


def _holds_nan(value: object) -> bool:
    if not isinstance(value, torch.Tensor) or not (value.is_floating_point() or value.is_complex()):
        return False
    with torch.no_grad():
        # Floats of eight bits have no operators of their own.
        wide = value.float() if value.is_floating_point() and value.itemsize == 1 else value
        return bool(torch.isnan(wide).any())
