"""Padding of the leading dimension of matmul operands, so that rows start at cache lines of a GPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from litz_ir.fused import Decision
from litz_ir.loops import (
    ContractionCall,
    LoopGraph,
    Operation,
    Pointwise,
    Reduction,
    TensorType,
    Value,
    View,
    contiguous,
)
from litz_ir.passes import PassContext
from litz_ir.target import DeviceModel
from litz_scheduler import reasons
from litz_scheduler.analysis.graph_facts import output_names
from litz_scheduler.legality.matmul import gpu_kinds
from litz_scheduler.options import SchedulerOptions

_MAX_OVERHEAD = 16
"""The limit on padding: a row grows by at most one part in this many. It has not been measured."""


@dataclass(frozen=True, slots=True)
class PadLeadingDimension:
    """Pad the rows of matrices that loops write and matmuls of a library read.

    Applies to matrices on a GPU that nothing but loops and matmuls reads, and whose rows are no multiple of the
    bytes that a thread loads at once. Results of the graph and arguments of other routines keep their layouts.
    """

    options: SchedulerOptions = field(default_factory=SchedulerOptions)
    """``pad_leading_dimension`` turns the pass on."""
    name: str = "pad-leading-dimension"
    """The name of the pass."""
    ulp: int = 0
    """The bound on changed results, in ULP."""

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        kinds = gpu_kinds(context) if self.options.pad_leading_dimension else frozenset()
        if not kinds:
            return data
        readers = _readers(data)
        returned = output_names(data)
        operations: list[Operation] = []
        for operation in data.operations:
            if isinstance(operation, Pointwise | Reduction):
                results = tuple(
                    self._padded(value, readers, kinds, context)
                    if _tolerates_padding(value.name, readers, returned)
                    else value
                    for value in operation.results
                )
                operation = replace(operation, results=results)
            operations.append(operation)
        return data.with_operations(tuple(operations))

    def _padded(
        self,
        value: Value,
        readers: Mapping[str, Sequence[Operation]],
        kinds: frozenset[str],
        context: PassContext,
    ) -> Value:
        """Return the value with padded rows where the pass applies to it, else unchanged."""
        applicable = value.replaces is None and value.type.device.kind in kinds
        known = context.machine(value.type.device)
        type_ = _padded_type(value.type, known.model) if applicable and known is not None else None
        if type_ is None or not _read_by_matmul(value.name, readers):
            return value
        context.decide(Decision("library", value.name, "pad", reasons.LIBRARY_PADDING))
        return replace(value, type=type_)


def _padded_type(type_: TensorType, model: DeviceModel) -> TensorType | None:
    """Return a tensor type with rows padded to cache lines, else to vectorised accesses, as ``_MAX_OVERHEAD`` permits.

    Returns ``None`` where accesses are aligned or the padding would exceed that.
    """
    shape, size = type_.shape, type_.dtype.itemsize
    if len(shape) < 2 or not all(isinstance(each, int) and each > 1 for each in shape[-2:]):
        return None
    if type_.layout.fixed or type_.layout != contiguous(shape):
        return None
    row = shape[-1]
    assert isinstance(row, int)
    if row * size % model.vector_bytes == 0:
        return None
    alignments = (model.line_bytes, model.vector_bytes)
    lengths = (-(-row * size // alignment) * alignment // size for alignment in alignments)
    longer = next((length for length in lengths if _MAX_OVERHEAD * (length - row) <= row), None)
    if longer is None:
        return None
    strides = contiguous((*shape[:-1], longer)).strides
    # A fixed layout, so that no later pass removes the padding.
    return replace(type_, layout=replace(type_.layout, strides=strides, fixed=True))


def _readers(graph: LoopGraph) -> Mapping[str, list[Operation]]:
    found: dict[str, list[Operation]] = defaultdict(list)
    for operation in graph.operations:
        for name in dict.fromkeys(operation.reads):
            found[name].append(operation)
    return found


def _tolerates_padding(
    name: str, readers: Mapping[str, Sequence[Operation]], returned: Collection[str]
) -> bool:
    """Return whether all readers of a value and its views are loops or matmuls, and the graph returns none of them."""
    return name not in returned and all(
        isinstance(each, Pointwise | Reduction)
        or _is_matmul(each)
        or (isinstance(each, View) and _tolerates_padding(each.name, readers, returned))
        for each in readers.get(name, ())
    )


def _read_by_matmul(name: str, readers: Mapping[str, Sequence[Operation]]) -> bool:
    """Return whether a library matmul reads a value or a view of it."""
    return any(
        _is_matmul(each) or (isinstance(each, View) and _read_by_matmul(each.name, readers))
        for each in readers.get(name, ())
    )


def _is_matmul(operation: Operation) -> bool:
    return (
        isinstance(operation, ContractionCall)
        and operation.kind == "matmul"
        and operation.layout_requirement == "any"
    )
