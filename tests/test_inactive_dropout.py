"""Inactive dropouts are their arguments, as in eager, also where they are written."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import litz

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute")  # Dynamo reads that of inputs

INACTIVE: dict[str, Callable[[Tensor], Tensor]] = {
    "evaluation": lambda x: F.dropout(x, 0.5, training=False),
    "nothing dropped": lambda x: F.dropout(x, 0.0),
    "module": torch.nn.Dropout(0.3).eval(),
    "pixels": lambda x: F.dropout2d(x[None], 0.5, training=False)[0],
    "alpha": lambda x: F.alpha_dropout(x, 0.5, training=False),
}


@pytest.mark.parametrize("training", [False, True])
def test_an_inactive_dropout_is_its_argument(training: bool) -> None:
    def program(inputs: list[Tensor]) -> list[Tensor]:
        results = []
        for dropout, x in zip(INACTIVE.values(), inputs, strict=True):
            y = dropout(x)
            y.mul_(2)
            results += [y, x + 1]
        return results

    def arguments() -> list[Tensor]:
        numbers = [torch.arange(12.0).reshape(2, 2, 3).requires_grad_(training) for _ in INACTIVE]
        return [x * 1 for x in numbers] if training else numbers

    torch._dynamo.reset()
    compiled, eager = arguments(), arguments()
    with litz.config.patch(fallback="error"):
        found = torch.compile(program, backend="litz", fullgraph=True)(compiled)
    expected = program(eager)
    torch.testing.assert_close((found, compiled), (expected, eager))
    for own, x, reference, y in zip(found[::2], compiled, expected[::2], eager, strict=True):
        shared = reference.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()
        assert shared == (own.untyped_storage().data_ptr() == x.untyped_storage().data_ptr())
