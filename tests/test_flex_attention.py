"""FlexAttention with functions for scores and masks, planned for a GPU: eager's values and gradients, and the
kernels."""

from __future__ import annotations

from collections.abc import Callable

import flex_attention_cases
import pytest

from litz_ir.text import to_text

CASES = flex_attention_cases.CASES


@pytest.mark.sampled
@pytest.mark.parametrize("name", CASES)
def test_plans_mean_what_eager_computes(name: str) -> None:
    case = CASES[name]
    difference, plans = flex_attention_cases.differs(case, flex_attention_cases.reference)
    assert difference == ""
    assert tuple(len(plan.kernels) for plan in plans) == case.kernels


def test_plans(golden: Callable[[str, str], None]) -> None:
    """Plans with one forward kernel and three backward ones: for the rows, for queries, and for keys and values."""
    _, plans = flex_attention_cases.differs(CASES["bf16"], flex_attention_cases.reference)
    forward, backward = map(to_text, plans)
    golden("flex_attention_sm_90.txt", forward)
    golden("flex_attention_backward_sm_90.txt", backward)
