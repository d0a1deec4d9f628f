"""Effect tokens that AOTAutograd traces but neither passes nor removes from results."""

from __future__ import annotations

import torch
from torch._functorch._aot_autograd.descriptors import BackwardTokenAOTInput
from torch.fx import GraphModule

from litz.capture.descriptors import leading_tokens


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
