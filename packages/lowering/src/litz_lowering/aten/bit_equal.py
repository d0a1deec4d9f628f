"""Operators whose loops give eager's bits: all that ``numerics="strict"`` generates. The rest are eager's calls.

The loops of a listed operator round where eager's kernel does, and nowhere else: their arithmetic is that of IEEE 754
(sums, differences, multiplications, quotients, comparisons, casts), or they move elements. Exponentials, logarithms and
the like are polynomials of their own in each library (MKL's square root is no exact one either), and sums of floats
have an order of their own, so these are left to eager. ``tests/test_strict.py`` compares them with eager bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch

from litz_lowering.contexts.context import Declined, LoweringContext
from litz_lowering.contexts.outputs import flatten
from litz_lowering.contexts.registry import REGISTRY, RuleEntry

STRICT = "numerics='strict' takes eager's kernel, whose bits loops do not reproduce"
"""Reason for the call of an operator that is not bit-equal."""

_ARITHMETIC = """
    abs ceil clamp clamp_max clamp_min copysign floor frac hardtanh hardtanh_backward leaky_relu
    leaky_relu_backward masked_fill mul nan_to_num neg positive reciprocal relu resolve_conj resolve_neg round sgn
    sign square threshold threshold_backward trunc where
    bitwise_not eq ge gt isfinite isinf isnan isneginf isposinf le logical_and logical_not logical_or
    logical_xor lt maximum minimum ne signbit
    _prelu_kernel hardshrink hardshrink_backward heaviside nextafter
""".split()
"""Operators of IEEE arithmetic and of comparisons, with every argument."""

_MOVES = """
    _neg_view _reshape_alias _unsafe_index _unsafe_view alias as_strided cat chunk clone constant_pad_nd
    contiguous copy copy_ detach diagonal embedding expand fill flip gather index index_copy index_fill
    index_select lift lift_fresh masked_scatter masked_select permute reflection_pad1d reflection_pad2d
    reflection_pad3d repeat repeat_interleave replication_pad1d replication_pad2d replication_pad3d reshape roll
    select slice split split_with_sizes squeeze stack t take tensor_split transpose tril triu unbind unfold
    unsafe_chunk unsafe_split unsafe_split_with_sizes unsqueeze view as_strided_scatter diagonal_backward
    diagonal_scatter select_backward select_scatter slice_backward slice_scatter _to_copy convert_element_type
    empty empty_like empty_permuted empty_strided eye full full_like new_empty new_empty_strided new_full
    new_ones new_zeros ones ones_like scalar_tensor zero zeros zeros_like _upsample_nearest_exact1d
    _upsample_nearest_exact2d _upsample_nearest_exact3d upsample_nearest1d upsample_nearest2d upsample_nearest3d
    max_pool2d_with_indices max_pool3d_with_indices max_unpool2d max_unpool3d argmax argmin any all bucketize
    searchsorted _assert_async _assert_scalar _functional_assert_async _local_scalar_dense item
    sym_constrain_range sym_constrain_range_for_size
""".split()
"""Operators that move, select or test elements, a trailing ``_copy`` apart."""

_EXACT = frozenset((*_ARITHMETIC, *_MOVES))

_ADDS = frozenset(("add", "sub", "rsub"))
"""Sums, which eager contracts with the multiplication by ``alpha`` where that is not one."""

_POWERS = (2, 1, 0)
"""Exponents whose powers are multiplications in eager."""


def _unscaled(given: Mapping[str, Any]) -> bool:
    return bool(given.get("alpha", 1) == 1)


def _is_overwriting(given: Mapping[str, Any]) -> bool:
    return given.get("accumulate", False) is False


_CONDITIONS: Mapping[str, Callable[[Mapping[str, Any]], bool]] = MappingProxyType(
    {
        **dict.fromkeys(_ADDS, _unscaled),
        "div": lambda given: given.get("rounding_mode") is None,
        "true_divide": lambda given: True,
        "index_put": _is_overwriting,
        "_unsafe_index_put": _is_overwriting,
        "put": _is_overwriting,
        "pow": lambda given: given.get("exponent") in _POWERS,
        "scatter": lambda given: given.get("reduce") is None,
        "arange": lambda given: all(
            type(each) is int for each in given.values() if isinstance(each, int | float)
        ),
    }
)
"""Conditions on the arguments under which further operators are bit-equal."""

_ELEMENT_DTYPES = frozenset((torch.float32, torch.float64, torch.bfloat16, torch.float16))
"""Float dtypes that these operators are compared with eager in."""

_NOT_EAGER = ("higher_order.flex_attention", "higher_order.flex_attention_backward")
"""Higher-order operators whose loops round otherwise than eager's composite operations."""


_MISSTATED = ("_native_batch_norm_legit_functional", "_batch_norm_with_update_functional")
"""Operators whose meta kernel gives statistics of low-precision floats another dtype than their kernel on a CPU, so
that they cannot be called: their loops run instead, though their bits may differ."""

_LOW_PRECISION = frozenset((torch.bfloat16, torch.float16))


def unequal_bits(ctx: LoweringContext, entry: RuleEntry, overload: str) -> Declined | None:
    """Decline a rule whose loops may differ from eager's result in a bit, as ``numerics="strict"`` asks.

    Loops over integers and bools alone are exact. Rules that the program registered are its own responsibility.
    """
    if not REGISTRY.is_own(overload) or _is_bit_equal(ctx, entry, overload):
        return None
    return Declined(STRICT, is_intended=True)


def _is_mixed(ctx: LoweringContext) -> bool:
    """Report whether a norm of low-precision floats has parameters of f32, as its statistics then have."""
    given = [each.meta.get("val") for each in ctx.node.all_input_nodes]
    return any(isinstance(each, torch.Tensor) and each.dtype == torch.float32 for each in given)


def _is_bit_equal(ctx: LoweringContext, entry: RuleEntry, overload: str) -> bool:
    """Report whether a rule's loops give eager's bits for a node."""
    target = ctx.node.target
    if not isinstance(target, torch._ops.OpOverload):
        return overload not in _NOT_EAGER
    if entry.how != "loops" or target.namespace not in ("aten", "prims"):
        return False
    dtypes = {
        leaf.dtype
        for node in (ctx.node, *ctx.node.all_input_nodes)
        for leaf in flatten(node.meta.get("val"))
        if isinstance(leaf, torch.Tensor)
    }
    inexact = {each for each in dtypes if each.is_floating_point or each.is_complex}
    if not inexact:
        return True
    if not inexact <= _ELEMENT_DTYPES:
        return False
    name = target._opname.removeprefix("_foreach_")
    if name in _MISSTATED and torch.float32 in dtypes and dtypes & _LOW_PRECISION and not _is_mixed(ctx):
        return True
    condition = _CONDITIONS.get(name)
    if condition is not None:
        return condition(ctx.named_arguments)
    return name in _EXACT or name.removesuffix("_copy") in _EXACT
