"""Inputs and results of AOTAutograd's graphs, told apart by the descriptors that it gives them.

Their positions shift with effect tokens, mutated inputs, random state and subclasses, and by how much differs between
releases of torch: a descriptor says what an input is wherever it stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._functorch._aot_autograd.descriptors import (
    AOTOutput,
    ForwardTokenAOTOutput,
    ParamAOTInput,
    PlainAOTInput,
    SavedForBackwardsAOTOutput,
    SavedForBackwardsNoVcCheckAOTOutput,
)
from torch.fx import GraphModule, Node


def parameter_positions(captured: GraphModule, inputs: Sequence[Any]) -> frozenset[int]:
    """The positions among the ``inputs`` of a graph, as Dynamo ``captured`` it, of parameters and buffers of modules.

    Other tensors that somebody told Dynamo to find in one place are inputs like any: their elements may change at any
    call, and it is for that that they stay where they are.
    """
    nodes = [node for node in captured.graph.nodes if node.op == "placeholder"]
    if len(nodes) != len(inputs):
        return frozenset()  # the graph flattens what it is given
    given = enumerate(zip(nodes, inputs, strict=True))
    return frozenset(
        k for k, (node, value) in given if _is_static(node) and (_is_parameter(value) or _is_buffer(node))
    )


def parameter_inputs(gm: GraphModule, positions: frozenset[int]) -> frozenset[str]:
    """The placeholders of an AOT graph for the graph's own parameters and for the inputs at these ``positions``.

    Those on the CPU: on other devices nobody could look at what a write through ``.data`` has changed. Memory that
    several inputs share and one of them overwrites is no parameter, and neither are the tensors that a subclass is made
    of: their versions stay as they are when the subclass is written.
    """
    return frozenset(
        node.name
        for node in gm.graph.nodes
        if node.op == "placeholder"
        and _describes_parameter(node.meta.get("desc"), positions)
        and _is_on_cpu(node.meta.get("val"))
    )


def takes_captured_inputs(gm: GraphModule, count: int) -> bool:
    """True when an AOT graph takes the ``count`` inputs of the captured graph, all of them, in their order, and nothing
    else: no synthetic base of inputs that share memory, and no effect token."""
    described = [node.meta.get("desc") for node in gm.graph.nodes if node.op == "placeholder"]
    return described == [PlainAOTInput(k) for k in range(count)]


def leading_tokens(gm: GraphModule) -> int:
    """How many effect tokens stand before all other results."""
    return sum(isinstance(each, ForwardTokenAOTOutput) for each in _result_descriptors(gm))


def saved_results(forward: GraphModule) -> list[tuple[int, Node]]:
    """What a forward saves for its backward alone: the positions and nodes of these results."""
    (nodes,) = next(iter(reversed(forward.graph.nodes))).args
    assert isinstance(nodes, list | tuple)
    kinds = SavedForBackwardsAOTOutput | SavedForBackwardsNoVcCheckAOTOutput
    described = enumerate(zip(nodes, _result_descriptors(forward), strict=False))
    return [(k, node) for k, (node, each) in described if isinstance(each, kinds) and isinstance(node, Node)]


def _result_descriptors(gm: GraphModule) -> Sequence[AOTOutput]:
    """The descriptors of all results; none for a graph that something rewrote without them."""
    found: Sequence[AOTOutput] = next(iter(reversed(gm.graph.nodes))).meta.get("desc", ())
    return found


def _describes_parameter(descriptor: object, positions: frozenset[int]) -> bool:
    if isinstance(descriptor, PlainAOTInput):
        return descriptor.idx in positions
    return isinstance(descriptor, ParamAOTInput)


def _is_on_cpu(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "cpu"


def _is_static(node: Node) -> bool:
    """True for what Dynamo looks for in one place at every call."""
    return node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type") is not None


def _is_parameter(value: object) -> bool:
    return isinstance(value, torch.nn.Parameter)


def _is_buffer(node: Node) -> bool:
    """True for what Dynamo found among the buffers of a module."""
    source = getattr(node, "_dynamo_source", None)
    name = getattr(source, "name", "")
    return "._buffers[" in (name() if callable(name) else name)
