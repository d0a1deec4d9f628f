"""The forms of a plan in the making, between the passes that build it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from litz_ir.device import Device
from litz_ir.errors import VerifyError
from litz_ir.fused import Decision, FusedGraph
from litz_ir.loops import LoopGraph, ObjectInput, Operation
from litz_ir.plan import Kernel, KernelOrigin, Launch, Placement, Plan, Step, touched_by
from litz_ir.symbols import Size
from litz_ir.target import Capabilities
from litz_ir.verifier import verify
from litz_scheduler.memory.planner import MemoryPlan, plan_memory
from litz_scheduler.memory.workspace import transient_bytes


@dataclass(frozen=True, slots=True)
class UnnamedLaunch:
    """A launch of a ``kernel`` without a name, on a ``kind`` of device. It runs the ``operations`` of a ``group``."""

    kernel: Kernel
    kind: str
    group: str
    operations: tuple[Operation, ...]
    buffers: tuple[str, ...]
    symbols: tuple[Size, ...]
    origins: tuple[KernelOrigin, ...]


@dataclass(frozen=True, slots=True)
class Subgraph:
    """A graph that control flow runs, and the name of its plan, which is made before the items after it."""

    name: str
    graph: LoopGraph


Item = Step | UnnamedLaunch | Subgraph | Decision
"""A step, or what becomes one, and what was decided for the items around it."""


@dataclass(frozen=True, slots=True)
class UnnamedSteps:
    """The steps of a fused graph with kernels that have no names, in its order.

    ``first`` come before all groups, ``groups`` are the items of each. ``device`` is the plan's, ``machine`` its
    capabilities. ``placements`` say which values share memory.
    """

    fused: FusedGraph
    device: Device
    machine: Capabilities
    placements: Mapping[str, Placement]
    first: tuple[Item, ...]
    groups: tuple[tuple[Item, ...], ...]


@dataclass(frozen=True, slots=True)
class UnplacedPlan:
    """The steps of a fused graph and their kernels; what kernels write first has no memory yet.

    ``groups`` are the positions of the steps of each group of ``fused``, in its order; there are none once groups share
    steps. ``device`` is the plan's, ``machine`` its capabilities; ``tiled`` has the kinds of devices whose threads have
    tiles together. ``memory`` is the memory of these steps, where a pass has modelled it.
    """

    fused: FusedGraph
    device: Device
    machine: Capabilities
    tiled: frozenset[str]
    placements: Mapping[str, Placement]
    kernels: Mapping[str, Kernel]
    subplans: tuple[Plan, ...]
    steps: tuple[Step, ...]
    groups: tuple[range, ...] = ()
    memory: MemoryPlan | None = None

    def placed(self, steps: Sequence[Step], kernels: Mapping[str, Kernel]) -> MemoryPlan:
        """The memory of other steps in place of its own, with their ``kernels``."""
        graph = self.fused.graph
        transient = transient_bytes(
            steps, self.placements, self.subplans, graph.symbols, self.machine.threads
        )
        return plan_memory(
            steps, self.placements, graph.outputs, kernels, graph.symbols, transient, self.tiled, graph.donated
        )  # fmt: skip

    def modelled(self) -> MemoryPlan:
        """The memory of its steps."""
        return self.placed(self.steps, self.kernels) if self.memory is None else self.memory


@verify.register
def verify_unnamed(data: UnnamedSteps) -> None:
    """Check that there are items for each group, whose launches have buffers for the parameters of their kernels;
    raises ``VerifyError``."""
    name = data.fused.graph.name
    if len(data.groups) != len(data.fused.groups):
        raise VerifyError(
            f"steps for {len(data.groups)} groups of {len(data.fused.groups)}",
            check="steps.groups",
            node=name,
        )
    for item in (*data.first, *(item for group in data.groups for item in group)):
        if isinstance(item, UnnamedLaunch):
            _check_launch(item.kernel, item.buffers, item.group)
            _check_placed(item.buffers, data.placements, item.group)


@verify.register
def verify_unplaced(data: UnplacedPlan) -> None:
    """Check that kernels that are launched are known and have buffers for their parameters, that buffers have
    placements, and that groups follow one another; raises ``VerifyError``."""
    objects = {each.name for each in data.fused.graph.inputs if isinstance(each, ObjectInput)}
    for step in data.steps:
        if isinstance(step, Launch):
            if step.kernel not in data.kernels:
                raise VerifyError("no kernel of that name", check="steps.kernel", node=step.kernel)
            _check_launch(data.kernels[step.kernel], step.buffers, step.kernel)
        tensors = [name for name in touched_by(step) if name not in objects]
        _check_placed(tensors, data.placements, type(step).__name__)
    if data.groups:
        ends = [data.groups[0].start, *(each.stop for each in data.groups)]
        starts = [*(each.start for each in data.groups), len(data.steps)]
        if ends != starts or len(data.groups) != len(data.fused.groups):
            raise VerifyError(
                "the groups are not all steps", check="steps.groups", node=data.fused.graph.name
            )


def _check_launch(kernel: Kernel, buffers: Sequence[str], node: str) -> None:
    if len(buffers) != len(kernel.parameters):
        raise VerifyError(
            f"{len(buffers)} buffers for {len(kernel.parameters)} parameters", check="steps.launch", node=node
        )


def _check_placed(names: Sequence[str], placements: Mapping[str, Placement], node: str) -> None:
    missing = next((name for name in names if name not in placements), None)
    if missing is not None:
        raise VerifyError(f"%{missing} has no placement", check="steps.buffers", node=node)
