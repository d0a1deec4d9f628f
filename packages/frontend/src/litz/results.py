"""What others rely on of a plan's results: their layouts, and whose memory they lie in."""

from __future__ import annotations

from collections import Counter

from litz_ir.loops import Output, Ref, TensorType
from litz_ir.plan import Plan, memory_root


def alone(plan: Plan) -> frozenset[int]:
    """The positions of the results that each lie in memory which the plan allocates for nothing else."""
    placements = dict(plan.buffers)
    names = [output.name if isinstance(output, Ref) else None for output in plan.outputs]
    shown = Counter(memory_root(name, placements) for name in names if name is not None)
    return frozenset(
        k
        for k, output in enumerate(plan.outputs)
        if type(output) is Ref
        and output.name in placements
        and placements[output.name].storage is not None
        and shown[output.name] == 1
    )


def may_replace(plan: Plan, other: Plan) -> bool:
    """True where a plan may take the place of an ``other`` one of its graph in the midst of its calls.

    A backward was compiled for the layouts of what its forward saves, and writes over what that has alone. What is
    copied where a backward may run again is what the other plan writes over.
    """
    alike = [_described(k, plan) == _described(k, other) for k in range(len(other.outputs))]
    return all(alike) and alone(plan) >= alone(other) and set(plan.donated) <= set(other.donated)


def _described(position: int, plan: Plan) -> tuple[type, TensorType] | Output:
    """What a result is: its type and layout where it is a tensor, else itself."""
    output = plan.outputs[position]
    if isinstance(output, Ref) and output.name in dict(plan.buffers):
        return type(output), plan.placement(output.name).type
    return output
