"""Decomposition of higher-order operators that eager computes from simpler operators."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from litz_ir.passes import PassContext
from litz_lowering.contexts.inputs import attribute
from litz_lowering.decompose.table import Decompositions
from litz_lowering.fx_passes.aten_graph import AtenGraph
from litz_lowering.higher_order.flex_attention import MARK

_DECOMPOSED = (
    torch.ops.higher_order.flex_attention,
    torch.ops.higher_order.flex_attention_backward,
    torch.ops.higher_order.associative_scan,
    torch.ops.higher_order.out_dtype,
)


_JOINT, _CAPTURED, _OTHERS = 8, 12, 5
"""Positions of the joint graph and of the captured tensors in ``flex_attention_backward``'s arguments, and of the
captured tensors' gradients in the joint graph's results."""


@dataclass
class DecomposeHops:
    """Replace higher-order operators by a trace of their eager implementation.

    ``flex_attention`` that is not marked for a lowering rule becomes matmuls, score function and softmax;
    ``associative_scan`` its sweeps; ``out_dtype`` casts and the operator. Values are eager's.
    """

    decompositions: Decompositions
    """Table of decompositions used while tracing."""
    name: str = "fx.decompose_hops"
    ulp: int = 0

    def apply(self, data: AtenGraph, context: PassContext) -> AtenGraph:
        """Return the graph without these operators, or ``data`` itself where there are none."""
        if not any(_is_decomposed(node) for node in data.graph.nodes):
            return data
        graph = copy.deepcopy(data.graph)
        module = GraphModule(data.module, graph)  # with attributes that an earlier pass has added
        module.meta = getattr(data.module, "meta", {})
        for node in list(graph.nodes):
            if _is_decomposed(node):
                _splice(module, node, self._traced(module, node))
        return AtenGraph(module, graph)

    def _traced(self, module: torch.nn.Module, node: Node) -> GraphModule:
        """Trace the implementation to a functional graph of its tensors and sizes."""
        function, given = _function_of(module, node)
        values, wanting = [each.meta["val"] for each in given], _wanting_gradient(module, node)
        marked = [
            value.detach().requires_grad_() if each in wanting else value
            for each, value in zip(given, values)
        ]
        mode = detect_fake_mode(values)
        assert mode is not None, "graphs are traced with fake tensors"
        table = {op: how for op, how in self.decompositions.items() if isinstance(op, torch._ops.OpOverload)}
        scattering = getattr(torch.ops.flex_lib, "zeros_and_scatter", None)
        if scattering is not None:  # registered when flex_attention is imported
            table[scattering.default] = _zeros_and_scatter
        with mode, torch.no_grad():
            traced = make_fx(function, table, _allow_non_fake_inputs=True)(*marked)
            functional = torch.func.functionalize(traced, remove="mutations")
            return make_fx(functional, _allow_non_fake_inputs=True)(*values)


def _zeros_and_scatter(shape: list[int], indices: list[Any], values: torch.Tensor) -> torch.Tensor:
    """Gradient of a tensor that a score function captures."""
    gradient: torch.Tensor = torch.ops.aten.index_put(
        values.new_zeros(shape), indices, values, accumulate=True
    )
    return gradient


def _wanting_gradient(module: torch.nn.Module, node: Node) -> frozenset[Node]:
    """Captured tensors to which the joint graph gives a gradient. Their metadata no longer says so."""
    if node.target is not torch.ops.higher_order.flex_attention_backward:
        return frozenset()
    arguments: Any = node.args
    joint: Any = attribute(module, str(arguments[_JOINT].target))
    (results,) = joint.graph.output_node().args
    return frozenset(
        each for each, gradient in zip(arguments[_CAPTURED], results[_OTHERS:]) if gradient is not None
    )


def _is_decomposed(node: Node) -> bool:
    return node.op == "call_function" and node.target in _DECOMPOSED and MARK not in node.meta


def _inputs_of(module: torch.nn.Module, node: Node) -> tuple[list[Any], pytree.TreeSpec, list[int]]:
    """Flatten the operator's arguments with its subgraphs, and give the positions of tensors and sizes."""
    leaves, spec = pytree.tree_flatten((node.args, node.kwargs), is_leaf=lambda leaf: isinstance(leaf, Node))
    positions = []
    for position, leaf in enumerate(leaves):
        subgraph = (
            attribute(module, str(leaf.target)) if isinstance(leaf, Node) and leaf.op == "get_attr" else None
        )
        if isinstance(subgraph, GraphModule):
            leaves[position] = subgraph
        elif isinstance(leaf, Node):
            positions.append(position)
    return leaves, spec, positions


def _function_of(module: torch.nn.Module, node: Node) -> tuple[Callable[..., Any], list[Node]]:
    """Eager's implementation as a function of tensors and sizes alone, with the nodes that these are."""
    leaves, spec, positions = _inputs_of(module, node)
    target: Any = node.target
    implementation = target.py_kernels[torch._C.DispatchKey.CompositeExplicitAutograd]

    def function(*given: Any) -> Any:
        filled = list(leaves)
        for position, value in zip(positions, given, strict=True):
            filled[position] = value
        args, kwargs = pytree.tree_unflatten(filled, spec)
        return tuple(pytree.tree_leaves(implementation(*args, **kwargs)))

    return function, [leaves[position] for position in positions]


def _splice(module: torch.nn.Module, node: Node, traced: GraphModule) -> None:
    """Replace ``node`` by the traced graph."""
    graph = node.graph
    leaves, _, positions = _inputs_of(module, node)
    given = iter([leaves[position] for position in positions])
    known: dict[Node, Node] = {}
    results: Any = ()
    with graph.inserting_before(node):
        for each in traced.graph.nodes:
            if each.op == "placeholder":
                known[each] = next(given)
            elif each.op == "output":
                results = pytree.tree_map_only(Node, known.__getitem__, each.args[0])
            else:
                known[each] = made = graph.node_copy(each, known.__getitem__)
                made.meta["stack_trace"] = node.meta.get("stack_trace")
                if each.op == "get_attr":
                    made.target = f"{node.name}_{each.target}"
                    setattr(module, made.target, attribute(traced, str(each.target)))
    _replace_uses(node, pytree.tree_unflatten(list(results), pytree.tree_structure(node.meta["val"])))


def _replace_uses(node: Node, value: Any) -> None:
    """Replace the uses of an erased node by its new value: a node, several nodes or a literal."""
    for user in list(node.users):
        if isinstance(value, tuple | list):
            assert user.target is operator.getitem, "several results are read through getitem"
            position = user.args[1]
            assert isinstance(position, int)
            _replace_uses(user, value[position])
        else:
            user.args, user.kwargs = map_arg((user.args, user.kwargs), lambda n: value if n is node else n)
    node.graph.erase_node(node)
