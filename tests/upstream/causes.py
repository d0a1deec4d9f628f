"""Causes of the failures that are left, as data: the first row whose patterns match is a failure's cause."""

from __future__ import annotations

import re

from upstream.outcome import Outcome

CAUSES: tuple[tuple[str, str, str], ...] = (
    (
        "test_invalid_index_of_empty_tensor",
        "^IndexError",
        "the test wants Inductor's `RuntimeError`, eager and litz raise `IndexError`",
    ),
    (
        "test_no_redundant_to_dtypes",
        "not close",
        "the test wants an f16 operand of `tan` unrounded, eager and litz round it",
    ),
    (
        "test_neg_conj_view",
        "False is not true",
        "a complex result under both bits has the conjugate bit alone",
    ),
)
"""Rows of a pattern of `suite::test`, a pattern of the reason, and the cause."""


def cause_of(outcome: Outcome) -> str:
    """Return the cause of a failure; one without a row is its verdict and reason."""
    name = f"{outcome.suite}::{outcome.test}"
    for test, reason, cause in CAUSES:
        if re.search(test, name) and re.search(reason, outcome.reason):
            return cause
    return f"not examined: {outcome.verdict}"
