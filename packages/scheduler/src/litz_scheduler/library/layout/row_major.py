"""Row-major activations where their rows are reduced, although eager stores them transposed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from litz_ir.fused import Decision
from litz_ir.loops import LoopGraph, Operation, Pointwise, Reduction, TensorType, contiguous, is_dense
from litz_ir.passes import PassContext
from litz_ir.scalar import loads
from litz_ir.symbols import symbol
from litz_ir.target import DeviceClass
from litz_scheduler import reasons
from litz_scheduler.analysis.graph_facts import is_identity
from litz_scheduler.legality.matmul import gpu_kinds

_RANKS = (2, 3)
"""Ranks of the values that the pass lays out: layout propagation does so for activations of convolutions."""


@dataclass(frozen=True, slots=True)
class RowMajorActivations:
    """Store pointwise results on a GPU row-major where most bytes around them are.

    Eager's result of a sum has the layout of the first operand, so that the transposed result of a convolution that
    embeds patches makes a whole residual stream transposed. Counted are the operands of the same shape in either
    layout, and each reduction of rows, which reads row-major data in whole cache lines.
    """

    name: str = "row-major-activations"
    """The name of the pass."""
    ulp: int = 0
    """The bound on changed results, in ULP."""
    devices: ClassVar[DeviceClass] = "gpu"
    """Devices of the graphs that the pass runs over."""

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        kinds, saved = gpu_kinds(context), frozenset(data.saved)
        types = {name: value.type for name, value in data.values().items()}
        if not any(_is_transposed(type_, kinds) for type_ in types.values()):
            return data
        reduced = _row_reductions(data.operations, types)
        operations: list[Operation] = []
        for operation in data.operations:
            if isinstance(operation, Pointwise):
                (result, *others) = operation.results
                free = result.replaces is None and (not result.type.layout.fixed or result.name in saved)
                if (
                    free
                    and not others
                    and _is_transposed(result.type, kinds)
                    and _is_mostly_row_major(operation, result.type, types, reduced[result.name])
                ):
                    types[result.name] = _row_major(result.type)
                    operation = replace(operation, results=(replace(result, type=types[result.name]),))
                    context.decide(Decision("library", operation.name, "convert", reasons.LIBRARY_ROW_MAJOR))
            operations.append(operation)
        return data.with_operations(tuple(operations))


def _is_transposed(type_: TensorType, kinds: frozenset[str]) -> bool:
    """Return whether a value on a GPU has a dense layout whose rows are not contiguous."""
    if type_.device.kind not in kinds or len(type_.shape) not in _RANKS:
        return False
    if not all(isinstance(size, int) and size > 1 for size in type_.shape[-2:]):
        return False
    return type_.layout.strides[-1] != 1 and is_dense(type_.shape, type_.layout)


def _row_major(type_: TensorType) -> TensorType:
    strides = contiguous(type_.shape).strides
    return replace(type_, layout=replace(type_.layout, strides=strides))


def _row_reductions(operations: tuple[Operation, ...], types: Mapping[str, TensorType]) -> Counter[str]:
    """Count for each value the reductions over its last dimension."""
    found: Counter[str] = Counter()
    for operation in operations:
        if isinstance(operation, Reduction):
            last = symbol(operation.reduce_axes[-1].name)
            read = {load.buffer for load in loads(*operation.bodies) if load.index and load.index[-1] == last}
            found.update(name for name in read if name in types)
    return found


def _is_mostly_row_major(
    loop: Pointwise, type_: TensorType, types: Mapping[str, TensorType], reductions: int
) -> bool:
    """Return whether more bytes around a result are row-major than have its own layout."""
    row_major, own = reductions * type_.dtype.itemsize, 0
    for load in set(loads(*loop.bodies)):
        read = types[load.buffer]
        if read.shape != type_.shape or not is_identity(load.index, loop.axes):
            continue
        if read.layout.strides == type_.layout.strides:
            own += read.dtype.itemsize
        elif read.layout.strides[-1] == 1:
            row_major += read.dtype.itemsize
    return row_major > own
