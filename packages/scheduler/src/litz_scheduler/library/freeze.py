"""What loops compute from held inputs alone, for all calls."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from litz_ir.fused import Decision
from litz_ir.loops import LoopGraph, Operation, Pointwise, Reduction, Value, is_dense
from litz_ir.passes import PassContext
from litz_ir.scalar import Scalar, walk
from litz_scheduler.cost import type_bytes
from litz_scheduler.graph_facts import axes_of, output_names
from litz_scheduler.library.frozen_region import FrozenRegion
from litz_scheduler.realise.uses import may_raise


@dataclass(frozen=True, slots=True)
class FreezeParameterLoops:
    """Move loops over held inputs, whose results would be stored at every call, into the region that is kept: casts of
    weights, copies of them in another layout. Results larger than what they are computed from stay where they are."""

    name: str = "freeze-parameter-loops"
    ulp: int = 0

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        if not data.frozen:
            return data
        keep, returned, values = FrozenRegion(data), output_names(data), data.values()
        left: list[Operation] = []
        for operation in keep.others:
            if (
                _is_lasting(operation, keep.lasting)
                and not _grows(operation, values)
                and returned.isdisjoint(value.name for value in operation.results)
            ):
                keep.compute(operation)
                for value in operation.results:
                    keep.result(value.name, value.type)
                context.decide(Decision("library", operation.name, "freeze", "library.frozen"))
            else:
                left.append(operation)
        return data.with_operations((*keep.region(), *left))


def _is_lasting(operation: Operation, lasting: Collection[str]) -> bool:
    """True for a pure loop of static size over nothing but lasting values."""
    if not isinstance(operation, Pointwise | Reduction) or operation.token or not operation.reads:
        return False
    axes = axes_of(operation)
    static = all(isinstance(axis.size, int) for axis in axes)
    dense = all(v.replaces is None and is_dense(v.type.shape, v.type.layout) for v in operation.results)
    if not static or not dense or any(name not in lasting for name in operation.reads):
        return False
    names = {axis.name for axis in axes}
    return all(
        body.free_symbols <= names
        and not may_raise(body)
        and not any(isinstance(node, Scalar) for node in walk(body))
        for body in operation.bodies
    )


def _grows(operation: Operation, values: Mapping[str, Value]) -> bool:
    """True when the results take more memory than what they are computed from."""
    read = sum(_nbytes(values[name]) for name in operation.reads)
    return sum(map(_nbytes, operation.results)) > read


def _nbytes(value: Value) -> int:
    nbytes = type_bytes(value.type)
    assert isinstance(nbytes, int), "held inputs of other sizes are read by no loop of static size"
    return nbytes
