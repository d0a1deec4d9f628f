"""Sums of floats in no fixed order, under ``deterministic``."""

from __future__ import annotations

from collections.abc import Callable

import lowering_check
import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from litz_ir.verifier import verify
from litz_lowering import LoweringOptions, decompositions, lower

aten = torch.ops.aten

Program = Callable[[Tensor, Tensor, Tensor], Tensor]
SUMS: dict[str, Program] = {
    "index_add": lambda x, n, indices: x.index_add(0, n, x),
    "scatter_add": lambda x, n, indices: x.scatter_add(0, indices, x),
    "index_put": lambda x, n, indices: aten.index_put(x, [n], x, True),
    "embedding": lambda x, n, indices: aten.embedding_dense_backward(x, n, 10, -1, False),
    "scatter_reduce": lambda x, n, indices: x.scatter_reduce(0, indices, x, "prod"),
}


def calls(program: Program, dtype: torch.dtype, device: str, *, deterministic: bool) -> list[str]:
    with FakeTensorMode():
        x = torch.empty(6, 4, dtype=dtype, device=device)
        indices = [torch.empty(shape, dtype=torch.int64, device=device) for shape in ((6,), (6, 4))]
        traced = make_fx(program, decompositions())(x, *indices)
    options = LoweringOptions(fallback="error", deterministic=deterministic)
    graph = lower(traced, options=options).graph
    verify(graph)
    return lowering_check.calls(graph)


@pytest.mark.parametrize("name", SUMS)
def test_deterministic_sums_fall_back_on_a_gpu(name: str) -> None:
    program = SUMS[name]
    assert calls(program, torch.float32, "cuda", deterministic=False) == []
    assert len(calls(program, torch.float32, "cuda", deterministic=True)) == 1
    assert calls(program, torch.float32, "cpu", deterministic=True) == []


@pytest.mark.parametrize("name", ["index_add", "scatter_add", "index_put"])
def test_integer_sums_are_deterministic(name: str) -> None:
    assert calls(SUMS[name], torch.int32, "cuda", deterministic=True) == []


def test_scatters_without_sums_and_reductions_are_deterministic() -> None:
    def program(x: Tensor, n: Tensor, indices: Tensor) -> Tensor:
        return x.index_copy(0, n, x.cumsum(0)).sum(0)

    assert calls(program, torch.float32, "cuda", deterministic=True) == []
