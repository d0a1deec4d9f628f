"""Padding of matmuls on a GPU whose rows a library cannot load in vectors, as of a vocabulary of 50,257 words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

from litz_ir.contraction import matmul_call, plain_operands
from litz_ir.dtypes import bf16, f16
from litz_ir.fused import Decision
from litz_ir.loops import (
    Axis,
    ContractionCall,
    Layout,
    LoopGraph,
    Operation,
    Pointwise,
    Reduction,
    Ref,
    TensorType,
    Value,
    View,
    contiguous,
)
from litz_ir.passes import PassContext
from litz_ir.scalar import Expr, Load, const, index, logical_and, masked, op, substitute_expr
from litz_ir.symbols import Size, substitute, symbol
from litz_ir.target import DeviceClass, DeviceModel
from litz_scheduler import reasons
from litz_scheduler.analysis.graph_facts import element_axes, output_names, readers_by_value
from litz_scheduler.library.matmul.generated_matmuls import matmul_loops
from litz_scheduler.options import SchedulerOptions

_SHARE_ALIGNED = 0.7
"""The share of the peak rate that a library reaches with vectorised loads (H100, bf16, 4,096 x 768 x 50,264: 0.71)."""

_SHARE_GENERATED = 0.55
"""The share that a loop reaches whose result has rows of any length (H100, the same sizes without padding: 0.56)."""

_SHARE_BY_ALIGNMENT: Mapping[int, float] = {1: 0.09, 2: 0.24}
"""The share that it reaches where rows are aligned to so many elements alone: 50,257 columns 0.09, 30,522 columns 0.24
(H100, bf16). Rows aligned to more elements have not been measured and are left as they are."""


@dataclass(frozen=True, slots=True)
class AlignMatmuls:
    """Pad the dimensions of ``mm`` and ``addmm`` on a GPU that are contiguous in memory and unaligned.

    A library reads and writes several elements at a time only where each contiguous dimension is a multiple of them.
    Operands are padded with zeros by loops, which fuse with what computes them; the result is a view of the padded one.
    Applies where the model finds that this saves more time than reading and writing operands that no loop computes.
    A matmul with unaligned columns whose result the graph returns becomes a loop, which writes rows of any length.
    """

    options: SchedulerOptions = field(default_factory=SchedulerOptions)
    """Calls that ``generated_matmuls`` names are left to loops, which read any rows."""
    name: str = "align-matmuls"
    """The name of the pass."""
    ulp: int = 64
    """The bound on changed results, in ULP."""
    devices: ClassVar[DeviceClass] = "gpu"
    """Devices of the graphs that the pass runs over."""

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        models = {d.kind: known.model for d, known in context.capabilities.items() if known.is_gpu}
        padding = _Padding(data)
        for operation in data.operations:
            planned = self._planned(operation, padding, models)
            if planned is None:
                padding.operations.append(operation)
                continue
            padding.changed = True
            if padding.copies_result(*planned):
                padding.generate(planned[0])
                decision = Decision("library", operation.name, "generate", reasons.LIBRARY_UNALIGNED)
            else:
                padding.pad(*planned)
                decision = Decision("library", operation.name, "pad", reasons.LIBRARY_ALIGNED)
            context.decide(decision)
        return data.with_operations(tuple(padding.operations)) if padding.changed else data

    def _planned(
        self, operation: Operation, padding: _Padding, models: Mapping[str, DeviceModel]
    ) -> tuple[_Matmul, tuple[int, int, int]] | None:
        """Return a matmul to pad or to generate, with its padded sizes; ``None`` for other operations."""
        if not isinstance(operation, ContractionCall) or self.options.generates(
            operation.name, operation.origin.node
        ):
            return None
        matmul = padding.matmul(operation)
        model = None if matmul is None else models.get(matmul.result.type.device.kind)
        if matmul is None or model is None or model.matrix_rate == 0:
            return None
        sizes = matmul.padded_sizes(model.vector_bytes // matmul.result.type.dtype.itemsize)
        return (matmul, sizes) if padding.pays(matmul, sizes, model) else None


class _Matmul(NamedTuple):
    """A matmul of static sizes in bf16 or f16: ``a`` of (M, K) times ``b`` of (K, N), plus a bias of N elements."""

    call: ContractionCall
    a: Value
    b: Value
    bias: Value | None
    result: Value

    @property
    def sizes(self) -> tuple[int, int, int]:
        """M, N and K."""
        (m, k), n = self.a.type.shape, self.b.type.shape[1]
        assert isinstance(m, int) and isinstance(n, int) and isinstance(k, int)
        return m, n, k

    @property
    def contiguous(self) -> tuple[bool, bool, bool]:
        """Report for M, N and K whether an operand or the result is contiguous in memory along it."""
        by_rows, by_columns = _is_contiguous_by_row(self.a.type), _is_contiguous_by_row(self.b.type)
        return not by_rows, True, by_rows or not by_columns

    def padded_sizes(self, unit: int) -> tuple[int, int, int]:
        """Return M, N and K, those that are contiguous rounded up to a multiple of ``unit``."""
        m, n, k = (
            -(-size // unit) * unit if contiguous_ else size
            for size, contiguous_ in zip(self.sizes, self.contiguous)
        )
        return m, n, k

    @property
    def alignment(self) -> int:
        """The largest power of two that divides every contiguous dimension, in elements."""
        return min(size & -size for size, contiguous_ in zip(self.sizes, self.contiguous) if contiguous_)


class _Padding:
    """The operations of a graph as they are emitted, with the padded operands made so far."""

    def __init__(self, graph: LoopGraph) -> None:
        self.operations: list[Operation] = []
        """The operations emitted so far."""
        self.changed = False
        """True once a matmul has been padded or generated."""
        self._values = dict(graph.values())
        self._producers: dict[str, Operation] = {
            value.name: o for o in graph.operations for value in o.results
        }
        self._readers = readers_by_value(graph)
        self._returned = output_names(graph) - set(graph.saved)
        self._made: dict[tuple[str, tuple[int, ...]], str] = {}

    def matmul(self, call: ContractionCall) -> _Matmul | None:
        """Return the matmul of a call; ``None`` where padding does not apply to it."""
        operands = plain_operands(call)
        if operands is None:
            return None
        bias, a, b = (None if name is None else self._values[name] for name in operands)
        result = call.results[0]
        assert a is not None and b is not None
        types = [value.type for value in (a, b, bias, result) if value is not None]
        if any(type_.dtype not in (bf16, f16) for type_ in types) or len({t.dtype for t in types}) != 1:
            return None
        if not all(isinstance(size, int) and size > 1 for type_ in types for size in type_.shape):
            return None
        if bias is not None and len(bias.type.shape) != 1:
            return None
        return _Matmul(call, a, b, bias, result)

    def pays(self, matmul: _Matmul, sizes: tuple[int, int, int], model: DeviceModel) -> bool:
        """Return whether the padded matmul and the copies of its operands take less time than the matmul."""
        share = _SHARE_BY_ALIGNMENT.get(matmul.alignment)
        if share is None or sizes == matmul.sizes:
            return False
        (m, n, k), (pm, pn, pk) = matmul.sizes, sizes
        generated = self.copies_result(matmul, sizes)
        if generated and ((pm, pk) != (m, k) or _is_contiguous_by_row(matmul.b.type)):
            return False
        reached = _SHARE_GENERATED if generated else _SHARE_ALIGNED
        saved = 2 * m * n * k * (1 / share - 1 / reached) / model.matrix_rate
        if generated:
            return saved > model.launch_seconds
        copied = launches = 0
        for value, grows in ((matmul.a, (pm, pk) != (m, k)), (matmul.b, (pk, pn) != (k, n))):
            if grows and not self._is_computed(value.name):
                copied += 2 * _nbytes(value.type)
                launches += 1
        readers = self._readers[matmul.result.name]
        if pn != n and any(not isinstance(each, Pointwise | Reduction | View) for each in readers):
            copied += 2 * _nbytes(matmul.result.type)
            launches += 1
        return saved > copied / model.memory_rate + launches * model.launch_seconds

    def copies_result(self, matmul: _Matmul, sizes: tuple[int, int, int]) -> bool:
        """Return whether a padded matmul would need a copy of its result without the padding for the caller.

        The copy would hold two results at once. A loop writes any rows: it takes 0.6 ms for the 50,257 columns above,
        where the library takes 3.3 ms, and 0.45 ms for padded ones.
        """
        return sizes[1] != matmul.sizes[1] and self._is_returned(matmul.result.name)

    def generate(self, matmul: _Matmul) -> None:
        """Emit the loops of a matmul."""
        parsed = matmul_call(matmul.call, self._values)
        assert parsed is not None, "a plain matmul of static sizes"
        self.operations += matmul_loops(matmul.call, parsed, "mul")

    def pad(self, matmul: _Matmul, sizes: tuple[int, int, int]) -> None:
        """Emit a matmul of padded sizes, and its result as a view of the padded one."""
        m, n, k = sizes
        a, b = self._operand(matmul.a, (m, k)), self._operand(matmul.b, (k, n))
        names = ([] if matmul.bias is None else [self._loop(matmul.bias, (n,))]) + [a, b]
        result, type_ = matmul.result, matmul.result.type
        call = replace(matmul.call, arguments=tuple(map(Ref, names)))
        if type_.shape == (m, n):
            self.operations.append(call)
            return
        whole = Value(f"{result.name}.aligned", replace(type_, shape=(m, n), layout=_fixed((m, n))))
        axes = element_axes(type_)
        layout = replace(type_.layout, strides=(n, 1), fixed=self._is_returned(result.name))
        view = View(
            results=(replace(result, type=replace(type_, layout=layout)),), base=whole.name, axes=axes,
            index=tuple(symbol(axis.name) for axis in axes), origin=matmul.call.origin,
        )  # fmt: skip
        self.operations += (replace(call, results=(whole,)), view)

    def _operand(self, value: Value, shape: tuple[int, int]) -> str:
        """Return the name of an operand with padded sizes: a transposed view of its padded base where it is one."""
        if value.type.shape == shape:
            return value.name
        producer = self._producers.get(value.name)
        if not isinstance(producer, View) or not _is_transpose(producer, self._values[producer.base].type):
            return self._loop(value, shape)
        base = self._loop(self._values[producer.base], shape[::-1])
        name = f"{base}.t"
        if (name, shape) not in self._made:
            self._made[name, shape] = name
            axes = tuple(Axis(f"i{k}", size) for k, size in enumerate(shape))
            layout = replace(value.type.layout, strides=(1, shape[0]), fixed=False, offset=0)
            type_ = replace(value.type, shape=shape, layout=layout)
            points = tuple(symbol(axis.name) for axis in reversed(axes))
            self.operations.append(View(results=(Value(name, type_),), base=base, axes=axes, index=points))
        return name

    def _loop(self, value: Value, shape: tuple[int, ...]) -> str:
        """Return the name of a value padded with zeros, which is emitted once."""
        made = self._made.get((value.name, shape))
        if made is not None:
            return made
        name = self._made[value.name, shape] = f"{value.name}.aligned{'x'.join(map(str, shape))}"
        axes = tuple(Axis(f"i{k}", size) for k, size in enumerate(shape))
        points = _points(axes)
        body: Expr = Load(value.name, points, value.type.dtype)
        inside = [
            op("lt", index(point), index(size))
            for point, size, padded in zip(points, value.type.shape, shape)
            if size != padded
        ]
        if inside:
            body = masked(logical_and(*inside), body, const(0, value.type.dtype))
        by_row = len(shape) == 1 or _is_contiguous_by_row(value.type)
        strides = contiguous(shape).strides if by_row else (1, shape[0])
        layout = replace(value.type.layout, strides=strides, offset=0, fixed=True)
        type_ = replace(value.type, shape=shape, layout=layout)
        loop = Pointwise(results=(Value(name, type_),), axes=axes, bodies=(body,))
        producer = self._producers.get(value.name)
        if isinstance(producer, View) and inside and self._may_begin(value):
            read = Load(producer.base, _index_at(producer, points), value.type.dtype)
            body = masked(logical_and(*inside), read, const(0, value.type.dtype))
            self._replace(producer, replace(loop, bodies=(body,), origin=producer.origin), value)
            return name
        if not isinstance(producer, Pointwise) or not self._begins(value, type_):
            self.operations.append(loop)
            return name
        (own,) = producer.bodies
        own = masked(logical_and(*inside), _at(own, producer.axes, points), const(0, value.type.dtype))
        self._replace(producer, replace(producer, results=loop.results, axes=axes, bodies=(own,)), value)
        return name

    def _replace(self, producer: Pointwise | View, whole: Pointwise, value: Value) -> None:
        """Emit a padded value in the place of the value, and this as a view of the padded one's beginning."""
        (padded,) = whole.results
        layout = replace(value.type.layout, strides=padded.type.layout.strides, offset=0)
        own = replace(value, type=replace(value.type, layout=layout))
        start = View(results=(own,), base=padded.name, axes=producer.axes, index=_points(producer.axes))
        position = self.operations.index(producer)
        self.operations[position : position + 1] = [whole, start]
        self._producers |= {value.name: start, padded.name: whole}
        self._values |= {value.name: own, padded.name: padded}

    def _may_begin(self, value: Value) -> bool:
        """Return whether a view that loops and matmuls read, of what a loop computes, may be one of its padded form.

        Otherwise both would be stored, as the gradient of logits is whose columns a bias sums.
        """
        readers, view = self._readers[value.name], self._producers[value.name]
        if not isinstance(view, View) or self._values[view.base].type.dtype != value.type.dtype:
            return False
        loops = [each for each in readers if isinstance(each, Pointwise | Reduction)]
        known = all(isinstance(each, Pointwise | Reduction | View | ContractionCall) for each in readers)
        free = not value.type.layout.fixed and not self._is_returned(value.name)
        return bool(loops) and known and free and self._is_computed(value.name)

    def _begins(self, value: Value, padded: TensorType) -> bool:
        """Return whether a value that others read may be the first rows of its padded form, in the same layout.

        Otherwise both would be stored, as the weight of a head is that a forward saves for its backward.
        """
        layout = value.type.layout
        same = layout.offset == 0 and len(layout.strides) == 2 and layout.strides == padded.layout.strides
        return same and not self._is_returned(value.name)

    def _is_computed(self, name: str) -> bool:
        """Return whether a loop computes a value or the base of its views, so that it may write it padded."""
        producer = self._producers.get(name)
        if isinstance(producer, View):
            return self._is_computed(producer.base)
        return isinstance(producer, Pointwise)

    def _is_returned(self, name: str) -> bool:
        """Return whether the graph returns a value or a view of it in eager's layout."""
        if name in self._returned:
            return True
        return any(
            self._is_returned(value.name)
            for reader in self._readers[name]
            if isinstance(reader, View)
            for value in reader.results
        )


def _is_contiguous_by_row(type_: TensorType) -> bool:
    """Return whether the last dimension of a matrix is the contiguous one."""
    return type_.layout.strides[1] == 1


def _is_transpose(view: View, base: TensorType) -> bool:
    """Return whether a view is the transpose of a whole matrix."""
    points: Sequence[Size] = [symbol(axis.name) for axis in reversed(view.axes)]
    shape = tuple(axis.size for axis in reversed(view.axes))
    return len(shape) == 2 and base.shape == shape and tuple(view.index) == tuple(points)


def _fixed(shape: tuple[int, ...]) -> Layout:
    return replace(contiguous(shape), fixed=True)


def _points(axes: Sequence[Axis]) -> tuple[Size, ...]:
    """Return the point of a loop over these axes."""
    return tuple(symbol(axis.name) for axis in axes)


def _index_at(view: View, points: Sequence[Size]) -> tuple[Size, ...]:
    """Return the element of its base that a view shows at other points than those of its axes."""
    mapping = {axis.name: point for axis, point in zip(view.axes, points, strict=True)}
    return tuple(substitute(each, mapping) for each in view.index)


def _at(body: Expr, axes: Sequence[Axis], points: Sequence[Size]) -> Expr:
    """Return a body at other points than those of its axes."""
    return substitute_expr(body, {axis.name: point for axis, point in zip(axes, points, strict=True)})


def _nbytes(type_: TensorType) -> int:
    rows, columns = type_.shape
    assert isinstance(rows, int) and isinstance(columns, int)
    return rows * columns * type_.dtype.itemsize
