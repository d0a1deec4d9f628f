"""Passes of users: over FX graphs, over the loop graph and over the plan.

    with litz.config.patch(passes=litz.passes.Passes(post_grad_after=(FuseNorm(),))):
        torch.compile(model, backend="litz")(x)

A pass over FX graphs is called with a ``torch.fx.Graph``, which it changes in place; one over the loop graph or the
plan is a :class:`litz_ir.passes.Pass`, from data to data. Each has a ``uuid()``, which is part of every cache key.
`docs/passes.md` in the repository of litz describes the stages. An installed package offers a pass by an entry point of
the group ``litz.passes``, which names an object with a ``stage`` and a ``name``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol

from litz_ir.errors import ConfigError

if TYPE_CHECKING:
    from torch.fx import Graph

    from litz_ir.fused import Decision
    from litz_ir.loops import LoopGraph
    from litz_ir.passes import PassContext
    from litz_ir.plan import Plan

__all__ = ["GraphPass", "LoopPass", "Passes", "PlanPass", "ReportingPass", "pass_name"]

DECISIONS = "passes."
"""Prefix of the stage in decisions of users' passes, before the name of the stage that the pass belongs to."""

LOOP_STAGES = ("loops", "plan")
"""Stages of passes from data to data; those of the others are over FX graphs."""


class GraphPass(Protocol):
    """A pass over an FX graph; torch's own class for such passes, ``CustomGraphPass``, has the same methods.

    A function without ``uuid`` is a pass too. Graphs that are compiled with it are not cached on disk.
    """

    def __call__(self, graph: Graph, /) -> object:
        """Change the graph in place. Its inputs and the number and types of its results stay as they are."""

    def uuid(self) -> object:
        """Identifier of the pass and of all that its effect depends on: text, bytes, a number, or a tuple of these.

        ``None`` for a pass whose graphs are not to be cached on disk.
        """


class ReportingPass(ABC):
    """Base class of passes over FX graphs that say what they did; litz calls ``rewrite`` instead of the pass itself."""

    def __call__(self, graph: Graph) -> None:
        """Change the graph in place."""
        self.rewrite(graph)

    @abstractmethod
    def rewrite(self, graph: Graph) -> Sequence[Decision]:
        """Change the graph in place, and return decisions for ``litz.explain``."""

    @abstractmethod
    def uuid(self) -> object:
        """Identifier as that of a :class:`GraphPass`."""


class LoopPass(Protocol):
    """A pass over the loop graph that lowering makes, a :class:`litz_ir.passes.Pass` with an identifier.

    It runs before litz's own passes over loop graphs, or before that of them whose name its attribute ``before`` has.
    """

    @property
    def name(self) -> str:
        """Name of the pass; no pass of litz has it."""

    @property
    def ulp(self) -> int:
        """Bound by which results may change, in units in the last place; 0 for an exact pass."""

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        """Return the changed graph, or ``data`` itself where there is nothing to change."""

    def uuid(self) -> object:
        """Identifier as that of a :class:`GraphPass`."""


class PlanPass(Protocol):
    """A pass over the plan, a :class:`litz_ir.passes.Pass` with an identifier.

    It runs before ``kernel-support``, the last of litz's own passes over plans, or before the pass that its attribute
    ``before`` names.
    """

    @property
    def name(self) -> str:
        """Name of the pass; no pass of litz has it."""

    @property
    def ulp(self) -> int:
        """Bound by which results may change, in units in the last place; 0 for an exact pass."""

    def apply(self, data: Plan, context: PassContext) -> Plan:
        """Return the changed plan, or ``data`` itself where there is nothing to change."""

    def uuid(self) -> object:
        """Identifier as that of a :class:`GraphPass`."""


@dataclass(frozen=True, slots=True)
class Passes:
    """Passes by stage, in the order in which they run; ``Passes() + Passes()`` joins two.

    Any sequence is accepted and stored as a tuple. Raises :class:`~litz_ir.errors.ConfigError` for an object that is
    no pass of its stage.
    """

    pre_grad: tuple[GraphPass | Callable[[Graph], object], ...] = ()
    """Over the graph that Dynamo captured, before AOTAutograd: calls of torch's functions and methods, with
    mutations."""

    joint_before: tuple[GraphPass | Callable[[Graph], object], ...] = ()
    """Over AOTAutograd's joint graph of a function and its gradient, before litz merges equal operations; over the
    whole graph where there are no gradients."""

    joint_after: tuple[GraphPass | Callable[[Graph], object], ...] = ()
    """Over the joint graph after that, before it is divided into forward and backward."""

    post_grad_before: tuple[GraphPass | Callable[[Graph], object], ...] = ()
    """Over each AOT graph (forward, backward, inference) as AOTAutograd made it."""

    post_grad_after: tuple[GraphPass | Callable[[Graph], object], ...] = ()
    """Over each AOT graph without views that change nothing and without dead code, before litz looks for attention
    and lowers it."""

    loops: tuple[LoopPass, ...] = ()
    """Over the loop graph of each AOT graph and of each function of a higher-order operator."""

    plan: tuple[PlanPass, ...] = ()
    """Over the plan of each of these."""

    def __post_init__(self) -> None:
        for stage in fields(self):
            given: object = getattr(self, stage.name)
            if not isinstance(given, Sequence) or isinstance(given, str):
                raise ConfigError(
                    f"the passes of {stage.name} are {given!r:.60}", hint="give a tuple of passes, (pass,)"
                )
            for item in given:
                _check(stage.name, item)
            object.__setattr__(self, stage.name, tuple(given))

    def __add__(self, other: Passes) -> Passes:
        return Passes(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    def __bool__(self) -> bool:
        return any(getattr(self, each.name) for each in fields(self))

    def by_stage(self) -> Iterator[tuple[str, Any]]:
        """Yield each pass with the name of its stage, in the order in which they run."""
        for stage in fields(self):
            for item in getattr(self, stage.name):
                yield stage.name, item


NO_PASSES = Passes()
"""The passes of a program that has none."""


def pass_name(item: object) -> str:
    """Return the name of a pass: its ``name`` where it has one, else that of the function or the class."""
    name = getattr(item, "name", None) or getattr(item, "__name__", None)
    return name if isinstance(name, str) else type(item).__name__


def _check(stage: str, item: object) -> None:
    """Raise ``ConfigError`` for an object that is no pass of a stage."""
    if isinstance(item, type):
        raise ConfigError(f"the class {item.__name__} is no pass", hint="give an instance of the class")
    if stage not in LOOP_STAGES:
        if not callable(item):
            raise ConfigError(
                f"{item!r:.60} is no pass over FX graphs",
                hint="a pass of this stage is called with a torch.fx.Graph; see litz.passes.GraphPass",
            )
        return
    lacking = [each for each in ("name", "ulp", "apply", "uuid") if not hasattr(item, each)]
    if lacking:
        raise ConfigError(
            f"{item!r:.60} is no pass of the stage {stage}: it has no {', '.join(lacking)}",
            hint="see litz_ir.passes.Pass, and litz.passes.LoopPass",
        )
