"""Random operators that are repeated: checkpointing saves the generator's state and draws from it again."""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from litz_ir.passes import PassContext
from litz_lowering.fx_passes.aten_graph import AtenGraph

_SAVE = torch.ops.higher_order.run_and_save_rng_state
_REPEAT = torch.ops.higher_order.run_with_rng_state
_FROM_GENERATOR = torch.ops.higher_order.graphsafe_run_with_rng_state


@dataclass
class UnwrapRandomState:
    """Replace ``run_and_save_rng_state`` and ``run_with_rng_state`` by accesses of the state around a plain
    operator.

    Those on other devices than the CPU stay. Draws from a generator argument stay too, with missing metadata
    added. The pass runs last, because nothing reads the result of writing the state.
    """

    name: str = "fx.unwrap_random_state"
    ulp: int = 0

    def apply(self, data: AtenGraph, context: PassContext) -> AtenGraph:
        """Return the graph without the wrappers, or ``data`` itself where there are none."""
        if not any(_is_wrapper(node) or _lacks_metadata(node) for node in data.graph.nodes):
            return data
        graph = copy.deepcopy(data.graph)
        for node in list(graph.nodes):
            if _lacks_metadata(node):
                keywords = {name: value for name, value in node.kwargs.items() if name != "rng_state"}
                node.meta["val"] = _drawn(graph, node.args[0], node.args[1:], keywords)
            elif _is_wrapper(node):
                (_unwrap_save if node.target is _SAVE else _unwrap_repeat)(graph, node)
        return AtenGraph(data.module, graph)


def _is_wrapper(node: Node) -> bool:
    if node.op != "call_function" or node.target not in (_SAVE, _REPEAT):
        return False
    return all(value.device.type == "cpu" for value in _tensors(node))


def _lacks_metadata(node: Node) -> bool:
    return node.op == "call_function" and node.target is _FROM_GENERATOR and "val" not in node.meta


def _tensors(node: Node) -> Iterator[torch.Tensor]:
    for each in node.all_input_nodes:
        if isinstance(value := each.meta.get("val"), torch.Tensor):
            yield value


def _unwrap_save(graph: Graph, node: Node) -> None:
    """Unwrap ``state, drawn = run_and_save_rng_state(op, ...)``."""
    op, *args = node.args
    results = {user.args[1]: user for user in node.users if user.target is operator.getitem}
    with graph.inserting_before(node):
        if 0 in results:
            state = _call(graph, torch.random.get_rng_state, (), results[0].meta["val"], node)
            results[0].replace_all_uses_with(state)
            graph.erase_node(results[0])
        drawn = _draw(graph, op, args, node)
    if 1 in results:
        results[1].replace_all_uses_with(drawn)
        graph.erase_node(results[1])
    graph.erase_node(node)


def _unwrap_repeat(graph: Graph, node: Node) -> None:
    """Unwrap ``drawn = run_with_rng_state(state, op, ...)``, which restores the generator's state afterwards."""
    state, op, *args = node.args
    assert isinstance(state, Node)
    with graph.inserting_before(node):
        before = _call(graph, torch.random.get_rng_state, (), state.meta["val"], node)
        _call(graph, torch.random.set_rng_state, (state,), None, node)
        drawn = _draw(graph, op, args, node)
        _call(graph, torch.random.set_rng_state, (before,), None, node)
    node.replace_all_uses_with(drawn)
    graph.erase_node(node)


def _draw(graph: Graph, op: Any, args: list[Any], node: Node) -> Node:
    """Add the plain operator. The partitioner leaves the wrapper without metadata."""
    return _call(graph, op, tuple(args), _drawn(graph, op, args, node.kwargs), node)


def _drawn(graph: Graph, op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Results of the operator as fake tensors."""
    mode = detect_fake_mode([each.meta.get("val") for each in graph.nodes])
    assert mode is not None, "graphs are traced with fake tensors"
    given, keywords = map_arg((tuple(args), dict(kwargs)), lambda each: each.meta["val"])
    with mode:
        return op(*given, **keywords)


def _call(graph: Graph, target: Any, args: tuple[Any, ...], value: Any, node: Node) -> Node:
    """Add a call at the position of ``node``; random operators get the keyword arguments of ``node``."""
    plain = isinstance(target, torch._ops.OpOverload)
    made = graph.call_function(target, args, dict(node.kwargs) if plain else {})
    made.meta = {**{key: item for key, item in node.meta.items() if key != "val"}, "val": value}
    return made
