"""What a forward may save in a layout of its own choice, and a backward that is compiled for what it really gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch._dynamo.compiled_autograd
from torch.fx import GraphModule, Node

from litz.capture.runtime_wrappers import Strides, as_traced
from litz.host.load import HostFunction

_SAME = ("aten.detach.default", "aten.alias.default")
_BY_PLACE = ("aten._unsafe_view", "aten.as_strided")
"""Operators that look at strides, though their schema speaks of no view: where ATen runs them it may refuse others."""


def saved_in_any_layout(forward: GraphModule, backward: GraphModule, outputs: int) -> frozenset[str]:
    """The nodes of a forward whose tensors the backward alone sees, and there by their elements: never through a view,
    and never as a result. The first ``outputs`` results are the function's.

    Compiled autograd traces the backward again, with strides that it was not divided for: then there are none.
    """
    if torch._dynamo.config.compiled_autograd or torch._dynamo.compiled_autograd.compiled_autograd_enabled:
        return frozenset()
    (results,) = next(iter(reversed(forward.graph.nodes))).args
    assert isinstance(results, list | tuple)
    given = {node.name: node for node in backward.graph.nodes if node.op == "placeholder"}
    returned = {each.name for each in results[:outputs] if isinstance(each, Node)}
    saved = {each.name for each in results[outputs:] if isinstance(each, Node)} - returned
    return frozenset(name for name in saved if name in given and _is_read_by_elements(given[name]))


def _is_read_by_elements(node: Node) -> bool:
    return all(
        _is_read_by_elements(user) if str(user.target) in _SAME else _reads_elements(user.target)
        for user in node.users
    )


def _reads_elements(target: object) -> bool:
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in ("aten", "prims"):
        return False
    views = any(argument.alias_info is not None for argument in target._schema.arguments)
    return not views and not str(target).startswith(_BY_PLACE)


def expect(gm: GraphModule, inputs: Sequence[Any]) -> dict[int, Strides]:
    """Let a graph know the strides of the tensors that it will get, where they are not those that it was traced with;
    gives the latter, by position."""
    traced: dict[int, Strides] = {}
    nodes = (node for node in gm.graph.nodes if node.op == "placeholder")
    for position, (node, given) in enumerate(zip(nodes, inputs, strict=True)):
        known, real = _strides(node.meta.get("val")), _strides(given)
        if known is not None and real is not None and known != real:
            traced[position] = known
            node.meta["val"] = given
    return traced


def _strides(value: object) -> Strides | None:
    """The strides of a tensor, where no symbol is in them."""
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return None
    return value.stride() if all(type(stride) is int for stride in value.stride()) else None


def given_as_traced(call: HostFunction, traced: Mapping[int, Strides]) -> HostFunction:
    """The call of a graph that runs as it came, of tensors with the strides that it was traced with."""
    if not traced:
        return call

    def run(args: list[Any]) -> Sequence[Any]:
        for position, strides in traced.items():
            args[position] = as_traced(args[position], strides)
        return call(args)

    return run
