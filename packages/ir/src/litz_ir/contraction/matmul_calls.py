"""Calls of matmuls: their arguments, and the loop nests that compute the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

from litz_ir.contraction.multiplied_operands import F8
from litz_ir.contraction.nest import MatmulNest
from litz_ir.contraction.signatures import by_role
from litz_ir.dtypes import DType, bf16, f16, f32, i8, i32
from litz_ir.loops.nodes import Argument, Attributes, Axis, ContractionCall, Ref, TensorType, Value
from litz_ir.scalar.build import cast
from litz_ir.scalar.expr import Load
from litz_ir.scalar.node import Expr
from litz_ir.symbols.term import Size, symbol

T = TypeVar("T")

_MM = "a=self b=mat2 dtype=out_dtype"
_ADDMM = "bias=self a=mat1 b=mat2 dtype=out_dtype beta=beta alpha=alpha"
_BADDBMM = "bias=self a=batch1 b=batch2 dtype=out_dtype beta=beta alpha=alpha"

MATMULS: Mapping[str, str] = MappingProxyType(
    {
        "aten.mm.default": _MM, "aten.mm.dtype": _MM, "aten.bmm.default": _MM, "aten.bmm.dtype": _MM,
        "aten.addmm.default": _ADDMM, "aten.addmm.dtype": _ADDMM,
        "aten.baddbmm.default": _BADDBMM, "aten.baddbmm.dtype": _BADDBMM,
        "aten._int_mm.default": "a=self b=mat2",
        "aten._scaled_mm.default": "a=self b=mat2 scale_a=scale_a scale_b=scale_b bias=bias"
        " scale_result=scale_result dtype=out_dtype fast=use_fast_accum",
        "aten._scaled_mm_v2.default": "a=self b=mat2 scale_a=scale_a recipe_a=recipe_a swizzle_a=swizzle_a"
        " scale_b=scale_b recipe_b=recipe_b swizzle_b=swizzle_b bias=bias"
        " dtype=out_dtype contraction_dim=contraction_dim fast=use_fast_accum",
        "aten._weight_int8pack_mm.default": "a=self b_transposed=mat2 scale_b=scales",
        "aten._scaled_grouped_mm.default": "a=self b=mat2 scale_a=scale_a scale_b=scale_b offsets=offs"
        " bias=bias scale_result=scale_result dtype=out_dtype fast=use_fast_accum",
        "aten._grouped_mm.default": "a=self b=mat2 offsets=offs bias=bias dtype=out_dtype",
    }
)  # fmt: skip
"""Signatures of the calls that loops can replace, by target.

N is the last dimension of ``b``, and the last but one of ``b_transposed``.
"""

OTHER_MATMULS: Mapping[str, str] = MappingProxyType(
    {
        "aten.mv.default": "a=self b=vec", "aten.dot.default": "a=self b=tensor", "aten.vdot.default": "a=self b=other",
        "aten.addmv.default": "bias=self a=mat b=vec beta=beta alpha=alpha",
        "aten.addbmm.default": "bias=self a=batch1 b=batch2 beta=beta alpha=alpha",
    }
)  # fmt: skip
"""Signatures of the calls that are not replaced, since a library is as fast as loops."""

_OPERANDS = frozenset({"a", "b", "b_transposed"})

_NARROW = (bf16, f16, f32)
"""Dtypes that every library sums in f32 and rounds back to."""


@dataclass(frozen=True, slots=True)
class Accumulation:
    """Dtypes of a matmul's operands, sums and results."""

    a: frozenset[DType]
    """Dtypes of A."""
    b: frozenset[DType]
    """Dtypes of B."""
    accumulator: DType
    """Dtype of the sums."""
    results: frozenset[DType]
    """Dtypes of the result."""


ACCUMULATIONS = (
    *(
        Accumulation(frozenset({dtype}), frozenset({dtype}), f32, frozenset({dtype, f32}))
        for dtype in _NARROW
    ),
    *(Accumulation(frozenset({dtype}), frozenset({i8}), f32, frozenset({dtype})) for dtype in _NARROW),
    Accumulation(F8, F8, f32, frozenset(_NARROW)),
    Accumulation(frozenset({i8}), frozenset({i8}), i32, frozenset({i32})),
)
"""Dtypes that every library supports."""

_PLAIN: Mapping[str, tuple[Argument, ...]] = MappingProxyType(
    {
        "scale_result": (None,),
        "contraction_dim": (None, ()),
        "recipe_a": (None, (0,), (1,)),
        "recipe_b": (None, (0,), (1,)),
        "swizzle_a": (None, (), (0,)),
        "swizzle_b": (None, (), (0,)),
    }
)
"""Values of further arguments for which loops can replace the call.

Scales are one for each operand, or one for each row of A and each column of B, not swizzled.
"""


@dataclass(frozen=True, slots=True)
class Epilogue:
    """``alpha * sum``, times each of ``scales``, plus ``beta * bias``, all in f32 or i32 before one rounding."""

    scales: tuple[Value, ...] = ()
    """Scales that broadcast against the result."""
    bias: Value | None = None
    """``None`` without a bias, and if ``beta`` is 0: libraries then do not read it, so it may be NaN."""
    alpha: float = 1.0
    """Scale of the sum."""
    beta: float = 1.0
    """Scale of the bias."""

    @property
    def is_identity(self) -> bool:
        """True if the result is the rounded sum."""
        return self.bias is None and self.alpha == 1 and not self.scales


@dataclass(frozen=True, slots=True)
class MatmulCall:
    """The matmul of a call: ``a`` of (batch, M, K) times ``b`` of (batch, K, N), then its ``epilogue``, is ``result``.

    The batch has any number of dimensions, or none.
    """

    a: Value
    """Operand A."""
    b: Value
    """Operand B."""
    result: Value
    """Result of the call."""
    b_transposed: bool
    """True if ``b`` is (batch, N, K)."""
    accumulator: DType
    """Dtype of the sums: f32, or i32 for integers."""
    epilogue: Epilogue = Epilogue()
    """Scaling and bias after the sum."""
    fast: bool = False
    """True if sums of 8-bit floats may have the precision of the device's accumulator."""
    offsets: Value | None = None
    """Rows of A at which the groups of a grouped GEMM end; ``None`` for other matmuls.

    B is (groups, K, N), and M is not batched; scales are one for each row of A, and for each column of each group of
    B.
    """

    def nest(self, multiply: str = "mul") -> MatmulNest:
        """The loop nest of a matmul that is not grouped, over the axes ``i0``, … of the result and ``r0``."""
        assert self.offsets is None, "a grouped GEMM looks up the matrix of each row"
        *batch, m, n = (Axis(f"i{d}", size) for d, size in enumerate(self.result.type.shape))
        k = Axis("r0", self.a.type.shape[-1])
        return MatmulNest(
            tuple(batch), (m,), (n,), (k,),
            self._element(self.a, (*batch, m, k)),
            self._element(self.b, (*batch, n, k) if self.b_transposed else (*batch, k, n)),
            self.accumulator, multiply,
        )  # fmt: skip

    def _element(self, value: Value, axes: tuple[Axis, ...]) -> Expr:
        index = tuple(symbol(axis.name) for axis in axes)
        return cast(Load(value.name, index, value.type.dtype), self.accumulator)


def matmul_arguments(
    target: str, arguments: tuple[Argument, ...], attributes: Attributes
) -> Mapping[str, Argument]:
    """The arguments of a call of :data:`MATMULS` by role; empty if the call has others."""
    return by_role(MATMULS[target], arguments, attributes)


def operand_a(target: str, arguments: Sequence[T], attributes: Iterable[tuple[str, T]]) -> T:
    """A of a call of :data:`MATMULS` or :data:`OTHER_MATMULS`; its last dimension is K."""
    signature = MATMULS.get(target) or OTHER_MATMULS[target]
    return by_role(signature, arguments, attributes)["a"]


def plain_operands(call: ContractionCall) -> tuple[str | None, str, str] | None:
    """The names of bias, A and B of an ``mm`` or ``addmm`` with these arguments alone, in order.

    ``None`` for other calls.
    """
    if call.target not in ("aten.mm.default", "aten.addmm.default") or call.attributes:
        return None
    given = matmul_arguments(call.target, call.arguments, ())
    names = {role: each.name for role, each in given.items() if type(each) is Ref}
    if len(names) < len(given) or not {"a", "b"} <= names.keys() <= {"bias", "a", "b"}:
        return None
    return names.get("bias"), names["a"], names["b"]


def matmul_call(call: ContractionCall, values: Mapping[str, Value]) -> MatmulCall | None:
    """The matmul that a call of :data:`MATMULS` computes; ``None`` if loops cannot compute it."""
    given = dict(matmul_arguments(call.target, call.arguments, call.attributes))
    result = call.results[0]
    if any(given.pop(role, None) not in plain for role, plain in _PLAIN.items()):
        return None
    dtype, fast = given.pop("dtype", None), given.pop("fast", False)
    alpha, beta = given.pop("alpha", 1), given.pop("beta", 1)
    tensors = {role: _tensor(value, values) for role, value in given.items() if value is not None}
    a, b = tensors.get("a"), tensors.get("b_transposed", tensors.get("b"))
    if a is None or b is None or None in tensors.values() or not isinstance(dtype, DType | None):
        return None
    if not isinstance(alpha, int | float) or not isinstance(beta, int | float):
        return None
    found = next((each for each in ACCUMULATIONS if a.type.dtype in each.a and b.type.dtype in each.b), None)
    if found is None or result.type.dtype not in found.results:
        return None
    rank, grouped = len(result.type.shape), "offsets" in tensors
    if rank != (2 if grouped else len(a.type.shape)) or len(b.type.shape) != rank + grouped:
        return None
    types = {role: value.type for role, value in tensors.items() if value is not None}
    if not (_suits_groups(types, result.type.shape) if grouped else _suits(types, result.type.shape)):
        return None
    scales = tuple(scale for role in ("scale_a", "scale_b") if (scale := tensors.get(role)) is not None)
    bias = tensors.get("bias") if beta != 0 else None
    epilogue = Epilogue(scales, bias, float(alpha), float(beta))
    return MatmulCall(
        a,
        b,
        result,
        "b_transposed" in tensors,
        found.accumulator,
        epilogue,
        bool(fast),
        tensors.get("offsets"),
    )


def _tensor(given: Argument, values: Mapping[str, Value]) -> Value | None:
    """The tensor that an argument refers to, or the only one that it lists."""
    if isinstance(given, tuple) and len(given) == 1:
        (given,) = given
    return values.get(given.name) if type(given) is Ref else None


def _suits(given: Mapping[str, TensorType], shape: tuple[Size, ...]) -> bool:
    """True if bias and scales have float dtypes, and scales one value, or one for each row of A or column of B."""
    of_rows, of_columns = (shape[-2], 1), (1, shape[-1])
    shapes = {"scale_a": (of_rows,), "scale_b": (of_columns, of_columns[1:])}
    if any(type_.dtype not in _NARROW for role, type_ in given.items() if role not in _OPERANDS):
        return False
    scales = {role: type_.shape for role, type_ in given.items() if role in shapes}
    return all(own in shapes[role] or all(size == 1 for size in own) for role, own in scales.items())


def _suits_groups(given: Mapping[str, TensorType], shape: tuple[Size, ...]) -> bool:
    """True without a bias, if scales have a value for each row of A and each column of each group of B."""
    shapes = {"scale_a": shape[:1], "scale_b": (given["b"].shape[0], shape[-1])}
    scales = {role: type_ for role, type_ in given.items() if role in shapes}
    return (
        given.keys() - scales.keys() <= _OPERANDS | {"offsets"}
        and given["offsets"].dtype == i32
        and all(type_.dtype == f32 and type_.shape == shapes[role] for role, type_ in scales.items())
    )
