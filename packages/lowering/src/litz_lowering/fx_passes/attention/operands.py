"""Queries, keys and values of an attention in the form that the kernel takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch.fx import Node

from litz_lowering.fx_passes.attention.constants import KnownTensors
from litz_lowering.fx_passes.attention.forms import OPERAND, value_of
from litz_lowering.fx_passes.patterns import Match, MatchedStep, find

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AttentionOperand:
    """A matmul operand: ``source`` viewed as ``shape``, transposed if ``transposed``, times ``factor``."""

    source: Node
    shape: Shape
    transposed: bool = False
    factor: float = 1.0
    growth: float = 1.0
    """Bound of the factor by which a step may have enlarged an intermediate."""


def operand(
    node: Node, lead: Shape, constants: KnownTensors | None = None, *, transposed: bool = False
) -> AttentionOperand:
    """Trace a 3-D matmul operand back to a 4-D tensor whose leading dimensions are ``lead``, as far up as
    possible.

    ``transposed`` operands are keys. Sources without contiguous rows are skipped; without any candidate the
    operand itself is taken. Scaling by known numbers is looked through where ``constants`` are given.
    """
    rows, columns = _shape(node)[1:]
    wanted = (*lead, rows, columns)
    found = AttentionOperand(node, wanted, transposed)
    match = find(OPERAND, node)
    steps = match.steps_of("operand") if isinstance(match, Match) else ()
    for candidate in _candidates(node, steps, wanted, constants, transposed):
        if _has_rows(candidate):
            found = candidate
    return found


def _candidates(
    node: Node, steps: Sequence[MatchedStep], wanted: Shape, constants: KnownTensors | None, transposed: bool
) -> Iterator[AttentionOperand]:
    """Yield the node and the input of each step, while elements stay equal up to a factor."""
    swapped = (*wanted[:-2], wanted[-1], wanted[-2])
    factor, growth = 1.0, 1.0
    yield from _as_viewed(node, (), wanted, swapped, transposed, (factor, growth))
    for position, step in enumerate(steps, 1):
        if step.row in ("times", "over"):
            number = None if constants is None else constants.number(step.bound["by"])
            if not number:
                return
            factor *= number if step.row == "times" else 1 / number
            growth *= max(1.0, abs(number) if step.row == "times" else 1 / abs(number))
        yield from _as_viewed(step.inner, steps[:position], wanted, swapped, transposed, (factor, growth))


def _as_viewed(
    source: Node,
    steps: Sequence[MatchedStep],
    wanted: Shape,
    swapped: Shape,
    transposed: bool,
    scaling: tuple[float, float],
) -> Iterator[AttentionOperand]:
    """Yield the source as an operand, where the steps only change its shape."""
    value = value_of(source)
    if value is None or not all(type(size) is int for size in (*value.shape, *value.stride())):
        return
    shown = shown_by(steps, tuple(value.shape))
    if shown is None:
        return
    if shown.is_contiguous() and _is_viewable(value, wanted):
        yield AttentionOperand(source, wanted, transposed, *scaling)
    elif transposed and shown.transpose(-2, -1).is_contiguous() and _is_viewable(value, swapped):
        yield AttentionOperand(source, swapped, False, *scaling)


def shown_by(steps: Sequence[MatchedStep], shape: Shape) -> torch.Tensor | None:
    """Meta tensor that ``steps`` (from the result upwards) make of a contiguous tensor.

    It is contiguous where they only change the shape. None where a step cannot be applied.
    """
    made = torch.empty(shape, device="meta")
    for step in reversed(steps):
        if step.row == "view":
            target = step.node.target
            assert callable(target), "an overload"
            try:
                made = target(made, *step.node.args[1:])
            except (IndexError, RuntimeError, ValueError):
                return None
    return made


def _is_viewable(value: torch.Tensor, shape: Shape) -> bool:
    """True when the tensor can be viewed as another shape without a copy."""
    if 0 in value.shape or 0 in [s for s, size in zip(value.stride(), value.shape) if size > 1]:
        return False
    like = torch.empty_strided(tuple(value.shape), tuple(value.stride()), device="meta")
    try:
        like.view(shape)
    except (RuntimeError, ValueError):
        return False
    return True


def _has_rows(candidate: AttentionOperand) -> bool:
    """True when the last dimension is contiguous, as the kernel requires."""
    value = value_of(candidate.source)
    assert value is not None, "a candidate is a tensor"
    like = torch.empty_strided(tuple(value.shape), tuple(value.stride()), device="meta").view(candidate.shape)
    return (like.transpose(-2, -1) if candidate.transposed else like).stride(-1) == 1


def _shape(node: Node) -> Shape:
    value = value_of(node)
    assert value is not None, "an operand of a matmul is a tensor"
    return tuple(value.shape)
