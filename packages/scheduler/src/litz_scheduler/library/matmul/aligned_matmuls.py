"""Padding of matmuls on a GPU whose rows a library cannot load in vectors, as of a vocabulary of 50,257 words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from litz_ir.contraction import matmul_call, plain_operands
from litz_ir.dtypes import bf16, f16
from litz_ir.loops import (
    Axis,
    ContractionCall,
    Layout,
    Operation,
    Pointwise,
    Reduction,
    Ref,
    TensorType,
    Value,
    View,
    contiguous,
)
from litz_ir.scalar import Expr, Load, const, index, logical_and, masked, op, substitute_expr
from litz_ir.symbols import Size, substitute, symbol
from litz_ir.target import DeviceModel
from litz_scheduler import reasons
from litz_scheduler.analysis.cost import static_bytes
from litz_scheduler.analysis.graph_facts import element_axes
from litz_scheduler.library.matmul.generated_matmuls import matmul_loops
from litz_scheduler.library.prices import matmul_seconds, unaligned_matmul_share
from litz_scheduler.library.strategy import Candidate, Choice, Prices, Rewriting
from litz_scheduler.options import SchedulerOptions


@dataclass(frozen=True, slots=True)
class AlignedMatmul:
    """``mm`` and ``addmm`` on a GPU whose dimensions that are contiguous in memory and unaligned are padded.

    A library reads and writes several elements at a time only where each contiguous dimension is a multiple of them.
    Operands are padded with zeros by loops, which fuse with what computes them; the result is a view of the padded one.
    A matmul with unaligned columns whose result the graph returns becomes a loop, which writes rows of any length: a
    copy of the result without the padding would hold two results at once. It takes 0.6 ms for 50,257 columns, where the
    library takes 3.3 ms, and 0.45 ms for padded ones.
    """

    options: SchedulerOptions
    """Calls that ``generated_matmuls`` names are left to loops, which read any rows."""
    name: str = "aligned-matmul"
    """The name of the strategy."""

    def candidate(self, call: ContractionCall, rewriting: Rewriting) -> Candidate | None:
        if self.options.generates(call.name, call.origin.node):
            return None
        matmul = _matmul(call, rewriting)
        machine = None if matmul is None else rewriting.gpu(matmul.result)
        if matmul is None or machine is None or machine.routines is None or not machine.model.matrix_rate:
            return None
        routines, model = machine.routines, machine.model
        sizes = matmul.padded_sizes(model.vector_bytes // matmul.result.type.dtype.itemsize)
        share = unaligned_matmul_share(matmul.alignment, routines)
        if share == routines.matmul_share or sizes == matmul.sizes:
            return None
        padding = _Padding(rewriting)
        seconds = matmul_seconds(*matmul.sizes, share, model)
        if padding.copies_result(matmul, sizes):
            if not _is_generated(matmul, sizes):
                return None
            prices = Prices(
                matmul_seconds(*matmul.sizes, routines.matmul_loop_share, model) + model.launch_seconds,
                seconds,
            )
            choices = (Choice(call.name, "generate", reasons.LIBRARY_UNALIGNED),)
            return Candidate(choices, lambda: _loops_of(matmul, rewriting), prices)
        own = matmul_seconds(*matmul.sizes, routines.matmul_share, model)
        prices = Prices(own + padding.copy_seconds(matmul, sizes, model), seconds)
        choices = (Choice(call.name, "pad", reasons.LIBRARY_ALIGNED),)
        return Candidate(choices, lambda: padding.padded(matmul, sizes), prices)


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


def _matmul(call: ContractionCall, rewriting: Rewriting) -> _Matmul | None:
    """Return the matmul of a call; ``None`` where padding does not apply to it."""
    operands = plain_operands(call)
    if operands is None:
        return None
    bias, a, b = (None if name is None else rewriting.values[name] for name in operands)
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


def _is_generated(matmul: _Matmul, sizes: tuple[int, int, int]) -> bool:
    """Return whether a matmul as a loop has been timed: the columns alone are unaligned, and contiguous in B's rows."""
    (m, _, k), (pm, _, pk) = matmul.sizes, sizes
    return (pm, pk) == (m, k) and not _is_contiguous_by_row(matmul.b.type)


def _loops_of(matmul: _Matmul, rewriting: Rewriting) -> tuple[Operation, ...]:
    """Return the loops of a matmul."""
    parsed = matmul_call(matmul.call, rewriting.values)
    assert parsed is not None, "a plain matmul of static sizes"
    return matmul_loops(matmul.call, parsed, "mul")


class _Padding:
    """Padded operands of matmuls in a graph."""

    def __init__(self, rewriting: Rewriting) -> None:
        self._rewriting = rewriting
        self._readers = rewriting.readers
        self._returned = rewriting.returned - set(rewriting.graph.saved)

    def copy_seconds(self, matmul: _Matmul, sizes: tuple[int, int, int], model: DeviceModel) -> float:
        """Return the seconds of copies of what no loop computes."""
        (m, n, k), (pm, pn, pk) = matmul.sizes, sizes
        copied = launches = 0
        for value, grows in ((matmul.a, (pm, pk) != (m, k)), (matmul.b, (pk, pn) != (k, n))):
            if grows and not self._is_computed(value.name):
                copied += 2 * static_bytes(value.type)
                launches += 1
        readers = self._readers[matmul.result.name]
        if pn != n and any(not isinstance(each, Pointwise | Reduction | View) for each in readers):
            copied += 2 * static_bytes(matmul.result.type)
            launches += 1
        return copied / model.memory_rate + launches * model.launch_seconds

    def copies_result(self, matmul: _Matmul, sizes: tuple[int, int, int]) -> bool:
        """Return whether a padded matmul would need a copy of its result without the padding for the caller."""
        return sizes[1] != matmul.sizes[1] and self._is_returned(matmul.result.name)

    def padded(self, matmul: _Matmul, sizes: tuple[int, int, int]) -> tuple[Operation, ...]:
        """Emit padded operands; return a matmul of padded sizes, and its result as a view of the padded one."""
        m, n, k = sizes
        a, b = self._operand(matmul.a, (m, k)), self._operand(matmul.b, (k, n))
        names = ([] if matmul.bias is None else [self._loop(matmul.bias, (n,))]) + [a, b]
        result, type_ = matmul.result, matmul.result.type
        call = replace(matmul.call, arguments=tuple(map(Ref, names)))
        if type_.shape == (m, n):
            return (call,)
        whole = Value(f"{result.name}.aligned", replace(type_, shape=(m, n), layout=_fixed((m, n))))
        axes = element_axes(type_)
        layout = replace(type_.layout, strides=(n, 1), fixed=self._is_returned(result.name))
        view = View(
            results=(replace(result, type=replace(type_, layout=layout)),), base=whole.name, axes=axes,
            index=tuple(symbol(axis.name) for axis in axes), origin=matmul.call.origin,
        )  # fmt: skip
        return replace(call, results=(whole,)), view

    def _operand(self, value: Value, shape: tuple[int, int]) -> str:
        """Return the name of an operand with padded sizes: a transposed view of its padded base where it is one."""
        if value.type.shape == shape:
            return value.name
        producer = self._rewriting.producers.get(value.name)
        if not isinstance(producer, View) or not _is_transpose(
            producer, self._rewriting.values[producer.base].type
        ):
            return self._loop(value, shape)
        base = self._loop(self._rewriting.values[producer.base], shape[::-1])
        name = f"{base}.t"
        if name not in self._rewriting.made:
            self._rewriting.made.add(name)
            axes = tuple(Axis(f"i{k}", size) for k, size in enumerate(shape))
            layout = replace(value.type.layout, strides=(1, shape[0]), fixed=False, offset=0)
            type_ = replace(value.type, shape=shape, layout=layout)
            points = tuple(symbol(axis.name) for axis in reversed(axes))
            self._rewriting.emit(View(results=(Value(name, type_),), base=base, axes=axes, index=points))
        return name

    def _loop(self, value: Value, shape: tuple[int, ...]) -> str:
        """Return the name of a value padded with zeros, which is emitted once."""
        name = f"{value.name}.aligned{'x'.join(map(str, shape))}"
        if name in self._rewriting.made:
            return name
        self._rewriting.made.add(name)
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
        producer = self._rewriting.producers.get(value.name)
        if isinstance(producer, View) and inside and self._may_begin(value):
            read = Load(producer.base, _index_at(producer, points), value.type.dtype)
            body = masked(logical_and(*inside), read, const(0, value.type.dtype))
            self._replace(producer, replace(loop, bodies=(body,), origin=producer.origin), value)
            return name
        if not isinstance(producer, Pointwise) or not self._begins(value, type_):
            self._rewriting.emit(loop)
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
        self._rewriting.exchange(producer, whole, start)

    def _may_begin(self, value: Value) -> bool:
        """Return whether a view that loops and matmuls read, of what a loop computes, may be one of its padded form.

        Otherwise both would be stored, as the gradient of logits is whose columns a bias sums.
        """
        readers, view = self._readers[value.name], self._rewriting.producers[value.name]
        if not isinstance(view, View) or self._rewriting.values[view.base].type.dtype != value.type.dtype:
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
        producer = self._rewriting.producers.get(name)
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
