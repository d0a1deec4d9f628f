"""Selection of oneDNN's ``linear`` for f32 matmuls on the CPU where it is faster than ATen's BLAS."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from litz_ir.contraction import plain_operands
from litz_ir.dtypes import f32
from litz_ir.fused import Decision
from litz_ir.loops import Axis, ContractionCall, LoopGraph, Operation, Ref, TensorType, Value, View
from litz_ir.passes import PassContext
from litz_ir.symbols import Size, symbol
from litz_ir.target import DeviceClass
from litz_scheduler import reasons
from litz_scheduler.analysis.cost import estimate
from litz_scheduler.analysis.graph_facts import VersionDeadlines
from litz_scheduler.options import SchedulerOptions

_MIN_ROWS = 8
"""The fewest rows of A. With fewer, a matmul is bound by reading B, which takes every library the same time."""


@dataclass(frozen=True, slots=True)
class LinearMatmuls:
    """Replace f32 ``mm`` and ``addmm`` calls of enough operations by the routine ``linear``.

    ``linear(x, weight, bias)`` is ``x @ weight.T + bias``.
    """

    options: SchedulerOptions = field(default_factory=SchedulerOptions)
    """``linear_flops`` is the least number of operations; zero turns the pass off."""
    name: str = "linear-matmuls"
    """The name of the pass."""
    ulp: int = 64
    """The bound on changed results, in ULP."""
    devices: ClassVar[DeviceClass] = "cpu"
    """Devices of the graphs that the pass runs over."""

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        if not self.options.linear_flops:
            return data
        rewriter = _LinearRewriter(data, self.options.linear_flops)
        operations: list[Operation] = []
        for position, operation in enumerate(data.operations):
            replacement = rewriter.of(operation, position)
            if replacement:
                context.decide(Decision("library", operation.name, "call", reasons.LIBRARY_LINEAR))
            operations.extend(replacement or (operation,))
            rewriter.known.update((o.name, o) for o in operations[-1:] if isinstance(o, View))
        return data.with_operations(tuple(operations))


class _LinearRewriter:
    """Rewrites matmul calls to ``linear``, in program order."""

    def __init__(self, graph: LoopGraph, min_flops: int) -> None:
        self.known: dict[str, View] = {}
        """The views before the current operation, by name."""
        self._min_flops = min_flops
        self._symbols = graph.symbols
        self._values = graph.values()
        self._versions = VersionDeadlines(graph)

    def of(self, operation: Operation, position: int) -> tuple[Operation, ...]:
        """Return the operations that replace ``operation``; empty where it remains."""
        operands = plain_operands(operation) if isinstance(operation, ContractionCall) else None
        if operands is None:
            return ()
        assert isinstance(operation, ContractionCall)
        bias, x, matrix = operands
        if not self._pays(operation) or not self._is_matrix(x) or not self._is_matrix(matrix, padding=False):
            return ()
        if not all(isinstance(size, int) for size in self._values[matrix].type.shape):
            return ()  # ``linear`` refuses an empty weight
        if bias is not None and not self._is_bias(bias):
            return ()
        weight, views = self._transposed(operation, matrix, position)
        arguments = (Ref(x), Ref(weight), None if bias is None else Ref(bias))
        call = replace(operation, target="linear", arguments=arguments)
        return (*views, call)

    def _pays(self, matmul: ContractionCall) -> bool:
        rows, _ = matmul.results[0].type.shape
        enough = estimate(matmul.flops, self._symbols) >= self._min_flops
        return enough and estimate(rows, self._symbols) >= _MIN_ROWS

    def _is_matrix(self, name: str, padding: bool = True) -> bool:
        """Return whether a matrix is f32, on the CPU, not empty, and has dense rows or columns that do not overlap.

        Without ``padding`` rows or columns must also be adjacent, as for a weight: oneDNN has no padded form for some
        shapes.
        """
        type_ = self._values[name].type
        if type_.dtype != f32 or type_.device.kind != "cpu" or 0 in type_.shape:
            return False
        (rows, columns), (row_stride, column_stride) = type_.shape, type_.layout.strides
        orders = ((column_stride, row_stride, columns), (row_stride, column_stride, rows))
        return any(_is_dense(*order) and (padding or order[1] == order[2]) for order in orders)

    def _is_bias(self, name: str) -> bool:
        type_ = self._values[name].type
        return type_.dtype == f32 and len(type_.shape) == 1 and type_.layout.strides == (1,)

    def _transposed(
        self, matmul: ContractionCall, matrix: str, position: int
    ) -> tuple[str, tuple[Operation, ...]]:
        """Return the name of the transpose of ``matrix``, and the view to emit for it.

        There is no view to emit where ``matrix`` is itself the transposed view of a tensor that is not yet overwritten.
        """
        view = self.known.get(matrix)
        if view is not None and view.index == _transposed_index(view.axes):
            deadline, base_type = self._versions.deadline(view.base), self._values[view.base].type
            is_whole = base_type.shape == tuple(axis.size for axis in reversed(view.axes))
            if base_type.dtype == f32 and is_whole and (deadline is None or position < deadline):
                return view.base, ()
        type_ = self._values[matrix].type
        strides = type_.layout.strides[::-1]
        layout = replace(type_.layout, strides=strides, fixed=False)
        transposed: TensorType = replace(type_, shape=type_.shape[::-1], layout=layout)
        axes = tuple(Axis(f"i{k}", size) for k, size in enumerate(transposed.shape))
        value = Value(f"{matmul.name}.weight", transposed)
        transpose = View(
            results=(value,), base=matrix, axes=axes, index=_transposed_index(axes), origin=matmul.origin
        )
        return value.name, (transpose,)


def _is_dense(inner_stride: Size, outer_stride: Size, inner_size: Size) -> bool:
    """Return whether rows of contiguous elements, ``outer_stride`` elements apart, do not overlap."""
    if inner_stride != 1 and inner_size != 1:
        return False
    return outer_stride == inner_size or (
        isinstance(outer_stride, int) and isinstance(inner_size, int) and outer_stride >= inner_size
    )


def _transposed_index(axes: tuple[Axis, ...]) -> tuple[Size, ...]:
    return tuple(symbol(axis.name) for axis in reversed(axes))
