"""Constant folding of loops that read nothing but frozen parameters."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from litz_ir.fused import Decision
from litz_ir.loops import LoopGraph, Operation, Pointwise, Reduction, Value, is_dense
from litz_ir.passes import PassContext
from litz_ir.scalar import Scalar, walk
from litz_scheduler import reasons
from litz_scheduler.analysis.cost import type_bytes
from litz_scheduler.analysis.graph_facts import axes_of, owned_elsewhere
from litz_scheduler.legality.matmul import gpu_kinds
from litz_scheduler.library.constants.frozen_region import FrozenRegion
from litz_scheduler.realise.uses import may_raise


@dataclass(frozen=True, slots=True)
class FreezeParameterLoops:
    """Move loops over frozen parameters into the frozen region, whose results are reused from call to call.

    Such loops cast weights or copy them to another layout. A loop whose results take more memory than its inputs is
    not moved, nor one whose result the graph returns.
    """

    name: str = "freeze-parameter-loops"
    """The name of the pass."""
    ulp: int = 0
    """The bound on changed results, in ULP."""

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        if not data.frozen:
            return data
        kinds = gpu_kinds(
            context
        )  # whose copies of parameters FreezeParameterCopies moves, after all layouts are chosen
        region, owned, values = FrozenRegion(data), owned_elsewhere(data), data.values()
        remaining: list[Operation] = []
        for operation in region.others:
            if (
                _is_frozen(operation, region.frozen)
                and operation.results[0].type.device.kind not in kinds
                and not _is_larger(operation, values)
                and owned.isdisjoint(value.name for value in operation.results)
            ):
                region.compute(operation)
                for value in operation.results:
                    region.result(value.name, value.type)
                context.decide(Decision("library", operation.name, "freeze", reasons.LIBRARY_FROZEN))
            else:
                remaining.append(operation)
        return data.with_operations((*region.region(), *remaining))


def _is_frozen(operation: Operation, frozen: Collection[str]) -> bool:
    """Return whether an operation is a pure loop of static size that reads nothing but frozen values."""
    if not isinstance(operation, Pointwise | Reduction) or operation.token or not operation.reads:
        return False
    axes = axes_of(operation)
    static = all(isinstance(axis.size, int) for axis in axes)
    dense = all(v.replaces is None and is_dense(v.type.shape, v.type.layout) for v in operation.results)
    if not static or not dense or any(name not in frozen for name in operation.reads):
        return False
    names = {axis.name for axis in axes}
    return all(
        body.free_symbols <= names
        and not may_raise(body)
        and not any(isinstance(node, Scalar) for node in walk(body))
        for body in operation.bodies
    )


def _is_larger(operation: Operation, values: Mapping[str, Value]) -> bool:
    """Return whether the results take more memory than the inputs."""
    read = sum(_nbytes(values[name]) for name in operation.reads)
    return sum(map(_nbytes, operation.results)) > read


def _nbytes(value: Value) -> int:
    nbytes = type_bytes(value.type)
    assert isinstance(nbytes, int), "a loop of static size reads no frozen parameter of dynamic size"
    return nbytes
