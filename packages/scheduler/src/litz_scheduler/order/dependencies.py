"""Which groups must run before which, so that no order of them can be told from eager's."""

from __future__ import annotations

from litz_ir.fused import FusedGraph
from litz_ir.loops import Assert, Call, Operation, Region
from litz_scheduler.graph_facts import overwritten_by
from litz_scheduler.legality.dependency_tracker import DependencyTracker

_OWN = ("aten", "prims")


def dependencies(fused: FusedGraph) -> tuple[frozenset[int], ...]:
    """For each group the groups, by position, that run before it in any order.

    Besides what order as data asks for, what can be seen stays as it is: assertions and writes over memory keep their
    order, calls, which may raise, stay between those that they are between, and so do calls of operators that are not
    torch's own among one another, whose functions may do more than they say.
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
    """True for a call of somebody else's operator, and for control flow, in which there may be one."""
    if isinstance(operation, Call):
        namespace, dot, _ = operation.target.partition(".")
        return bool(dot) and namespace not in _OWN
    return isinstance(operation, Region)


def _is_visible(operation: Operation) -> bool:
    return isinstance(operation, Assert) or bool(overwritten_by(operation))
