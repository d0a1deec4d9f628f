"""The result of a bisection: a transformation without which a program does not fail."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from litz_ir.loops import LoopGraph
from litz_ir.origin import Origin, abbreviated_list, describe_locations
from litz_ir.passes import FuelKind
from litz_ir.plan import Kernel, KernelOrigin, Launch, Plan, plans_in
from litz_lowering import AtenGraph, origin_of

Stage = FuelKind | Literal["user-pass", "kernel", "host", "capture"]

_MEANINGS: Mapping[Stage, str] = MappingProxyType(
    {
        "user-pass": "the pass {name}, which the program or an installed package adds",
        "fx-pass": "the pass {name} over the FX graph of {graph}",
        "graph-pass": "the pass {name} over the loop graph of {graph}",
        "fusion": "the fusion of {name} in {graph}",
        "plan-pass": "the pass {name} over the plan of {graph}",
        "memory": "the memory that {name} shares with other values of {graph}",
        "kernel": "the kernel {name} of {graph}, by its lowering rule or its code",
        "host": "{graph}, by none of its passes, fusions, memory or kernels: its host program, its library calls, or a "
        "pass that cannot be left out",
        "capture": "Dynamo, AOTAutograd, a decomposition, the partition or a pass of the program over FX graphs (the "
        "option disable_passes leaves passes out): the program fails without litz's kernels",
    }
)

_SHOWN = 5
"""Most of the user's lines that the text of a culprit names."""


@dataclass(frozen=True, slots=True)
class Culprit:
    """The first transformation with which a program fails, in the order in which a compilation makes them."""

    stage: Stage
    """Kind of the transformation: a user's pass; a pass over the FX graph, the loop graph or the plan; a fusion; the
    sharing of memory; a kernel; ``host`` for what none of these explains; ``capture`` for a failure without litz's
    kernels."""

    name: str
    """Name of the pass, the fused operation and the group that it joined, the value, or the kernels."""

    graph: str
    """Name of the graph, such as ``forward 0``: its kind, and its number among the graphs compiled; empty for
    ``capture`` and ``user-pass``."""

    operations: tuple[str, ...]
    """Operations that the transformation changed, fused, placed or computes."""

    lines: tuple[str, ...]
    """The user's lines behind them, one text for each."""

    failure: str
    """The failure of the program, as text."""

    probes: int
    """Number of times that the program was compiled and run."""

    def describe(self) -> str:
        """Return the culprit as text of several lines."""
        rows = [f"caused by {_MEANINGS[self.stage].format(name=self.name, graph=f'graph {self.graph}')}"]
        rows += [f"  operations: {abbreviated_list(self.operations)}"] if self.operations else []
        rows += [f"  from: {line}" for line in self.lines[:_SHOWN]]
        rows += [f"  from: {rest} more lines"] if (rest := len(self.lines) - _SHOWN) > 0 else []
        rows += [f"  failure: {line}" for line in self.failure.splitlines()[:1]]
        return "\n".join([*rows, f"  found by {self.probes} compilations"])

    def __str__(self) -> str:
        return self.describe()


Blamed = tuple[tuple[str, ...], tuple[str, ...]]
"""Operations, and the user's lines behind them."""

NOTHING: Blamed = ((), ())
"""No operation."""


def changed_by_pass(before: object, after: object) -> Blamed:
    """Return the operations that a pass over an FX graph or a loop graph added, changed or removed."""
    if isinstance(before, LoopGraph) and isinstance(after, LoopGraph):
        old, new = ({each.name: each for each in graph.operations} for graph in (before, after))
        changed = [name for name in {**old, **new} if old.get(name) != new.get(name)]
        return tuple(changed), describe_locations((new.get(name) or old[name]).origin for name in changed)
    if isinstance(before, AtenGraph) and isinstance(after, AtenGraph):
        nodes = [{each.name: each for each in data.graph.nodes} for data in (before, after)]
        texts = [{name: each.format_node() for name, each in own.items()} for own in nodes]
        changed = [name for name in {**texts[0], **texts[1]} if texts[0].get(name) != texts[1].get(name)]
        found = [nodes[1].get(name) or nodes[0][name] for name in changed]
        named = [each for each in found if each.op not in ("placeholder", "output")]
        return tuple(each.name for each in named), describe_locations(origin_of(each) for each in named)
    return (), ()


def computed_by(plan: Plan, names: Iterable[str]) -> Blamed:
    """Return the operations of these ``names``, or of the kernels that write values of these names."""
    wanted = set(names)
    found = [
        each
        for owner in plans_in(plan)
        for step in owner.steps
        if isinstance(step, Launch) and _concerns(step, owner.kernel(step.kernel), wanted)
        for each in step.origins
    ]
    return _of_origins([each for each in found if each.operation in wanted] or found)


def kernels_of(plan: Plan, nodes: frozenset[str]) -> tuple[tuple[str, ...], Blamed]:
    """Return the names of the kernels that compute FX nodes, and their operations."""
    launches = [
        step
        for owner in plans_in(plan)
        for step in owner.steps
        if isinstance(step, Launch) and any(each.origin.node in nodes for each in step.origins)
    ]
    origins = [each for step in launches for each in step.origins if each.origin.node in nodes]
    return tuple(dict.fromkeys(step.kernel for step in launches)), _of_origins(origins)


def _concerns(step: Launch, kernel: Kernel, names: set[str]) -> bool:
    """Report whether a launch computes one of the operations, or writes one of the values."""
    written = (
        buffer
        for buffer, parameter in zip(step.buffers, kernel.parameters, strict=True)
        if parameter.access != "in"
    )
    return not names.isdisjoint((*written, *(each.operation for each in step.origins)))


def _of_origins(origins: Iterable[KernelOrigin]) -> Blamed:
    """Return the operations of a kernel and the lines behind them."""
    found = list(origins)
    named: list[Origin] = [each.origin for each in found]
    return tuple(dict.fromkeys(each.operation for each in found)), describe_locations(named)
