"""Bisection of wrong results: the kernels of a plan that must run as ATen for the results to be right."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from litz_ir.plan import Launch, Plan, origins_by_subkernel, plans_in

_MAX_PROBES = 32
"""Compilations of a graph after which all its kernels are blamed; a bisection in progress is completed."""


def regions(plan: Plan, inputs: frozenset[str]) -> list[frozenset[str]]:
    """Return the FX nodes of each kernel, or of each subkernel of a horizontally fused one, in launch order.

    The ``inputs`` are left out: they cannot run as ATen operations.
    """
    found: dict[frozenset[str], None] = {}
    for each in plans_in(plan):
        for step in each.steps:
            if isinstance(step, Launch):
                origins = origins_by_subkernel(each.kernel(step.kernel), step.origins) or (step.origins,)
                found.update((frozenset(o.origin.node for o in own) - inputs - {""}, None) for own in origins)
    return [nodes for nodes in found if nodes]


def faulty_nodes(groups: Sequence[frozenset[str]], wrong: Callable[[frozenset[str]], bool]) -> frozenset[str]:
    """Return the nodes of the groups that have to run as ATen; none where no choice of groups gives right results.

    ``wrong`` reports whether results are wrong while a set of nodes runs as ATen. Groups are blamed one after
    another: the one with which the results become wrong when groups are compiled from the first on. Where a new
    compilation gives right results, the cause is unknown, and all groups are blamed.
    """
    everything = frozenset[str]().union(*groups)
    if wrong(everything):
        return frozenset()
    probes, blamed = 1, frozenset[str]()
    if not wrong(blamed):
        return everything
    while probes < _MAX_PROBES:
        rest = [group for group in groups if not group <= blamed]
        right, faulty = 0, len(rest)
        while faulty - right > 1:
            middle = (right + faulty) // 2
            probes += 1
            if wrong(blamed.union(*rest[middle:])):
                faulty = middle
            else:
                right = middle
        blamed |= rest[faulty - 1]
        probes += 1
        if blamed == everything or not wrong(blamed):
            return blamed
    return everything
