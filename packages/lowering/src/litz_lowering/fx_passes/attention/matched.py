"""Attention matched in a graph: its operands and masks, or the reason for not rewriting it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.fx import Node

from litz_ir.fused import Reason
from litz_lowering import reasons
from litz_lowering.fx_passes.attention.constants import KnownTensors
from litz_lowering.fx_passes.attention.forms import SCORES, WEIGHTS, is_rearranged, value_of
from litz_lowering.fx_passes.attention.masks import AttentionMasks, masks_of
from litz_lowering.fx_passes.attention.operands import AttentionOperand, operand, shown_by
from litz_lowering.fx_passes.patterns import Match, MatchedStep

_DTYPES = (torch.float32, torch.float64)
"""Dtypes of the rewrite. In 16-bit floats eager rounds scores and weights, which the kernel keeps in f32."""

_MIN_SCORE_BYTES = 4 << 20
"""Bytes of scores from which the kernel is faster.

It never stores scores, which pays off once they exceed the caches: 1.1 times at 8 MB, 2.4 times at 50 MB (AMD Zen
4, f32, two cores). Below, both take equally long and the run-time condition is a loss.
"""


@dataclass(frozen=True, slots=True)
class Refused:
    """Reason for not rewriting an attention."""

    reason: Reason
    """Reason of the decision."""
    about: str = ""
    """Detail of the reason."""


@dataclass(frozen=True, slots=True)
class Attention:
    """An attention ``softmax(query @ key^T * scale + masks) @ value``, computed by the node ``root``.

    ``root`` has shape (batch, heads, rows, depth), with batch and heads possibly as one dimension.
    """

    root: Node
    softmax: Node
    query: AttentionOperand
    key: AttentionOperand
    value: AttentionOperand
    scale: float
    growth: float
    """Bound of the factor by which scaling may enlarge a score, or an intermediate on the way to one."""
    masks: AttentionMasks
    lead: tuple[int, int]
    """Batch size and number of heads."""

    @property
    def rows(self) -> int:
        """Number of queries."""
        return self.query.shape[-2]

    @property
    def depth(self) -> int:
        """Size of a head."""
        return self.value.shape[-1]


def attention_of(match: Match, constants: KnownTensors) -> Attention | Refused:
    """Operands and masks of a match of :data:`ATTENTION`; or the reason for not rewriting it."""
    product, softmax, second = match.node("product"), match.node("softmax"), match.calls[0]
    values = [
        value_of(node) for node in (match.node("query"), match.node("key"), match.node("value"), second)
    ]
    if refused := _refused(values):
        return refused
    (batch, rows, _), (_, _, columns) = (tuple(value.shape) for value in values[:2] if value is not None)
    if not _has_kernel_order(match, rows, columns):
        return Refused(reasons.ATTENTION_ORDER)
    root = _root(second)
    lead = _lead((root, softmax), batch)
    query = operand(match.node("query"), lead, constants)
    value = operand(match.node("value"), lead)
    key = operand(match.node("key"), lead, constants, transposed=True)
    steps = match.steps_of(SCORES)
    scaled = _scale(steps, constants)
    if isinstance(scaled, Refused):
        return scaled
    masks = masks_of(steps, product, (*lead, rows, columns), constants)
    if isinstance(masks, str):
        return Refused(reasons.ATTENTION_MASK, masks)
    scale, growth = scaled
    for each in (query, key):
        scale, growth = scale * each.factor, growth * each.growth
    alpha = product.kwargs.get("alpha", 1)
    assert isinstance(alpha, int | float), "alpha is a number"
    return Attention(
        root, softmax, query, key, value, scale * alpha, growth * max(1.0, abs(alpha)), masks, lead
    )


def _refused(values: Sequence[torch.Tensor | None]) -> Refused | None:
    """Reason against operands and results of these types; None where the kernel accepts them."""
    tensors = [value for value in values if value is not None]
    if any(not all(type(size) is int for size in (*v.shape, *v.stride())) for v in tensors):
        return Refused(reasons.ATTENTION_SYMBOLS)
    if any(v.device.type != "cpu" for v in tensors):
        return Refused(reasons.ATTENTION_DEVICE)
    if len({v.dtype for v in tensors}) != 1 or tensors[0].dtype not in _DTYPES:
        return Refused(reasons.ATTENTION_DTYPE, str(tensors[0].dtype).removeprefix("torch."))
    query, key, value, result = tensors
    if query.shape[:2] != result.shape[:2]:
        return Refused(reasons.ATTENTION_MASK, "the mask broadcasts the scores")
    if query.shape[2] != value.shape[2]:
        return Refused(reasons.ATTENTION_HEADS, f"{query.shape[2]} and {value.shape[2]}")
    scores = query.shape[0] * query.shape[1] * key.shape[2] * query.element_size()
    if scores < _MIN_SCORE_BYTES or query.shape[2] == 0:
        return Refused(reasons.ATTENTION_SMALL, f"{scores} B of scores")
    return None


def _has_kernel_order(match: Match, rows: int, columns: int) -> bool:
    """True when every step between the matmuls has queries before keys, and heads in the matmul's batch order."""
    for name, start in ((SCORES, "product"), (WEIGHTS, "softmax")):
        steps, shape = match.steps_of(name), _shape(match.node(start))
        for position, step in enumerate(steps):
            if step.row in ("add", "fill", "fill_inverted") or position == 0:
                shown = shown_by(steps[position:], shape)
                if shown is None or not shown.is_contiguous():
                    return False
                if name == SCORES and tuple(shown.shape[-2:]) != (rows, columns):
                    return False
    return _shape(match.node("softmax"))[-2:] == (rows, columns)


def _shape(node: Node) -> tuple[int, ...]:
    value = value_of(node)
    assert value is not None, "the node is a tensor"
    return tuple(value.shape)


def _root(second: Node) -> Node:
    """Node to replace: the second matmul, or the view that is its only user and divides its batch dimension."""
    user = next(iter(second.users))
    is_only_view = len(second.users) == 1 and str(user.target) == "aten.view.default" and is_rearranged(user)
    return (
        user
        if is_only_view and len(_shape(user)) == 4 and _shape(user)[-2:] == _shape(second)[-2:]
        else second
    )


def _lead(nodes: Sequence[Node], batch: int) -> tuple[int, int]:
    """Batch size and number of heads; (1, batch) where no shape distinguishes them."""
    for node in nodes:
        shape = _shape(node)
        if len(shape) == 4 and shape[0] * shape[1] == batch:
            return shape[0], shape[1]
    return 1, batch


def _scale(steps: Sequence[MatchedStep], constants: KnownTensors) -> tuple[float, float] | Refused:
    """Factor of the scores, and bound by which it may enlarge them. Scaling after a mask is refused."""
    scale, growth = 1.0, 1.0
    masked = False
    for step in reversed(steps):
        if step.row in ("times", "over"):
            number = constants.number(step.bound["by"])
            if not number:
                return Refused(reasons.ATTENTION_SCALE)
            if masked:
                return Refused(reasons.ATTENTION_MASK, "the mask is scaled")
            factor = number if step.row == "times" else 1 / number
            scale, growth = scale * factor, growth * max(1.0, abs(factor))
        masked = masked or step.row in ("add", "fill", "fill_inverted")
    return scale, growth
