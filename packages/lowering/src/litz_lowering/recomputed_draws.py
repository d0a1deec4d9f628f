"""Random operators that a backward recomputes: they draw the numbers that the forward drew.

Torch's partitioner restores the generator's state for operators in checkpointed regions alone. Under an
``activation_memory_budget`` below one, and with ``aggressive_recomputation``, it recomputes others too.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch._functorch.partitioners import functionalize_rng_ops
from torch.fx import GraphModule, Node
from torch.utils.checkpoint import CheckpointPolicy

from litz_ir.errors import UnsupportedOperation

_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)


def repeat_recomputed_draws(
    joint: GraphModule, forward: GraphModule, backward: GraphModule, outputs: int
) -> tuple[GraphModule, GraphModule]:
    """Save the generator's state in the forward for each random operator that is in both halves of ``joint``.

    ``outputs`` is the number of the forward's results before those that it saves. Returns both halves, changed.
    Raises ``UnsupportedOperation`` for draws inside functions of higher-order operators that are recomputed.
    """
    for name in {node.name for node in _random_regions(forward)} & {
        node.name for node in _random_regions(backward)
    }:
        raise UnsupportedOperation(
            "a higher-order operator whose functions draw random numbers would be recomputed in the backward, with "
            "other numbers",
            stage="partition",
            node=name,
            hint="draw the numbers before it, or do not ask for recomputation (activation_memory_budget)",
        )
    repeated = {node.name for node in _draws(forward)} & {node.name for node in _draws(backward)}
    if not repeated:
        return forward, backward
    for node in joint.graph.nodes:
        if node.name in repeated:
            node.meta["recompute"] = CheckpointPolicy.MUST_RECOMPUTE
    for node in backward.graph.find_nodes(op="placeholder"):
        node.target = node.name.replace(
            "rng_state_output", "checkpointed_state"
        )  # torch counts from zero again
    (results,) = forward.graph.output_node().args
    assert isinstance(results, list | tuple)
    symbols = sum(isinstance(node, Node) and _is_symbol(node) for node in results[outputs:])
    return functionalize_rng_ops(joint, forward, backward, symbols)


def _draws(gm: GraphModule) -> Iterator[Node]:
    """Yield the calls of random operators."""
    for node in gm.graph.nodes:
        target = node.target
        if isinstance(target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in target.tags:
            yield node


def _random_regions(gm: GraphModule) -> Iterator[Node]:
    """Yield the calls of higher-order operators whose functions draw random numbers."""
    for node in gm.graph.nodes:
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            functions = (
                getattr(gm, str(each.target)) for each in node.all_input_nodes if each.op == "get_attr"
            )
            if any(_draws_within(function) for function in functions):
                yield node


def _draws_within(function: object) -> bool:
    """Report whether a graph or one inside it calls a random operator."""
    if not isinstance(function, GraphModule):
        return False
    return any(True for inner in function.modules() if isinstance(inner, GraphModule) for _ in _draws(inner))


def _is_symbol(node: Node) -> bool:
    return isinstance(node.meta.get("val"), _SYMBOLS)
