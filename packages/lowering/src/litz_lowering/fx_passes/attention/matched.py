"""An attention that was found in a graph: its parts, or why the kernel cannot stand for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.fx import Node

from litz_lowering.fx_passes.attention.constants import KnownTensors
from litz_lowering.fx_passes.attention.forms import SCORES, WEIGHTS, is_rearranged, value_of
from litz_lowering.fx_passes.attention.masks import AttentionMasks, masks_of
from litz_lowering.fx_passes.attention.operands import AttentionOperand, operand, shown_by
from litz_lowering.fx_passes.patterns import Match, MatchedStep

DTYPES = (torch.float32, torch.float64)
"""In narrow floats eager rounds scores and weights, which the kernel keeps in f32."""

WORTH = 4 << 20
"""The bytes of scores from which the kernel is faster: it never writes them to memory, which matters once they leave
the caches (1.1 times at 8 MB, 2.4 times at 50 MB; AMD Zen 4, f32, two cores). Below, both take as long, and the look at
queries, keys and values is lost."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Why an attention stays as it was written: a key of ``REASONS`` in :mod:`litz_ir`, and what is at fault."""

    reason: str
    about: str = ""


@dataclass(frozen=True, slots=True)
class Attention:
    """``softmax(query @ key^T * scale + masks) @ value``, which ``root`` computes.

    ``root`` is ``lead`` (batch and heads) by rows by depth, its leading dimensions perhaps as one. ``growth`` bounds by
    how much scaling may have made a score, or what it is made of, larger on the way.
    """

    root: Node
    softmax: Node
    query: AttentionOperand
    key: AttentionOperand
    value: AttentionOperand
    scale: float
    growth: float
    masks: AttentionMasks
    lead: tuple[int, int]

    @property
    def rows(self) -> int:
        """The number of queries."""
        return self.query.shape[-2]

    @property
    def depth(self) -> int:
        """The size of a head."""
        return self.value.shape[-1]


def attention_of(match: Match, constants: KnownTensors) -> Attention | Refused:
    """The parts of what :data:`ATTENTION` matched."""
    product, softmax, second = match.node("product"), match.node("softmax"), match.calls[0]
    values = [
        value_of(node) for node in (match.node("query"), match.node("key"), match.node("value"), second)
    ]
    if refused := _refused(values):
        return refused
    (batch, rows, _), (_, _, columns) = (tuple(value.shape) for value in values[:2] if value is not None)
    if not _keeps_order(match, rows, columns):
        return Refused("attention.order")
    root = _root(second)
    lead = _lead((root, softmax), batch)
    query = operand(match.node("query"), lead, constants)
    value = operand(match.node("value"), lead)
    key = operand(match.node("key"), lead, constants, transposed=True)
    steps = match.chain(SCORES)
    scaled = _scale(steps, constants)
    if isinstance(scaled, Refused):
        return scaled
    masks = masks_of(steps, product, (*lead, rows, columns), constants)
    if isinstance(masks, str):
        return Refused("attention.mask", masks)
    scale, growth = scaled
    for each in (query, key):
        scale, growth = scale * each.factor, growth * each.growth
    alpha = product.kwargs.get("alpha", 1)
    assert isinstance(alpha, int | float), "the factor of a product is a number"
    return Attention(
        root, softmax, query, key, value, scale * alpha, growth * max(1.0, abs(alpha)), masks, lead
    )


def _refused(values: Sequence[torch.Tensor | None]) -> Refused | None:
    """Why factors and results of these types are not the kernel's; None where they are."""
    tensors = [value for value in values if value is not None]
    if any(not all(type(size) is int for size in (*v.shape, *v.stride())) for v in tensors):
        return Refused("attention.symbols")
    if any(v.device.type != "cpu" for v in tensors):
        return Refused("attention.device")
    if len({v.dtype for v in tensors}) != 1 or tensors[0].dtype not in DTYPES:
        return Refused("attention.dtype", str(tensors[0].dtype).removeprefix("torch."))
    query, key, value, result = tensors
    if query.shape[:2] != result.shape[:2]:
        return Refused("attention.mask", "it makes scores for more than queries and keys")
    if query.shape[2] != value.shape[2]:
        return Refused("attention.heads", f"{query.shape[2]} and {value.shape[2]}")
    scores = query.shape[0] * query.shape[1] * key.shape[2] * query.element_size()
    if scores < WORTH or query.shape[2] == 0:
        return Refused("attention.small", f"{scores} B of scores")
    return None


def _keeps_order(match: Match, rows: int, columns: int) -> bool:
    """True when every step between the products sees queries before keys, and heads in the order of the product."""
    for name, start in ((SCORES, "product"), (WEIGHTS, "softmax")):
        steps, shape = match.chain(name), _shape(match.node(start))
        for position, step in enumerate(steps):
            if step.row in ("add", "fill", "keep") or position == 0:
                shown = shown_by(steps[position:], shape)
                if shown is None or not shown.is_contiguous():
                    return False
                if name == SCORES and tuple(shown.shape[-2:]) != (rows, columns):
                    return False
    return _shape(match.node("softmax"))[-2:] == (rows, columns)


def _shape(node: Node) -> tuple[int, ...]:
    value = value_of(node)
    assert value is not None, "it is a tensor"
    return tuple(value.shape)


def _root(second: Node) -> Node:
    """What is replaced: the second product, or the view that divides its leading dimension, its only reader."""
    user = next(iter(second.users))
    is_only_view = len(second.users) == 1 and str(user.target) == "aten.view.default" and is_rearranged(user)
    return (
        user
        if is_only_view and len(_shape(user)) == 4 and _shape(user)[-2:] == _shape(second)[-2:]
        else second
    )


def _lead(nodes: Sequence[Node], batch: int) -> tuple[int, int]:
    """Batch and heads, as far as anything tells them apart."""
    for node in nodes:
        shape = _shape(node)
        if len(shape) == 4 and shape[0] * shape[1] == batch:
            return shape[0], shape[1]
    return 1, batch


def _scale(steps: Sequence[MatchedStep], constants: KnownTensors) -> tuple[float, float] | Refused:
    """The factor of the scores, and how much larger it may make them; masks come after all scaling."""
    scale, growth = 1.0, 1.0
    masked = False
    for step in reversed(steps):
        if step.row in ("times", "over"):
            number = constants.number(step.bound["by"])
            if not number:
                return Refused("attention.scale")
            if masked:
                return Refused("attention.mask", "it is scaled")
            by = number if step.row == "times" else 1 / number
            scale, growth = scale * by, growth * max(1.0, abs(by))
        masked = masked or step.row in ("add", "fill", "keep")
    return scale, growth
