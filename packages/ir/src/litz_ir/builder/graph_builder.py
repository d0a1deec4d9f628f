"""The builder of loop graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast, get_args

from litz_ir.builder.axes import axes_of, terms_of
from litz_ir.builder.checks import checked_dtype, checked_shape, checked_tensor, checked_tensors, shown
from litz_ir.builder.combined import combined_dtypes, combiner_of
from litz_ir.builder.construction import Construction
from litz_ir.builder.subgraphs import check_results, check_truth, checked_subgraph, output_types
from litz_ir.builder.tensor import Tensor
from litz_ir.builder.views import broadcast, broadcast_index, described, normalized, normalized_axes
from litz_ir.dtypes import DType, b1, i64
from litz_ir.errors import GraphError
from litz_ir.loops.layout import contiguous
from litz_ir.loops.nodes import (
    Argument,
    Axis,
    Extern,
    LoopGraph,
    Mutation,
    Pointwise,
    Ref,
    Region,
    Scan,
    Scatter,
    ScatterMode,
    Sort,
    UserCombiner,
)
from litz_ir.scalar import build
from litz_ir.scalar.expr import Indirect
from litz_ir.symbols.polynomials import product
from litz_ir.symbols.term import Size, symbol


class GraphBuilder(Construction):
    """A loop graph under construction, of tensors as NumPy has them.

        g = GraphBuilder("softmax")
        x = g.input("x", f32, (g.size("n"), 1024))
        e = g.exp(x - g.max(x, axis=-1, keepdims=True))
        graph = g.build(e / g.sum(e, axis=-1, keepdims=True))

    Each call adds one operation, with axes, a name after the operation unless ``name`` gives one, and the caller's line
    as its origin. Every row of the table of scalar operations is a method (``g.exp(x)``). Errors are
    :class:`~litz_ir.errors.GraphError`, :class:`~litz_ir.errors.DTypeError` and, in :meth:`build`,
    :class:`~litz_ir.errors.VerifyError`.
    """

    # --- reductions, scans and sorts ---------------------------------------------------------------------------------

    def reduce(
        self,
        kind: str | UserCombiner,
        values: Tensor | Sequence[Tensor],
        axis: int | Sequence[int] | None = None,
        *,
        keepdims: bool = False,
        name: str = "",
    ) -> tuple[Tensor, ...]:
        """Combine the elements along one axis, several, or all (``None``).

        ``kind`` is a row of ``litz_ir.loops.REDUCTION_KINDS`` or a combiner by expressions; ``values`` are tensors of
        one shape, one for each value that it takes.
        """
        given = checked_tensors(values, "what is reduced")
        shape = broadcast(*(each.shape for each in given))
        reduced = normalized_axes(axis, len(shape))
        position: list[Size] = []
        kept: list[Size] = []
        for dimension, size in enumerate(shape):
            if dimension in reduced:
                position.append(symbol(f"r{reduced.index(dimension)}"))
                kept += [1] if keepdims else []
            else:
                position.append(symbol(f"i{len(kept)}"))
                kept.append(size)
        loads = [self._load(each, broadcast_index(each.shape, tuple(position))) for each in given]
        reduce_axes = tuple(Axis(f"r{k}", shape[d]) for k, d in enumerate(reduced))
        return self._reduction(kind, loads, axes_of(kept), reduce_axes, name)

    def sum(
        self, x: Tensor, axis: int | Sequence[int] | None = None, *, keepdims: bool = False, name: str = "sum"
    ) -> Tensor:
        """Return the sum along axes."""
        return self.reduce("sum", x, axis, keepdims=keepdims, name=name)[0]

    def max(
        self, x: Tensor, axis: int | Sequence[int] | None = None, *, keepdims: bool = False, name: str = "max"
    ) -> Tensor:
        """Return the maximum along axes; NaN if an element is NaN."""
        return self.reduce("max", x, axis, keepdims=keepdims, name=name)[0]

    def min(
        self, x: Tensor, axis: int | Sequence[int] | None = None, *, keepdims: bool = False, name: str = "min"
    ) -> Tensor:
        """Return the minimum along axes; NaN if an element is NaN."""
        return self.reduce("min", x, axis, keepdims=keepdims, name=name)[0]

    def mean(
        self,
        x: Tensor,
        axis: int | Sequence[int] | None = None,
        *,
        keepdims: bool = False,
        name: str = "mean",
    ) -> Tensor:
        """Return the mean along axes: a sum, and a division by the number of elements."""
        total = self.sum(x, axis, keepdims=keepdims)
        count = product(x.sizes(normalized_axes(axis, x.ndim)))
        number = build.cast(build.index(count), x.dtype)
        return self.pointwise(lambda element: build.op("div", element, number), total, name=name)

    def argmax(self, x: Tensor, axis: int, *, keepdims: bool = False, name: str = "argmax") -> Tensor:
        """Return the position of the maximum along an axis, the first of several, as ``i64``."""
        positions = self.index(checked_tensor(x, "what is reduced").shape, axis)
        return self.reduce("argmax", (x, positions), axis, keepdims=keepdims, name=name)[1]

    def scan(self, kind: str, x: Tensor, axis: int, *, name: str = "") -> Tensor:
        """Combine the elements up to and including each one along an axis: ``sum`` gives the cumulative sum.

        ``kind`` is a row of ``litz_ir.loops.REDUCTION_KINDS`` with one value and one result.
        """
        dimension = normalized(axis, checked_tensor(x, "what is scanned").ndim)
        axes = axes_of([size for d, size in enumerate(x.shape) if d != dimension])
        point = [*terms_of(axes)]
        scanned = Axis(f"i{len(axes)}", x.shape[dimension])
        point.insert(dimension, symbol(scanned.name))
        body = self._load(x, tuple(point))
        combiner = combiner_of(kind)
        dtype, *more = combined_dtypes(combiner, (body,))
        if more:
            raise GraphError(
                f"a scan has one result, but {kind} has {1 + len(more)}", hint="scan each by its own kind"
            )
        return self._add(
            Scan, name or f"scan_{kind}", dtype, x.shape, axes=axes, scan_axis=scanned,
            dimension=dimension, combiner=combiner, bodies=(body,),
        )  # fmt: skip

    def sort(
        self, x: Tensor, axis: int = -1, *, descending: bool = False, name: str = "sort"
    ) -> tuple[Tensor, Tensor]:
        """Return the elements sorted along an axis, equal ones in their order, and their positions as ``i64``."""
        dimension = normalized(axis, checked_tensor(x, "what is sorted").ndim)
        values, positions = self._add_several(
            Sort, name, [(x.dtype, x.shape), (i64, x.shape)], source=self._own(x), dimension=dimension,
            descending=descending,
        )  # fmt: skip
        return values, positions

    # --- by an index in memory ---------------------------------------------------------------------------------------

    def take(self, x: Tensor, positions: Tensor, axis: int = 0, *, name: str = "take") -> Tensor:
        """Return the elements of ``x`` at integer positions along an axis, whose dimension those of ``positions``
        replace.

        Negative positions count from the end; a position outside is an error of the call.
        """
        dimension = normalized(axis, checked_tensor(x, "what is read").ndim)
        checked_tensor(positions, "the tensor of positions")
        shape = (*x.shape[:dimension], *positions.shape, *x.shape[dimension + 1 :])
        axes = axes_of(shape)
        point = terms_of(axes)
        last = dimension + positions.ndim
        row = Indirect(self._load(positions, point[dimension:last]), x.shape[dimension], wrap=True)
        body = self._load(x, (*point[:dimension], row, *point[last:]))
        return self._add(Pointwise, name, x.dtype, shape, axes=axes, bodies=(body,))

    def scatter(
        self,
        x: Tensor,
        positions: Tensor,
        values: Tensor,
        axis: int = 0,
        *,
        mode: ScatterMode = "set",
        name: str = "scatter",
    ) -> Tensor:
        """Return a copy of ``x`` into which ``values`` are combined at integer positions along an axis.

        ``positions`` and ``values`` have one shape, of as many dimensions as ``x``; the other indices are those of the
        value.
        """
        for each, role in ((x, "base"), (positions, "tensor of positions"), (values, "tensor of values")):
            checked_tensor(each, f"the {role} of the scatter")
        if mode not in get_args(ScatterMode):
            raise GraphError(
                f"no scatter by {shown(mode)}", hint=f"modes are {', '.join(get_args(ScatterMode))}"
            )
        if broadcast(positions.shape, values.shape) != values.shape or values.ndim != x.ndim:
            raise GraphError(
                f"scatter of shape {described(values.shape)} at {described(positions.shape)} into "
                f"{described(x.shape)}"
            )
        dimension = normalized(axis, x.ndim)
        axes = axes_of(values.shape)
        point = terms_of(axes)
        at = self._load(positions, broadcast_index(positions.shape, point))
        row = Indirect(at, x.shape[dimension], wrap=True)
        index = (*point[:dimension], row, *point[dimension + 1 :])
        body = self._load(values, point)
        return self._add(
            Scatter, name, x.dtype, x.shape, base=self._own(x), axes=axes, index=index, body=body, mode=mode
        )

    # --- views, mutations, calls and regions -------------------------------------------------------------------------

    def assign(self, target: Tensor, source: Tensor, *, name: str = "assign") -> Tensor:
        """Overwrite ``target`` with the elements of a tensor of its shape and dtype; return its next version."""
        for each, role in ((target, "the target"), (source, "the source")):
            checked_tensor(each, role)
        if (target.shape, target.dtype) != (source.shape, source.dtype):
            raise GraphError(
                f"assignment of {source.dtype}{described(source.shape)} to {target.dtype}{described(target.shape)}"
            )
        result = self._add(
            Mutation, name, target.dtype, target.shape, layout=target.type.layout, replaces=target.name,
            target=self._own(target), source=self._own(source),
        )  # fmt: skip
        self._overwritten[target.name] = result.name
        return result

    def call(
        self,
        target: str,
        *arguments: Tensor | Argument,
        dtype: DType,
        shape: Sequence[Size],
        attributes: Sequence[tuple[str, Argument]] = (),
        name: str = "call",
    ) -> Tensor:
        """Return the result of a routine of the host, by its name in the table of externs."""
        sizes, result = checked_shape(shape, name), checked_dtype(dtype, name)
        return self._add(
            Extern, name, result, sizes, layout=contiguous(sizes, fixed=True), target=target,
            arguments=tuple(map(self._argument, arguments)),
            attributes=tuple((key, self._argument(each)) for key, each in attributes),
            reason="the graph calls it",
        )  # fmt: skip

    def cond(
        self, condition: Tensor, yes: LoopGraph, no: LoopGraph, *operands: Tensor, name: str = "cond"
    ) -> tuple[Tensor, ...]:
        """Return the results of the graph ``yes`` of the operands if a 0-d ``b1`` tensor is true, else of ``no``.

        The graphs have an input for each operand, and results of the same dtypes and shapes.
        """
        checked_tensor(condition, "the condition")
        if condition.dtype != b1 or condition.shape:
            raise GraphError(f"the condition {condition.name} is no 0-d b1 tensor", node=condition.name)
        given = [checked_tensor(each, "an operand of the region").type for each in operands]
        for graph, role in ((yes, "the branch"), (no, "the other branch")):
            checked_subgraph(graph, given, role)
        types = output_types(yes, "the branch")
        check_results(no, types, "the other branch", f"the branch {yes.name}")
        return self._add_several(
            Region, name, [(each.dtype, each.shape) for each in types], kind="cond", subgraphs=(yes, no),
            arguments=tuple(Ref(self._own(each)) for each in (condition, *operands)),
        )  # fmt: skip

    def while_loop(
        self,
        condition: LoopGraph,
        body: LoopGraph,
        carried: Sequence[Tensor],
        others: Sequence[Tensor] = (),
        *,
        name: str = "while_loop",
    ) -> tuple[Tensor, ...]:
        """Return the carried tensors after the steps of ``body``, for as long as ``condition`` gives true.

        Both graphs have an input for each carried tensor and then one for each of ``others``, which stay the same.
        ``condition`` returns one 0-d ``b1`` tensor, ``body`` the next carried tensors, of the same dtypes and shapes.
        """
        kept = tuple(self._dense(each) for each in checked_tensors(carried, "what is carried"))
        read = checked_tensors(others, "what the steps read", least=0)
        types = [each.type for each in kept]
        for graph, role in ((condition, "the condition"), (body, "the body")):
            checked_subgraph(graph, [*types, *(each.type for each in read)], role)
        check_truth(condition, "the condition")
        check_results(body, types, "the body", "what is carried is")
        groups = [tuple(Ref(self._own(each)) for each in group) for group in (kept, read)]
        return self._add_several(
            Region, name, [(each.dtype, each.shape) for each in types], kind="while_loop",
            subgraphs=(condition, body), arguments=tuple(groups if read else groups[:1]),
        )  # fmt: skip

    def _dense(self, x: Tensor) -> Tensor:
        """Return a tensor in row-major order, copied if it is a view: the result of no steps has its strides."""
        plain = contiguous(x.shape)
        dense = (x.type.layout.strides, x.type.layout.offset) == (plain.strides, plain.offset)
        return x if dense else self.pointwise(lambda element: element, x, name="dense")

    def _argument(self, argument: object) -> Argument:
        """Return an argument of a call, tensors as references; raises ``GraphError`` for an array."""
        if isinstance(argument, Tensor):
            return Ref(self._own(argument))
        if isinstance(argument, tuple | list):
            return tuple(map(self._argument, argument))
        if hasattr(argument, "__array__"):
            checked_tensor(argument, "an argument of the call")
        return cast("Argument", argument)
