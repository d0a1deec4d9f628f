"""Saved tensors that a backward may write over: those that its forward made for it alone, once it has read them.

A graph that is retained is run again, and hooks on saved tensors may keep what they hand out: the backward then gets
copies of what it writes over. Hooks may also hand out the same elements with other strides than they were given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._guards import TracingContext
from torch.fx import GraphModule

from litz.capture.descriptors import saved_results
from litz.capture.runtime_wrappers import Strides, as_traced
from litz.host.load import HostFunction
from litz.host.torch_memory import copied
from litz.results import alone
from litz_ir.loops import Value
from litz_ir.plan import Plan


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
        """The backward of ``plan``, given copies of what it writes over where somebody may read that again, and of what
        comes from hooks in another layout."""
        places = [k for k, each in enumerate(plan.inputs) if each.name in plan.donated]
        layouts = _known_strides(plan)

        def run(args: list[Any]) -> Sequence[Any]:
            if self.shared or (places and torch._C._autograd._get_current_graph_task_keep_graph()):
                for k in places:
                    args[k] = copied(args[k])
            if self.shared:
                for k, strides in layouts.items():
                    args[k] = as_traced(args[k], _halved(strides) if args[k].is_complex() else strides)
            return backward(args)

        return run


def _known_strides(plan: Plan) -> dict[int, Strides]:
    """The strides for which a plan was compiled, by the position of its inputs, where no symbol is in them."""
    known: dict[int, Strides] = {}
    for position, value in enumerate(plan.inputs):
        if isinstance(value, Value):
            strides = tuple(stride for stride in value.type.layout.strides if isinstance(stride, int))
            if len(strides) == len(value.type.shape):
                known[position] = strides
    return known


def _halved(strides: Strides) -> Strides:
    """The strides of complex numbers, of which a plan sees pairs."""
    return tuple(stride // 2 for stride in strides[:-1])


def saved_alone(forward: GraphModule, plan: Plan) -> frozenset[str]:
    """The nodes whose tensors a forward saves, each in memory that its ``plan`` allocates for nothing else."""
    own = alone(plan)
    return frozenset(node.name for k, node in saved_results(forward) if k in own)


def allow_retained_graphs() -> None:
    """Have AOTAutograd not refuse to retain a graph whose backward may write over what was saved: it gets copies."""
    context = TracingContext.try_get()
    if context is not None and context.fw_metadata is not None:
        context.fw_metadata.bw_donated_idxs = []
