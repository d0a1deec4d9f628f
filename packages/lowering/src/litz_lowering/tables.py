"""Tables of what lowering does with an operator: the decompositions for AOTAutograd, and registration of rules.

The decorators are here since importing this module loads litz's own rules, after which others are the user's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from litz_lowering.aten.eager_checks import RefusedByEager as RefusedByEager
from litz_lowering.aten.eager_checks import with_eager_checks
from litz_lowering.contexts.registry import decomposition as decomposition
from litz_lowering.contexts.registry import rule as rule
from litz_lowering.decompose.table import MOVES, Decompositions, decomposition_table
from litz_lowering.rules import RULES


def decompositions(*, recomputed: bool = False, strict: bool = False) -> Decompositions:
    """Decomposition table for AOTAutograd, the user's included; operators with a lowering rule are not decomposed.

    With ``recomputed`` softmax, norms and some activations are, so that a backward may recompute parts of them: for
    training where memory is dearer than arithmetic. Operators that the user registered a rule for keep it. With
    ``strict`` only those of torch's decompositions are in the table that move elements, so that others are eager's.
    """
    if strict:
        return decomposition_table(RULES.served, RULES.decompositions, names=MOVES)
    return decomposition_table(RULES.served, RULES.decompositions, RULES.is_own if recomputed else None)


def checked_decompositions(table: Decompositions) -> dict[Any, Callable[..., Any]]:
    """Decomposition table for AOTAutograd that raises :class:`RefusedByEager` for an operator that eager refuses, of
    those in ``table`` and those with a lowering rule."""
    return with_eager_checks(table, {*RULES.served, *RULES.served_complex})
