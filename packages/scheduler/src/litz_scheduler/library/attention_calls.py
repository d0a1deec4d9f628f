"""Calls of attention, by what their arguments mean: those that loops can stand for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from litz_ir.contraction import by_role
from litz_ir.dtypes import DType, bf16, f16, f32
from litz_ir.loops import Argument, Call, Ref, Value
from litz_ir.symbols import Size, add, mul


@dataclass(frozen=True, slots=True)
class AttentionRoutine:
    """What a routine computes: products of ``dtypes``; heads of queries may share keys where it has ``groups``, scores
    be added to where it is ``biased``. ``aligned`` is the corner that a causal mask begins in, the one where the first
    query and the first key meet or where the last ones do. ``empty`` is the logarithm of the total of a row that sees
    no key."""

    dtypes: frozenset[DType] = frozenset({bf16, f16})
    groups: bool = True
    biased: bool = False
    aligned: str = "first"
    empty: float = -math.inf


FLASH = AttentionRoutine(aligned="last", empty=math.inf)
EFFICIENT = AttentionRoutine(frozenset({bf16, f16, f32}), groups=False, biased=True)
CUDNN = AttentionRoutine()

_OPERANDS = "query=query key=key value=value"
_UNREAD = "unread=cum_seq_q unread=cum_seq_k unread=max_q unread=max_k"
_SEEDS = "unread=philox_seed unread=philox_offset"

ATTENTIONS: Mapping[str, tuple[AttentionRoutine, str]] = MappingProxyType(
    {
        "aten._scaled_dot_product_flash_attention.default": (
            FLASH, f"{_OPERANDS} dropout=dropout_p causal=is_causal debug=return_debug_mask scale=scale",
        ),
        "aten._scaled_dot_product_efficient_attention.default": (
            EFFICIENT,
            f"{_OPERANDS} bias=attn_bias unread=compute_log_sumexp dropout=dropout_p causal=is_causal scale=scale",
        ),
        "aten._scaled_dot_product_cudnn_attention.default": (
            CUDNN,
            f"{_OPERANDS} bias=attn_bias unread=compute_log_sumexp dropout=dropout_p causal=is_causal"
            " debug=return_debug_mask scale=scale",
        ),
    }
)  # fmt: skip
"""The calls that loops can stand for, with their signatures (:func:`litz_ir.contraction.by_role`). Each returns the
values weighed and the logarithms of the rows' totals first; what else it returns says nothing where nothing is
dropped."""

GRADIENTS: Mapping[str, tuple[AttentionRoutine, str]] = MappingProxyType(
    {
        "aten._scaled_dot_product_flash_attention_backward.default": (
            FLASH,
            f"given=grad_out {_OPERANDS} out=out logarithm=logsumexp {_UNREAD} dropout=dropout_p causal=is_causal"
            f" {_SEEDS} scale=scale",
        ),
        "aten._scaled_dot_product_efficient_attention_backward.default": (
            EFFICIENT,
            f"given=grad_out_ {_OPERANDS} bias=attn_bias out=out logarithm=logsumexp {_SEEDS} dropout=dropout_p"
            " wanted=grad_input_mask causal=is_causal scale=scale",
        ),
        "aten._scaled_dot_product_cudnn_attention_backward.default": (
            CUDNN,
            f"given=grad_out {_OPERANDS} out=out logarithm=logsumexp {_SEEDS} bias=attn_bias {_UNREAD}"
            " dropout=dropout_p causal=is_causal scale=scale",
        ),
    }
)  # fmt: skip
"""The calls of their gradients. Each returns those of queries, keys and values first."""

MAX_HEAD_DIM = 256
"""The widest heads: routines take no wider ones, and tiles have all of one."""


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """The values weighed by the softmax of ``scale * query @ key`` plus ``bias``, where there is one. A query sees
    the keys up to its own position plus ``diagonal``, or all where that is ``None``. ``empty_logsumexp`` is the
    logarithm of the total of a row that sees none."""

    query: Value
    key: Value
    value: Value
    bias: Value | None
    scale: float
    diagonal: Size | None
    empty_logsumexp: float

    @property
    def group(self) -> int:
        """How many heads of queries share one of keys."""
        heads, shared = self.query.type.shape[1], self.key.type.shape[1]
        return heads // shared if isinstance(heads, int) and isinstance(shared, int) else 1


@dataclass(frozen=True, slots=True)
class AttentionGradientCall:
    """The gradients of a call's queries, keys and values, ``grad_out`` that of what it computed, which was ``out``, and
    the ``logsumexp`` of each row's total."""

    call: AttentionCall
    grad_out: Value
    out: Value
    logsumexp: Value


def attention_call(call: Call, values: Mapping[str, Value]) -> AttentionCall | None:
    """What a call of :data:`ATTENTIONS` computes, where loops can compute it."""
    routine, signature = ATTENTIONS[call.target]
    return _attention(routine, dict(by_role(signature, call.arguments, call.attributes)), values)


def gradient_call(call: Call, values: Mapping[str, Value]) -> AttentionGradientCall | None:
    """What a call of :data:`GRADIENTS` computes, where loops can compute it: not the gradient of what was added."""
    routine, signature = GRADIENTS[call.target]
    given = dict(by_role(signature, call.arguments, call.attributes))
    wanted = given.pop("wanted", ())
    if not isinstance(wanted, tuple) or (given.get("bias") is not None and wanted[3:] != (False,)):
        return None
    further = [_tensor(given.pop(meaning, None), values) for meaning in ("given", "out", "logarithm")]
    own = _attention(routine, given, values)
    above, out, logarithm = further
    if own is None or above is None or out is None or logarithm is None:
        return None
    shape = (*own.query.type.shape[:3], own.value.type.shape[3])
    if any(each.type.shape != shape or each.type.dtype != own.query.type.dtype for each in (above, out)):
        return None
    return AttentionGradientCall(own, above, out, logarithm) if logarithm.type.dtype == f32 else None


def _attention(
    routine: AttentionRoutine, given: dict[str, Argument], values: Mapping[str, Value]
) -> AttentionCall | None:
    """What a routine computes of what it is given, where loops can."""
    if given.pop("dropout", 0.0) != 0 or given.pop("debug", False) is not False:
        return None
    causal, scale = given.pop("causal", False), given.pop("scale", None)
    given.pop("unread", None)
    tensors = {meaning: _tensor(each, values) for meaning, each in given.items() if each is not None}
    query, key, value = (tensors.get(meaning) for meaning in ("query", "key", "value"))
    if query is None or key is None or value is None or None in tensors.values():
        return None
    if not isinstance(causal, bool) or not isinstance(scale, int | float | None):
        return None
    bias = tensors.get("bias")
    if not _suits(query, key, value, routine) or not _fits(bias, query, key, routine):
        return None
    queries, keys = query.type.shape[2], key.type.shape[2]
    width = query.type.shape[3]
    assert isinstance(width, int)
    diagonal = add(keys, mul(queries, -1)) if routine.aligned == "last" else 0
    # The last query sees all keys.
    hides = causal and not (routine.aligned == "last" and queries == 1)
    factor = 1 / math.sqrt(width) if scale is None else float(scale)
    return AttentionCall(query, key, value, bias, factor, diagonal if hides else None, routine.empty)


def _tensor(given: Argument, values: Mapping[str, Value]) -> Value | None:
    return values.get(given.name) if type(given) is Ref else None


def _suits(query: Value, key: Value, value: Value, routine: AttentionRoutine) -> bool:
    """True for operands of (batch, heads, positions, width) that a routine takes."""
    types = [each.type for each in (query, key, value)]
    if {type_.dtype for type_ in types} - routine.dtypes or len({type_.dtype for type_ in types}) != 1:
        return False
    shapes = [type_.shape for type_ in types]
    if any(len(shape) != 4 or 0 in shape for shape in shapes):
        return False
    (batch, heads, _, width), (_, shared, keys, _), (*_, wide) = shapes
    if not all(isinstance(each, int) and 1 < each <= MAX_HEAD_DIM for each in (width, wide)):
        return False
    if shapes[1] != (batch, shared, keys, width) or shapes[2] != (batch, shared, keys, wide):
        return False
    if heads == shared:
        return True
    known = isinstance(heads, int) and isinstance(shared, int)
    return routine.groups and known and heads % shared == 0


def _fits(bias: Value | None, query: Value, key: Value, routine: AttentionRoutine) -> bool:
    """True where there is nothing to add, or what has an element for every score, or one for several."""
    if bias is None:
        return True
    wanted = (*query.type.shape[:3], key.type.shape[2])
    own = bias.type.shape
    if not routine.biased or bias.type.dtype != query.type.dtype or len(own) != len(wanted):
        return False
    return all(size in (1, whole) for size, whole in zip(own, wanted))
