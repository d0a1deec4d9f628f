"""Intermediate forms of a plan, between the passes that build it."""

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
from litz_scheduler.memory.planner import MemoryPlan, plan_memory
from litz_scheduler.memory.slots import MayShare, always_shares
from litz_scheduler.memory.workspace import transient_bytes


@dataclass(frozen=True, slots=True)
class UnnamedLaunch:
    """A launch of a kernel that has no name yet."""

    kernel: Kernel
    """The kernel, under an empty name."""
    kind: str
    """The kind of device that it runs on, such as ``cpu`` or ``cuda``."""
    group: str
    """The name of the fusion group that it computes."""
    operations: tuple[Operation, ...]
    """The operations of the group, after which the kernel is named."""
    buffers: tuple[str, ...]
    """A buffer for each parameter of the kernel."""
    symbols: tuple[Size, ...]
    """A value for each symbol of the kernel."""
    origins: tuple[KernelOrigin, ...]
    """The FX nodes and source lines that the kernel computes."""


@dataclass(frozen=True, slots=True)
class Subgraph:
    """A subgraph of a higher-order operator, which the items after it may run."""

    name: str
    """The name of its plan."""
    graph: LoopGraph
    """The loop graph."""


Item = Step | UnnamedLaunch | Subgraph | Decision
"""A step, something that becomes a step, or a decision about the items around it."""


@dataclass(frozen=True, slots=True)
class UnnamedSteps:
    """The steps of a fused graph in its order, with kernels that have no names."""

    fused: FusedGraph
    """The fused graph."""
    device: Device
    """The device of the plan: the first GPU that a value is on, else the CPU."""
    machine: Capabilities
    """The capabilities of ``device``."""
    placements: Mapping[str, Placement]
    """The placement of every buffer, which says which buffers share memory."""
    first: tuple[Item, ...]
    """The items before all groups: definitions of symbols by the inputs."""
    groups: tuple[tuple[Item, ...], ...]
    """The items of each group."""

    def verify(self) -> None:
        """Check the item count per group, and that launches have a placed buffer per kernel parameter.

        Raises ``VerifyError``.
        """
        name = self.fused.graph.name
        if len(self.groups) != len(self.fused.groups):
            raise VerifyError(
                f"steps for {len(self.groups)} groups of {len(self.fused.groups)}",
                check="steps.groups",
                node=name,
            )
        for item in (*self.first, *(item for group in self.groups for item in group)):
            if isinstance(item, UnnamedLaunch):
                _check_launch(item.kernel, item.buffers, item.group)
                _check_placed(item.buffers, self.placements, item.group)


@dataclass(frozen=True, slots=True)
class UnplacedPlan:
    """The steps of a fused graph and their kernels, before memory is assigned to the buffers that kernels write
    first."""

    fused: FusedGraph
    """The fused graph, its groups in the order of the steps."""
    device: Device
    """The device of the plan: the first GPU that a value is on, else the CPU."""
    machine: Capabilities
    """The capabilities of ``device``."""
    tiled: frozenset[str]
    """The kinds of devices on which the threads of a block compute a tile in common."""
    placements: Mapping[str, Placement]
    """The placement of every buffer."""
    kernels: Mapping[str, Kernel]
    """The kernels by name."""
    subplans: tuple[Plan, ...]
    """The plans of subgraphs of higher-order operators."""
    steps: tuple[Step, ...]
    """The steps in the order that they run."""
    groups: tuple[range, ...] = ()
    """The positions of the steps of each group; empty once groups share steps."""
    memory: MemoryPlan | None = None
    """The memory plan of these steps, where a pass has modelled it."""

    def placed(
        self, steps: Sequence[Step], kernels: Mapping[str, Kernel], may_share: MayShare = always_shares
    ) -> MemoryPlan:
        """Return the memory plan of other steps with their ``kernels``, over the same buffers.

        ``may_share`` is as for :func:`~litz_scheduler.memory.planner.plan_memory`.
        """
        graph = self.fused.graph
        transient = transient_bytes(
            steps, self.placements, self.subplans, graph.symbols, self.machine.model.threads
        )
        return plan_memory(
            steps, self.placements, graph.outputs, kernels, graph.symbols, transient, self.tiled, graph.donated,
            may_share,
        )  # fmt: skip

    def modelled(self) -> MemoryPlan:
        """Return the memory plan of the steps."""
        return self.placed(self.steps, self.kernels) if self.memory is None else self.memory

    def verify(self) -> None:
        """Check that launched kernels exist, that buffers are placed, and that the groups cover the steps.

        Raises ``VerifyError``.
        """
        objects = {each.name for each in self.fused.graph.inputs if isinstance(each, ObjectInput)}
        for step in self.steps:
            if isinstance(step, Launch):
                if step.kernel not in self.kernels:
                    raise VerifyError("no kernel of that name", check="steps.kernel", node=step.kernel)
                _check_launch(self.kernels[step.kernel], step.buffers, step.kernel)
            tensors = [name for name in touched_by(step) if name not in objects]
            _check_placed(tensors, self.placements, type(step).__name__)
        if self.groups:
            ends = [self.groups[0].start, *(each.stop for each in self.groups)]
            starts = [*(each.start for each in self.groups), len(self.steps)]
            if ends != starts or len(self.groups) != len(self.fused.groups):
                raise VerifyError(
                    "the groups do not cover the steps", check="steps.groups", node=self.fused.graph.name
                )


def _check_launch(kernel: Kernel, buffers: Sequence[str], node: str) -> None:
    """Check that a launch has a buffer for each parameter."""
    if len(buffers) != len(kernel.parameters):
        raise VerifyError(
            f"{len(buffers)} buffers for {len(kernel.parameters)} parameters", check="steps.launch", node=node
        )


def _check_placed(names: Sequence[str], placements: Mapping[str, Placement], node: str) -> None:
    """Check that buffers have placements."""
    missing = next((name for name in names if name not in placements), None)
    if missing is not None:
        raise VerifyError(f"%{missing} has no placement", check="steps.buffers", node=node)
