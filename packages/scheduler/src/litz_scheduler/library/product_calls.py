"""Calls that multiply matrices, by what their arguments mean: those that loops can stand for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from litz_ir.dtypes import DType, bf16, f8e4m3fn, f8e5m2, f16, f32, i8, i32
from litz_ir.loops import Argument, Attributes, Contraction, Ref, TensorType, Value
from litz_ir.symbols import Size

_MM = "left=self right=mat2 dtype=out_dtype"
_ADDMM = "addend=self left=mat1 right=mat2 dtype=out_dtype beta=beta alpha=alpha"
_BMM = "addend=self left=batch1 right=batch2 dtype=out_dtype beta=beta alpha=alpha"

PRODUCTS: Mapping[str, str] = MappingProxyType(
    {
        "aten.mm.default": _MM, "aten.mm.dtype": _MM, "aten.bmm.default": _MM, "aten.bmm.dtype": _MM,
        "aten.addmm.default": _ADDMM, "aten.addmm.dtype": _ADDMM,
        "aten.baddbmm.default": _BMM, "aten.baddbmm.dtype": _BMM,
        "aten._int_mm.default": "left=self right=mat2",
        "aten._scaled_mm.default": "left=self right=mat2 left_scale=scale_a right_scale=scale_b addend=bias"
        " result_scale=scale_result dtype=out_dtype fast=use_fast_accum",
        "aten._scaled_mm_v2.default": "left=self right=mat2 left_scale=scale_a left_recipe=recipe_a"
        " left_swizzle=swizzle_a right_scale=scale_b right_recipe=recipe_b right_swizzle=swizzle_b addend=bias"
        " dtype=out_dtype contracted=contraction_dim fast=use_fast_accum",
        "aten._weight_int8pack_mm.default": "left=self turned=mat2 right_scale=scales",
        "aten._scaled_grouped_mm.default": "left=self right=mat2 left_scale=scale_a right_scale=scale_b offsets=offs"
        " addend=bias result_scale=scale_result dtype=out_dtype fast=use_fast_accum",
        "aten._grouped_mm.default": "left=self right=mat2 offsets=offs addend=bias dtype=out_dtype",
    }
)  # fmt: skip
"""The calls that loops can stand for, and what the arguments are that they take, in order: ``meaning=name`` of each.
A ``turned`` factor is a right one that has a row for each column."""

FACTORS = frozenset({"left", "right", "turned"})
NARROW = (bf16, f16, f32)
F8 = frozenset({f8e4m3fn, f8e5m2})


@dataclass(frozen=True, slots=True)
class Sum:
    """Products of such factors are summed in ``total``, and what is made of a sum is one of ``results``."""

    left: frozenset[DType]
    right: frozenset[DType]
    total: DType
    results: frozenset[DType]


SUMS = (
    *(Sum(frozenset({dtype}), frozenset({dtype}), f32, frozenset({dtype, f32})) for dtype in NARROW),
    *(Sum(frozenset({dtype}), frozenset({i8}), f32, frozenset({dtype})) for dtype in NARROW),
    Sum(F8, F8, f32, frozenset(NARROW)),
    Sum(frozenset({i8}), frozenset({i8}), i32, frozenset({i32})),
)
"""As every library sums them."""

PLAIN: Mapping[str, tuple[Argument, ...]] = MappingProxyType(
    {
        "result_scale": (None,),
        "contracted": (None, ()),
        "left_recipe": (None, (0,), (1,)),
        "right_recipe": (None, (0,), (1,)),
        "left_swizzle": (None, (), (0,)),
        "right_swizzle": (None, (), (0,)),
    }
)
"""What loops take of arguments that ask for more: scales of the whole, or of each row and each column, as they are."""


@dataclass(frozen=True, slots=True)
class ProductCall:
    """``beta * addend + alpha * left @ right``, the product times each of ``scales``; no addend where it is not read.

    ``turned``: the right factor has a row for each column. ``total`` is what products are summed in; ``fast``: sums of
    8-bit floats may be as rough as machines have them. ``offsets``: the right factor has a matrix for each group of the
    left one's rows, which end there; scales are then of each row, and of each column of each group."""

    left: Value
    right: Value
    turned: bool
    total: DType
    scales: tuple[Value, ...]
    addend: Value | None
    alpha: float
    beta: float
    fast: bool
    offsets: Value | None = None


def meanings(target: str, arguments: tuple[Argument, ...], attributes: Attributes) -> Mapping[str, Argument]:
    """What a call of :data:`PRODUCTS` is given, by what it means; empty where that is not known."""
    return meant(PRODUCTS[target], arguments, attributes)


def meant(signature: str, arguments: tuple[Argument, ...], attributes: Attributes) -> Mapping[str, Argument]:
    """What a call is given, by what it means: its ``signature`` has ``meaning=name`` of each argument, in order. Empty
    where that is not known."""
    pairs = [pair.partition("=")[::2] for pair in signature.split()]
    names = {name: meaning for meaning, name in pairs}
    given = dict(attributes)
    if len(arguments) > len(pairs) or not given.keys() <= names.keys():
        return {}
    found = {meaning: value for (meaning, _), value in zip(pairs, arguments)}
    return found | {names[name]: value for name, value in given.items()}


def product_call(product: Contraction, values: Mapping[str, Value]) -> ProductCall | None:
    """What a call computes, where loops can compute it."""
    given = dict(meanings(product.target, product.arguments, product.attributes))
    wanted = product.results[0].type
    if any(given.pop(meaning, None) not in plain for meaning, plain in PLAIN.items()):
        return None
    dtype, fast = given.pop("dtype", None), given.pop("fast", False)
    alpha, beta = given.pop("alpha", 1), given.pop("beta", 1)
    tensors = {meaning: _tensor(value, values) for meaning, value in given.items() if value is not None}
    left, right = tensors.get("left"), tensors.get("turned", tensors.get("right"))
    if left is None or right is None or None in tensors.values() or not isinstance(dtype, DType | None):
        return None
    if not isinstance(alpha, int | float) or not isinstance(beta, int | float):
        return None
    rank = len(wanted.shape)
    found = next((s for s in SUMS if left.type.dtype in s.left and right.type.dtype in s.right), None)
    if found is None or wanted.dtype not in found.results:
        return None
    grouped = "offsets" in tensors
    if rank != (2 if grouped else len(left.type.shape)) or len(right.type.shape) != rank + grouped:
        return None
    others = {meaning: value.type for meaning, value in tensors.items() if value is not None}
    suits = _suits_groups(others, wanted.shape) if grouped else _suits(others, wanted.shape)
    if not suits:
        return None
    scales = (tensors.get("left_scale"), tensors.get("right_scale"))
    return ProductCall(
        left, right, "turned" in tensors, found.total, tuple(scale for scale in scales if scale is not None),
        # What is multiplied by zero is not looked at, as in the libraries: it may hold anything.
        tensors.get("addend") if beta != 0 else None,
        float(alpha), float(beta), bool(fast), tensors.get("offsets"),
    )  # fmt: skip


def _tensor(given: Argument, values: Mapping[str, Value]) -> Value | None:
    """The tensor that an argument is, or the only one that it lists."""
    if isinstance(given, tuple) and len(given) == 1:
        (given,) = given
    return values.get(given.name) if type(given) is Ref else None


def _suits(given: Mapping[str, TensorType], shape: tuple[Size, ...]) -> bool:
    """True where numbers are added, and scales are those of all results, of each row, or of each column."""
    of_rows, of_columns = (shape[-2], 1), (1, shape[-1])
    shapes = {"left_scale": (of_rows,), "right_scale": (of_columns, of_columns[1:])}
    if any(type_.dtype not in NARROW for meaning, type_ in given.items() if meaning not in FACTORS):
        return False
    scales = {meaning: type_.shape for meaning, type_ in given.items() if meaning in shapes}
    return all(own in shapes[meaning] or all(size == 1 for size in own) for meaning, own in scales.items())


def _suits_groups(given: Mapping[str, TensorType], shape: tuple[Size, ...]) -> bool:
    """True where nothing is added, and scales are those of each row, and of each column of each group."""
    shapes = {"left_scale": shape[:1], "right_scale": (given["right"].shape[0], shape[-1])}
    scales = {meaning: type_ for meaning, type_ in given.items() if meaning in shapes}
    known = given.keys() - scales.keys() <= FACTORS | {"offsets"}
    return (
        known
        and given["offsets"].dtype == i32
        and all(type_.dtype == f32 and type_.shape == shapes[meaning] for meaning, type_ in scales.items())
    )
