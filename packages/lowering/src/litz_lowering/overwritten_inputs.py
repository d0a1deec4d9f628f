"""Inputs that a forward overwrites and saves for its backward, which needs their elements from before.

Torch's partitioner saves an input, or a view of one, wherever that is cheapest, and applies the program's writes to
inputs at the end of the forward or after it. Eager saves what was computed from the old elements.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch._functorch._aot_autograd.descriptors import InputMutationAOTOutput
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_leaves

from litz_ir.errors import UnsupportedOperation
from litz_lowering.types.node_memory import storage_of


def save_copies_of_overwritten(forward: GraphModule, backward: GraphModule, outputs: int) -> None:
    """Save copies of the inputs that a forward overwrites, made before the writes; both graphs change.

    ``outputs`` is the number of the forward's results before those that it saves.
    """
    overwritten = {
        storage: node for node in _overwritten(forward) if (storage := storage_of(node)) is not None
    }
    output = forward.graph.output_node()
    (results,) = output.args
    assert isinstance(results, list | tuple)
    saved = [node for node in results[outputs:] if isinstance(node, Node) and storage_of(node) in overwritten]
    if not saved:
        return
    copies: dict[Node, Node] = {}
    for storage in dict.fromkeys(map(storage_of, saved)):
        assert storage is not None
        source = overwritten[storage]
        with forward.graph.inserting_after(_last_input(forward)):
            copies[source] = _copy_of(source, forward)
    renamed = {node.name: _rebuilt(node, copies, forward).name for node in saved}
    replaced = (copies.get(node, node) if isinstance(node, Node) else node for node in results[outputs:])
    output.args = ((*results[:outputs], *replaced),)
    for node in backward.graph.find_nodes(op="placeholder"):
        if node.name in renamed:
            node.name = node.target = renamed[node.name]
    forward.recompile()
    backward.recompile()


def _overwritten(forward: GraphModule) -> Iterator[Node]:
    """Yield the inputs that are written in the graph, or after it by AOTAutograd."""
    after = {
        described.mutated_input
        for described in forward.graph.output_node().meta.get("desc", ())
        if isinstance(described, InputMutationAOTOutput)
    }
    for node in forward.graph.find_nodes(op="placeholder"):
        if node.meta.get("desc") in after or any(_writes(user, node) for user in node.users):
            yield node


def _writes(user: Node, node: Node) -> bool:
    """Report whether an operator writes an argument in place."""
    if not isinstance(user.target, torch._ops.OpOverload) or not user.target._schema.is_mutable:
        return False
    parameters = user.target._schema.arguments
    arguments = [
        *zip(parameters, user.args, strict=False),
        *((p, user.kwargs.get(p.name)) for p in parameters),
    ]
    return any(
        parameter.alias_info is not None and parameter.alias_info.is_write and node in tree_leaves(argument)
        for parameter, argument in arguments
    )


def _last_input(gm: GraphModule) -> Node:
    *_, last = gm.graph.find_nodes(op="placeholder")
    assert isinstance(last, Node)
    return last


def _copy_of(source: Node, forward: GraphModule) -> Node:
    """Add a copy of an input at the current position; raise ``UnsupportedOperation`` for one with gaps."""
    copy = forward.graph.call_function(torch.ops.aten.clone.default, (source,))
    copy.meta = {key: value for key, value in source.meta.items() if key != "desc"}
    value = source.meta["val"]
    with value.fake_mode:
        copy.meta["val"] = value.clone()
    if copy.meta["val"].stride() != value.stride():
        raise UnsupportedOperation(
            "the backward needs the old elements of an overwritten input with gaps between its elements",
            stage="partition",
            node=source.name,
            hint="pass a contiguous tensor, or overwrite it after the compiled function",
        )
    return copy


def _rebuilt(node: Node, copies: dict[Node, Node], forward: GraphModule) -> Node:
    """Return a view of the copy of an input that is ``node``, a view of the input; ``copies`` receives it."""
    if node in copies:
        return copies[node]
    storage = storage_of(node)
    arguments = [base for base in node.all_input_nodes if storage_of(base) == storage]
    for base in arguments:
        _rebuilt(base, copies, forward)
    with forward.graph.inserting_after(node):
        view = forward.graph.node_copy(node, lambda argument: copies.get(argument, argument))
    copies[node] = view
    return view
