"""Dependencies between groups under which no order has other observable effects than eager's."""

from __future__ import annotations

from litz_ir.fused import FusedGraph
from litz_ir.loops import Assert, Call, Operation, Region
from litz_scheduler.analysis.graph_facts import overwritten_by
from litz_scheduler.legality.dependency_tracker import DependencyTracker

_OWN = ("aten", "prims")
"""Namespaces of operators whose schemas state all that they do."""


def dependencies(fused: FusedGraph) -> tuple[frozenset[int], ...]:
    """Return for each group the groups, by position, that run before it in any order.

    Data dependencies are not all. Assertions and mutations of memory stay in order. Calls may raise, so they stay
    between the same assertions and mutations. Calls of operators of other libraries stay in order, since their
    functions may do more than their schemas state.
    """
    operations = fused.graph.named()
    group_of = {member.operation: k for k, group in enumerate(fused.groups) for member in group.members}
    found: list[set[int]] = [set() for _ in fused.groups]
    needs = DependencyTracker(fused.graph)
    for name, operation in operations.items():
        number = group_of[name]
        found[number].update(needs.of(operation))
        needs.enter(operation, number)
    visible: set[int] = set()
    calls: set[int] = set()
    foreign: set[int] = set()
    for number, group in enumerate(fused.groups):
        members = [operations[member.operation] for member in group.members]
        if any(map(_is_visible, members)):
            found[number] |= calls | visible
            visible, calls = {number}, set()
        elif any(isinstance(each, Call | Region) for each in members):
            found[number] |= visible
            calls.add(number)
        if any(map(_is_foreign, members)):
            found[number] |= foreign
            foreign = {number}
    return tuple(frozenset(needed - {number}) for number, needed in enumerate(found))


def _is_foreign(operation: Operation) -> bool:
    """Return True for a call of another library's operator, and for a higher-order operator.

    The subgraphs of a higher-order operator may contain such calls.
    """
    if isinstance(operation, Call):
        namespace, dot, _ = operation.target.partition(".")
        return bool(dot) and namespace not in _OWN
    return isinstance(operation, Region)


def _is_visible(operation: Operation) -> bool:
    """Return True for an assertion or a mutation of memory."""
    return isinstance(operation, Assert) or bool(overwritten_by(operation))
