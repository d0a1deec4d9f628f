"""The invariants of the numbers of a plan: sizes of types and storages, and the modelled peak of memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from litz_ir.loops.nodes import TensorType, Value
from litz_ir.plan.program import Plan
from litz_ir.scalar.verify import ErrorLocation
from litz_ir.symbols.ranges import bounds
from litz_ir.symbols.term import Range, Size


def check_types(plan: Plan, stage: str) -> None:
    """A type has one stride for each dimension; no size, stride, offset, storage or peak is known to be negative."""
    ranges = plan.symbols.ranges()
    for name, type_ in _types(plan):
        location = ErrorLocation(stage, name)
        rank, strides = len(type_.shape), len(type_.layout.strides)
        if rank != strides:
            location.fail(
                "type", f"%{name} has {rank} dimensions and {strides} strides", "give each a stride"
            )
        for size in type_.shape:
            _check_natural(f"%{name} has the size", size, ranges, location)
        for stride in type_.layout.strides:
            _check_natural(f"%{name} has the stride", stride, ranges, location)
    for name, placement in plan.buffers:
        _check_natural(f"%{name} has the offset", placement.offset, ranges, ErrorLocation(stage, name))
    for storage in plan.storages:
        location = ErrorLocation(stage, storage.name)
        _check_natural(f"{storage.name} has the bytes", storage.nbytes, ranges, location)
    _check_natural("the plan has the peak", plan.peak, ranges, ErrorLocation(stage, plan.name))


def _types(plan: Plan) -> Iterator[tuple[str, TensorType]]:
    """Yield the name and type of every tensor that a plan has."""
    for value in (*plan.inputs, *plan.constants):
        if isinstance(value, Value):
            yield value.name, value.type
    for name, placement in plan.buffers:
        yield name, placement.type


def _check_natural(what: str, number: Size, ranges: Mapping[str, Range], location: ErrorLocation) -> None:
    high = bounds(number, ranges).high
    if high is not None and high < 0:
        location.fail(
            "type", f"{what} {number}, but at least 0 belongs there", "count elements or bytes from 0"
        )
