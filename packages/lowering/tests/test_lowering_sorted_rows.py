"""Rows that a scan sorts, in graphs on a GPU: eager's values and positions, bit for bit."""

from __future__ import annotations

from collections.abc import Callable

import lowering_check
import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from litz_ir.loops import SORT, LoopGraph, Scan
from litz_ir.verifier import verify
from litz_lowering import LoweringOptions, lower
from litz_lowering.rules.reductions.sort import MIN_ROWS

Program = Callable[[Tensor], tuple[Tensor, Tensor]]
OPTIONS = LoweringOptions(fallback="error", max_sorted_row=2048)
FLOATS = (torch.float32, torch.bfloat16, torch.float16)
INTEGERS = (torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
ROWS = MIN_ROWS
nan, inf = float("nan"), float("inf")


def lowered(program: Callable[[Tensor], object], x: Tensor, options: LoweringOptions = OPTIONS) -> LoopGraph:
    with FakeTensorMode():
        traced = make_fx(program)(torch.empty(x.shape, dtype=x.dtype, device="cuda"))
    graph = lower(traced, options=options).graph
    verify(graph)
    return graph


def sorting(graph: LoopGraph) -> int:
    return sum(isinstance(each, Scan) and each.combiner == SORT for each in graph.operations)


def signs(x: Tensor) -> Tensor:
    """True for negative values, including negative zero."""
    return torch.signbit(x) & (x == x)


def agrees(program: Callable[[Tensor], tuple[Tensor, ...]], x: Tensor) -> None:
    """Check that a scan sorts, with eager's values, bit for bit except NaN payloads, and positions."""
    graph = lowered(program, x)
    assert lowering_check.calls(graph) == [] and sorting(graph) == 1
    computed = lowering_check.run_graph(graph, [lowering_check.to_array(x)])
    for found, wanted in zip(computed, program(x), strict=True):
        got = lowering_check.to_tensor(np.asarray(found))
        torch.testing.assert_close(got, wanted, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(signs(got), signs(wanted))


def rows_of(dtype: torch.dtype, length: int, generator: torch.Generator) -> Tensor:
    """Rows with many equal elements and all special values of floats."""
    if dtype == torch.bool:
        return torch.randint(0, 2, (ROWS, length), generator=generator).to(dtype)
    if dtype in INTEGERS:
        low = 0 if dtype == torch.uint8 else -60
        return torch.randint(low, 60, (ROWS, length), generator=generator).to(dtype)
    x = torch.randn(ROWS, length, generator=generator).round(decimals=1)
    odd = torch.tensor([0.0, -0.0, nan, -nan, inf, -inf, 1e-45, -1e-45])
    positions = torch.randint(0, length, (ROWS, length // 4), generator=generator)
    picked = odd[torch.randint(0, len(odd), positions.shape, generator=generator)]
    return x.scatter(1, positions, picked).to(dtype)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
@pytest.mark.parametrize("descending", [False, True])
def test_rows_are_sorted_in_eagers_order(dtype: torch.dtype, descending: bool) -> None:
    x = rows_of(dtype, 71, torch.Generator().manual_seed(1))
    agrees(lambda x: torch.sort(x, descending=descending, stable=True), x)


@pytest.mark.parametrize("length", [65, 128, 200])
def test_lengths_and_dimensions(length: int) -> None:
    x = rows_of(torch.float32, length, torch.Generator().manual_seed(2))
    agrees(lambda x: torch.sort(x, dim=0, stable=True), x.T.contiguous())
    agrees(lambda x: torch.sort(x, dim=1, stable=True), x.reshape(4, ROWS // 4, length).transpose(1, 2))
    agrees(lambda x: (torch.argsort(x, stable=True),), x)
    agrees(lambda x: (torch.msort(x),), x.T.abs())  # the order of two zeros is unspecified


def test_extreme_integers() -> None:
    ends = torch.tensor([-(2**31), 2**31 - 1, 0, -(2**31), 2**31 - 1, -1], dtype=torch.int32)
    x = ends.repeat(ROWS, 13)
    agrees(lambda x: torch.sort(x, stable=True), x)
    agrees(lambda x: torch.sort(x, stable=True, descending=True), x)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32], ids=str)
@pytest.mark.parametrize(("k", "largest"), [(9, True), (50, False), (101, True)])
def test_topk_of_many_elements_sorts_rows(dtype: torch.dtype, k: int, largest: bool) -> None:
    generator = torch.Generator().manual_seed(3)
    x = torch.stack([torch.randperm(101, generator=generator) - 50 for _ in range(ROWS)]).to(dtype)
    agrees(lambda x: torch.topk(x, k, largest=largest), x)
    agrees(lambda x: torch.topk(x, k, 0, largest), x.T.contiguous())


def test_producers_and_consumers_are_loops() -> None:
    x = rows_of(torch.float32, 80, torch.Generator().manual_seed(4)).nan_to_num().clamp(-9, 9)

    def program(x: Tensor) -> tuple[Tensor, ...]:
        values, positions = torch.sort(x * 2 + 1, stable=True)
        return values.cos() + 1, positions + 1

    graph = lowered(program, x)
    assert lowering_check.calls(graph) == [] and sorting(graph) == 1
    computed = lowering_check.run_graph(graph, [lowering_check.to_array(x)])
    for found, wanted in zip(computed, program(x), strict=True):
        torch.testing.assert_close(lowering_check.to_tensor(np.asarray(found)), wanted)


@pytest.mark.parametrize("length", [1, 17, 64])
def test_the_shortest_rows_are_ranked(length: int) -> None:
    graph = lowered(lambda x: torch.sort(x), torch.zeros(ROWS, length))
    assert lowering_check.calls(graph) == [] and sorting(graph) == 0


@pytest.mark.parametrize(
    ("program", "x"),
    [
        (lambda x: torch.sort(x), torch.zeros(ROWS, 2049)),
        (lambda x: torch.sort(x), torch.zeros(ROWS - 1, 2048)),
        (lambda x: torch.sort(x), torch.zeros(ROWS, 128, dtype=torch.float64)),
        (lambda x: torch.sort(x), torch.zeros(ROWS, 128, dtype=torch.int64)),
        (lambda x: torch.topk(x, 9), torch.zeros(ROWS, 2049)),
        (lambda x: torch.topk(x, 9), torch.zeros(1, 64)),
    ],
)
def test_long_rows_64_bit_values_and_few_rows_fall_back(program: Program, x: Tensor) -> None:
    assert len(lowering_check.calls(lowered(program, x))) == 1


def test_longer_rows_fall_back_by_default() -> None:
    graph = lowered(lambda x: torch.sort(x), torch.zeros(ROWS, 128), LoweringOptions(fallback="error"))
    assert lowering_check.calls(graph) == ["aten.sort.default"]
