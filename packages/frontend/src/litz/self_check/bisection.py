"""The search for the kernels behind wrong results: which of a plan's must run as ATen for the rest to be right."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from litz_ir.plan import Launch, Plan, origins_by_subkernel, plans_in

MAX_PROBES = 32
"""The graphs after which no further kernel is looked for, and all are blamed. A search is brought to its end."""


def regions(plan: Plan, inputs: frozenset[str]) -> list[frozenset[str]]:
    """The FX nodes that each kernel of a plan computes, of a horizontal fusion each subkernel, in the order of their
    launches; ``inputs`` are no operations that could run elsewhere."""
    found: dict[frozenset[str], None] = {}
    for each in plans_in(plan):
        for step in each.steps:
            if isinstance(step, Launch):
                parts = origins_by_subkernel(each.kernel(step.kernel), step.origins) or (step.origins,)
                found.update((frozenset(o.origin.node for o in part) - inputs - {""}, None) for part in parts)
    return [nodes for nodes in found if nodes]


def guilty(groups: Sequence[frozenset[str]], wrong: Callable[[frozenset[str]], bool]) -> frozenset[str]:
    """The nodes of the groups that have to run as ATen; none where no such choice gives right results.

    ``wrong`` says of a set of nodes whether results are wrong while they run as ATen. Blames one group after another:
    the one with which the results turn wrong when groups are compiled from the first on. Where compiling anew gives
    right results, nobody knows what was wrong, and all are blamed.
    """
    everything = frozenset[str]().union(*groups)
    if wrong(everything):
        return frozenset()
    trials, blamed = 1, frozenset[str]()
    if not wrong(blamed):
        return everything
    while trials < MAX_PROBES:
        rest = [group for group in groups if not group <= blamed]
        right, faulty = 0, len(rest)
        while faulty - right > 1:
            middle = (right + faulty) // 2
            trials += 1
            if wrong(blamed.union(*rest[middle:])):
                faulty = middle
            else:
                right = middle
        blamed |= rest[faulty - 1]
        trials += 1
        if blamed == everything or not wrong(blamed):
            return blamed
    return everything
