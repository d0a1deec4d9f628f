"""Training steps whose graphs are scheduled for a GPU that is not there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._functorch.aot_autograd import aot_module_simplified
from torch.fx import GraphModule

from litz.capture.donated import saved_alone
from litz.capture.layouts import expect, report_strides, saved_in_any_layout
from litz_ir.device import CPU
from litz_ir.host import Executor
from litz_ir.interp import Externs
from litz_ir.passes import PassContext
from litz_ir.plan import Plan
from litz_ir.target import Capabilities
from litz_lowering import correct_metadata, decompositions, lower, partition
from litz_scheduler import schedule

sys.path.insert(0, str(Path(__file__).parents[1] / "packages" / "lowering" / "tests"))
import lowering_check  # type: ignore[import-not-found]  # it lies beside lowering's tests

ATEN: Externs = lowering_check.AtenTable()
"""ATen's overloads by name, over arrays."""
Load = Callable[[Plan, Mapping[str, Any]], Callable[[Sequence[Any]], Sequence[Any]]]
"""Function that returns the call of a plan, given its constants, from arrays to arrays."""


def in_reference(plan: Plan, constants: Mapping[str, Any]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Return the call of a plan in the reference interpreter."""
    return Executor(plan, externs=ATEN, constants=constants).run


class ScheduledForGpu:
    """A backend whose graphs are scheduled for a GPU and run as ``load`` says, or by eager without one."""

    def __init__(self, machine: Capabilities, load: Load | None = in_reference) -> None:
        self._machine, self._load = machine, load
        self.plans: dict[str, Plan] = {}
        self._any_layout: frozenset[str] = frozenset()
        self._donated: frozenset[str] = frozenset()

    def __call__(self, gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        """Return the call of a captured graph."""
        forward, backward = (partial(self._compiled, kind) for kind in ("forward", "backward"))
        table = dict(decompositions(recomputed=True))
        how: dict[str, Any] = {"fw_compiler": forward, "bw_compiler": backward, "decompositions": table}
        made: Callable[..., Any] = aot_module_simplified(gm, inputs, partition_fn=self._divided, **how)
        return made

    def _divided(
        self, joint: GraphModule, inputs: Sequence[Any], **options: Any
    ) -> tuple[GraphModule, GraphModule]:
        forward, backward = partition(joint, inputs, **options)
        self._any_layout = saved_in_any_layout(forward, backward, options["num_fwd_outputs"])
        return forward, backward

    def _compiled(self, kind: str, gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        correct_metadata(gm)
        if kind == "backward":
            expect(gm, inputs)
            lowered = lower(gm, name=kind, donated=self._donated)
        else:
            lowered = lower(gm, name=kind, saved=self._any_layout)
        plan = self.plans[kind] = schedule(lowered.graph, PassContext({CPU: self._machine}))
        if kind == "forward":
            report_strides(gm, plan)
            self._donated = saved_alone(gm, plan)
        if self._load is None:
            return make_boxed_func(gm.forward)
        call = self._load(
            plan, {name: lowering_check.to_array(each) for name, each in lowered.constants.items()}
        )

        def run(*args: Any) -> list[Any]:
            found = call(
                [lowering_check.to_array(each) if isinstance(each, Tensor) else each for each in args]
            )
            return [lowering_check.to_tensor(each) for each in found]

        return make_boxed_func(run)
