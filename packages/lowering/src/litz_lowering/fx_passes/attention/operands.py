"""Queries, keys and values: what the factors of the two products are made of, as the kernel takes them."""

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
    """``source`` viewed as ``shape``, then with its last two dimensions swapped if it is ``transposed``.

    The factor of the product is that times ``factor``; ``growth`` bounds how much larger a step may have made it.
    """

    source: Node
    shape: Shape
    transposed: bool = False
    factor: float = 1.0
    growth: float = 1.0


def operand(
    node: Node, lead: Shape, constants: KnownTensors | None = None, *, transposed: bool = False
) -> AttentionOperand:
    """The 4-D tensor behind a 3-D factor, its leading dimension divided into ``lead``, as far up as it can be traced.

    ``transposed`` factors are keys: the kernel takes them the other way round. Sources whose rows are not contiguous
    are left for nearer ones whose are; else the factor itself is taken. Scaling by numbers, which ``constants`` know,
    is looked through where they are given.
    """
    rows, columns = _shape(node)[1:]
    wanted = (*lead, rows, columns)
    found = AttentionOperand(node, wanted, transposed)
    match = find(OPERAND, node)
    steps = match.chain("operand") if isinstance(match, Match) else ()
    for candidate in _candidates(node, steps, wanted, constants, transposed):
        if _has_rows(candidate):
            found = candidate
    return found


def _candidates(
    node: Node, steps: Sequence[MatchedStep], wanted: Shape, constants: KnownTensors | None, transposed: bool
) -> Iterator[AttentionOperand]:
    """The node itself and what stands above each of its steps, if elements are the same up to a factor."""
    turned = (*wanted[:-2], wanted[-1], wanted[-2])
    factor, growth = 1.0, 1.0
    yield from _as_viewed(node, (), wanted, turned, transposed, (factor, growth))
    for position, step in enumerate(steps, 1):
        if step.row in ("times", "over"):
            number = None if constants is None else constants.number(step.bound["by"])
            if not number:
                return
            factor *= number if step.row == "times" else 1 / number
            growth *= max(1.0, abs(number) if step.row == "times" else 1 / abs(number))
        yield from _as_viewed(step.inner, steps[:position], wanted, turned, transposed, (factor, growth))


def _as_viewed(
    source: Node,
    steps: Sequence[MatchedStep],
    wanted: Shape,
    turned: Shape,
    transposed: bool,
    by: tuple[float, float],
) -> Iterator[AttentionOperand]:
    """The source as the kernel wants it, where the steps change no more than the shape."""
    value = value_of(source)
    if value is None or not all(type(size) is int for size in (*value.shape, *value.stride())):
        return
    shown = shown_by(steps, tuple(value.shape))
    if shown is None:
        return
    if shown.is_contiguous() and _is_viewable(value, wanted):
        yield AttentionOperand(source, wanted, transposed, *by)
    elif transposed and shown.transpose(-2, -1).is_contiguous() and _is_viewable(value, turned):
        yield AttentionOperand(source, turned, False, *by)


def shown_by(steps: Sequence[MatchedStep], shape: Shape) -> torch.Tensor | None:
    """What ``steps`` (from the result upwards) make of a contiguous tensor, in strides: contiguous again where they
    change the shape alone. None where they do not say."""
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
    """True when the tensor can be seen under another shape without a copy."""
    if 0 in value.shape or 0 in [s for s, size in zip(value.stride(), value.shape) if size > 1]:
        return False
    like = torch.empty_strided(tuple(value.shape), tuple(value.stride()), device="meta")
    try:
        like.view(shape)
    except (RuntimeError, ValueError):
        return False
    return True


def _has_rows(candidate: AttentionOperand) -> bool:
    """True when the elements of a row lie beside one another, as the kernel reads them."""
    value = value_of(candidate.source)
    assert value is not None, "a candidate is a tensor"
    like = torch.empty_strided(tuple(value.shape), tuple(value.stride()), device="meta").view(candidate.shape)
    return (like.transpose(-2, -1) if candidate.transposed else like).stride(-1) == 1


def _shape(node: Node) -> Shape:
    value = value_of(node)
    assert value is not None, "a factor of a product is a tensor"
    return tuple(value.shape)
