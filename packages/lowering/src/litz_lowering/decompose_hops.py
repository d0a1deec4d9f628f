"""Operators with functions inside that torch itself computes from simpler ones: traced into those before lowering."""

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
from litz_lowering.decompose import Decompositions
from litz_lowering.flex_attention import MARK
from litz_lowering.fx_passes.aten_graph import AtenGraph
from litz_lowering.inputs import attribute

_UNFOLDED = (
    torch.ops.higher_order.flex_attention,
    torch.ops.higher_order.flex_attention_backward,
    torch.ops.higher_order.associative_scan,
    torch.ops.higher_order.out_dtype,
)


_JOINT, _CAPTURED, _OTHERS = 8, 12, 5
"""Where the gradient of flexible attention has its joint graph and what the score function looks up, and where that
graph's gradients of these begin."""


@dataclass
class DecomposeHops:
    """Flexible attention that is not kept becomes its matrix products, score function and softmax; an associative scan
    its sweeps; an operator in another dtype casts and that operator.

    What is traced is the implementation that eager runs, so values are eager's.
    """

    decompositions: Decompositions
    name: str = "fx.decompose_hops"
    ulp: int = 0

    def apply(self, data: AtenGraph, context: PassContext) -> AtenGraph:
        """The graph without them; itself where there are none."""
        if not any(_is_unfolded(node) for node in data.graph.nodes):
            return data
        module = copy.copy(data.module)
        graph = copy.deepcopy(data.graph)
        for node in list(graph.nodes):
            if _is_unfolded(node):
                _splice(module, node, self._traced(module, node))
        return AtenGraph(module, graph)

    def _traced(self, module: torch.nn.Module, node: Node) -> GraphModule:
        """The implementation as a graph of its tensors and sizes, in which nothing is overwritten."""
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
        if scattering is not None:  # it is registered with flexible attention
            table[scattering.default] = _zeros_and_scatter
        with mode, torch.no_grad():
            traced = make_fx(function, table, _allow_non_fake_inputs=True)(*marked)
            functional = torch.func.functionalize(traced, remove="mutations")
            return make_fx(functional, _allow_non_fake_inputs=True)(*values)


def _zeros_and_scatter(shape: list[int], indices: list[Any], values: torch.Tensor) -> torch.Tensor:
    """The gradient of what a score function looks up."""
    gradient: torch.Tensor = torch.ops.aten.index_put(
        values.new_zeros(shape), indices, values, accumulate=True
    )
    return gradient


def _wanting_gradient(module: torch.nn.Module, node: Node) -> frozenset[Node]:
    """What a score function looks up and its joint graph gives a gradient of: metadata has forgotten it, and eager asks
    for no other."""
    if node.target is not torch.ops.higher_order.flex_attention_backward:
        return frozenset()
    arguments: Any = node.args
    joint: Any = attribute(module, str(arguments[_JOINT].target))
    (results,) = joint.graph.output_node().args
    return frozenset(
        each for each, gradient in zip(arguments[_CAPTURED], results[_OTHERS:]) if gradient is not None
    )


def _is_unfolded(node: Node) -> bool:
    return node.op == "call_function" and node.target in _UNFOLDED and MARK not in node.meta


def _inputs_of(module: torch.nn.Module, node: Node) -> tuple[list[Any], pytree.TreeSpec, list[int]]:
    """The operator's arguments with its functions in place, and which of them are tensors and sizes."""
    leaves, spec = pytree.tree_flatten((node.args, node.kwargs), is_leaf=lambda leaf: isinstance(leaf, Node))
    places = []
    for position, leaf in enumerate(leaves):
        held = (
            attribute(module, str(leaf.target)) if isinstance(leaf, Node) and leaf.op == "get_attr" else None
        )
        if isinstance(held, GraphModule):
            leaves[position] = held
        elif isinstance(leaf, Node):
            places.append(position)
    return leaves, spec, places


def _function_of(module: torch.nn.Module, node: Node) -> tuple[Callable[..., Any], list[Node]]:
    """Eager's implementation as a function of tensors and sizes alone, and what these are."""
    leaves, spec, places = _inputs_of(module, node)
    target: Any = node.target
    implementation = target.py_kernels[torch._C.DispatchKey.CompositeExplicitAutograd]

    def function(*given: Any) -> Any:
        filled = list(leaves)
        for place, value in zip(places, given, strict=True):
            filled[place] = value
        args, kwargs = pytree.tree_unflatten(filled, spec)
        return tuple(pytree.tree_leaves(implementation(*args, **kwargs)))

    return function, [leaves[place] for place in places]


def _fill(node: Node) -> None:
    """Batching casts Python numbers as if they were tensors: such a cast is a tensor filled with the number."""
    number = node.args[0] if node.args else None
    if node.target is torch.ops.aten._to_copy.default and isinstance(number, int | float):
        value = node.meta["val"]
        node.target = torch.ops.aten.full.default
        node.args, node.kwargs = ([], number), {"dtype": value.dtype, "device": value.device}


def _splice(module: torch.nn.Module, node: Node, traced: GraphModule) -> None:
    """Put the traced graph where ``node`` stands; its readers take its results."""
    graph = node.graph
    leaves, _, places = _inputs_of(module, node)
    given = iter([leaves[place] for place in places])
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
                _fill(made)
                if each.op == "get_attr":
                    made.target = f"{node.name}_{each.target}"
                    setattr(module, made.target, attribute(traced, str(each.target)))
    _take(node, pytree.tree_unflatten(list(results), pytree.tree_structure(node.meta["val"])))


def _take(node: Node, value: Any) -> None:
    """Let the readers of a node that goes read what it became: a node, several of them, or a literal."""
    for user in list(node.users):
        if isinstance(value, tuple | list):
            assert user.target is operator.getitem, "what is several nodes is taken apart before it is read"
            position = user.args[1]
            assert isinstance(position, int)
            _take(user, value[position])
        else:
            user.args, user.kwargs = map_arg((user.args, user.kwargs), lambda n: value if n is node else n)
    node.graph.erase_node(node)
