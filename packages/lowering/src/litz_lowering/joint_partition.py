"""Partition of a joint graph into a forward and a backward: torch's minimal cut, of a graph that says nothing twice.

The cut saves or computes again what both halves want, so what is equal has to be one node before. torch's own pass for
that loads the whole of its compiler, which takes longer than lowering a model.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch._functorch.config as functorch_config
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.fx import Graph, GraphModule, Node

from litz_ir.passes import Pass, PassContext, Pipeline
from litz_lowering.flex_attention import forget_lists

_UNTOLD = ("aten.empty", "aten.new_empty", "aten._local_scalar_dense")
"""Operators whose results are not what their arguments say: memory as it is found, and numbers that are data."""


@dataclass(frozen=True, slots=True)
class JointGraph:
    """A joint graph, which passes change in place, since nobody else has it; ``options`` are those of torch's cut."""

    module: GraphModule
    inputs: Sequence[Any]
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ForgetLists:
    """Take from attention the lists of block masks of one block, which nobody walks."""

    name: str = "joint.forget_lists"
    ulp: int = 0

    def apply(self, data: JointGraph, context: PassContext) -> JointGraph:
        """The graph without them."""
        forget_lists(data.module.graph)
        return data


@dataclass(frozen=True, slots=True)
class MergeEqual:
    """Common subexpressions, unless torch is told to leave them."""

    name: str = "joint.merge_equal"
    ulp: int = 0

    def apply(self, data: JointGraph, context: PassContext) -> JointGraph:
        """The graph with one of each."""
        if functorch_config.cse:
            merge_equal(data.module.graph)
        return data


@dataclass(frozen=True, slots=True)
class MinCut:
    """Torch's minimal cut."""

    name: str = "joint.min_cut"
    ulp: int = 0

    def apply(self, data: JointGraph, context: PassContext) -> tuple[GraphModule, GraphModule]:
        """The forward and the backward."""
        with functorch_config.patch(cse=False):
            return min_cut_rematerialization_partition(data.module, data.inputs, **data.options)


def joint_passes() -> tuple[Pass[Any, Any], ...]:
    """What divides a joint graph, in order."""
    return (ForgetLists(), MergeEqual(), MinCut())


def partition(joint: GraphModule, inputs: Sequence[Any], **options: Any) -> tuple[GraphModule, GraphModule]:
    """The forward and the backward of a joint graph, which is changed; ``options`` are those of torch's own."""
    passes = Pipeline[JointGraph, tuple[GraphModule, GraphModule]]("partition", joint_passes())
    return passes.apply(JointGraph(joint, inputs, options), PassContext({}))


def merge_equal(graph: Graph) -> None:
    """Let the first of equal operations stand for all of them.

    What draws random numbers, has an effect or is no operator of torch's own stays, and so does what shows memory that
    the graph returns: eager's results have memory of their own. Nothing is merged across an operation that writes.
    """
    returned = {home for node in _returned(graph) if (home := _home(node)) is not None}
    known: dict[Hashable, Node] = {}
    for node in graph.nodes:
        if _writes(node):
            known.clear()
        elif _is_pure(node) and _home(node) not in returned:
            try:
                key = (node.target, _spelled(node.args), _spelled(node.kwargs))
            except TypeError:
                continue  # an argument that only its owner can compare
            first = known.setdefault(key, node)
            if first is not node:
                node.replace_all_uses_with(first)
                graph.erase_node(node)


def _returned(graph: Graph) -> Iterator[Node]:
    for node in reversed(graph.nodes):
        if node.op == "output":
            yield from node.all_input_nodes
            return


def _home(node: Node) -> int | None:
    """Which memory a node's tensor is in; None for what is no tensor with memory."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return None
    try:
        return int(value.untyped_storage()._cdata)
    except NotImplementedError:
        return None


def _writes(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return isinstance(node.target, torch._ops.HigherOrderOperator) or (
        schema is not None and bool(schema.is_mutable)
    )


def _is_pure(node: Node) -> bool:
    """True for an operator of torch's own whose result its arguments tell, and for arithmetic on sizes."""
    target = node.target
    if node.op != "call_function" or "unbacked_bindings" in node.meta:
        return False
    if isinstance(target, types.BuiltinFunctionType):
        return target.__module__ == operator.add.__module__
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in ("aten", "prims"):
        return False
    told = not str(target).startswith(_UNTOLD) and torch.Tag.nondeterministic_seeded not in target.tags
    return told and bool(target._schema.returns)


def _spelled(value: Any) -> Hashable:
    """An argument as a key: numbers of different types differ, and floats by their bits.

    Raises :class:`TypeError` for what has no such key.
    """
    match value:
        case Node() | None | str() | torch.dtype() | torch.device() | torch.layout() | torch.memory_format():
            return value
        case bool() | int() | float() | complex():
            return type(value), repr(value)
        case tuple() | list():
            return type(value), tuple(map(_spelled, value))
        case dict():
            return tuple((key, _spelled(item)) for key, item in value.items())
        case slice():
            return slice, _spelled((value.start, value.stop, value.step))
    raise TypeError(f"{type(value).__name__} has no key")
