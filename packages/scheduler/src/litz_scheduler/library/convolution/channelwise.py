"""Affine functions of each channel (a scale and a shift) that a loop body applies, such as a batch norm."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from litz_ir.scalar import Const, Expr, Load, Op, const, indirects, op, transform, walk


@dataclass(frozen=True, slots=True)
class Affine:
    """The function ``scale * x + shift``."""

    scale: Expr | None = None
    """``None`` for one."""
    shift: Expr | None = None
    """``None`` for zero."""


@dataclass(frozen=True, slots=True)
class ChannelSplit:
    """A loop body as the composition of an affine function of one value, such as a load, and the rest."""

    affine: Affine
    """The function that is applied to the value first."""
    rest: Expr
    """The body applied to the function's value, instead of the original one."""


def split(body: Expr, x: Expr, axis: str, frozen: Collection[str]) -> ChannelSplit:
    """Split ``body`` at its largest subexpression that is affine in ``x`` and contains every use of ``x``.

    Scale and shift depend on nothing but the channel ``axis`` and ``frozen`` buffers. Where there is no larger
    subexpression, it is ``x`` itself.
    """
    affine_nodes: dict[Expr, Affine] = {x: Affine()}
    per_channel: set[Expr] = set()
    for node in walk(body):
        if _is_per_channel(node, per_channel, axis, frozen):
            per_channel.add(node)
        elif isinstance(node, Op) and (affine := _combined(node, affine_nodes, per_channel)) is not None:
            affine_nodes[node] = affine
    for node, affine in reversed(affine_nodes.items()):
        if x not in walk(_with(body, node, const(0, node.dtype))):
            return ChannelSplit(affine, _with(body, node, x))
    raise AssertionError("the body does not load the value at which it is split")


def _with(body: Expr, old: Expr, new: Expr) -> Expr:
    return transform(body, lambda node: new if node == old else node)


def _is_per_channel(node: Expr, per_channel: Collection[Expr], axis: str, frozen: Collection[str]) -> bool:
    """Return whether an expression depends on the channel alone, as those in ``per_channel`` do."""
    if isinstance(node, Load) and (node.buffer not in frozen or any(indirects(node))):
        return False
    known = isinstance(node, Const | Load | Op) and node.free_symbols <= {axis}
    return known and all(child in per_channel for child in node.children)


def _combined(node: Op, affine_nodes: dict[Expr, Affine], per_channel: Collection[Expr]) -> Affine | None:
    """Return the affine function of an operation on one affine value and otherwise per-channel operands."""
    varying = [k for k, child in enumerate(node.args) if child in affine_nodes]
    if len(varying) != 1 or any(
        child not in per_channel for k, child in enumerate(node.args) if k != varying[0]
    ):
        return None
    inner, position = affine_nodes[node.args[varying[0]]], varying[0]
    others = [child for k, child in enumerate(node.args) if k != position]
    match node.name, position:
        case "add", _:
            return Affine(inner.scale, _shifted(inner.shift, others[0]))
        case "sub", 0:
            return Affine(inner.scale, _shifted(inner.shift, op("neg", others[0])))
        case "sub", 1:
            return Affine(
                _negated(inner.scale, node), _shifted(_scaled_shift(inner.shift, _minus_one(node)), others[0])
            )
        case "neg", _:
            return Affine(_negated(inner.scale, node), _scaled_shift(inner.shift, _minus_one(node)))
        case "mul", _:
            return Affine(_scaled(inner.scale, others[0]), _scaled_shift(inner.shift, others[0]))
        case "div", 0:
            reciprocal = op("div", const(1.0, node.dtype), others[0])
            return Affine(_scaled(inner.scale, reciprocal), _scaled_shift(inner.shift, reciprocal))
    return None


def _minus_one(node: Expr) -> Const:
    return const(-1.0, node.dtype)


def _negated(scale: Expr | None, node: Expr) -> Expr:
    return _minus_one(node) if scale is None else op("neg", scale)


def _scaled(scale: Expr | None, other: Expr) -> Expr:
    return other if scale is None else op("mul", scale, other)


def _shifted(shift: Expr | None, other: Expr) -> Expr:
    return other if shift is None else op("add", shift, other)


def _scaled_shift(shift: Expr | None, scale: Expr) -> Expr | None:
    return None if shift is None else op("mul", shift, scale)
