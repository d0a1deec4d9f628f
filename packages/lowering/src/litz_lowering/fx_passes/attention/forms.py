"""How attention is written by hand: two products around a softmax, and the steps that may stand between them."""

from __future__ import annotations

import torch
from torch.fx import Node

from litz_lowering.fx_passes.patterns import HERE, Any, Call, Chain, Either, Number, Pattern, Row

SCORES, WEIGHTS = "scores", "weights"
"""The chains of steps from the first product to the softmax, and from there to the second product."""

_REGROUPING = (
    "aten.view.default", "aten._unsafe_view.default", "aten.reshape.default", "aten.permute.default",
    "aten.transpose.int", "aten.unsqueeze.default", "aten.squeeze.dim", "aten.squeeze.dims", "aten.expand.default",
)  # fmt: skip
_COPYING = ("aten.clone.default", "aten.alias.default", "aten.detach.default")


def value_of(node: Node) -> torch.Tensor | None:
    """The fake tensor that a node's metadata says it is; None for what is no tensor."""
    found = node.meta.get("val")
    return found if isinstance(found, torch.Tensor) else None


def is_rearranged(node: Node) -> bool:
    """True where a view or a copy has the elements of its source, each of them once; sizes that are symbols are not
    looked at, which could guard."""
    made, source = value_of(node), value_of(node.all_input_nodes[0]) if node.all_input_nodes else None
    if made is None or source is None:
        return False
    if not all(type(size) is int for size in (*made.shape, *source.shape)):
        return True
    return bool(made.numel() == source.numel())


def _without_factor(node: Node) -> bool:
    return bool(node.kwargs.get("alpha", 1) == 1)


def _over_the_last_dimension(node: Node) -> bool:
    made = value_of(node)
    return made is not None and node.args[1] in (-1, made.dim() - 1)


def rearranged(once: bool) -> tuple[Row, ...]:
    """Views and copies, told apart: copies change no index."""
    return (
        Row("view", Call(_REGROUPING, (HERE,), where=is_rearranged, once=once)),
        Row("copy", Call(_COPYING, (HERE,), where=is_rearranged, once=once)),
    )


def _scaled(once: bool) -> tuple[Row, ...]:
    by = Either((Number("by"), Any("by")))
    return (
        Row("times", Call(("aten.mul.Tensor",), (HERE, by), once=once, commutes=True)),
        Row("over", Call(("aten.div.Tensor",), (HERE, by), once=once)),
    )


_MASKED = (
    Row("add", Call(("aten.add.Tensor",), (HERE, Any("bias")), where=_without_factor, commutes=True)),
    Row("fill", Call(("aten.masked_fill.Scalar",), (HERE, Any("where"), Number("with")))),
    Row("fill", Call(("aten.masked_fill.Tensor",), (HERE, Any("where"), Any("with")))),
    Row("fill", Call(("aten.where.self",), (Any("where"), Any("with"), HERE))),
    Row("keep", Call(("aten.where.self",), (Any("where"), HERE, Any("with")))),
)
"""Masks: added, or written where they hold, or where they do not."""

OPERAND: Pattern = Chain("operand", (*rearranged(once=False), *_scaled(once=False)), Any("source"))
"""What a factor of a product is made of. Which of its steps are looked through is decided by what they do."""

_PRODUCT = Either(
    (
        Call(("aten.bmm.default",), (Any("query"), Any("key")), name="product"),
        Call(("aten.baddbmm.default",), (Any("bias"), Any("query"), Any("key")), name="product"),
    )
)

SOFTMAX: Pattern = Call(
    ("aten._softmax.default", "aten._safe_softmax.default"),
    (Chain(SCORES, (*rearranged(once=True), *_scaled(once=True), *_MASKED), _PRODUCT),),
    where=_over_the_last_dimension,
    name="softmax",
)
"""The softmax of scores."""

ATTENTION: Pattern = Call(
    ("aten.bmm.default",), (Chain(WEIGHTS, rearranged(once=True), SOFTMAX), Any("value"))
)
"""The whole: weights times values."""
