"""How attention is written by hand: two products around a softmax, and the steps that may stand between them."""

from __future__ import annotations

import torch
from torch.fx import Node

from litz_lowering.fx_passes.patterns import (
    HERE,
    AnyNode,
    CallPattern,
    Either,
    NumberPattern,
    Pattern,
    Row,
    StepChain,
)

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
        Row("view", CallPattern(_REGROUPING, (HERE,), where=is_rearranged, once=once)),
        Row("copy", CallPattern(_COPYING, (HERE,), where=is_rearranged, once=once)),
    )


def _scaled(once: bool) -> tuple[Row, ...]:
    by = Either((NumberPattern("by"), AnyNode("by")))
    return (
        Row("times", CallPattern(("aten.mul.Tensor",), (HERE, by), once=once, commutes=True)),
        Row("over", CallPattern(("aten.div.Tensor",), (HERE, by), once=once)),
    )


_MASKED = (
    Row(
        "add",
        CallPattern(("aten.add.Tensor",), (HERE, AnyNode("bias")), where=_without_factor, commutes=True),
    ),
    Row("fill", CallPattern(("aten.masked_fill.Scalar",), (HERE, AnyNode("where"), NumberPattern("with")))),
    Row("fill", CallPattern(("aten.masked_fill.Tensor",), (HERE, AnyNode("where"), AnyNode("with")))),
    Row("fill", CallPattern(("aten.where.self",), (AnyNode("where"), AnyNode("with"), HERE))),
    Row("keep", CallPattern(("aten.where.self",), (AnyNode("where"), HERE, AnyNode("with")))),
)
"""Masks: added, or written where they hold, or where they do not."""

OPERAND: Pattern = StepChain("operand", (*rearranged(once=False), *_scaled(once=False)), AnyNode("source"))
"""What a factor of a product is made of. Which of its steps are looked through is decided by what they do."""

_PRODUCT = Either(
    (
        CallPattern(("aten.bmm.default",), (AnyNode("query"), AnyNode("key")), name="product"),
        CallPattern(
            ("aten.baddbmm.default",), (AnyNode("bias"), AnyNode("query"), AnyNode("key")), name="product"
        ),
    )
)

SOFTMAX: Pattern = CallPattern(
    ("aten._softmax.default", "aten._safe_softmax.default"),
    (StepChain(SCORES, (*rearranged(once=True), *_scaled(once=True), *_MASKED), _PRODUCT),),
    where=_over_the_last_dimension,
    name="softmax",
)
"""The softmax of scores."""

ATTENTION: Pattern = CallPattern(
    ("aten.bmm.default",), (StepChain(WEIGHTS, rearranged(once=True), SOFTMAX), AnyNode("value"))
)
"""The whole: weights times values."""
