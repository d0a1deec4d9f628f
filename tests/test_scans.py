"""Scans whose lanes are points of a row, fused with their neighbours, compute eager's values."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import litz

Program = Callable[[torch.Tensor], object]

LENGTHS = (1, 5, 16, 33, 200)


def chosen(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x > 0, x.cumsum(-1), x * x)


def reversed_sums(x: torch.Tensor) -> torch.Tensor:
    return x.flip(-1).cumsum(-1).flip(-1) + x


def sampled(x: torch.Tensor) -> torch.Tensor:
    shares = torch.softmax(x, -1)
    return torch.where(shares.cumsum(-1) - shares > 0.5, -1.0, shares)


def last_and_centred(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    total = x.cumsum(-1)
    return total[..., -1] * 2, total - total.mean(-1, keepdim=True)


def two_scans(x: torch.Tensor) -> torch.Tensor:
    return (x.cumsum(-1) * 0.5).cumprod(-1).abs() + x.cumsum(-1)


def values(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) > 0.5
    found = torch.randn(shape, generator=generator) * 2
    return found.to(dtype) if dtype.is_floating_point else found.to(dtype) * 3


def agrees(program: Program, x: torch.Tensor, dynamic: bool = False) -> None:
    torch._dynamo.reset()
    with litz.config.patch(fallback="error"):
        found = torch.compile(program, backend="litz", fullgraph=True, dynamic=dynamic)(x)
    torch.testing.assert_close(found, program(x), equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int32,
                                   torch.int64, torch.uint8, torch.bool], ids=str)  # fmt: skip
def test_every_dtype_is_scanned_along_rows_and_columns(dtype: torch.dtype) -> None:
    def program(x: torch.Tensor) -> tuple[object, ...]:
        return (
            x.cumsum(-1), x.cumsum(0), x.cumprod(-1, dtype=torch.float64), x.cummax(-1), x.cummin(0),
            *((x.logcumsumexp(-1),) if x.is_floating_point() else ()),
        )  # fmt: skip

    for length in LENGTHS:
        agrees(program, values((7, length), dtype, length))


@pytest.mark.parametrize("program", [chosen, reversed_sums, sampled, last_and_centred, two_scans])
@pytest.mark.parametrize("dynamic", [False, True])
def test_scans_fuse_with_neighbours(program: Program, dynamic: bool) -> None:
    for length in LENGTHS[1:]:
        agrees(program, values((6, length), torch.float32, length), dynamic=dynamic)
    agrees(program, values((40, 6), torch.float32).t(), dynamic=dynamic)
    agrees(program, values((3, 4, 100), torch.float32)[:, ::2, 3:90], dynamic=dynamic)


@pytest.mark.parametrize("program", [chosen, reversed_sums, sampled])
def test_a_scan_and_what_reads_it_are_one_kernel(program: Program) -> None:
    report = litz.explain(program, values((64, 300), torch.float32))
    assert [len(graph.kernels) for graph in report.graphs] == [1]


def test_not_finite_values_reach_all_later_points() -> None:
    x = values((5, 100), torch.float32)
    x[0, 40], x[1, 50], x[2, 3], x[3, 99] = float("nan"), float("inf"), float("-inf"), float("nan")
    x[1, 60] = float("-inf")
    agrees(lambda x: (x.cumsum(-1), x.cumprod(-1), x.cummax(-1), x.cummin(-1), x.logcumsumexp(-1)), x)


@pytest.mark.parametrize("isa", [None, "scalar"])
def test_large_factors_neither_overflow_nor_vanish_before_their_turn(isa: str | None) -> None:
    x = torch.full((5, 50), 1e200, dtype=torch.float64)
    x[0, 0] = 0
    x[1, ::2] = -1e-200
    x[2, :20], x[2, 20:] = 0.5, 1e-30
    x[3, :2] = 1e-200
    x[4, 30] = float("nan")
    torch._dynamo.reset()
    with litz.config.patch(fallback="error", isa=isa):
        found = torch.compile(lambda x: x.cumprod(-1), backend="litz", fullgraph=True)(x)
    torch.testing.assert_close(found, x.cumprod(-1), equal_nan=True, atol=0, rtol=1e-12)


def test_ties_keep_the_last_position() -> None:
    agrees(lambda x: (x.cummax(-1), x.cummin(-1)), torch.randint(0, 3, (4, 130)).float())


@pytest.mark.parametrize("dim", [-1, 0])
def test_gradients_of_scans(dim: int) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.where(x > 0, x.cumsum(dim), x.exp()) + x.cumprod(dim)

    mine, theirs = (values((9, 70), torch.float64).mul(0.3).requires_grad_() for _ in range(2))
    torch._dynamo.reset()
    with litz.config.patch(fallback="error"):
        found = torch.compile(program, backend="litz", fullgraph=True)(mine)
        found.square().sum().backward()
    program(theirs).square().sum().backward()
    torch.testing.assert_close(mine.grad, theirs.grad)


def test_strict_numerics_scan_floats_one_by_one() -> None:
    x = values((4, 1000), torch.float64).exp()
    torch._dynamo.reset()
    with litz.config.patch(fallback="error", numerics="strict"):
        found = torch.compile(lambda x: x.cumsum(-1) * 2, backend="litz")(x)
    assert torch.equal(found, x.cumsum(-1) * 2)
