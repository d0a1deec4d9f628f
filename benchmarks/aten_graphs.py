"""Graphs of ATen operations of any length, as AOTAutograd would produce them, to measure scaling.

Every family takes the wanted number of operations and gives about as many, `get_attr`, inputs and outputs left out.
Values are fake tensors, so that graphs of ten thousand operations are made in seconds.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses import FakeTensorMode
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

aten = torch.ops.aten
Family = Callable[[int], GraphModule]

ROWS, COLUMNS = 256, 64
FAMILIES: dict[str, Family] = {}


class AtenGraph:
    """A graph under construction, whose nodes carry `meta["val"]`."""

    def __init__(self) -> None:
        self._graph = Graph()
        self._mode = FakeTensorMode()
        self._inputs = 0

    def input(self, *shape: int) -> Node:
        """Add an input of f32 and this shape; inputs come before all operations."""
        node = self._graph.placeholder(f"x{self._inputs}")
        self._inputs += 1
        with self._mode:
            node.meta["val"] = torch.empty(shape)
        return node

    def call(self, target: Callable[..., Any], *args: Any, **options: Any) -> Node:
        """Add an operation on nodes and literals; `options` are literals."""
        node = self._graph.call_function(target, args, options)
        with self._mode:
            node.meta["val"] = target(*map_arg(args, lambda each: each.meta["val"]), **options)
        return node

    def module(self, *results: Node) -> GraphModule:
        """Finish the graph."""
        self._graph.output(tuple(results))
        return GraphModule(torch.nn.Module(), self._graph)


def family(build: Family) -> Family:
    """Register a family under its own name."""
    FAMILIES[build.__name__] = build
    return build


def _pointwise(graph: AtenGraph, value: Node, number: int) -> Node:
    """Add the pointwise operation ``number`` on f32: every third is an exponential, all others differ."""
    match number % 6:
        case 0:
            return graph.call(aten.mul.Tensor, value, 0.5 + number / 65536)
        case 1:
            return graph.call(aten.add.Tensor, value, 1.0 + number / 65536)
        case 3:
            return graph.call(aten.neg.default, value)
        case 4:
            return graph.call(aten.sub.Tensor, value, 0.25 + number / 65536)
    return graph.call(aten.exp.default, value)


@family
def chain(count: int) -> GraphModule:
    """Pointwise operations one after another, every third an exponential."""
    graph = AtenGraph()
    value = graph.input(ROWS, COLUMNS)
    for number in range(count):
        value = _pointwise(graph, value, number)
    return graph.module(value)


@family
def reductions(count: int) -> GraphModule:
    """A chain in which every fifth operation is a mean over rows, which the next one subtracts."""
    graph = AtenGraph()
    value = graph.input(ROWS, COLUMNS)
    for number in range(0, count, 5):
        before = value
        for step in range(3):
            value = _pointwise(graph, value, number + step)
        value = graph.call(aten.sub.Tensor, before, graph.call(aten.mean.dim, value, [-1], True))
    return graph.module(value)


@family
def readers(count: int) -> GraphModule:
    """Many readers of one value, all returned."""
    graph = AtenGraph()
    value = graph.input(ROWS, COLUMNS)
    found = [
        graph.call(aten.exp.default, graph.call(aten.mul.Tensor, value, float(number)))
        for number in range(max(count // 2, 1))
    ]
    return graph.module(*found)


@family
def sum_of_readers(count: int) -> GraphModule:
    """Many readers of one value, added up pair by pair."""
    graph = AtenGraph()
    value = graph.input(ROWS, COLUMNS)
    level = [graph.call(aten.mul.Tensor, value, float(number)) for number in range(max((count + 1) // 2, 1))]
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2])
        level = [graph.call(aten.add.Tensor, *pair) for pair in pairs] + level[len(level) & ~1 :]
    return graph.module(*level)


@family
def diamonds(count: int) -> GraphModule:
    """A chain in which each value is read twice by the next one: the number of paths grows exponentially."""
    graph = AtenGraph()
    value = graph.input(ROWS, COLUMNS)
    for number in range(max(count // 3, 1)):
        gate = graph.call(aten.sigmoid.default, value)
        value = graph.call(aten.mul.Tensor, _pointwise(graph, value, number), gate)
    return graph.module(value)


@family
def residuals(count: int) -> GraphModule:
    """A chain in which each value is read once more a hundred operations later."""
    graph = AtenGraph()
    values = [graph.input(ROWS, COLUMNS)]
    for number in range(max(count // 2, 1)):
        values.append(
            graph.call(aten.add.Tensor, _pointwise(graph, values[-1], number), values[max(0, number - 50)])
        )
    return graph.module(values[-1])


@family
def views(count: int) -> GraphModule:
    """Reshapes, transposes, slices and joins between pointwise operations."""
    graph = AtenGraph()
    value = graph.input(ROWS, COLUMNS)
    for number in range(max(count // 9, 1)):
        rows = graph.call(aten.view.default, value, [ROWS // 4, 4 * COLUMNS])
        transposed = graph.call(aten.permute.default, graph.call(aten.exp.default, rows), [1, 0])
        halves = [
            graph.call(aten.slice.Tensor, transposed, 0, low, low + 2 * COLUMNS) for low in (0, 2 * COLUMNS)
        ]
        joined = graph.call(aten.cat.default, [halves[1], halves[0]])
        back = _pointwise(graph, graph.call(aten.permute.default, joined, [1, 0]), number)
        dense = graph.call(aten.clone.default, back, memory_format=torch.contiguous_format)
        value = graph.call(aten.view.default, dense, [ROWS, COLUMNS])
    return graph.module(value)


@family
def layers(count: int) -> GraphModule:
    """Equal layers with weights of their own, ten operations each."""
    return stack(max(count // 10, 1))


def stack(depth: int) -> GraphModule:
    """`depth` equal layers: matmul, softmax, residual and layer norm, each with weights of its own."""
    graph = AtenGraph()
    value = graph.input(ROWS, COLUMNS)
    weights = [
        (graph.input(COLUMNS), graph.input(COLUMNS, COLUMNS), graph.input(COLUMNS), graph.input(COLUMNS))
        for _ in range(depth)
    ]
    for bias, weight, scale, shift in weights:
        transposed = graph.call(aten.permute.default, weight, [1, 0])
        scores = graph.call(aten.addmm.default, bias, value, transposed)
        probabilities = graph.call(
            aten._softmax.default, graph.call(aten.mul.Tensor, scores, 0.125), -1, False
        )
        gated = graph.call(aten.mul.Tensor, probabilities, graph.call(aten.sigmoid.default, scores))
        total = graph.call(aten.add.Tensor, value, gated)
        normed = graph.call(aten.native_layer_norm.default, total, [COLUMNS], scale, shift, 1e-5)
        value = graph.call(aten.relu.default, graph.call(operator.getitem, normed, 0))
    return graph.module(value)


@family
def updates(count: int) -> GraphModule:
    """A step of an optimiser with momentum over many parameters, written back into them."""
    graph = AtenGraph()
    number = max(count // 6, 1)
    shapes = [(ROWS, COLUMNS), (COLUMNS,), (4 * COLUMNS, COLUMNS)]
    found = [tuple(graph.input(*shapes[each % 3]) for _ in range(3)) for each in range(number)]
    results = []
    for weight, gradient, momentum in found:
        slower = graph.call(aten.mul.Tensor, momentum, 0.9)
        moved = graph.call(aten.add.Tensor, slower, gradient)
        stepped = graph.call(aten.sub.Tensor, weight, graph.call(aten.mul.Tensor, moved, 1e-3))
        results += [graph.call(aten.copy_.default, weight, stepped)]
        results += [graph.call(aten.copy_.default, momentum, moved)]
    return graph.module(*results)
