"""Inputs and results of AOTAutograd's graphs, identified by the descriptors that it attaches to them.

Their positions depend on effect tokens, mutated inputs, random state and subclasses, and on the release of torch;
the descriptors do not.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch._functorch._aot_autograd.descriptors import (
    AOTOutput,
    BackwardTokenAOTInput,
    ForwardTokenAOTOutput,
    ParamAOTInput,
    PlainAOTInput,
    SavedForBackwardsAOTOutput,
    SavedForBackwardsNoVcCheckAOTOutput,
)
from torch._guards import TracingContext
from torch.fx import GraphModule, Node

from litz.devices import CPU_KIND, GPU

_COMPARED = (CPU_KIND, GPU)
"""Kinds of devices whose memory is compared between calls."""


def parameter_positions(captured: GraphModule, inputs: Sequence[Any], *, unwritten: bool) -> frozenset[int]:
    """Return the positions of parameters and buffers of modules among the ``inputs`` of a graph that Dynamo
    ``captured``.

    Other tensors that a program marked static are ordinary inputs: their addresses stay the same so that their
    elements can change in any call. So are parameters made under ``torch.inference_mode``, which have no versions that
    tell of writes, unless the program promises that parameters stay ``unwritten``.
    """
    nodes = [node for node in captured.graph.nodes if node.op == "placeholder"]
    if len(nodes) != len(inputs):
        return frozenset()  # the graph flattens what it is given
    given = enumerate(zip(nodes, inputs, strict=True))
    return frozenset(
        k
        for k, (node, value) in given
        if _is_static(node)
        and (_is_parameter(value) or _is_buffer(node))
        and (unwritten or not _has_no_version(value))
    )


def fixed_positions(captured: GraphModule) -> frozenset[int]:
    """Return the positions of the static inputs of a captured graph whose sizes are no symbols."""
    inputs = captured.graph.find_nodes(op="placeholder")
    return frozenset(k for k, node in enumerate(inputs) if _is_static(node) and not _has_symbols(node))


def possible_overlaps(captured: GraphModule, written: Collection[int]) -> list[int]:
    """Return the positions of the inputs of a captured graph whose memory may overlap that of another in some calls,
    where one of the two is at the positions ``written``. Static inputs, as parameters are, overlap arguments alone."""
    inputs = captured.graph.find_nodes(op="placeholder")
    static = {k for k, node in enumerate(inputs) if _is_static(node)}
    if len(static) == len(inputs):
        return []
    compared = static.intersection(written) if static.issuperset(written) else static
    return [k for k in range(len(inputs)) if k not in static or k in compared]


def parameter_inputs(gm: GraphModule, positions: frozenset[int]) -> frozenset[str]:
    """Return the placeholders of an AOT graph for its own parameters and for the inputs at these ``positions``.

    Only those on the CPU and on GPUs, where a write through ``.data`` is detected. Memory shared by several
    inputs of which one is overwritten is no parameter; neither are the tensors inside a subclass, whose versions do
    not change when the subclass is written, and what the graph itself overwrites, which changes in every call.
    """
    overwritten = {node.args[0] for node in gm.graph.nodes if node.target is torch.ops.aten.copy_.default}
    return frozenset(
        node.name
        for node in gm.graph.nodes
        if node.op == "placeholder"
        and node not in overwritten
        and _describes_parameter(node.meta.get("desc"), positions)
        and _is_compared(node.meta.get("val"))
    )


def written_positions(count: int) -> Collection[int]:
    """Return the positions, among ``count`` inputs, of those that the program that AOTAutograd is tracing overwrites.

    Changes of metadata count too. All are returned where AOTAutograd replaces some inputs by bases that they share.
    """
    context = TracingContext.try_get()
    known = () if context is None or context.fw_metadata is None else context.fw_metadata.input_info
    written = [k for k, info in enumerate(known) if info.mutates_data or info.mutates_metadata]
    return range(count) if written and len(known) != count else written


def takes_captured_inputs(gm: GraphModule, count: int) -> bool:
    """Report whether an AOT graph takes exactly the ``count`` inputs of the captured graph, in order.

    Synthetic bases of inputs that share memory, and effect tokens, are other inputs.
    """
    descriptors = [node.meta.get("desc") for node in gm.graph.nodes if node.op == "placeholder"]
    return descriptors == [PlainAOTInput(k) for k in range(count)]


def leading_tokens(gm: GraphModule) -> int:
    """Return the number of effect tokens before all other results."""
    return sum(isinstance(each, ForwardTokenAOTOutput) for each in _result_descriptors(gm))


def saved_results(forward: GraphModule) -> list[tuple[int, Node]]:
    """Return positions and nodes of the results that a forward saves for its backward alone."""
    (nodes,) = next(iter(reversed(forward.graph.nodes))).args
    assert isinstance(nodes, list | tuple)
    kinds = SavedForBackwardsAOTOutput | SavedForBackwardsNoVcCheckAOTOutput
    described = enumerate(zip(nodes, _result_descriptors(forward), strict=False))
    return [(k, node) for k, (node, each) in described if isinstance(each, kinds) and isinstance(node, Node)]


def _result_descriptors(gm: GraphModule) -> Sequence[AOTOutput]:
    """Return the descriptors of all results; none for a graph that was rewritten without them."""
    found: Sequence[AOTOutput] = next(iter(reversed(gm.graph.nodes))).meta.get("desc", ())
    return found


def _describes_parameter(descriptor: object, positions: frozenset[int]) -> bool:
    """Report whether a descriptor is that of a parameter."""
    if isinstance(descriptor, PlainAOTInput):
        return descriptor.idx in positions
    return isinstance(descriptor, ParamAOTInput)


def _is_compared(value: object) -> bool:
    """Report whether a value is a tensor whose memory is compared between calls."""
    return isinstance(value, torch.Tensor) and value.device.type in _COMPARED


def _is_static(node: Node) -> bool:
    """Report whether Dynamo marked an input as static: it has the same address in every call."""
    return node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type") is not None


def _has_symbols(node: Node) -> bool:
    """Report whether a size or stride of a captured tensor is a symbol."""
    value = node.meta.get("example_value")
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return True
    return not all(type(each) is int for each in (*value.shape, *value.stride()))


def _is_parameter(value: object) -> bool:
    """Report whether a value is a parameter."""
    return isinstance(value, torch.nn.Parameter)


def _has_no_version(value: object) -> bool:
    """Report whether a value is a tensor of inference mode."""
    return isinstance(value, torch.Tensor) and value.is_inference()


def _is_buffer(node: Node) -> bool:
    """Report whether Dynamo found an input among the buffers of a module."""
    source = getattr(node, "_dynamo_source", None)
    name = getattr(source, "name", "")
    return "._buffers[" in (name() if callable(name) else name)


def make_undeclared_tokens(gm: GraphModule) -> None:
    """Create the undeclared effect tokens of an inference graph inside it, in place, and return none of them.

    Where inputs share memory and one is overwritten, AOTAutograd traces over a synthetic base, with metadata that
    lacks the tokens: they become inputs that no caller passes, and results that no caller expects. Their descriptors
    are those of a backward's tokens, which an inference graph does not have otherwise.
    """
    placeholders = gm.graph.find_nodes(op="placeholder")
    undeclared = [each for each in placeholders if isinstance(each.meta.get("desc"), BackwardTokenAOTInput)]
    if not undeclared:
        return
    for node in undeclared:
        with gm.graph.inserting_before(node):
            made = gm.graph.call_function(torch.ops.prims._make_token.default)
        made.meta = {key: value for key, value in node.meta.items() if key != "desc"}
        node.replace_all_uses_with(made)
        gm.graph.erase_node(node)
    output, stop = gm.graph.output_node(), leading_tokens(gm)
    start = stop - len(undeclared)
    (results,), described = output.args, output.meta["desc"]
    assert isinstance(results, list | tuple)
    output.args = ((*results[:start], *results[stop:]),)
    output.meta["desc"] = (*described[:start], *described[stop:])
    gm.recompile()
