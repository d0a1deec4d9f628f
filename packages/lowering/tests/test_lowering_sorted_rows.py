"""Rows that a scan sorts, in graphs on a GPU: eager's values and places, to the bit."""

from __future__ import annotations

from collections.abc import Callable

import lowering_check
import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from litz_ir.loops import SORT, LoopGraph, Scan, verify_graph
from litz_lowering import LoweringOptions, lower
from litz_lowering.rules.sort import FEWEST_ROWS

Program = Callable[[Tensor], tuple[Tensor, Tensor]]
OPTIONS = LoweringOptions(fallback="error", max_sorted_row=2048)
FLOATS = (torch.float32, torch.bfloat16, torch.float16)
WHOLE = (torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
ROWS = FEWEST_ROWS
nan, inf = float("nan"), float("inf")


def lowered(program: Callable[[Tensor], object], x: Tensor, options: LoweringOptions = OPTIONS) -> LoopGraph:
    with FakeTensorMode():
        traced = make_fx(program)(torch.empty(x.shape, dtype=x.dtype, device="cuda"))
    graph = lower(traced, options=options).graph
    verify_graph(graph)
    return graph


def sorting(graph: LoopGraph) -> int:
    return sum(isinstance(each, Scan) and each.combiner == SORT for each in graph.operations)


def signs(x: Tensor) -> Tensor:
    """Which values are below zero, minus zero among them."""
    return torch.signbit(x) & (x == x)


def agrees(program: Callable[[Tensor], tuple[Tensor, ...]], x: Tensor) -> None:
    """A scan sorts, and gives eager's values, bit for bit but for what a NaN holds, and its places."""
    graph = lowered(program, x)
    assert lowering_check.calls(graph) == [] and sorting(graph) == 1
    computed = lowering_check.run_graph(graph, [lowering_check.to_array(x)])
    for found, wanted in zip(computed, program(x), strict=True):
        got = lowering_check.to_tensor(np.asarray(found))
        torch.testing.assert_close(got, wanted, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(signs(got), signs(wanted))


def rows_of(dtype: torch.dtype, length: int, generator: torch.Generator) -> Tensor:
    """Rows with many equal elements, and all that is odd about floats."""
    if dtype == torch.bool:
        return torch.randint(0, 2, (ROWS, length), generator=generator).to(dtype)
    if dtype in WHOLE:
        low = 0 if dtype == torch.uint8 else -60
        return torch.randint(low, 60, (ROWS, length), generator=generator).to(dtype)
    x = torch.randn(ROWS, length, generator=generator).round(decimals=1)
    odd = torch.tensor([0.0, -0.0, nan, -nan, inf, -inf, 1e-45, -1e-45])
    places = torch.randint(0, length, (ROWS, length // 4), generator=generator)
    picked = odd[torch.randint(0, len(odd), places.shape, generator=generator)]
    return x.scatter(1, places, picked).to(dtype)


@pytest.mark.parametrize("dtype", [*FLOATS, *WHOLE], ids=str)
@pytest.mark.parametrize("descending", [False, True])
def test_rows_come_in_eagers_order(dtype: torch.dtype, descending: bool) -> None:
    x = rows_of(dtype, 71, torch.Generator().manual_seed(1))
    agrees(lambda x: torch.sort(x, descending=descending, stable=True), x)


@pytest.mark.parametrize("length", [65, 128, 200])
def test_lengths_and_dimensions(length: int) -> None:
    x = rows_of(torch.float32, length, torch.Generator().manual_seed(2))
    agrees(lambda x: torch.sort(x, dim=0, stable=True), x.T.contiguous())
    agrees(lambda x: torch.sort(x, dim=1, stable=True), x.reshape(4, ROWS // 4, length).transpose(1, 2))
    agrees(lambda x: (torch.argsort(x, stable=True),), x)
    agrees(lambda x: (torch.msort(x),), x.T.abs())  # which of two zeros is first is nobody's promise


def test_the_ends_of_integers_keep_their_places() -> None:
    ends = torch.tensor([-(2**31), 2**31 - 1, 0, -(2**31), 2**31 - 1, -1], dtype=torch.int32)
    x = ends.repeat(ROWS, 13)
    agrees(lambda x: torch.sort(x, stable=True), x)
    agrees(lambda x: torch.sort(x, stable=True, descending=True), x)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32], ids=str)
@pytest.mark.parametrize(("k", "largest"), [(9, True), (50, False), (101, True)])
def test_more_than_a_few_of_a_row_are_taken_from_all_in_order(
    dtype: torch.dtype, k: int, largest: bool
) -> None:
    generator = torch.Generator().manual_seed(3)
    x = torch.stack([torch.randperm(101, generator=generator) - 50 for _ in range(ROWS)]).to(dtype)
    agrees(lambda x: torch.topk(x, k, largest=largest), x)
    agrees(lambda x: torch.topk(x, k, 0, largest), x.T.contiguous())


def test_what_comes_before_and_after_is_loops_too() -> None:
    x = rows_of(torch.float32, 80, torch.Generator().manual_seed(4)).nan_to_num().clamp(-9, 9)

    def program(x: Tensor) -> tuple[Tensor, ...]:
        values, places = torch.sort(x * 2 + 1, stable=True)
        return values.cos() + 1, places + 1

    graph = lowered(program, x)
    assert lowering_check.calls(graph) == [] and sorting(graph) == 1
    computed = lowering_check.run_graph(graph, [lowering_check.to_array(x)])
    for found, wanted in zip(computed, program(x), strict=True):
        torch.testing.assert_close(lowering_check.to_tensor(np.asarray(found)), wanted)


@pytest.mark.parametrize("length", [1, 17, 64])
def test_the_shortest_rows_are_ranked_as_before(length: int) -> None:
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
def test_what_is_long_wide_or_few_is_a_librarys(program: Program, x: Tensor) -> None:
    assert len(lowering_check.calls(lowered(program, x))) == 1


def test_longer_rows_are_a_librarys_unless_asked_for() -> None:
    graph = lowered(lambda x: torch.sort(x), torch.zeros(ROWS, 128), LoweringOptions(fallback="error"))
    assert lowering_check.calls(graph) == ["aten.sort.default"]
