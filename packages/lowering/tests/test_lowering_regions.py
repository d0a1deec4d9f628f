"""Higher-order operators as regions."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from litz_ir.loops import Random, Region, View
from litz_ir.verifier import verify
from litz_lowering import LoweringOptions, lower

X = torch.linspace(-1, 1, 12).reshape(3, 4)


def traced(function: Any, *inner: Any) -> GraphModule:
    """Trace ``function(x, *subgraphs)`` over a fake ``X``; each of ``inner`` becomes a subgraph of one such
    tensor."""
    with FakeTensorMode() as mode:
        x = mode.from_tensor(X)
        subgraphs = [make_fx(each)(x) for each in inner]
        return make_fx(lambda x: function(x, *subgraphs))(x)


def test_cond_is_one_region_with_the_tokens_of_its_branches() -> None:
    def choose(x: torch.Tensor, true: GraphModule, false: GraphModule) -> Any:
        return torch.ops.higher_order.cond(x.sum() > 0, true, false, (x,))

    graph = lower(traced(choose, lambda a: (torch.rand_like(a),), lambda a: (a.cos(),))).graph
    verify(graph)
    (region,) = (each for each in graph.operations if isinstance(each, Region))
    assert region.kind == "cond" and [len(g.operations) for g in region.subgraphs] == [1, 1]
    assert isinstance(region.subgraphs[0].operations[0], Random) and region.tokens == ("rng",)


def test_calls_of_one_function_share_a_graph_and_views_stay_outside() -> None:
    def twice(x: torch.Tensor, inner: GraphModule) -> Any:
        first, transposed = torch.ops.higher_order.invoke_subgraph(inner, "f", x)
        return *torch.ops.higher_order.invoke_subgraph(inner, "f", first), transposed

    gm = traced(twice, lambda a: (a.sin(), a.t()))
    attributes = [node for node in gm.graph.nodes if node.op == "get_attr"]
    for node in attributes:  # as in AOTAutograd's graphs: one attribute, read before each call
        node.target = attributes[0].target
    graph = lower(gm).graph
    verify(graph)
    first, second = (each for each in graph.operations if isinstance(each, Region))
    assert first.subgraphs[0] is second.subgraphs[0]
    assert len(first.results) == 1, "the transpose of the argument is outside of the region"
    assert [view.base for view in graph.operations if isinstance(view, View)] == [
        "x_1",
        first.results[0].name,
    ]


def test_nodes_of_a_subgraph_are_named_with_its_path() -> None:
    def choose(x: torch.Tensor, true: GraphModule, false: GraphModule) -> Any:
        return torch.ops.higher_order.cond(x.sum() > 0, true, false, (x,))

    gm = traced(choose, lambda a: (a.sin(),), lambda a: (a.sin(),))
    (path, _) = (node.target for node in gm.graph.nodes if node.op == "get_attr")
    lowered = lower(gm, options=LoweringOptions(force_extern=frozenset({f"{path}.sin"})))
    assert [each.node for each in lowered.fallbacks] == [f"{path}.sin"]
