"""Properties of a plan's results that callers rely on: layout, and sole ownership of memory."""

from __future__ import annotations

from collections import Counter

from litz_ir.loops import Output, Ref, TensorType
from litz_ir.plan import Plan, memory_root, new_results
from litz_ir.symbols import Predicate, Prover


def unshared_results(plan: Plan) -> frozenset[int]:
    """Return the positions of the results that each have memory to themselves which the plan allocated: all bytes up to
    the next multiple of ``STORAGE_ALIGNMENT``, so that they may be donated.

    That is a storage, or the result of a matmul or convolution of so many bytes, seen whole or in part.
    """
    placements = dict(plan.buffers)
    names = [output.name if isinstance(output, Ref) else None for output in plan.outputs]
    roots = [None if name is None else memory_root(name, placements) for name in names]
    readers = Counter(root for root in roots if root is not None)
    made = {name for step in plan.steps for name in new_results(step)}
    stored = {name for name, placement in plan.buffers if placement.storage is not None}
    prover = Prover(plan.symbols)

    def is_whole(name: str, root: str) -> bool:
        least, nbytes = placements[name].aligned_nbytes, placements[root].nbytes
        return root in stored or (root in made and prover.prove(Predicate("le", least, nbytes)) is True)

    return frozenset(
        k
        for k, (output, name, root) in enumerate(zip(plan.outputs, names, roots, strict=True))
        if type(output) is Ref and name and root and readers[root] == 1 and is_whole(name, root)
    )


def may_replace(plan: Plan, other: Plan) -> bool:
    """Report whether a plan may replace the ``other`` plan of its graph between two calls.

    A backward is compiled for the layouts of the tensors that its forward saves, and reuses the memory of those with
    a storage to themselves. The tensors that are copied where a backward may run again are those that ``other``
    overwrites.
    """
    equal = [_described(k, plan) == _described(k, other) for k in range(len(other.outputs))]
    return (
        all(equal)
        and unshared_results(plan) >= unshared_results(other)
        and set(plan.donated) <= set(other.donated)
    )


def _described(position: int, plan: Plan) -> tuple[type, TensorType] | Output:
    """Return the type and layout of a result that is a tensor, else the result itself."""
    output = plan.outputs[position]
    if isinstance(output, Ref) and output.name in dict(plan.buffers):
        return type(output), plan.placement(output.name).type
    return output
