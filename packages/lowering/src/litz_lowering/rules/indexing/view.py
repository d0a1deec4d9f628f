"""Views as index maps: the same elements under another index, sharing memory as in eager."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch.fx import Node

from litz_ir.errors import UnsupportedOperation
from litz_ir.loops import Call, Extern, Layout, TensorType
from litz_ir.scalar import build
from litz_ir.symbols import Predicate, Size, Symbol, add, mul, prove
from litz_lowering.contexts.builder import Offset, offset_of
from litz_lowering.contexts.context import Axes, Declined, LoweringContext, Tensor
from litz_lowering.contexts.registry import rule
from litz_lowering.expressions import index_maps
from litz_lowering.expressions.position import element, slice_length, slice_start


def dimension(d: int, rank: int) -> int:
    """Normalise a dimension to a non-negative number; 0-d tensors count as 1-d.

    Raises :class:`UnsupportedOperation` for one that is out of range, so that the graph runs in ATen and raises
    its error.
    """
    count = max(rank, 1)
    if not -count <= d < count:
        raise UnsupportedOperation(f"dimension {d} is out of range of [{-count}, {count - 1}]")
    return d + count if d < 0 else d


def dimensions(dims: Sequence[int] | int | None, rank: int) -> tuple[int, ...]:
    """Normalise dimensions to ascending non-negative numbers; None and an empty list mean all."""
    if dims is None or dims == ():
        return tuple(range(rank))
    if isinstance(dims, int):
        dims = (dims,)
    return tuple(sorted({dimension(d, rank) for d in dims})) if rank else ()


@rule("aten.view.default", "aten.reshape.default", "aten._reshape_alias.default", "aten._unsafe_view.default",
      "aten.view_copy.default")  # fmt: skip
def reshape(ctx: LoweringContext, x: Tensor, *_: object) -> Tensor:
    """Regroup dimensions in row-major order."""
    shape = ctx.output.shape
    base = _view_and_base(ctx)[1]
    strides = tuple(map(ctx.builder.symbols.size, base.meta["val"].stride()))
    return ctx.view(
        x,
        lambda axes: index_maps.reshaped(axes, shape, x.shape),
        aliases=_is_view(ctx),
        base_strides=strides,
    )


@rule("aten.alias.default", "aten.detach.default", "aten.lift_fresh.default", "aten.lift.default")
def alias(ctx: LoweringContext, x: Tensor) -> Tensor:
    """The tensor itself."""
    return ctx.view(x, lambda axes: axes)


@rule("aten.permute.default", "aten.permute_copy.default")
def permute(ctx: LoweringContext, x: Tensor, dims: Sequence[int]) -> Tensor:
    """Permute dimensions: dimension ``k`` of the result is dimension ``dims[k]`` of ``x``."""
    order = [dimension(d, x.rank) for d in dims]
    return ctx.view(x, lambda axes: [axes[order.index(d)] for d in range(x.rank)], aliases=_is_view(ctx))


@rule("aten.transpose.int", "aten.transpose_copy.int", "aten.t.default")
def transpose(ctx: LoweringContext, x: Tensor, dim0: int = 0, dim1: int = 1) -> Tensor:
    """Swap two dimensions."""
    order = list(range(x.rank))
    if x.rank > 1:
        a, b = dimension(dim0, x.rank), dimension(dim1, x.rank)
        order[a], order[b] = order[b], order[a]
    return ctx.view(x, lambda axes: [axes[d] for d in order], aliases=_is_view(ctx))


@rule("aten.expand.default", "aten.expand_copy.default")
def expand(ctx: LoweringContext, x: Tensor, size: Sequence[Size], *, implicit: bool = False) -> Tensor:
    """Repeat dimensions of size 1."""

    def index(axes: Axes) -> list[Size]:
        tail = axes[len(axes) - x.rank :]
        return [0 if s == 1 else axis for s, axis in zip(x.shape, tail, strict=True)]

    return ctx.view(x, index, aliases=_is_view(ctx))


@rule("aten.slice.Tensor", "aten.slice_copy.Tensor")
def slice_(
    ctx: LoweringContext,
    x: Tensor,
    dim: int = 0,
    start: Size | None = None,
    end: Size | None = None,
    step: Size = 1,
) -> Tensor:
    """Every ``step``-th element of a dimension from ``start``."""
    d = dimension(dim, x.rank)
    first = slice_start(ctx, start, x.shape[d])
    length = ctx.output.shape[d]
    if isinstance(length, Symbol) and ctx.unbacked and length.name not in ctx.builder.bound:
        ctx.bind(length.name, slice_length(first, end, step, x.shape[d]))
    _bind_offset(ctx, x, d, first)

    def index(axes: Axes) -> list[Size]:
        return [add(mul(axis, step), first) if k == d else axis for k, axis in enumerate(axes)]

    return ctx.view(x, index, aliases=_is_view(ctx))


@rule("aten.select.int", "aten.select_copy.int")
def select(ctx: LoweringContext, x: Tensor, dim: int, index: Size) -> Tensor:
    """One index of a dimension, which is dropped."""
    d = dimension(dim, x.rank)
    chosen = element(ctx, index, x.shape[d], d)
    _bind_offset(ctx, x, d, chosen)
    return ctx.view(x, lambda axes: [*axes[:d], chosen, *axes[d:]], aliases=_is_view(ctx))


def _bind_offset(ctx: LoweringContext, x: Tensor, d: int, first: Size) -> None:
    """Define the symbol of a view's storage offset, where it is unbacked and the graph's assertions use it."""
    if not ctx.unbacked:
        return
    offset, base_offset = (
        ctx.builder.symbols.size(node.meta["val"].storage_offset()) for node in _view_and_base(ctx)
    )
    if isinstance(offset, Symbol) and offset.name not in ctx.builder.bound:
        ctx.bind(offset.name, build.index(add(base_offset, mul(first, x.type.layout.strides[d]))))


def _view_and_base(ctx: LoweringContext) -> tuple[Node, Node]:
    base = ctx.node.args[0]
    assert isinstance(base, Node), "the first argument of a view is a tensor"
    return ctx.node, base


@rule("aten.split.Tensor", "aten.split_with_sizes.default", "aten.chunk.default", "aten.unsafe_split.Tensor",
      "aten.unsafe_split_with_sizes.default", "aten.unsafe_chunk.default", "aten.split_with_sizes_copy.default",
      "aten.split_copy.Tensor", "aten.tensor_split.sections", "aten.tensor_split.indices")  # fmt: skip
def split(ctx: LoweringContext, x: Tensor, _: object, dim: int = 0) -> tuple[Tensor, ...]:
    """Consecutive parts of a dimension, sized as the results' types say."""
    d = dimension(dim, x.rank)
    parts: list[Tensor] = []
    start: Size = 0
    for position, kind in enumerate(_tensor_types(ctx)):

        def index(axes: Axes, start: Size = start) -> list[Size]:
            return [add(axis, start) if k == d else axis for k, axis in enumerate(axes)]

        parts.append(ctx.view(x, index, kind, name=str(position), aliases=_is_view(ctx)))
        start = add(start, kind.shape[d])
    return tuple(parts)


@rule("aten.unbind.int", "aten.unbind_copy.int")
def unbind(ctx: LoweringContext, x: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """Each index of a dimension as a tensor."""
    d = dimension(dim, x.rank)

    def element_at(position: int, kind: TensorType) -> Tensor:
        return ctx.view(
            x, lambda axes: [*axes[:d], position, *axes[d:]], kind, name=str(position), aliases=_is_view(ctx)
        )

    return tuple(element_at(position, kind) for position, kind in enumerate(_tensor_types(ctx)))


@rule("aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims", "aten.squeeze_copy.default",
      "aten.squeeze_copy.dim", "aten.squeeze_copy.dims")  # fmt: skip
def squeeze(ctx: LoweringContext, x: Tensor, dim: Sequence[int] | int | None = None) -> Tensor:
    """Drop dimensions of size 1."""
    candidates = range(x.rank) if dim is None else dimensions(dim, x.rank) if dim != () else ()
    dropped = {d for d in candidates if x.shape[d] == 1}

    def index(axes: Axes) -> list[Size]:
        outer_terms = iter(axes)
        return [0 if d in dropped else next(outer_terms) for d in range(x.rank)]

    return ctx.view(x, index, aliases=_is_view(ctx))


@rule("aten.unsqueeze.default", "aten.unsqueeze_copy.default")
def unsqueeze(ctx: LoweringContext, x: Tensor, dim: int) -> Tensor:
    """Insert a dimension of size 1."""
    d = dim + x.rank + 1 if dim < 0 else dim
    return ctx.view(x, lambda axes: [*axes[:d], *axes[d + 1 :]], aliases=_is_view(ctx))


@rule("aten.diagonal.default", "aten.diagonal_copy.default")
def diagonal(ctx: LoweringContext, x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Elements whose index along ``dim2`` exceeds that along ``dim1`` by ``offset``, as the last dimension."""
    a, b = dimension(dim1, x.rank), dimension(dim2, x.rank)

    def index(axes: Axes) -> list[Size]:
        outer_terms, along = iter(axes[:-1]), axes[-1]
        row, column = add(along, max(-offset, 0)), add(along, max(offset, 0))
        return [row if d == a else column if d == b else next(outer_terms) for d in range(x.rank)]

    return ctx.view(x, index, aliases=_is_view(ctx))


@rule("aten.unfold.default", "aten.unfold_copy.default")
def unfold(ctx: LoweringContext, x: Tensor, dim: int, size: int, step: int) -> Tensor:
    """Windows of ``size`` elements along a dimension, ``step`` apart; the position in a window is the last
    dimension."""
    d = dimension(dim, x.rank)
    if x.rank == 0:
        return ctx.view(x, lambda axes: [], aliases=_is_view(ctx))

    def index(axes: Axes) -> list[Size]:
        return [add(mul(axis, step), axes[-1]) if k == d else axis for k, axis in enumerate(axes[:-1])]

    return ctx.view(x, index, aliases=_is_view(ctx))


@rule("aten.as_strided.default", "aten.as_strided_copy.default")
def as_strided(
    ctx: LoweringContext,
    x: Tensor,
    size: Sequence[Size],
    stride: Sequence[Size],
    storage_offset: Size | None = None,
) -> Tensor | Declined:
    """Elements by storage offset.

    They are an index into the tensor that owns the memory where that is dense. Otherwise the host makes a strided
    view, counted from the start of a tensor, since memory that litz allocates may start elsewhere than eager's.
    """
    if any(s == 0 for s in ctx.output.shape):
        return ctx.view(x, lambda axes: [0] * x.rank, aliases=_is_view(ctx))
    owner, start = ctx.builder.owner(x)
    if isinstance(ctx.builder.producer(owner.name), Call):
        return _of_call(ctx, x, size, stride, storage_offset)
    if storage_offset is None:
        storage_offset = ctx.builder.symbols.size(storage_start(ctx, x))
    offset = add(storage_offset, mul(ctx.builder.symbols.size(start), -1))
    shape, strides = owner.shape, owner.type.layout.strides
    reach = add(offset, *(mul(add(n, -1), s) for n, s in zip(size, stride)), 1)
    reason = ""
    if index_maps.strided(tuple(0 for _ in size), 0, stride, shape, strides) is None:
        reason = "as_strided of a tensor that is not dense"
    elif not _is_provably_at_most(ctx, reach, owner.numel):
        reason = "as_strided that may go beyond the tensor's own elements"
    elif not _is_provably_at_most(ctx, 0, offset):
        reason = "as_strided that may start before the tensor's own elements"
    if reason and owner.dtype == x.dtype:
        return _by_host(ctx, owner, size, stride, offset, reason)
    if reason:
        own = ctx.builder.symbols.size(storage_start(ctx, x))
        return _by_host(ctx, x, size, stride, add(storage_offset, mul(own, -1)), reason)
    return ctx.view(
        owner,
        lambda axes: index_maps.strided(axes, offset, stride, shape, strides) or (),
        aliases=_is_view(ctx),
        base_strides=tuple(strides),
    )


def _of_call(
    ctx: LoweringContext, x: Tensor, size: Sequence[Size], stride: Sequence[Size], storage_offset: Size | None
) -> Tensor | Declined:
    """View of a call's result: made by ATen, or by the host for a view of memory that starts elsewhere in eager."""
    if not ctx.builder.has_traced_offset(ctx.builder.root(x.name)):
        return Declined("as_strided of the result of a call")
    start = ctx.builder.symbols.size(storage_start(ctx, x))
    offset = 0 if storage_offset is None else add(storage_offset, mul(start, -1))
    return _by_host(ctx, x, size, stride, offset, "as_strided of a view that a call returned")


def _is_provably_at_most(ctx: LoweringContext, low: Size, high: Size) -> bool:
    return prove(Predicate("le", low, high), ctx.builder.symbols.ranges()) is True


def _by_host(
    ctx: LoweringContext, x: Tensor, size: Sequence[Size], stride: Sequence[Size], offset: Size, reason: str
) -> Tensor:
    """View of memory from ``offset`` elements after the first of ``x``, or a copy of it."""
    is_view = _is_view(ctx)
    kind = replace(ctx.output, layout=Layout(tuple(stride), fixed=True))
    value = ctx.value(kind, "" if is_view else "view")
    arguments = tuple(map(ctx.argument, (x, tuple(size), tuple(stride), offset)))
    ctx.append(
        Extern(
            results=(value,),
            target="strided",
            arguments=arguments,
            aliases=((value.name, x.name),),
            layout_requirement="exact",
            reason=reason,
            origin=ctx.origin,
        )
    )
    return Tensor(value) if is_view else ctx.pointwise(Tensor(value).load)


def storage_start(ctx: LoweringContext, x: Tensor) -> Offset:
    """Storage offset of ``x``, the node's first argument, in elements."""
    node = ctx.node.args[0]
    assert isinstance(node, Node), "the first argument of a view is a tensor"
    return ctx.builder.eager_offset(x, offset_of(node.meta["val"]))


def _is_view(ctx: LoweringContext) -> bool:
    """True unless the overload's name marks a copying variant."""
    return "_copy." not in str(ctx.node.target)


def _tensor_types(ctx: LoweringContext) -> list[TensorType]:
    return [kind for kind in ctx.outputs if kind is not None]
