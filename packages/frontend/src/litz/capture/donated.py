"""Saved tensors that a backward may write over: those that its forward made for it alone, once it has read them.

A graph that is retained is run again, and hooks on saved tensors may keep what they hand out: the backward then gets
copies of what it writes over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._guards import TracingContext
from torch.fx import GraphModule, Node

from litz.host.load import HostFunction
from litz.host.torch_memory import copied
from litz_ir.loops.nodes import Ref
from litz_ir.plan.program import Plan
from litz_ir.plan.uses import root


@dataclass(slots=True)
class SavedTensors:
    """The tensors between a forward and its backward: the forward's nodes of ``names`` nobody else has. Where hooks
    were ever given what is saved, it is ``shared``."""

    names: frozenset[str] = frozenset()
    shared: bool = False

    def watched(self, forward: HostFunction) -> HostFunction:
        """The forward, noting hooks that are about to get what it saves."""

        def run(args: list[Any]) -> Sequence[Any]:
            if torch._C._autograd._top_saved_tensors_default_hooks(False) is not None:
                self.shared = True
            return forward(args)

        return run

    def guarded(self, backward: HostFunction, plan: Plan) -> HostFunction:
        """The backward of ``plan``, given copies of what it writes over where somebody may read that again."""
        places = [k for k, each in enumerate(plan.inputs) if each.name in plan.donated]
        if not places:
            return backward

        def run(args: list[Any]) -> Sequence[Any]:
            if self.shared or torch._C._autograd._get_current_graph_task_keep_graph():
                for k in places:
                    args[k] = copied(args[k])
            return backward(args)

        return run


def saved_alone(forward: GraphModule, plan: Plan) -> frozenset[str]:
    """The nodes whose tensors a forward saves, each in memory that its ``plan`` allocates for nothing else."""
    context = TracingContext.try_get()
    if context is None or context.fw_metadata is None:
        return frozenset()
    (nodes,) = next(iter(reversed(forward.graph.nodes))).args
    assert isinstance(nodes, list | tuple)
    placements = dict(plan.buffers)
    names = [output.name if isinstance(output, Ref) else None for output in plan.outputs]
    shown = Counter(root(name, placements) for name in names if name is not None)
    found = zip(nodes, plan.outputs, strict=True)
    return frozenset(
        node.name
        for node, output in list(found)[context.fw_metadata.num_forward :]
        if isinstance(node, Node)
        and type(output) is Ref
        and output.name in placements
        and placements[output.name].storage is not None
        and shown[output.name] == 1
    )


def allow_retained_graphs() -> None:
    """Have AOTAutograd not refuse to retain a graph whose backward may write over what was saved: it gets copies."""
    context = TracingContext.try_get()
    if context is not None and context.fw_metadata is not None:
        context.fw_metadata.bw_donated_idxs = []
