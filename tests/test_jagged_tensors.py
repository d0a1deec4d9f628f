"""Jagged nested tensors that a compiled function creates, against eager."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nested import nested_tensor_from_jagged
from torch.nn import functional

ARGUMENTS = [
    (torch.randn(7, 4), torch.tensor([0, 2, 5, 7])),
    (torch.randn(9, 4), torch.tensor([0, 3, 9])),
    (torch.randn(4, 4), torch.tensor([0, 1, 4])),
]
"""Values and offsets, whose number of rows may be the length of a row."""


def test_norms_and_softmaxes() -> None:
    norm = nn.LayerNorm(4)
    nn.init.normal_(norm.weight)

    def program(values: Tensor, offsets: Tensor) -> list[Tensor]:
        rows = nested_tensor_from_jagged(values, offsets)
        dense = [norm(rows), functional.rms_norm(rows, (4,)), functional.softmax(rows, -1)]
        with torch.no_grad():  # eager has no derivatives of these
            results = [rows.log_softmax(-1).values(), rows.sum(1), rows.mean(1)]
        return [each.values() for each in dense] + results

    torch._dynamo.reset()
    compiled = torch.compile(program, backend="litz", fullgraph=True)
    for values, offsets in ARGUMENTS:
        computed = []
        for function in (compiled, program):
            leaf = values.clone().requires_grad_()
            results = function(leaf, offsets)
            loss = sum(each.sin().sum() for each in results)
            computed.append((results, torch.autograd.grad(loss, [leaf, norm.weight])))
        torch.testing.assert_close(*computed)


@pytest.mark.parametrize("other", ["a number", "a size", "another"])
def test_ragged_sizes_are_compared(other: str) -> None:
    def program(values: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
        rows = nested_tensor_from_jagged(values, offsets)
        second = nested_tensor_from_jagged(values, offsets + 0)
        size = {"a number": 4, "a size": values.shape[0], "another": second.shape[1]}[other]
        return rows.values() + (1 if rows.shape[1] == size else 2), rows

    torch._dynamo.reset()
    compiled = torch.compile(program, backend="litz", fullgraph=True)
    for values, offsets in ARGUMENTS:
        (dense, jagged), (expected, reference) = compiled(values, offsets), program(values, offsets)
        assert jagged.is_nested and jagged.layout == torch.jagged
        torch.testing.assert_close(
            (dense, jagged.values(), jagged.offsets()), (expected, reference.values(), reference.offsets())
        )
