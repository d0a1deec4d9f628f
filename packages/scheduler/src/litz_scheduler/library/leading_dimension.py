"""Rows of matrices that a library's products read, begun where a GPU reads whole lines of memory."""

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
from litz_scheduler.graph_facts import output_names
from litz_scheduler.legality.matmul import gpu_kinds
from litz_scheduler.options import SchedulerOptions

CACHE_LINE, ALIGNED = 128, 16
"""Bytes to a multiple of which rows are lengthened: the first where memory allows it. Rows whose length is a multiple
of the second are read well as they are."""

MAX_OVERHEAD = 16
"""The part of a row, one over this, by which it is lengthened at the most."""


@dataclass(frozen=True, slots=True)
class PadLeadingDimension:
    """Let rows that loops write, and only loops and products of matrices read, begin at multiples of so many bytes.

    Nothing that the caller sees changes, nor what a routine of another kind is given: only what loops make has rows
    with gaps, where its rows are no multiple of ``ALIGNED`` bytes.
    """

    options: SchedulerOptions = field(default_factory=SchedulerOptions)
    name: str = "pad-leading-dimension"
    ulp: int = 0

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        kinds = gpu_kinds(context) if self.options.pad_leading_dimension else frozenset()
        if not kinds:
            return data
        readers = _readers(data)
        seen = output_names(data)
        operations: list[Operation] = []
        for operation in data.operations:
            if isinstance(operation, Pointwise | Reduction):
                results = tuple(
                    self._padded(value, readers, kinds, context)
                    if _suits(value.name, readers, seen)
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
        """The value with longer rows, or as it is."""
        wanted = value.replaces is None and value.type.device.kind in kinds
        type_ = padded_type(value.type) if wanted else None
        if type_ is None or not _multiplied(value.name, readers):
            return value
        context.decide(Decision("library", value.name, "pad", "library.padding"))
        return replace(value, type=type_)


def padded_type(type_: TensorType) -> TensorType | None:
    """The type with rows of whole lines; ``None`` where they are well as they are, or gaps would take too much."""
    shape, size = type_.shape, type_.dtype.itemsize
    if len(shape) < 2 or not all(isinstance(each, int) and each > 1 for each in shape[-2:]):
        return None
    if type_.layout.fixed or type_.layout != contiguous(shape):
        return None
    row = shape[-1]
    assert isinstance(row, int)
    if row * size % ALIGNED == 0:
        return None
    lengths = (-(-row * size // step) * step // size for step in (CACHE_LINE, ALIGNED))
    longer = next((length for length in lengths if MAX_OVERHEAD * (length - row) <= row), None)
    if longer is None:
        return None
    strides = contiguous((*shape[:-1], longer)).strides
    # Gaps are kept as what is promised to a caller is.
    return replace(type_, layout=replace(type_.layout, strides=strides, fixed=True))


def _readers(graph: LoopGraph) -> Mapping[str, list[Operation]]:
    found: dict[str, list[Operation]] = defaultdict(list)
    for operation in graph.operations:
        for name in dict.fromkeys(operation.reads):
            found[name].append(operation)
    return found


def _suits(name: str, readers: Mapping[str, Sequence[Operation]], seen: Collection[str]) -> bool:
    """True where nobody who reads a value or a view of it minds gaps between rows, and the caller sees neither."""
    return name not in seen and all(
        isinstance(each, Pointwise | Reduction)
        or _is_product(each)
        or (isinstance(each, View) and _suits(each.name, readers, seen))
        for each in readers.get(name, ())
    )


def _multiplied(name: str, readers: Mapping[str, Sequence[Operation]]) -> bool:
    """True where a product of matrices reads a value or a view of it."""
    return any(
        _is_product(each) or (isinstance(each, View) and _multiplied(each.name, readers))
        for each in readers.get(name, ())
    )


def _is_product(operation: Operation) -> bool:
    return (
        isinstance(operation, ContractionCall)
        and operation.kind == "matmul"
        and operation.layout_requirement == "any"
    )
