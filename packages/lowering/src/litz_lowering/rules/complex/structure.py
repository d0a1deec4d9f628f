"""Operators that move complex elements without computing: the real rules, applied to both parts.

Such a rule sees a complex tensor as a tensor of one part, with the complex tensor's shape and strides. The
context adds a last axis to every loop over complex elements, which selects the part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from litz_ir.device import Device
from litz_ir.dtypes import DType
from litz_ir.loops import Combiner, Layout, ReductionName, ScatterMode, TensorType, contiguous
from litz_ir.scalar import Expr, build, substitute_expr
from litz_ir.symbols import Size, floordiv, mul, symbol
from litz_lowering.contexts.context import Axes, Complex, Declined, LoweringContext, Tensor
from litz_lowering.contexts.registry import REGISTRY, Rule, RuleResult, complex_rule
from litz_lowering.expressions.formula import Num
from litz_lowering.rules.complex.numbers import Cx, as_complex, complex_pointwise, either, operand
from litz_lowering.rules.indexing import slice_scatter, view

_PART = "part.of.pair"
"""Symbol of the part while a rule builds its bodies."""


@dataclass(frozen=True, slots=True)
class _ComplexType(TensorType):
    """Type of a complex tensor as rules see it here: ``dtype`` is that of a part, strides count pairs."""


def _complex_type(pairs: TensorType) -> _ComplexType:
    """Complex type of pairs."""
    layout = pairs.layout
    strides = tuple(floordiv(stride, 2) for stride in layout.strides[:-1])
    return _ComplexType(pairs.dtype, pairs.shape[:-1], Layout(strides, 0, layout.fixed), pairs.device)


def _pairs_type(kind: _ComplexType) -> TensorType:
    """Type of the pairs of a complex type."""
    strides = (*(mul(2, stride) for stride in kind.layout.strides), 1)
    layout = Layout(strides, mul(2, kind.layout.offset), kind.layout.fixed)
    return TensorType(kind.dtype, (*kind.shape, 2), layout, kind.device)


@dataclass(frozen=True, slots=True)
class _ComplexTensor(Tensor):
    """A complex tensor as rules see it here; ``value`` names its pairs."""

    @property
    def type(self) -> TensorType:
        return _complex_type(self.value.type)

    @property
    def shape(self) -> tuple[Size, ...]:
        return self.value.type.shape[:-1]

    @property
    def rank(self) -> int:
        return len(self.value.type.shape) - 1

    def load(self, index: Sequence[Size]) -> Expr:
        """Load the part that the loop's last axis selects, of the element at a logical index."""
        return build.load(self.name, (*index, symbol(_PART)), self.dtype)

    @property
    def whole(self) -> Tensor:
        """The pairs as a real tensor."""
        return Tensor(self.value)


class _StructuralContext(LoweringContext):
    """Context that makes operations over pairs where a rule makes them over complex elements.

    Float intermediates are complex, since these rules make no others.
    """

    def __init__(self, ctx: LoweringContext) -> None:
        outputs = tuple(
            _complex_type(kind) if kind is not None and is_complex else kind
            for kind, is_complex in zip(ctx.outputs, ctx.complex_outputs, strict=True)
        )
        super().__init__(
            ctx.builder, ctx.node, outputs, ctx.origin, ctx.options, ctx.subgraphs, ctx.complex_outputs
        )

    def temporary(self, dtype: DType, shape: Sequence[Size], device: Device | None = None) -> TensorType:
        """Type of an intermediate; complex for floats."""
        made = super().temporary(dtype, shape, device)
        return (
            _ComplexType(dtype, made.shape, contiguous(made.shape), made.device) if dtype.is_float else made
        )

    def number(self, value: Any, dtype: DType) -> Expr:
        """Body of a number of ``dtype``; for the dtype of parts, the part that the last axis selects."""
        real, imaginary = (value.real, value.imag) if isinstance(value, complex) else (value, 0.0)
        first = super().number(real, dtype)
        if not dtype.is_float:
            return first
        return either(symbol(_PART), Cx(Num(first), Num(build.const(imaginary, dtype))), dtype)

    def pointwise(
        self, body: Callable[[Axes], Expr], type: TensorType | None = None, name: str = ""
    ) -> Tensor:
        """Append a pointwise operation, over both parts where the result is complex."""
        kind = type or self.output
        if not isinstance(kind, _ComplexType):
            return super().pointwise(body, kind, name)
        return _ComplexTensor(super().pointwise(_over_parts(body), _pairs_type(kind), name).value)

    def reduction(
        self,
        combiner: ReductionName | Combiner,
        body: Callable[[Axes, Axes], Expr | tuple[Expr, ...]],
        over: Sequence[Size],
        types: Sequence[TensorType],
        names: Sequence[str] = ("",),
    ) -> tuple[Tensor, ...]:
        """Append a reduction, over both parts where the result is complex."""
        kind = types[0]
        if not isinstance(kind, _ComplexType):
            return super().reduction(combiner, body, over, types, names)

        def of_part(axes: Axes, inner: Axes) -> Expr:
            made = body(axes[:-1], inner)
            assert isinstance(made, Expr), "structural rules only use reductions with one body"
            return substitute_expr(made, {_PART: axes[-1]})

        (pairs,) = super().reduction(combiner, of_part, over, (_pairs_type(kind),), names)
        return (_ComplexTensor(pairs.value),)

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
        """Append a view, of the pairs where the tensors are complex."""
        kind = type or self.output
        if not isinstance(base, _ComplexTensor) or not isinstance(kind, _ComplexType):
            return super().view(base, index, kind, aliases=aliases, base_strides=base_strides, name=name)
        if any(size == 0 for size in kind.shape):
            return self.pointwise(lambda axes: build.const(0, kind.dtype), kind, name)
        pair_strides = None if base_strides is None else (*(mul(2, stride) for stride in base_strides), 1)
        made = super().view(
            base.whole, lambda axes: (*index(axes[:-1]), axes[-1]), _pairs_type(kind), aliases=aliases,
            base_strides=pair_strides, name=name,
        )  # fmt: skip
        return _ComplexTensor(made.value)

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
        """Append a scatter, of both parts where the tensors are complex."""
        kind = type or self.output
        if not isinstance(base, _ComplexTensor) or not isinstance(kind, _ComplexType):
            return super().scatter(base, over, index, body, mode=mode, type=kind, name=name)
        made = super().scatter(
            base.whole, (*over, 2), lambda axes: (*index(axes[:-1]), axes[-1]), _over_parts(body),
            mode=mode, type=_pairs_type(kind), name=name,
        )  # fmt: skip
        return _ComplexTensor(made.value)


def _over_parts(body: Callable[[Axes], Expr]) -> Callable[[Axes], Expr]:
    """Body with a last axis that selects the part."""
    return lambda axes: substitute_expr(body(axes[:-1]), {_PART: axes[-1]})


# --- structural rules of real tensors ----------------------------------------


def _as_structural(ctx: LoweringContext, argument: Any, kind: TensorType) -> Any:
    """Convert an operand with elements to a complex tensor as the rule sees it."""
    if isinstance(argument, tuple):
        return tuple(_as_structural(ctx, item, kind) for item in argument)
    if isinstance(argument, Complex | Tensor):
        return _ComplexTensor(as_complex(ctx, argument, kind).pairs.value)
    return argument


def _from_structural(result: Any) -> Any:
    """Convert results of a rule to complex tensors."""
    if isinstance(result, tuple):
        return tuple(map(_from_structural, result))
    return Complex(result.whole) if isinstance(result, _ComplexTensor) else result


def _lifted(overload: str, elements: tuple[int, ...]) -> Rule:
    """Rule of ``overload`` for complex tensors; ``elements`` are the positions of operands with elements."""

    def lower(ctx: LoweringContext, *args: Any, **kwargs: Any) -> RuleResult:
        entry = REGISTRY.find(overload)
        kinds = [
            k for k, is_complex in zip(ctx.outputs, ctx.complex_outputs, strict=True) if is_complex and k
        ]
        others = [argument for position, argument in enumerate(args) if position not in elements]
        if (
            entry is None
            or not kinds
            or any(isinstance(argument, Complex) for argument in (*others, *kwargs.values()))
        ):
            return Declined("a complex operand is not supported in this argument")
        given = [
            _as_structural(ctx, argument, kinds[0]) if position in elements else argument
            for position, argument in enumerate(args)
        ]
        result: RuleResult = _from_structural(entry.rule(_StructuralContext(ctx), *given, **kwargs))
        return result

    return lower


def _serve(elements: tuple[int, ...], overloads: str) -> None:
    """Register the real rules for complex uses of ``overloads``, written without ``aten.`` and ``.default``."""
    for name in overloads.split():
        overload = f"aten.{name}" if "." in name else f"aten.{name}.default"
        REGISTRY.add_complex(_lifted(overload, elements), overload)


_serve((0,), """
    view reshape _reshape_alias _unsafe_view view_copy alias detach lift_fresh lift permute permute_copy transpose.int
    transpose_copy.int t expand expand_copy slice.Tensor slice_copy.Tensor select.int select_copy.int split.Tensor
    split_with_sizes chunk unsafe_split.Tensor unsafe_split_with_sizes unsafe_chunk split_with_sizes_copy
    split_copy.Tensor tensor_split.sections tensor_split.indices unbind.int unbind_copy.int squeeze squeeze.dim
    squeeze.dims squeeze_copy squeeze_copy.dim squeeze_copy.dims unsqueeze unsqueeze_copy diagonal diagonal_copy unfold
    unfold_copy
""")  # fmt: skip
_serve((0,), "cat stack flip roll repeat tril triu constant_pad_nd")
_serve((0,), """
    reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d
""")  # fmt: skip
_serve((0, 1), """
    reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward replication_pad1d_backward
    replication_pad2d_backward replication_pad3d_backward
""")  # fmt: skip
_serve((0,), "embedding index_select gather take index.Tensor _unsafe_index.Tensor _unsafe_masked_index")
_serve((0,), "scatter.value index_fill.int_Scalar select_backward slice_backward diagonal_backward")
_serve((0, 1), "select_scatter slice_scatter diagonal_scatter")
_serve((0, 2), "put index_put _unsafe_index_put")
_serve((0, 3), "scatter.src scatter_add index_copy index_fill.int_Tensor _unsafe_masked_index_put_accumulate")
_serve((0, 1), "fill.Scalar fill.Tensor")
_serve((0,), """
    full scalar_tensor full_like new_full ones ones_like new_ones zeros zeros_like new_zeros zero empty.memory_format
    empty_like new_empty empty_strided new_empty_strided empty_permuted
""")  # fmt: skip


def _of_pairs(
    size: Sequence[Size], stride: Sequence[Size], offset: Size | None
) -> tuple[tuple[Size, ...], tuple[Size, ...], Size | None]:
    """Size, strides and offset of pairs, from those of the complex tensor."""
    return (*size, 2), (*(mul(2, each) for each in stride), 1), None if offset is None else mul(2, offset)


@complex_rule("aten.as_strided.default", "aten.as_strided_copy.default")
def as_strided(
    ctx: LoweringContext,
    x: Complex,
    size: Sequence[Size],
    stride: Sequence[Size],
    storage_offset: Size | None = None,
) -> RuleResult:
    """Elements by storage offset, counted in pairs."""
    made = view.as_strided(ctx, x.pairs, *_of_pairs(size, stride, storage_offset))
    return made if isinstance(made, Declined) else Complex(made)


@complex_rule("aten.as_strided_scatter.default", "prims.as_strided_scatter.default")
def as_strided_scatter(
    ctx: LoweringContext,
    x: Any,
    src: Any,
    size: Sequence[Size],
    stride: Sequence[Size],
    storage_offset: Size | None = None,
) -> RuleResult:
    """Replace elements at given storage offsets, counted in pairs, by ``src``."""
    if not isinstance(x, Complex):
        return Declined("a complex operand is not supported in this argument")
    src_pairs = as_complex(ctx, src, ctx.output).pairs
    made = slice_scatter.as_strided_scatter(ctx, x.pairs, src_pairs, *_of_pairs(size, stride, storage_offset))
    return made if isinstance(made, Declined) else Complex(made)


@complex_rule("aten.index_add.default")
def index_add(
    ctx: LoweringContext, x: Any, dim: int, index: Tensor, source: Any, *, alpha: Any = 1
) -> RuleResult:
    """Add ``alpha * source`` into the slices ``index``."""
    if not (isinstance(alpha, int | float | complex) and alpha == 1):
        part = ctx.output.dtype
        factor, value = operand(ctx, alpha, part), operand(ctx, source, part)
        kind = ctx.temporary(part, (*source.shape, 2))
        source = complex_pointwise(ctx, lambda axes: factor(axes) * value(axes), kind, "scaled")
    return _lifted("aten.index_add.default", (0, 3))(ctx, x, dim, index, source)
