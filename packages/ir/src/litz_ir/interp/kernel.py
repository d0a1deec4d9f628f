"""The meaning of a kernel: its phases in order for every point of its outer axes.

Many outer points run at once, phase by phase, which gives the same result unless one of them accesses an element that
another one writes. Such conflicts are detected, and the kernel then starts over and runs point by point. Within a
phase all values are computed before any is stored, so a kernel may overwrite its own input at the points that it
reads. The invocations of a horizontally fused kernel run one after another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod

import numpy as np

from litz_ir.dtypes import DType
from litz_ir.errors import GraphError
from litz_ir.interp.body import BodyEvaluator, PointGrid, check_index, gather
from litz_ir.interp.combine import reduce_last, scan_last
from litz_ir.interp.encoding import Array, check_storage, storage_dtype
from litz_ir.interp.hazards import AccessLog, racy_buffers, stored_buffers
from litz_ir.interp.scatter import scatter_into
from litz_ir.loops.nodes import Axis, ScatterMode
from litz_ir.plan.horizontal_fusion import invocation_symbols, invocations_of
from litz_ir.plan.kernel import Accumulate, Kernel, Phase, ScanStore, ScratchArray, Store
from litz_ir.scalar.expr import Load
from litz_ir.symbols.term import evaluate

_POINTS_AT_ONCE = 1 << 21
"""Points that NumPy computes at once, which bounds the interpreter's memory."""

_UNWRITTEN = 0xA5
"""Byte that fills scratch arrays before they are written."""


def run_kernel(kernel: Kernel, buffers: Mapping[str, Array], symbols: Mapping[str, int | float]) -> None:
    """Run ``kernel`` on flat arrays in memory form, one for each parameter by name; outputs are written in place.

    ``symbols`` has a value for each of the kernel's symbols. Raises :class:`GraphError` for a buffer that is missing
    or of the wrong dtype, :class:`IndexOutOfRange` for an access outside a buffer.
    """
    for parameter in kernel.parameters:
        if parameter.name not in buffers:
            raise GraphError(
                f"kernel {kernel.name} has no buffer for the parameter {parameter.name}", node=kernel.name
            )
        check_storage(buffers[parameter.name], parameter.dtype, f"buffer {parameter.name}")
    for subkernel, invocation in invocations_of(kernel):
        own = {
            p.name: buffers[name] for p, name in zip(subkernel.parameters, invocation.buffers, strict=True)
        }
        run_kernel(subkernel, own, invocation_symbols(subkernel, invocation, symbols))
    if kernel.subkernels:
        return
    outer = _extents(kernel.outer, symbols)
    total = prod(outer)
    log = AccessLog(racy_buffers(kernel, buffers) if total > 1 else frozenset())
    written = {name for phase in kernel.phases for s in phase.statements for name in stored_buffers(s)}
    before = {name: buffers[name].copy() for name in written & log.names}
    _run(kernel, buffers, symbols, outer, _points_at_once(kernel, symbols), log)
    if log.conflict():
        for name, content in before.items():
            buffers[name][...] = content
        _run(kernel, buffers, symbols, outer, 1, AccessLog(frozenset()))


def _extents(axes: Sequence[Axis | ScratchArray], symbols: Mapping[str, int | float]) -> tuple[int, ...]:
    integers = {name: int(value) for name, value in symbols.items() if not isinstance(value, float)}
    return tuple(evaluate(axis.size, integers) for axis in axes)


def _points_at_once(kernel: Kernel, symbols: Mapping[str, int | float]) -> int:
    inner = [prod(_extents(phase.axes, symbols)) for phase in kernel.phases]
    return max(1, _POINTS_AT_ONCE // max([1, *inner, *_extents(kernel.scratch, symbols)]))


def _run(
    kernel: Kernel,
    buffers: Mapping[str, Array],
    symbols: Mapping[str, int | float],
    outer: tuple[int, ...],
    step: int,
    log: AccessLog,
) -> None:
    total = prod(outer)
    for first in range(0, total, step):
        points = _Points(kernel, buffers, symbols, outer, np.arange(first, min(first + step, total)), log)
        for phase in kernel.phases:
            points.run(phase)


class _Points:
    """Some outer points of a kernel, by row-major number, with their scratch arrays and accumulated scalars."""

    def __init__(
        self,
        kernel: Kernel,
        buffers: Mapping[str, Array],
        symbols: Mapping[str, int | float],
        outer: tuple[int, ...],
        numbers: Array,
        log: AccessLog,
    ) -> None:
        self.symbols = symbols
        self.numbers = numbers
        self.log = log
        self.outer = dict(
            zip((axis.name for axis in kernel.outer), np.unravel_index(numbers, outer) if outer else ())
        )
        self.buffers = buffers
        sizes = _extents(kernel.scratch, symbols)
        self.scratch = {
            each.name: self._unwritten(size, each.dtype) for each, size in zip(kernel.scratch, sizes)
        }
        self.dtypes = {parameter.name: parameter.dtype for parameter in kernel.parameters}
        self.dtypes.update((each.name, each.dtype) for each in kernel.scratch)
        self.rank = 0
        self.scalars: dict[str, Array] = {}

    def _unwritten(self, size: int, dtype: DType) -> Array:
        stored = storage_dtype(dtype)
        content = np.full((len(self.numbers), size * stored.itemsize), _UNWRITTEN, np.uint8)
        return content.view(stored)

    def _column(self, values: Array) -> Array:
        """One value for each outer point, shaped to broadcast against the grid of the running phase."""
        return np.asarray(values).reshape(-1, *([1] * self.rank))

    def run(self, phase: Phase) -> None:
        self.rank = len(phase.axes)
        sizes = _extents(phase.axes, self.symbols)
        coordinates = {name: self._column(values) for name, values in self.outer.items()}
        for k, (axis, size) in enumerate(zip(phase.axes, sizes)):
            shape = [size if d == k + 1 else 1 for d in range(self.rank + 1)]
            coordinates[axis.name] = np.arange(size, dtype=np.int64).reshape(shape)
        grid = PointGrid((len(self.numbers), *sizes), coordinates)
        scalars = {name: self._column(values) for name, values in self.scalars.items()}
        body = BodyEvaluator(grid, self.read, self.symbols, scalars=scalars)
        pending = []
        for statement in phase.statements:
            match statement:
                case Store():
                    offsets, value = body.index(statement.offset), body.value(statement.value)
                    pending.append(
                        partial(self.write, statement.buffer, grid, offsets, value, statement.mode)
                    )
                case Accumulate():
                    self.accumulate(statement, body)
                case ScanStore():
                    for (buffer, offset), value in zip(
                        statement.targets, self.running(statement, body), strict=True
                    ):
                        pending.append(partial(self.write, buffer, grid, body.index(offset), value, "set"))
        for write in pending:
            write()

    def read(self, load: Load, index: tuple[Array, ...], mask: Array | None) -> Array:
        (offset,) = index
        if self.dtypes.get(load.buffer) != load.dtype:
            known = self.dtypes.get(load.buffer, "neither a parameter nor a scratch array")
            raise GraphError(f"{load.buffer} is read as {load.dtype}, but is {known}", node=load.buffer)
        array, position = self.element(load.buffer, offset)
        if load.buffer in self.buffers:
            self.log.record(load.buffer, array, offset, self._column(self.numbers), mask, write=False)
        return gather(array, load, position, mask)

    def element(self, buffer: str, offset: Array) -> tuple[Array, tuple[Array, ...]]:
        """The array of a buffer, and the index in it; a scratch array has a row for each outer point."""
        if buffer in self.scratch:
            return self.scratch[buffer], (self._column(np.arange(len(self.numbers))), offset)
        return self.buffers[buffer], (offset,)

    def write(self, buffer: str, grid: PointGrid, offset: Array, value: Array, mode: ScatterMode) -> None:
        offset = np.broadcast_to(offset, grid.shape)
        array, position = self.element(buffer, offset)
        check_index(buffer, array.shape, position, None)
        if buffer in self.scratch:
            offset = position[0] * array.shape[1] + offset
        else:
            self.log.record(buffer, array, offset, self._column(self.numbers), None, write=True)
        scatter_into(array.reshape(-1), self.dtypes[buffer], offset.reshape(-1), value.reshape(-1), mode)

    def accumulate(self, statement: Accumulate, body: BodyEvaluator) -> None:
        count = prod(body.grid.shape[1:])
        found = reduce_last(
            statement.combiner,
            [body.value(value).reshape(len(self.numbers), count) for value in statement.values],
            [value.dtype for value in statement.values],
            [dtype for _, dtype in statement.results],
            self.symbols,
        )
        self.scalars.update((name, value) for (name, _), value in zip(statement.results, found))

    def running(self, statement: ScanStore, body: BodyEvaluator) -> list[Array]:
        return scan_last(
            statement.combiner,
            [body.value(value) for value in statement.values],
            [value.dtype for value in statement.values],
            [self.dtypes[buffer] for buffer, _ in statement.targets],
            self.symbols,
        )
