"""Scans, searches, scatters and embedding bags, compiled, against eager."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import litz

NAN, INF = math.nan, math.inf


def test_scans_and_searches() -> None:
    def function(x: torch.Tensor, n: torch.Tensor, v: torch.Tensor) -> list[torch.Tensor]:
        ordered = x[2].cummax(0)[0]
        return [
            *x.cummax(1), *x.cummin(0), *n.cummax(0), *(n > 0).cummin(1),
            x.logcumsumexp(1), x.bfloat16().logcumsumexp(0),
            torch.searchsorted(ordered, v), torch.bucketize(v, ordered, right=True, out_int32=True),
        ]  # fmt: skip

    x = torch.randint(0, 5, (7, 33)).float()
    x[0, ::5], x[1, ::7], x[3, ::4] = NAN, INF, -INF
    numbers, values = torch.randint(-3, 4, (7, 33)), torch.tensor([-1.0, 0.0, 2.0, 4.5, INF, NAN])
    with litz.config.patch(fallback="error"):
        found = torch.compile(function, backend="litz", fullgraph=True)(x, numbers, values)
    torch.testing.assert_close(found, function(x, numbers, values), equal_nan=True)


def test_scatters() -> None:
    def function(x: torch.Tensor, i: torch.Tensor, s: torch.Tensor) -> list[torch.Tensor]:
        reduced = [
            y.scatter_reduce(0, i, t, how, include_self=own)
            for y, t in ((x, s), (x.bfloat16(), s.bfloat16()), (x.long(), s.long()))
            for how in ("sum", "prod", "mean", "amin", "amax")
            for own in (True, False)
        ]
        return [*reduced, (x > 0).scatter_add(0, i, s > 0), x[0, 0].scatter(0, i[0, :1], s[0, 0])]

    x, source = torch.randn(4, 19) * 3, torch.randn(9, 19) * 3
    index = torch.randint(0, 4, (9, 19))
    index[0, 0] = 0
    with litz.config.patch(fallback="error"):
        found = torch.compile(function, backend="litz", fullgraph=True)(x, index, source)
    torch.testing.assert_close(found, function(x, index, source))


def test_bags_of_embeddings_and_their_gradients() -> None:
    def function(w: torch.Tensor, s: torch.Tensor, i: torch.Tensor, o: torch.Tensor) -> torch.Tensor:
        rows = F.embedding_bag(i[:6].view(2, 3), w, mode="mean", padding_idx=2).sum()
        rows = rows + (F.embedding_bag(i, w, o, mode="max", padding_idx=2) ** 3).sum()
        rows = rows + (F.embedding_bag(i, w, o, mode="mean", scale_grad_by_freq=True) ** 3).sum()
        return rows + (F.embedding_bag(i, w, o, mode="sum", per_sample_weights=s) ** 2).sum()

    indices, offsets = torch.tensor([1, 2, 4, 5, 4, 2, 0]), torch.tensor([0, 2, 2, 6])
    weight, shares = torch.randn(10, 19), torch.rand(7)
    results = []
    for run in (function, torch.compile(function, backend="litz", fullgraph=True)):
        own = [weight.clone().requires_grad_(), shares.clone().requires_grad_()]
        with litz.config.patch(fallback="error"):
            results.append(torch.autograd.grad(run(*own, indices, offsets), own))
    torch.testing.assert_close(results[1], results[0])


def test_an_index_outside_raises_where_nothing_depends_on_it() -> None:
    """Gather along a dimension of one element, or of stride zero, reads the same element for all indices."""
    one, row = torch.tensor(1.0), torch.arange(3.0)
    cases = {
        "of one element": (lambda x, i: x.gather(0, i) + 1, (one, torch.tensor(1))),
        "repeated": (lambda x, i: x.expand(4, 3).index_select(0, i) * 2, (row, torch.tensor([0, 4]))),
    }
    for function, (x, i) in cases.values():
        with litz.config.patch(fallback="error"):
            compiled = torch.compile(function, backend="litz", fullgraph=True)
            torch.testing.assert_close(compiled(x, i * 0), function(x, i * 0))
            with pytest.raises((IndexError, RuntimeError)):
                compiled(x, i)


def test_sums_over_rows_that_an_index_or_a_symbol_selects() -> None:
    """Each is a sum over channels of a filter for each channel but for where its first element is."""

    def function(x: torch.Tensor, i: torch.Tensor, n: int) -> tuple[torch.Tensor, ...]:
        selected = x.index_select(0, i)[:, None] * x[None]
        return selected.sum(1), (x[n : n + 1, None] * x[None]).sum(1)

    x = torch.randn(5, 8)
    with litz.config.patch(fallback="error"):
        compiled = torch.compile(function, backend="litz", fullgraph=True)
        for index, n in ((1, 0), (4, 2), (0, 3)):
            selected = torch.tensor([index])
            torch.testing.assert_close(compiled(x, selected, n), function(x, selected, n))


@pytest.mark.parametrize("shape", [(5, 0), (0, 5), (0, 0)])
def test_positions_in_tensors_without_elements(shape: tuple[int, int]) -> None:
    def function(x: torch.Tensor, i: torch.Tensor) -> list[torch.Tensor]:
        return [x.take(i), x.put(i, x.flatten()), x.masked_scatter(x > 0, x), x.take_along_dim(x.long(), 1)]

    x, none = torch.ones(shape), torch.zeros(0, dtype=torch.int64)
    with litz.config.patch(fallback="error"):
        found = torch.compile(function, backend="litz", fullgraph=True)(x, none)
    torch.testing.assert_close(found, function(x, none), check_stride=True)
