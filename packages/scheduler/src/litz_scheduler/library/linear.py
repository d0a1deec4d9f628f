"""Matrix products by the host's ``linear``, where that beats the BLAS behind ATen's."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from litz_ir.contraction import plain_operands
from litz_ir.dtypes import f32
from litz_ir.fused import Decision
from litz_ir.loops import Axis, ContractionCall, LoopGraph, Operation, Ref, TensorType, Value, View
from litz_ir.passes import PassContext
from litz_ir.symbols import Size, symbol
from litz_scheduler.cost import estimate
from litz_scheduler.graph_facts import VersionDeadlines
from litz_scheduler.options import SchedulerOptions

MIN_ROWS = 8
"""With fewer rows a product is bound by reading its matrix, which every library does alike."""


@dataclass(frozen=True, slots=True)
class LinearMatmuls:
    """Let ``linear(x, weight, bias)``, which is ``x @ weight.T + bias``, run the f32 products that are large enough."""

    options: SchedulerOptions = field(default_factory=SchedulerOptions)
    name: str = "products"
    ulp: int = 64

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        if not self.options.linear_flops:
            return data
        change = _Change(data, self.options.linear_flops)
        operations: list[Operation] = []
        for position, operation in enumerate(data.operations):
            made = change.of(operation, position)
            if made:
                context.decide(Decision("library", operation.name, "call", "library.linear"))
            operations.extend(made or (operation,))
            change.known.update((o.name, o) for o in operations[-1:] if isinstance(o, View))
        return data.with_operations(tuple(operations))


class _Change:
    """The views met so far (``known``), and what becomes of the products that read them."""

    def __init__(self, graph: LoopGraph, least: int) -> None:
        self.known: dict[str, View] = {}
        self._least = least
        self._symbols = graph.symbols
        self._values = graph.values()
        self._versions = VersionDeadlines(graph)

    def of(self, operation: Operation, position: int) -> tuple[Operation, ...]:
        """What computes ``operation`` instead; nothing where it stays."""
        operands = plain_operands(operation) if isinstance(operation, ContractionCall) else None
        if operands is None:
            return ()
        assert isinstance(operation, ContractionCall)
        bias, x, matrix = operands
        if not self._pays(operation) or not self._is_matrix(x) or not self._is_matrix(matrix, gaps=False):
            return ()
        if not all(isinstance(size, int) for size in self._values[matrix].type.shape):
            return ()  # it may be empty, which ``linear`` refuses
        if bias is not None and not self._is_bias(bias):
            return ()
        weight, views = self._transposed(operation, matrix, position)
        arguments = (Ref(x), Ref(weight), None if bias is None else Ref(bias))
        call = replace(operation, target="linear", arguments=arguments)
        return (*views, call)

    def _pays(self, product: ContractionCall) -> bool:
        rows, _ = product.results[0].type.shape
        enough = estimate(product.flops, self._symbols) >= self._least
        return enough and estimate(rows, self._symbols) >= MIN_ROWS

    def _is_matrix(self, name: str, gaps: bool = True) -> bool:
        """True for f32 on the CPU with elements, whose rows or columns are dense and do not overlap.

        A weight may have no ``gaps`` between them: for some shapes oneDNN has no product with such a one.
        """
        type_ = self._values[name].type
        if type_.dtype != f32 or type_.device.kind != "cpu" or 0 in type_.shape:
            return False
        (rows, columns), (down, right) = type_.shape, type_.layout.strides
        lines = ((right, down, columns), (down, right, rows))
        return any(_reaches(*line) and (gaps or line[1] == line[2]) for line in lines)

    def _is_bias(self, name: str) -> bool:
        type_ = self._values[name].type
        return type_.dtype == f32 and len(type_.shape) == 1 and type_.layout.strides == (1,)

    def _transposed(
        self, product: ContractionCall, matrix: str, position: int
    ) -> tuple[str, tuple[Operation, ...]]:
        """The name of the transpose of ``matrix``, and the view that makes it if it is no view of one already."""
        view = self.known.get(matrix)
        if view is not None and view.index == _swapped(view.axes):
            deadline, whole = self._versions.deadline(view.base), self._values[view.base].type
            shows_all = whole.shape == tuple(axis.size for axis in reversed(view.axes))
            if whole.dtype == f32 and shows_all and (deadline is None or position < deadline):
                return view.base, ()
        type_ = self._values[matrix].type
        strides = type_.layout.strides[::-1]
        layout = replace(type_.layout, strides=strides, fixed=False)
        turned: TensorType = replace(type_, shape=type_.shape[::-1], layout=layout)
        axes = tuple(Axis(f"i{k}", size) for k, size in enumerate(turned.shape))
        value = Value(f"{product.name}.weight", turned)
        made = View(results=(value,), base=matrix, axes=axes, index=_swapped(axes), origin=product.origin)
        return value.name, (made,)


def _reaches(fast: Size, slow: Size, count: Size) -> bool:
    """True when lines of ``count`` elements, each next to the other, start ``slow`` apart and do not overlap."""
    if fast != 1 and count != 1:
        return False
    return slow == count or (isinstance(slow, int) and isinstance(count, int) and slow >= count)


def _swapped(axes: tuple[Axis, ...]) -> tuple[Size, ...]:
    return tuple(symbol(axis.name) for axis in reversed(axes))
