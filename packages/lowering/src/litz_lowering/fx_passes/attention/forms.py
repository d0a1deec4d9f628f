"""Patterns of attention written as separate operators: two matmuls, a softmax, and the steps between them."""

from __future__ import annotations

import torch
from torch.fx import Node

from litz_lowering.fx_passes.patterns import (
    HERE,
    AnyNode,
    CallPattern,
    Either,
    NumberPattern,
    OptionalSteps,
    Pattern,
    Row,
)

SCORES, WEIGHTS = "scores", "weights"
"""Names of the step chains from the first matmul to the softmax, and from there to the second matmul."""

_REGROUPING = (
    "aten.view.default", "aten._unsafe_view.default", "aten.reshape.default", "aten.permute.default",
    "aten.transpose.int", "aten.unsqueeze.default", "aten.squeeze.dim", "aten.squeeze.dims", "aten.expand.default",
)  # fmt: skip
_COPYING = ("aten.clone.default", "aten.alias.default", "aten.detach.default")


def value_of(node: Node) -> torch.Tensor | None:
    """Fake tensor of a node's metadata; None where the node is no tensor."""
    found = node.meta.get("val")
    return found if isinstance(found, torch.Tensor) else None


def is_rearranged(node: Node) -> bool:
    """True where a view or copy contains each element of its source once.

    Symbolic sizes are assumed to agree, since comparing them could add a guard.
    """
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


def _rearranged(once: bool) -> tuple[Row, ...]:
    """Rows for views and for copies. Copies change no index."""
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
    Row("fill_inverted", CallPattern(("aten.where.self",), (AnyNode("where"), HERE, AnyNode("with")))),
)
"""Masks: added to the scores, or filled in where a condition is true or false (``fill_inverted``)."""

OPERAND: Pattern = OptionalSteps(
    "operand", (*_rearranged(once=False), *_scaled(once=False)), AnyNode("source")
)
"""Steps from which an operand of a matmul is computed. The caller decides which of them it can look through."""

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
    (OptionalSteps(SCORES, (*_rearranged(once=True), *_scaled(once=True), *_MASKED), _PRODUCT),),
    where=_over_the_last_dimension,
    name="softmax",
)
"""Softmax of attention scores."""

ATTENTION: Pattern = CallPattern(
    ("aten.bmm.default",), (OptionalSteps(WEIGHTS, _rearranged(once=True), SOFTMAX), AnyNode("value"))
)
"""Attention: softmax weights times values."""
