"""Calls of ATen's fused attention and of its gradients, parsed where generated loops can replace them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from litz_ir.contraction import by_role
from litz_ir.dtypes import DType, bf16, f16, f32
from litz_ir.loops import Argument, Call, Ref, Value
from litz_ir.symbols import Size, add, minimum, mul


@dataclass(frozen=True, slots=True)
class AttentionRoutine:
    """The semantics of one fused attention routine of ATen."""

    dtypes: frozenset[DType] = frozenset({bf16, f16})
    """Dtypes of Q, K and V; all three have the same one."""
    groups: bool = True
    """True where several query heads may use one KV head (GQA)."""
    biased: bool = False
    """True where the routine takes a bias, which is added to the scores."""
    aligned: str = "first"
    """The corner of the score matrix where the diagonal of a causal mask starts: ``"first"`` (top left, query 0 and
    key 0) or ``"last"`` (bottom right, the last query and the last key)."""
    empty: float = -math.inf
    """The logsumexp that is returned for a row whose keys are all masked."""
    rounded: bool = True
    """True where weights and their gradients are rounded to the dtype of Q before they are multiplied again."""
    block: int = 128
    """Positions in a block of those that a causal mask leaves."""


_FLASH = AttentionRoutine(aligned="last", empty=math.inf)
_EFFICIENT = AttentionRoutine(frozenset({bf16, f16, f32}), groups=False, biased=True)
_CUDNN = AttentionRoutine()
_FLASH_ON_CPU = AttentionRoutine(frozenset({bf16, f16, f32}), biased=True, empty=0.0, rounded=False, block=64)

_OPERANDS = "query=query key=key value=value"
_UNREAD = "unread=cum_seq_q unread=cum_seq_k unread=max_q unread=max_k"
_SEEDS = "unread=philox_seed unread=philox_offset"

ATTENTION_ON_CPU = "aten._scaled_dot_product_flash_attention_for_cpu.default"
GRADIENT_ON_CPU = "aten._scaled_dot_product_flash_attention_for_cpu_backward.default"
"""The routines for CPUs, whose gradient has none for a bias."""

ATTENTIONS: Mapping[str, tuple[AttentionRoutine, str]] = MappingProxyType(
    {
        "aten._scaled_dot_product_flash_attention.default": (
            _FLASH, f"{_OPERANDS} dropout=dropout_p causal=is_causal debug=return_debug_mask scale=scale",
        ),
        "aten._scaled_dot_product_efficient_attention.default": (
            _EFFICIENT,
            f"{_OPERANDS} bias=attn_bias unread=compute_log_sumexp dropout=dropout_p causal=is_causal scale=scale",
        ),
        "aten._scaled_dot_product_cudnn_attention.default": (
            _CUDNN,
            f"{_OPERANDS} bias=attn_bias unread=compute_log_sumexp dropout=dropout_p causal=is_causal"
            " debug=return_debug_mask scale=scale",
        ),
        ATTENTION_ON_CPU: (
            _FLASH_ON_CPU, f"{_OPERANDS} dropout=dropout_p causal=is_causal bias=attn_mask scale=scale",
        ),
    }
)  # fmt: skip
"""The routine and the signature (:func:`litz_ir.contraction.by_role`) of each attention call that loops can compute.

The first two results are the output and the logsumexp of each row. The others serve dropout and are unspecified
without it.
"""

GRADIENTS: Mapping[str, tuple[AttentionRoutine, str]] = MappingProxyType(
    {
        "aten._scaled_dot_product_flash_attention_backward.default": (
            _FLASH,
            f"grad_out=grad_out {_OPERANDS} out=out logsumexp=logsumexp {_UNREAD} dropout=dropout_p causal=is_causal"
            f" {_SEEDS} scale=scale",
        ),
        "aten._scaled_dot_product_efficient_attention_backward.default": (
            _EFFICIENT,
            f"grad_out=grad_out_ {_OPERANDS} bias=attn_bias out=out logsumexp=logsumexp {_SEEDS} dropout=dropout_p"
            " grad_mask=grad_input_mask causal=is_causal scale=scale",
        ),
        "aten._scaled_dot_product_cudnn_attention_backward.default": (
            _CUDNN,
            f"grad_out=grad_out {_OPERANDS} out=out logsumexp=logsumexp {_SEEDS} bias=attn_bias {_UNREAD}"
            " dropout=dropout_p causal=is_causal scale=scale",
        ),
        GRADIENT_ON_CPU: (
            _FLASH_ON_CPU,
            f"grad_out=grad_out {_OPERANDS} out=out logsumexp=logsumexp dropout=dropout_p causal=is_causal"
            " bias=attn_mask scale=scale",
        ),
    }
)  # fmt: skip
"""The same for the gradients of attention. The first three results are the gradients of Q, K and V."""

_MAX_HEAD_DIM = 256
"""The largest head dimension, in elements: ATen's routines take no larger one, and a tile holds a whole head."""


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """Attention without dropout: ``softmax(scale * Q @ K.T + bias) @ V`` for each batch and query head."""

    query: Value
    """Q, of shape (batch, query heads, query positions, head dimension)."""
    key: Value
    """K, of shape (batch, KV heads, key positions, head dimension)."""
    value: Value
    """V, of shape (batch, KV heads, key positions, value dimension)."""
    bias: Value | None
    """Added to the scores: (batch, query heads, query positions, key positions), broadcast where a size is 1, or the
    last of these dimensions."""
    scale: float
    """Multiplies the scores; ``1 / sqrt(head dimension)`` where the call gives none."""
    diagonal: Size | None
    """Query ``m`` sees keys ``0`` to ``m + diagonal``, as with a causal mask; ``None`` where it sees all keys."""
    routine: AttentionRoutine
    """The routine that the call is of."""

    @property
    def keys(self) -> Size:
        """The number of keys: that of values too, although they may be different symbols."""
        return minimum(self.key.type.shape[2], self.value.type.shape[2])

    @property
    def group(self) -> int:
        """The number of query heads that use one KV head."""
        heads, kv_heads = self.query.type.shape[1], self.key.type.shape[1]
        return heads // kv_heads if isinstance(heads, int) and isinstance(kv_heads, int) else 1


@dataclass(frozen=True, slots=True)
class AttentionGradientCall:
    """The gradients of attention with respect to Q, K and V."""

    call: AttentionCall
    """The forward call."""
    grad_out: Value
    """The gradient of the output, of its shape and dtype."""
    out: Value
    """The output of the forward call."""
    logsumexp: Value
    """The f32 logsumexp of each row of scores in the forward call."""


def attention_call(call: Call, values: Mapping[str, Value]) -> AttentionCall | None:
    """Parse a call of :data:`ATTENTIONS`; ``None`` where loops cannot compute it."""
    routine, signature = ATTENTIONS[call.target]
    return _attention(routine, dict(by_role(signature, call.arguments, call.attributes)), values)


def gradient_call(call: Call, values: Mapping[str, Value]) -> AttentionGradientCall | None:
    """Parse a call of :data:`GRADIENTS`; ``None`` where loops cannot compute it, such as for the gradient of a bias."""
    routine, signature = GRADIENTS[call.target]
    roles = dict(by_role(signature, call.arguments, call.attributes))
    grad_mask = roles.pop("grad_mask", ())
    biased = roles.get("bias") is not None and call.target != GRADIENT_ON_CPU
    if not isinstance(grad_mask, tuple) or (biased and grad_mask[3:] != (False,)):
        return None
    grad_out, out, logsumexp = (
        _tensor(roles.pop(role, None), values) for role in ("grad_out", "out", "logsumexp")
    )
    forward = _attention(routine, roles, values)
    if forward is None or grad_out is None or out is None or logsumexp is None:
        return None
    if forward.key.type.shape[2] != forward.value.type.shape[2]:
        return None
    shape = (*forward.query.type.shape[:3], forward.value.type.shape[3])
    if any(
        each.type.shape != shape or each.type.dtype != forward.query.type.dtype for each in (grad_out, out)
    ):
        return None
    return AttentionGradientCall(forward, grad_out, out, logsumexp) if logsumexp.type.dtype == f32 else None


def _attention(
    routine: AttentionRoutine, roles: dict[str, Argument], values: Mapping[str, Value]
) -> AttentionCall | None:
    """Return the attention that ``routine`` computes of arguments by role; ``None`` where loops cannot compute it."""
    if roles.pop("dropout", 0.0) != 0 or roles.pop("debug", False) is not False:
        return None
    causal, scale = roles.pop("causal", False), roles.pop("scale", None)
    roles.pop("unread", None)
    tensors = {role: _tensor(each, values) for role, each in roles.items() if each is not None}
    query, key, value = (tensors.get(role) for role in ("query", "key", "value"))
    if query is None or key is None or value is None or None in tensors.values():
        return None
    if not isinstance(causal, bool) or not isinstance(scale, int | float | None):
        return None
    bias = tensors.get("bias")
    if not _suits(query, key, value, routine) or not _fits(bias, query, key, routine):
        return None
    queries, keys = query.type.shape[2], key.type.shape[2]
    head_dim = query.type.shape[3]
    assert isinstance(head_dim, int)
    diagonal = add(keys, mul(queries, -1)) if routine.aligned == "last" else 0
    # A mask aligned to the last positions hides no key from the last query.
    hides = causal and not (routine.aligned == "last" and queries == 1)
    softmax_scale = 1 / math.sqrt(head_dim) if scale is None else float(scale)
    return AttentionCall(query, key, value, bias, softmax_scale, diagonal if hides else None, routine)


def _tensor(argument: Argument, values: Mapping[str, Value]) -> Value | None:
    return values.get(argument.name) if type(argument) is Ref else None


def _suits(query: Value, key: Value, value: Value, routine: AttentionRoutine) -> bool:
    """Return whether a routine takes Q, K and V, each of shape (batch, heads, positions, head dimension)."""
    types = [each.type for each in (query, key, value)]
    if {type_.dtype for type_ in types} - routine.dtypes or len({type_.dtype for type_ in types}) != 1:
        return False
    shapes = [type_.shape for type_ in types]
    if any(len(shape) != 4 or 0 in shape for shape in shapes):
        return False
    (batch, heads, _, head_dim), (_, kv_heads, keys, _), (*_, value_dim) = shapes
    if not all(isinstance(each, int) and 1 < each <= _MAX_HEAD_DIM for each in (head_dim, value_dim)):
        return False
    if shapes[1] != (batch, kv_heads, keys, head_dim) or shapes[2][:2] != (batch, kv_heads):
        return False
    lengths = keys, shapes[2][2]
    if lengths[0] != lengths[1] and (routine is not _FLASH_ON_CPU or all(type(n) is int for n in lengths)):
        return False  # the routine for CPUs compares symbols with nothing
    if heads == kv_heads:
        return True
    known = isinstance(heads, int) and isinstance(kv_heads, int)
    return routine.groups and known and heads % kv_heads == 0


def _fits(bias: Value | None, query: Value, key: Value, routine: AttentionRoutine) -> bool:
    """Return whether there is no bias, or one that the routine adds and that broadcasts to the scores."""
    if bias is None:
        return True
    scores = (*query.type.shape[:3], key.type.shape[2])
    shape, dtypes = bias.type.shape, {query.type.dtype, query.type.dtype if routine.rounded else f32}
    if not routine.biased or bias.type.dtype not in dtypes or len(shape) > len(scores):
        return False
    if len(shape) < len(scores) and routine.rounded:
        return False
    return all(size in (1, extent) for size, extent in zip(shape[::-1], scores[::-1]))
