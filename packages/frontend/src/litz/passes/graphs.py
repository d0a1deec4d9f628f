"""The run of users' passes over FX graphs: after each, the graph is checked and its metadata completed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from litz.passes import DECISIONS, GraphPass, ReportingPass, pass_name, reasons
from litz.passes.metadata import Arguments, arguments_of, complete_metadata, is_same_type
from litz_ir.errors import UserPassError
from litz_ir.fused import Decision

FxPass = GraphPass | Callable[[Graph], object]
"""A pass over FX graphs: an object with an identifier, or a function."""

DISABLE = "correct the pass, or name it in the option disable_passes to run without it"
"""Next step after the failure of a user's pass."""


def run_graph_passes(
    gm: GraphModule, stage: str, passes: Sequence[FxPass], *, traced: bool = True
) -> tuple[Decision, ...]:
    """Run passes over a graph and, before it, over the functions of its higher-order operators; return decisions.

    ``traced`` says that nodes carry ``meta["val"]``, which new nodes get. Raises
    :class:`~litz_ir.errors.UserPassError`, which names the pass, where a pass raises or leaves a malformed graph.
    """
    decisions: list[Decision] = []
    for item in passes:
        for module in with_functions(gm):
            decisions += _run(module, stage, item, traced)
    return tuple(decisions)


def with_functions(gm: GraphModule) -> Iterator[GraphModule]:
    """Yield the functions of a graph's higher-order operators, the innermost first, then the graph itself."""
    seen: set[int] = set()

    def visit(module: GraphModule) -> Iterator[GraphModule]:
        for node in module.graph.find_nodes(op="get_attr"):
            inner = getattr(module, str(node.target), None)
            if isinstance(inner, GraphModule) and id(inner) not in seen:
                seen.add(id(inner))
                yield from visit(inner)
        yield module

    return visit(gm)


def _run(gm: GraphModule, stage: str, item: FxPass, traced: bool) -> Iterator[Decision]:
    """Run one pass over one graph, and yield its decisions."""
    name, graph = pass_name(item), gm.graph
    before, inputs = _snapshot(gm), [node.name for node in graph.find_nodes(op="placeholder")]
    results = [leaf.meta.get("val") if isinstance(leaf, Node) else leaf for leaf in _results(gm)]

    def checked(work: Callable[[], Any], what: str) -> Any:
        try:
            return work()
        except Exception as error:
            raise UserPassError(
                f"the pass {name} of the stage {stage} {what}: {type(error).__name__}: {error}", hint=DISABLE
            ) from error

    def work() -> list[Decision]:
        rewrites: object = item
        if isinstance(rewrites, ReportingPass):
            return [replace(each, stage=f"{DECISIONS}{stage}") for each in rewrites.rewrite(graph)]
        item(graph)
        return []

    reported = checked(work, "failed")
    if gm.graph is not graph:
        raise UserPassError(
            f"the pass {name} of the stage {stage} replaced the graph", hint="change it in place"
        )
    if [node.name for node in graph.find_nodes(op="placeholder")] != inputs:
        raise UserPassError(
            f"the pass {name} of the stage {stage} changed the inputs of the graph", hint=DISABLE
        )
    checked(graph.lint, "left a malformed graph")
    changed = list(before.items()) != list(_snapshot(gm).items())
    if changed:
        if traced:
            checked(lambda: complete_metadata(gm, before), "left nodes whose results cannot be inferred")
        _check_results(gm, results, f"the pass {name} of the stage {stage}", traced)
        gm.recompile()
    yield run_decision(stage, name, changed)
    yield from reported


def run_decision(stage: str, name: str, changed: bool) -> Decision:
    """Return the decision that the run of a pass leaves."""
    verdict, reason = ("changed", reasons.CHANGED) if changed else ("unchanged", reasons.UNCHANGED)
    return Decision(f"{DECISIONS}{stage}", name, verdict, reason)


def _snapshot(gm: GraphModule) -> dict[Node, Arguments]:
    """Return the nodes of a graph in order, with what each computes."""
    return {node: arguments_of(node) for node in gm.graph.nodes}


def _results(gm: GraphModule) -> list[Any]:
    """Return the flat results of a graph."""
    output = gm.graph.output_node()
    return list(torch.utils._pytree.arg_tree_leaves(*output.args))


def _check_results(gm: GraphModule, before: Sequence[Any], who: str, traced: bool) -> None:
    """Raise ``UserPassError`` where the graph returns other types than before."""
    found = _results(gm)
    if len(found) != len(before):
        raise UserPassError(
            f"{who} changed the number of results from {len(before)} to {len(found)}", hint=DISABLE
        )
    for position, (leaf, old) in enumerate(zip(found, before) if traced else ()):
        new = leaf.meta.get("val") if isinstance(leaf, Node) else leaf
        if not is_same_type(old, new):
            raise UserPassError(
                f"{who} changed result {position} from {_type(old)} to {_type(new)}",
                node=getattr(leaf, "name", ""), hint=f"a pass keeps shapes, dtypes and devices of results; {DISABLE}",
            )  # fmt: skip


def _type(value: object) -> str:
    """Return the type of a result as text."""
    if isinstance(value, torch.Tensor):
        return f"{value.dtype} {tuple(value.shape)} on {value.device}"
    return type(value).__name__
