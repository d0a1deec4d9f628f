"""Constructors of loop operations, views and mutations for a node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from litz_ir.dtypes import DType
from litz_ir.loops import (
    Axis,
    Combiner,
    Layout,
    Mutation,
    NamedCombiner,
    Pointwise,
    Reduction,
    ReductionName,
    Scan,
    Scatter,
    ScatterMode,
    Sort,
    TensorType,
    View,
)
from litz_ir.scalar import Expr, build
from litz_ir.symbols import Size, coefficient
from litz_lowering.contexts.node_context import NodeContext
from litz_lowering.contexts.values import (
    Axes,
    Declined,
    Refusal,
    Tensor,
    axes_of,
    raises,
    rejoined,
    terms_of,
)
from litz_lowering.types.compat import rounded

_UNORDERED = Declined(
    "float atomics add in no fixed order, and deterministic results are requested", is_intended=True
)


class LoopContext(NodeContext):
    """Constructors of operations with a body; they carry the node's origin."""

    def pointwise(
        self, body: Callable[[Axes], Expr], type: TensorType | None = None, name: str = ""
    ) -> Tensor:
        """Append ``result[i] = body(i)`` for every index of ``type``, cast to its dtype.

        ``type`` is that of the node's result when not given. ``name`` marks an intermediate, named after the node
        and it.
        """
        kind = type or self.output
        axes = axes_of(kind.shape)
        value = self.value(kind, name)
        expr = rounded(body(terms_of(axes)), kind.dtype)
        self.append(Pointwise(results=(value,), axes=axes, bodies=(expr,), origin=self.origin))
        return Tensor(value)

    def reduction(
        self,
        combiner: ReductionName | Combiner,
        body: Callable[[Axes, Axes], Expr | tuple[Expr, ...]],
        over: Sequence[Size],
        types: Sequence[TensorType],
        names: Sequence[str] = ("",),
    ) -> tuple[Tensor, ...]:
        """Append a reduction of ``body(i, r)`` over indices ``r`` of the sizes ``over``, at each index ``i`` of
        the results.

        ``types`` and ``names`` have an entry for each result of the combiner. The last type has the shape of the
        loop; others may have fewer elements along axes over which the combiner's result is constant.
        """
        how = NamedCombiner(combiner) if isinstance(combiner, str) else combiner
        axes, inner = axes_of(types[-1].shape), axes_of(over, "r")
        made = body(terms_of(axes), terms_of(inner))
        bodies = made if isinstance(made, tuple) else (made,)
        values = tuple(self.value(t, n) for t, n in zip(types, names, strict=True))
        self.append(
            Reduction(
                results=values, axes=axes, reduce_axes=inner, combiner=how, bodies=bodies, origin=self.origin
            )
        )
        return tuple(map(Tensor, values))

    def reduce(
        self,
        combiner: ReductionName,
        x: Tensor,
        dims: Sequence[int],
        dtype: DType,
        *,
        body: Callable[[Axes], Expr] | None = None,
        keepdim: bool = False,
        type: TensorType | None = None,
        name: str = "",
    ) -> Tensor:
        """Append a reduction over dimensions ``dims`` (non-negative) of ``x``, or of ``body(index of x)``, in
        ``dtype``.

        The result has type ``type``; without one it is an intermediate of ``dtype``, whose reduced dimensions are
        dropped or have size 1 (``keepdim``).
        """
        drop = set(dims)
        shape = [1 if d in drop else s for d, s in enumerate(x.shape) if keepdim or d not in drop]
        kind = type or self.temporary(dtype, shape, x.device)

        def full(outer: Axes, inner: Axes) -> Expr:
            index = rejoined(outer, inner, drop, x.rank, keepdim)
            return build.cast(body(index) if body else x.load(index), dtype)

        over = [x.shape[d] for d in range(x.rank) if d in drop]
        return self.reduction(combiner, full, over, (kind,), (name,))[0]

    def scan(
        self,
        combiner: ReductionName | Combiner,
        body: Callable[[Axes], Expr | tuple[Expr, ...]],
        dimension: int,
        types: Sequence[TensorType],
        names: Sequence[str] = ("",),
    ) -> tuple[Tensor, ...]:
        """Append an inclusive scan of ``body`` along ``dimension``."""
        how = NamedCombiner(combiner) if isinstance(combiner, str) else combiner
        axes = axes_of(types[0].shape)
        made = body(terms_of(axes))
        values = tuple(self.value(t, n) for t, n in zip(types, names, strict=True))
        self.append(
            Scan(
                results=values,
                axes=(*axes[:dimension], *axes[dimension + 1 :]),
                scan_axis=axes[dimension],
                dimension=dimension,
                combiner=how,
                bodies=made if isinstance(made, tuple) else (made,),
                origin=self.origin,
            )
        )
        return tuple(map(Tensor, values))

    def scatter(
        self,
        base: Tensor,
        over: Sequence[Size],
        index: Callable[[Axes], Sequence[Size]],
        body: Callable[[Axes], Expr],
        *,
        mode: ScatterMode = "set",
        type: TensorType | None = None,
        name: str = "",
    ) -> Tensor:
        """Append a copy of ``base`` with ``body(i)`` combined into element ``index(i)``, for each ``i`` in
        ``over``.

        Raises :class:`Refusal`, by which the rule declines, where floats would be added or multiplied by atomics
        on a GPU and the options ask for deterministic results.
        """
        kind = type or self.output
        inexact = mode in ("add", "mul") and kind.dtype.is_float
        if inexact and self.options.deterministic and kind.device.kind != "cpu":
            raise Refusal(_UNORDERED)
        axes = axes_of(over)
        terms = terms_of(axes)
        value = self.value(kind, name)
        where = tuple(self.simplify(t, axes) for t in index(terms))
        if base.is_empty and not raises(where):
            return self.pointwise(base.load, kind, name)
        made = build.cast(body(terms), kind.dtype)
        self.append(
            Scatter(
                results=(value,),
                base=base.name,
                axes=axes,
                index=where,
                body=made,
                mode=mode,
                origin=self.origin,
            )
        )
        return Tensor(value)

    def sort(
        self, source: Tensor, dimension: int, types: Sequence[TensorType], *, descending: bool, stable: bool = True,
        names: Sequence[str] = ("0", "1"),
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Append a sort along a dimension; returns (sorted values, positions)."""
        values, positions = (self.value(t, n) for t, n in zip(types, names, strict=True))
        self.append(
            Sort(
                results=(values, positions), source=source.name, dimension=dimension, descending=descending,
                stable=stable, origin=self.origin,
            )
        )  # fmt: skip
        return Tensor(values), Tensor(positions)

    def view(
        self,
        base: Tensor,
        index: Callable[[Axes], Sequence[Size]],
        type: TensorType | None = None,
        *,
        aliases: bool = True,
        base_strides: tuple[Size, ...] | None = None,
        name: str = "",
    ) -> Tensor:
        """Append a view ``result[i] = base[index(i)]``.

        ``aliases``: eager's result shares memory with ``base``, whose strides in eager are ``base_strides``. The
        strides are stored only where those of the result do not follow from them by the index.
        """
        kind = type or self.output
        if not aliases and 0 in kind.shape:
            return self.pointwise(lambda axes: build.const(0, kind.dtype), kind, name)
        axes = axes_of(kind.shape)
        value = self.value(kind, name)
        # An index into a tensor without elements may divide by their number.
        terms = [0] * base.rank if 0 in base.shape else index(terms_of(axes))
        mapped = tuple(self.simplify(t, axes) for t in terms)
        if base_strides is not None and (not aliases or self._is_linear(mapped, base_strides, axes, kind)):
            base_strides = None
        self.append(
            View(
                results=(value,), base=base.name, axes=axes, index=mapped, aliases=aliases,
                base_strides=base_strides, origin=self.origin,
            )
        )  # fmt: skip
        return Tensor(value)

    def _is_linear(
        self, index: tuple[Size, ...], strides: tuple[Size, ...], axes: tuple[Axis, ...], kind: TensorType
    ) -> bool:
        """True when the element offset is provably linear in the axes, with the strides of ``kind``."""
        offset = self.simplify(Layout(strides).element(index), axes)
        return all(
            axis.size == 1 or coefficient(offset, axis.name) == self.simplify(wanted, axes)
            for axis, wanted in zip(axes, kind.layout.strides, strict=True)
        )

    def mutation(self, target: Tensor, source: Tensor) -> Tensor:
        """Append an overwrite of ``target`` by ``source``, of equal shape and dtype; returns the new version."""
        value = replace(self.value(target.type), replaces=target.name)
        self.append(Mutation(results=(value,), target=target.name, source=source.name, origin=self.origin))
        self.builder.redirect(target.name, Tensor(value))
        return Tensor(value)
