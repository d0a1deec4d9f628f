"""What is added to scores or written over them, as one tensor that the kernel adds; and what must hold for that.

The kernel gives zeros for a row whose scores are all minus infinity, where a softmax gives NaN, and it adds, where
``masked_fill`` replaces. Both come to the same as long as scores are small beside what is written (``Masks.limit``),
every row has a score left (``Masks.floor``), and nothing that is added is huge (``Part.ceiling``).
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
"""No score, nor anything on the way to one, may be larger: sums stay finite in f32, and the lowest f32 swallows it."""
_FORBIDDING = -1000.0
"""What is written must be lower for weights to vanish beside any that is left."""
_SWALLOWED = 1e6
"""Scores are taken to be smaller: what swallows so much may be added where it was to be written."""


@dataclass(frozen=True, slots=True)
class MaskStep:
    """One step: ``node`` seen as ``shape`` (4-D, broadcast) is added, or says where ``value`` is written; where it does
    not hold, if ``inverted``. What is added is at most ``ceiling``."""

    node: Node
    shape: Shape
    value: float | None = None
    inverted: bool = False
    ceiling: float = LIMIT


@dataclass(frozen=True, slots=True)
class AttentionMasks:
    """The steps in order, and what must hold: scores are at most ``limit`` in magnitude, and the sum of all parts
    reaches ``floor`` in every row (None: it does). ``causal`` ones are the kernel's own, and have no parts."""

    parts: tuple[MaskStep, ...] = ()
    causal: bool = False
    limit: float = LIMIT
    floor: float | None = None


def masks_of(
    steps: Sequence[MatchedStep], product: Node, shape: Shape, constants: KnownTensors
) -> AttentionMasks | str:
    """The masks among the steps from the softmax down to ``product``, for scores of ``shape``; why not, in words."""
    given: list[MaskStep] = []
    if len(product.args) == 3 and product.kwargs.get("beta", 1) != 0:
        bias = product.args[0]
        assert isinstance(bias, Node), "what a product is added to is a tensor"
        if product.kwargs.get("beta", 1) != 1:
            return "it is scaled"
        if (seen := _as_4d(bias, product, shape)) is None:
            return _NEITHER
        given.append(MaskStep(bias, seen))
    for step in reversed(steps):
        if step.row in ("add", "fill", "keep"):
            part = _part(step, shape, constants)
            if isinstance(part, str):
                return part
            given.append(part)
    scores = value_of(product)
    assert scores is not None, "scores are a tensor"
    return _causal(given, shape, constants) or _general(given, scores.dtype)


_NEITHER = "its leading dimensions are not those of batch and heads"


def _part(step: MatchedStep, shape: Shape, constants: KnownTensors) -> MaskStep | str:
    node = step.bound["bias" if step.row == "add" else "where"]
    assert isinstance(node, Node), "a mask is a tensor"
    value, scores = value_of(node), value_of(step.node)
    assert scores is not None, "scores are a tensor"
    if value is None or value.dtype != (scores.dtype if step.row == "add" else torch.bool):
        return "it has another dtype"
    if (seen := _as_4d(node, step.node, shape)) is None:
        return _NEITHER
    if step.row == "add":
        return MaskStep(node, seen)
    number = constants.number(step.bound["with"])
    if number is None:
        return "what it writes is not known"
    if not number <= _FORBIDDING:
        return f"it writes {number}"
    return MaskStep(node, seen, number, inverted=step.row == "keep")


def _as_4d(mask: Node, step: Node, shape: Shape) -> Shape | None:
    """The 4-D shape of a mask of the scores ``step``, which has batch and heads as two dimensions or as one."""
    value, scores = value_of(mask), value_of(step)
    assert value is not None and scores is not None, "masks and scores are tensors"
    if not all(type(size) is int for size in (*value.shape, *value.stride())):
        return None
    padded = (*(1,) * (scores.dim() - value.dim()), *value.shape)
    ahead, behind = padded[:-2], padded[-2:]
    if all(size == 1 for size in ahead):
        return (1, 1, *behind)
    if tuple(scores.shape) == shape:
        return padded
    return (*shape[:2], *behind) if scores.dim() == 3 else None


def _general(given: Sequence[MaskStep], dtype: torch.dtype) -> AttentionMasks | str:
    """The parts as one tensor to be added."""
    parts: list[MaskStep] = []
    limit, ceiling, floor = LIMIT, LIMIT, None
    for position, part in enumerate(given):
        if part.value is None:
            part, floor = replace(part, ceiling=ceiling), _LOWEST
        elif math.isinf(part.value):
            floor = _LOWEST
        elif (room := -part.value * torch.finfo(dtype).eps / 8) >= _SWALLOWED:
            limit, ceiling = min(limit, room), min(ceiling, room)
        elif position == len(given) - 1:
            limit, floor = min(limit, -part.value / 4), part.value / 4
            part = replace(part, value=-math.inf)
        else:
            return f"it writes {part.value}, and more is added"
        parts.append(part)
    return AttentionMasks(tuple(parts), False, limit, floor)


_LOWEST = torch.finfo(torch.float32).min
"""A row that reaches it has a score that is not minus infinity."""


def _causal(given: Sequence[MaskStep], shape: Shape, constants: KnownTensors) -> AttentionMasks | None:
    """The kernel's own mask, where the parts are known and leave each query the keys up to its own place."""
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
    if not bool((total[~above] == 0).all()) or not highest <= _FORBIDDING:
        return None
    return AttentionMasks(causal=True, limit=min(LIMIT, -highest / 4))
