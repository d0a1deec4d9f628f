"""Donation: saved tensors whose memory a backward may reuse, since its forward made them for it alone.

The backward gets copies of these where a graph is retained and may run again, or where hooks on saved tensors may
keep references. Hooks may also return the same elements with other strides.
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
from litz.host.runtime.load import HostFunction
from litz.host.runtime.torch_memory import copied
from litz.results import unshared_results
from litz_ir.loops import Value
from litz_ir.plan import Plan


@dataclass(slots=True)
class SavedTensors:
    """The tensors between a forward and its backward."""

    names: frozenset[str] = frozenset()
    """Nodes of the forward whose tensors nothing but the backward refers to."""

    shared: bool = False
    """True once hooks on saved tensors were active in a call of the forward."""

    def watched(self, forward: HostFunction) -> HostFunction:
        """Return the forward's call, which notes active hooks on saved tensors."""

        def run(args: list[Any]) -> Sequence[Any]:
            if torch._C._autograd._top_saved_tensors_default_hooks(False) is not None:
                self.shared = True
            return forward(args)

        return run

    def guarded(self, backward: HostFunction, plan: Plan) -> HostFunction:
        """Return the backward's call, which copies donated inputs that may be read again.

        After hooks it also restores the strides that ``plan`` was compiled for.
        """
        overwritten = overwritten_inputs(plan)
        layouts = _known_strides(plan)

        def run(args: list[Any]) -> Sequence[Any]:
            if self.shared or (overwritten and torch._C._autograd._get_current_graph_task_keep_graph()):
                for k in overwritten:
                    args[k] = copied(args[k])
            if self.shared:
                for k, strides in layouts.items():
                    args[k] = as_traced(args[k], _halved(strides) if args[k].is_complex() else strides)
            return backward(args)

        return run


def overwritten_inputs(plan: Plan) -> list[int]:
    """Return the positions of a backward's inputs that it may overwrite."""
    return [k for k, each in enumerate(plan.inputs) if each.name in plan.donated]


def _known_strides(plan: Plan) -> dict[int, Strides]:
    """Return the strides for which a plan was compiled, by input position, where they have no symbol."""
    known: dict[int, Strides] = {}
    for position, value in enumerate(plan.inputs):
        if isinstance(value, Value):
            strides = tuple(stride for stride in value.type.layout.strides if isinstance(stride, int))
            if len(strides) == len(value.type.shape):
                known[position] = strides
    return known


def _halved(strides: Strides) -> Strides:
    """Return the strides of a complex tensor from those of its (real, imaginary) pairs."""
    return tuple(stride // 2 for stride in strides[:-1])


def saved_alone(forward: GraphModule, plan: Plan) -> frozenset[str]:
    """Return the nodes that a forward saves, each in a storage of its ``plan`` that contains nothing else."""
    own = unshared_results(plan)
    return frozenset(node.name for k, node in saved_results(forward) if k in own)


def allow_retained_graphs() -> None:
    """Tell AOTAutograd that no input is donated, so that it lets graphs be retained; the backward copies instead."""
    context = TracingContext.try_get()
    if context is not None and context.fw_metadata is not None:
        context.fw_metadata.bw_donated_idxs = []
