"""What a body does to each channel of a value, as a factor and an addend per channel."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from litz_ir.scalar import Const, Expr, Load, Op, const, indirects, op, transform, walk


@dataclass(frozen=True, slots=True)
class Affine:
    """``factor * x + addend``; None for a factor of one and an addend of zero."""

    scale: Expr | None = None
    shift: Expr | None = None


@dataclass(frozen=True, slots=True)
class ChannelSplit:
    """A body as ``rest`` of something affine in ``x``, which it loads where it loaded ``x``."""

    affine: Affine
    rest: Expr


def split(body: Expr, x: Load, axis: str, lasting: Collection[str]) -> ChannelSplit:
    """The body around the largest part that is affine in ``x``, whose factor and addend depend on nothing but the
    channel ``axis`` and ``lasting`` buffers. Where no such part holds every use of ``x``, ``x`` itself is it."""
    found: dict[Expr, Affine] = {x: Affine()}
    flat: set[Expr] = set()
    for node in walk(body):
        if _is_flat(node, flat, axis, lasting):
            flat.add(node)
        elif isinstance(node, Op) and (affine := _combined(node, found, flat)) is not None:
            found[node] = affine
    for node, affine in reversed(found.items()):
        if x not in walk(_with(body, node, const(0, node.dtype))):
            return ChannelSplit(affine, _with(body, node, x))
    raise AssertionError("a body without the value that it is split around")


def _with(body: Expr, old: Expr, new: Expr) -> Expr:
    return transform(body, lambda node: new if node == old else node)


def _is_flat(node: Expr, flat: Collection[Expr], axis: str, lasting: Collection[str]) -> bool:
    """True for what is the same wherever the channel is, as all its parts in ``flat`` are."""
    if isinstance(node, Load) and (node.buffer not in lasting or any(indirects(node))):
        return False
    known = isinstance(node, Const | Load | Op) and node.free_symbols <= {axis}
    return known and all(child in flat for child in node.children)


def _combined(node: Op, found: dict[Expr, Affine], flat: Collection[Expr]) -> Affine | None:
    """What an operation over one affine value, and others that are flat, is."""
    moving = [k for k, child in enumerate(node.args) if child in found]
    if len(moving) != 1 or any(child not in flat for k, child in enumerate(node.args) if k != moving[0]):
        return None
    inner, place = found[node.args[moving[0]]], moving[0]
    others = [child for k, child in enumerate(node.args) if k != place]
    match node.name, place:
        case "add", _:
            return Affine(inner.scale, _sum(inner.shift, others[0]))
        case "sub", 0:
            return Affine(inner.scale, _sum(inner.shift, op("neg", others[0])))
        case "sub", 1:
            return Affine(_negated(inner.scale, node), _sum(_times(inner.shift, _minus_one(node)), others[0]))
        case "neg", _:
            return Affine(_negated(inner.scale, node), _times(inner.shift, _minus_one(node)))
        case "mul", _:
            return Affine(_product(inner.scale, others[0]), _times(inner.shift, others[0]))
        case "div", 0:
            reciprocal = op("div", const(1.0, node.dtype), others[0])
            return Affine(_product(inner.scale, reciprocal), _times(inner.shift, reciprocal))
    return None


def _minus_one(node: Expr) -> Const:
    return const(-1.0, node.dtype)


def _negated(factor: Expr | None, node: Expr) -> Expr:
    return _minus_one(node) if factor is None else op("neg", factor)


def _product(factor: Expr | None, other: Expr) -> Expr:
    return other if factor is None else op("mul", factor, other)


def _sum(addend: Expr | None, other: Expr) -> Expr:
    return other if addend is None else op("add", addend, other)


def _times(addend: Expr | None, factor: Expr) -> Expr | None:
    return None if addend is None else op("mul", addend, factor)
