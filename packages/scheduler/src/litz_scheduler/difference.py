"""Difference of two plans, as data and as text: kernels, calls, memory and decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from difflib import unified_diff
from importlib import import_module

from litz_ir.fused import Decision
from litz_ir.plan import CallStep, Kernel, Launch, Plan, plans_in
from litz_ir.symbols import Size
from litz_scheduler.arguments import require


@dataclass(frozen=True, slots=True)
class KernelChange:
    """A kernel that computes the same operations in both plans, otherwise."""

    operations: tuple[str, ...]
    """Names of the operations that it computes."""
    first: Kernel
    """The kernel of the first plan."""
    second: Kernel
    """The kernel of the second plan."""

    def to_text(self) -> str:
        """Return a unified diff of the kernels' text forms."""
        before, after = (_printed(each).splitlines() for each in (self.first, self.second))
        return "\n".join(unified_diff(before, after, self.first.name, self.second.name, n=1, lineterm=""))


@dataclass(frozen=True, slots=True)
class PlanDifference:
    """Differences of two plans; false if there are none. Names of kernels, buffers and storages do not count."""

    changed: tuple[KernelChange, ...]
    """Kernels that compute the same operations otherwise."""
    removed: tuple[tuple[str, ...], ...]
    """Operations of each kernel that the first plan alone has, in order of launches."""
    added: tuple[tuple[str, ...], ...]
    """Operations of each kernel that the second plan alone has."""
    removed_calls: tuple[str, ...]
    """Targets of calls that the first plan alone makes."""
    added_calls: tuple[str, ...]
    """Targets of calls that the second plan alone makes."""
    launches: tuple[int, int]
    """Number of launches of each plan, those of subplans included."""
    peak: tuple[Size, Size]
    """Modelled peak of each plan, in bytes."""
    removed_decisions: tuple[Decision, ...]
    """Decisions of the first plan alone."""
    added_decisions: tuple[Decision, ...]
    """Decisions of the second plan alone."""

    def __bool__(self) -> bool:
        pairs = (self.launches, self.peak)
        return any(a != b for a, b in pairs) or any(
            (
                self.changed,
                self.removed,
                self.added,
                self.removed_calls,
                self.added_calls,
                self.removed_decisions,
                self.added_decisions,
            )
        )

    def to_text(self) -> str:
        """Return the differences as text, with ``-`` before what the first plan alone has and ``+`` before what the
        second has; empty if there are none.
        """
        return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        for title, (a, b), unit in (("launches", self.launches, ""), ("peak", self.peak, " B")):
            if a != b:
                yield f"{title}: {a}{unit} -> {b}{unit}"
        for sign, kernels, calls, decisions in (
            ("-", self.removed, self.removed_calls, self.removed_decisions),
            ("+", self.added, self.added_calls, self.added_decisions),
        ):
            yield from (f"{sign} kernel of {', '.join(operations)}" for operations in kernels)
            yield from (f"{sign} call of {target}" for target in calls)
            yield from (f"{sign} {decision.describe()}" for decision in decisions)
        for change in self.changed:
            yield f"kernel of {', '.join(change.operations)}:"
            yield from (f"  {line}" for line in change.to_text().splitlines())


def diff(first: Plan, second: Plan) -> PlanDifference:
    """Return the differences of two plans, such as those of one graph by other passes, options or capabilities."""
    require(Plan, first, "the first argument")
    require(Plan, second, "the second argument")
    before, after = _by_operations(first), _by_operations(second)
    changed = tuple(
        KernelChange(operations, before[operations], after[operations])
        for operations in before
        if operations in after and replace(before[operations], name="") != replace(after[operations], name="")
    )
    calls = [[step.target for step in _steps(plan) if isinstance(step, CallStep)] for plan in (first, second)]
    return PlanDifference(
        changed=changed,
        removed=tuple(each for each in before if each not in after),
        added=tuple(each for each in after if each not in before),
        removed_calls=tuple((Counter(calls[0]) - Counter(calls[1])).elements()),
        added_calls=tuple((Counter(calls[1]) - Counter(calls[0])).elements()),
        launches=(_launch_count(first), _launch_count(second)),
        peak=(first.peak, second.peak),
        removed_decisions=_without(first.decisions, second.decisions),
        added_decisions=_without(second.decisions, first.decisions),
    )


def _by_operations(plan: Plan) -> dict[tuple[str, ...], Kernel]:
    """Return each launch's kernel by the operations that it computes."""
    found: dict[tuple[str, ...], Kernel] = {}
    for part in plans_in(plan):
        for step in part.steps:
            if isinstance(step, Launch):
                operations = tuple(dict.fromkeys(each.operation for each in step.origins)) or (step.kernel,)
                found[operations] = part.kernel(step.kernel)
    return found


def _steps(plan: Plan) -> Iterator[object]:
    for part in plans_in(plan):
        yield from part.steps


def _launch_count(plan: Plan) -> int:
    return sum(isinstance(step, Launch) for step in _steps(plan))


def _without(decisions: Iterable[Decision], others: Iterable[Decision]) -> tuple[Decision, ...]:
    known = set(others)
    return tuple(each for each in decisions if each not in known)


def _printed(kernel: Kernel) -> str:
    text: str = import_module("litz_ir.text").to_text(kernel)
    return text
