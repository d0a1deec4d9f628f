"""The builder of loop graphs."""

from __future__ import annotations

from collections.abc import Sequence

from litz_ir.builder.construction import Construction, axes_of, terms_of
from litz_ir.builder.tensor import Tensor
from litz_ir.builder.views import broadcast, broadcast_index, described, normalized
from litz_ir.dtypes import DType, b1, i64
from litz_ir.errors import GraphError
from litz_ir.loops.layout import contiguous
from litz_ir.loops.nodes import (
    Argument,
    Axis,
    Extern,
    LoopGraph,
    Mutation,
    NamedCombiner,
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
        given = (values,) if isinstance(values, Tensor) else tuple(values)
        shape = broadcast(*(each.shape for each in given))
        over = range(len(shape)) if axis is None else (axis,) if isinstance(axis, int) else axis
        reduced = sorted({normalized(each, len(shape)) for each in over})
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
        over = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
        count = product(x.sizes(tuple(over)))
        number = build.cast(build.index(count), x.dtype)
        return self.pointwise(lambda element: build.op("div", element, number), total, name=name)

    def argmax(self, x: Tensor, axis: int, *, keepdims: bool = False, name: str = "argmax") -> Tensor:
        """Return the position of the maximum along an axis, the first of several, as ``i64``."""
        positions = self.index(x.shape, axis)
        return self.reduce("argmax", (x, positions), axis, keepdims=keepdims, name=name)[1]

    def scan(self, kind: str, x: Tensor, axis: int, *, name: str = "") -> Tensor:
        """Combine the elements up to and including each one along an axis: ``sum`` gives the cumulative sum."""
        dimension = normalized(axis, x.ndim)
        axes = axes_of([size for d, size in enumerate(x.shape) if d != dimension])
        point = [*terms_of(axes)]
        point.insert(dimension, symbol("k"))
        body = self._load(x, tuple(point))
        combiner = NamedCombiner(kind)
        dtype = combiner.kind.definition((body.dtype,)).dtypes[0]
        return self._add(
            Scan, name or f"scan_{kind}", dtype, x.shape, axes=axes, scan_axis=Axis("k", x.shape[dimension]),
            dimension=dimension, combiner=combiner, bodies=(body,),
        )  # fmt: skip

    def sort(
        self, x: Tensor, axis: int = -1, *, descending: bool = False, name: str = "sort"
    ) -> tuple[Tensor, Tensor]:
        """Return the elements sorted along an axis, equal ones in their order, and their positions as ``i64``."""
        dimension = normalized(axis, x.ndim)
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
        dimension = normalized(axis, x.ndim)
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
        passed = tuple(Ref(self._own(each)) if isinstance(each, Tensor) else each for each in arguments)
        layout = contiguous(tuple(shape), fixed=True)
        return self._add(
            Extern, name, dtype, shape, layout=layout, target=target, arguments=passed,
            attributes=tuple(attributes), reason="the graph calls it",
        )  # fmt: skip

    def cond(
        self, condition: Tensor, yes: LoopGraph, no: LoopGraph, *operands: Tensor, name: str = "cond"
    ) -> tuple[Tensor, ...]:
        """Return the results of the graph ``yes`` of the operands if a 0-d ``b1`` tensor is true, else of ``no``."""
        if condition.dtype != b1 or condition.shape:
            raise GraphError(f"the condition {condition.name} is no 0-d b1 tensor", node=condition.name)
        types = [yes.values()[each.name].type for each in yes.outputs if isinstance(each, Ref)]
        return self._add_several(
            Region, name, [(each.dtype, each.shape) for each in types], kind="cond", subgraphs=(yes, no),
            arguments=tuple(Ref(self._own(each)) for each in (condition, *operands)),
        )  # fmt: skip
