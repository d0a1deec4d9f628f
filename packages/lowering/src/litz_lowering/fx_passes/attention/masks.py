"""Masks of attention as one additive tensor, and the conditions under which that is exact.

The kernel gives zeros for a row whose scores are all minus infinity, where a softmax gives NaN; and it adds
masks, where ``masked_fill`` replaces scores. Results are equal as long as scores are small compared with the fill
value (``AttentionMasks.limit``), every row has a score left (``AttentionMasks.floor``), and no added mask is huge
(``MaskStep.ceiling``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch.fx import Node

from litz_lowering.fx_passes.attention.constants import KnownTensors
from litz_lowering.fx_passes.attention.forms import value_of
from litz_lowering.fx_passes.patterns import MatchedStep

Shape = tuple[int, ...]

LIMIT = 1e30
"""Bound of scores and of intermediates on the way to them. Sums stay finite in f32, and vanish in the lowest f32."""
_HIGHEST_FILL = -1000.0
"""Fill values must be lower than this for masked weights to vanish next to any unmasked one."""
_ASSUMED_BOUND = 1e6
"""Bound of scores that is assumed without a check. A fill value that absorbs this much may be added to scores
instead of replacing them."""


@dataclass(frozen=True, slots=True)
class MaskStep:
    """A mask that is added to scores, or that says where a value is filled in."""

    node: Node
    """Mask tensor."""
    shape: Shape
    """Broadcast 4-D shape as which the mask is viewed."""
    value: float | None = None
    """Fill value; None for an added mask."""
    inverted: bool = False
    """Fill where the mask is false instead of true."""
    ceiling: float = LIMIT
    """Upper bound that an added mask must respect."""


@dataclass(frozen=True, slots=True)
class AttentionMasks:
    """Masks of an attention in order, and the conditions that make adding them exact."""

    parts: tuple[MaskStep, ...] = ()
    """Masks that are added or filled in; none for a causal mask."""
    causal: bool = False
    """Use the kernel's own causal mask."""
    limit: float = LIMIT
    """Bound of the magnitude of scores."""
    floor: float | None = None
    """Lower bound that the largest mask element of each row must reach; None where every row is known to."""


def masks_of(
    steps: Sequence[MatchedStep], product: Node, shape: Shape, constants: KnownTensors
) -> AttentionMasks | str:
    """Masks among the steps from the softmax to the first matmul, for scores of ``shape``; or the reason against
    them."""
    given: list[MaskStep] = []
    if len(product.args) == 3 and product.kwargs.get("beta", 1) != 0:
        bias = product.args[0]
        assert isinstance(bias, Node), "baddbmm adds a tensor"
        if product.kwargs.get("beta", 1) != 1:
            return "the mask is scaled"
        if (mask_shape := _as_4d(bias, product, shape)) is None:
            return _OTHER_DIMENSIONS
        given.append(MaskStep(bias, mask_shape))
    for step in reversed(steps):
        if step.row in ("add", "fill", "fill_inverted"):
            mask = _mask_step(step, shape, constants)
            if isinstance(mask, str):
                return mask
            given.append(mask)
    scores = value_of(product)
    assert scores is not None, "scores are a tensor"
    return _causal(given, shape, constants) or _general(given, scores.dtype)


_OTHER_DIMENSIONS = "the leading dimensions of the mask are not batch and heads"


def _mask_step(step: MatchedStep, shape: Shape, constants: KnownTensors) -> MaskStep | str:
    node = step.bound["bias" if step.row == "add" else "where"]
    assert isinstance(node, Node), "a mask is a tensor"
    value, scores = value_of(node), value_of(step.node)
    assert scores is not None, "scores are a tensor"
    if value is None or value.dtype != (scores.dtype if step.row == "add" else torch.bool):
        return (
            "the dtype of the mask is not that of the scores" if step.row == "add" else "the mask is not bool"
        )
    if (mask_shape := _as_4d(node, step.node, shape)) is None:
        return _OTHER_DIMENSIONS
    if step.row == "add":
        return MaskStep(node, mask_shape)
    number = constants.number(step.bound["with"])
    if number is None:
        return "the fill value is not known"
    if not number <= _HIGHEST_FILL:
        return f"the fill value {number} does not hide scores"
    return MaskStep(node, mask_shape, number, inverted=step.row == "fill_inverted")


def _as_4d(mask: Node, step: Node, shape: Shape) -> Shape | None:
    """4-D shape of a mask of the scores ``step``, whose batch and heads are two dimensions or one."""
    value, scores = value_of(mask), value_of(step)
    assert value is not None and scores is not None, "masks and scores are tensors"
    if not all(type(size) is int for size in (*value.shape, *value.stride())):
        return None
    padded = (*(1,) * (scores.dim() - value.dim()), *value.shape)
    leading, matrix = padded[:-2], padded[-2:]
    if all(size == 1 for size in leading):
        return (1, 1, *matrix)
    if tuple(scores.shape) == shape:
        return padded
    return (*shape[:2], *matrix) if scores.dim() == 3 else None


def _general(given: Sequence[MaskStep], dtype: torch.dtype) -> AttentionMasks | str:
    """Masks as one tensor to be added; or the reason against it."""
    steps: list[MaskStep] = []
    limit, ceiling, floor = LIMIT, LIMIT, None
    for position, step in enumerate(given):
        if step.value is None:
            step, floor = replace(step, ceiling=ceiling), _LOWEST
        elif math.isinf(step.value):
            floor = _LOWEST
        elif (absorbed := -step.value * torch.finfo(dtype).eps / 8) >= _ASSUMED_BOUND:
            limit, ceiling = min(limit, absorbed), min(ceiling, absorbed)
        elif position == len(given) - 1:
            limit, floor = min(limit, -step.value / 4), step.value / 4
            step = replace(step, value=-math.inf)
        else:
            return f"another mask is added after the fill value {step.value}"
        steps.append(step)
    return AttentionMasks(tuple(steps), False, limit, floor)


_LOWEST = torch.finfo(torch.float32).min
"""A row whose largest mask element reaches this has a score that is not minus infinity."""


def _causal(given: Sequence[MaskStep], shape: Shape, constants: KnownTensors) -> AttentionMasks | None:
    """The kernel's causal mask, where the masks are known and leave each query the keys up to its own position."""
    rows, columns = shape[-2:]
    if not given or rows != columns or any(part.shape[:2] != (1, 1) for part in given):
        return None
    total = torch.zeros(rows, columns)
    for part in given:
        known = constants.tensor(part.node)
        if known is None:
            return None
        known = known.reshape(part.shape[-2:])
        if part.value is None:
            total = total + known
        else:
            total = total.masked_fill(~known if part.inverted else known, part.value)
    above = torch.ones(rows, columns, dtype=torch.bool).triu(1)
    highest = float(total[above].max()) if rows > 1 else -math.inf
    if not bool((total[~above] == 0).all()) or not highest <= _HIGHEST_FILL:
        return None
    return AttentionMasks(causal=True, limit=min(LIMIT, -highest / 4))
