"""Sorts as loops, in graphs on a GPU: eager's values and positions, stable, NaN above all."""

from __future__ import annotations

from collections.abc import Callable

import lowering_check
import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from litz_ir.loops import LoopGraph
from litz_ir.verifier import verify
from litz_lowering import LoweringOptions, lower

Program = Callable[[Tensor], tuple[Tensor, Tensor]]
FLOATS = (torch.float32, torch.bfloat16, torch.float16)
INTEGERS = (torch.int32, torch.int16, torch.int8, torch.uint8)
nan, inf = float("nan"), float("inf")


def lowered(program: Program, x: Tensor, device: str = "cuda") -> LoopGraph:
    with FakeTensorMode():
        traced = make_fx(program)(torch.empty(x.shape, dtype=x.dtype, device=device))
    graph = lower(traced, options=LoweringOptions(fallback="error")).graph
    verify(graph)
    return graph


def agrees(program: Program, x: Tensor) -> None:
    """Check the loops' values, bit for bit except NaN payloads, and positions against eager."""
    graph = lowered(program, x)
    assert lowering_check.calls(graph) == []
    computed = lowering_check.run_graph(graph, [lowering_check.to_array(x)])
    found = [lowering_check.to_tensor(np.asarray(each)) for each in computed]
    values, positions = program(x)
    torch.testing.assert_close(found[0], values, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(torch.signbit(found[0]), torch.signbit(values))
    assert torch.equal(found[1], positions)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_short_rows_are_sorted_in_eagers_order(dtype: torch.dtype, descending: bool, dim: int) -> None:
    x = torch.randint(0, 5, (3, 17, 2)) if dtype in INTEGERS else torch.randn(3, 17, 2).round(decimals=1)
    agrees(lambda x: torch.sort(x, dim=dim, descending=descending, stable=True), x.to(dtype))


@pytest.mark.parametrize("descending", [False, True])
def test_zeros_are_equal_and_nan_is_above_infinity(descending: bool) -> None:
    x = torch.tensor([0.0, -0.0, nan, 1.0, inf, -nan, -inf, -0.0, 0.0, -1.0, nan, 3e38, -3e38, 1e-45])
    agrees(lambda x: torch.sort(x, descending=descending, stable=True), x)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32], ids=str)
@pytest.mark.parametrize("largest", [False, True])
def test_topk(dtype: torch.dtype, largest: bool) -> None:
    x = torch.stack([torch.randperm(200) - 100 for _ in range(4)]).to(dtype)
    agrees(lambda x: torch.topk(x, 6, largest=largest), x)
    agrees(lambda x: torch.topk(x, 2, 0, largest), x.T.contiguous())


def test_topk_of_the_smallest_integers() -> None:
    x = torch.tensor([[-(2**31), 2**31 - 1, 0, -(2**31) + 1]], dtype=torch.int32)
    agrees(lambda x: torch.topk(x, 4), x)
    agrees(lambda x: torch.topk(x, 4, largest=False), x)


def test_topk_of_equal_elements_returns_distinct_positions() -> None:
    graph = lowered(lambda x: torch.topk(x, 3), torch.zeros(2, 5))
    values, positions = lowering_check.run_graph(graph, [np.full((2, 5), -np.inf, np.float32)])
    assert positions.tolist() == [[0, 1, 2]] * 2
    assert np.isneginf(values).all()


def test_topk_with_nan() -> None:
    agrees(lambda x: torch.topk(x, 3), torch.tensor([[1.0, nan, -inf, inf], [0.5, -2.0, 7.0, -inf]]))


@pytest.mark.parametrize(
    ("program", "x"),
    [
        (lambda x: torch.sort(x), torch.zeros(4, 65)),
        (lambda x: torch.sort(x), torch.zeros(4, 8, dtype=torch.float64)),
        (lambda x: torch.sort(x), torch.zeros(4, 8, dtype=torch.int64)),
        (lambda x: torch.sort(x), torch.zeros(())),
        (lambda x: torch.topk(x, 9), torch.zeros(4, 64)),
        (lambda x: torch.topk(x, 2), torch.zeros(4, 5000)),
    ],
)
def test_long_rows_and_64_bit_values_fall_back(program: Program, x: Tensor) -> None:
    assert len(lowering_check.calls(lowered(program, x))) == 1


def test_sorts_fall_back_on_the_cpu() -> None:
    assert lowering_check.calls(lowered(torch.sort, torch.zeros(4, 8), "cpu")) == ["aten.sort.default"]
