"""Pooling and its gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lowering_graphs import check, converted, lowered, operations, reasons

aten = torch.ops.aten
X = torch.randn(2, 3, 9, 11)
DTYPES = [torch.float32, torch.bfloat16, torch.int64]
STRIDED: list[dict[str, Any]] = [
    {"kernel_size": 2},
    {"kernel_size": (3, 3), "stride": (2, 2), "padding": (1, 1)},
    {"kernel_size": (3, 2), "stride": (1, 3), "padding": (1, 0), "ceil_mode": True},
    {"kernel_size": (2, 3), "stride": (4, 5)},
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("given", [*STRIDED, {"kernel_size": 3, "stride": 2, "padding": 1, "dilation": 3}])
def test_max_pool(given: dict[str, Any], dtype: torch.dtype) -> None:
    both = check(lambda x: aten.max_pool2d_with_indices(x, **given), converted(X, dtype))
    assert operations(both)[0] == "Reduction"
    assert "Scatter" not in operations(both)
    one = check(lambda x: aten.max_pool2d_with_indices(x, **given)[0], converted(X, dtype))
    assert "UserCombiner" not in str(one.graph.operations)


def test_max_pool_of_lowest_values_and_nan() -> None:
    lowest = torch.full((1, 5, 6), -torch.inf)
    check(lambda x: aten.max_pool2d_with_indices(x, 3, 2, 1), lowest)
    check(lambda x: aten.max_pool2d_with_indices(x, 3, 1, 1, 2), lowest)
    holed = X.clone()
    holed[0, 1, 3, 4] = torch.nan
    check(lambda x: aten.max_pool2d_with_indices(x, 3, 2, 1), holed)
    check(lambda x: aten.max_pool2d_with_indices(x, 3, 2, 1), X.to(memory_format=torch.channels_last))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_the_last_of_several_nans_in_a_window_wins(dtype: torch.dtype, layout: torch.memory_format) -> None:
    chance = torch.rand(2, 3, 16, 16)
    holed = (
        torch.randn(2, 3, 16, 16).masked_fill(chance < 0.4, torch.nan).masked_fill(chance > 0.9, torch.inf)
    )
    holed[0, :, :8] = -torch.inf
    holed[0, 1, 3:5, 4:7] = torch.nan
    x = holed.to(dtype).contiguous(memory_format=layout)
    for window in ((2, 2), (3, 2, 1), (3, 1, 1, 2), (8, 8), (9, 5, 4)):
        check(lambda x, w=window: aten.max_pool2d_with_indices(x, *w), x)
    for size in ([3, 5], [1, 1], [1, 2]):
        check(lambda x, s=size: aten.adaptive_max_pool2d(x, s), x)
    cube = x.reshape(2, 3, 4, 8, 8)
    check(lambda x: (aten.max_pool3d_with_indices(x, 2), aten.adaptive_max_pool3d(x, [1, 2, 1])), cube)
    line = x.reshape(2, 3, 256)
    check(lambda x: torch.nn.functional.max_pool1d(x, 5, return_indices=True), line)


def test_pooling_in_three_dimensions() -> None:
    x = torch.randn(2, 3, 5, 6, 7)
    check(lambda x: aten.max_pool3d_with_indices(x, (2, 3, 2), 2, 1), x)
    check(lambda x: aten.adaptive_max_pool3d(x, (2, 4, 3)), x)
    check(lambda x: (aten.avg_pool3d(x, (2, 3, 2), 2, 1), aten._adaptive_avg_pool3d(x, (2, 3, 7))), x)


def test_pooling_in_one_dimension() -> None:
    x, largest = torch.randn(2, 3, 10), torch.nn.functional.max_pool1d
    check(lambda x: (aten.avg_pool1d(x, 3, 2, 1), aten.adaptive_avg_pool1d(x, 4), largest(x, 3, 2, 1)), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("given", [*STRIDED, {"kernel_size": 3, "stride": 2, "padding": 1, "dilation": 2}])
def test_gradient_of_max_pool(given: dict[str, Any], dtype: torch.dtype) -> None:
    x = X.to(dtype)
    out, indices = aten.max_pool2d_with_indices(x, **given)
    grad = torch.randn_like(out)
    k, s = given["kernel_size"], given.get("stride", [])
    rest = (given.get("padding", 0), given.get("dilation", 1), given.get("ceil_mode", False))

    def backward(g: torch.Tensor, x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return aten.max_pool2d_with_indices_backward(g, x, k, s, *rest, i)

    assert "Scatter" in operations(check(backward, grad, x, indices))
    last = [each.to(memory_format=torch.channels_last) for each in (grad, x, indices)]
    assert "Scatter" not in operations(check(backward, *last))


@pytest.mark.parametrize("dtype", DTYPES)
def test_avg_pool(dtype: torch.dtype) -> None:
    def function(x: torch.Tensor) -> list[torch.Tensor]:
        ways: list[dict[str, Any]] = [{}, {"count_include_pad": False}, {"divisor_override": 3}]
        return [aten.avg_pool2d(x, **given, **way) for given in STRIDED for way in ways]

    check(function, converted(X, dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("given", STRIDED)
def test_gradient_of_avg_pool(given: dict[str, Any], dtype: torch.dtype) -> None:
    x = X.to(dtype)
    grad = torch.randn_like(aten.avg_pool2d(x, **given))
    k, s = given["kernel_size"], given.get("stride", [])
    rest = (given.get("padding", 0), given.get("ceil_mode", False))

    def backward(g: torch.Tensor, x: torch.Tensor) -> list[torch.Tensor]:
        ways = [(True, None), (False, None), (True, 3)]
        return [aten.avg_pool2d_backward(g, x, k, s, *rest, *way) for way in ways]

    check(backward, grad, x)


@pytest.mark.parametrize("size", [(1, 1), (3, 11), (4, 7), (9, 5), (12, 13)])
def test_adaptive_pools_and_their_gradients(size: tuple[int, int]) -> None:
    def forward(x: torch.Tensor) -> list[torch.Tensor]:
        averages = [aten._adaptive_avg_pool2d(tensor, size) for tensor in (x, x.bfloat16())]
        return [*averages, *aten.adaptive_max_pool2d(x, size)]

    def backward(g: torch.Tensor, x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        average: torch.Tensor = aten._adaptive_avg_pool2d_backward(g, x)
        return average, aten.adaptive_max_pool2d_backward(g, x, i)

    check(forward, X)
    grad, indices = torch.randn(2, 3, *size), aten.adaptive_max_pool2d(X, size)[1]
    assert "Scatter" in operations(check(backward, grad, X, indices))


def test_adaptive_pools_to_no_windows() -> None:
    def function(x: torch.Tensor) -> list[torch.Tensor]:
        averages = [aten._adaptive_avg_pool2d(x, size) for size in ((0, 0), (0, 2))]
        return [*averages, *aten.adaptive_max_pool2d(x, (3, 0))]

    assert not reasons(check(function, X))


@pytest.mark.parametrize(("size", "step"), [(3, 1), (3, 2), (2, 3), (4, 4)])
def test_gradient_of_unfold(size: int, step: int) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.func.grad(lambda x: x.unfold(2, size, step).square().sum())(x)

    assert "Scatter" not in operations(check(function, X))


def test_a_gradient_of_pooling_by_disjoint_windows_reads_one_window() -> None:
    x, grad = torch.randn(2, 3, 8, 8), torch.randn(2, 3, 4, 4)
    found = lowered(lambda g, x: aten.avg_pool2d_backward(g, x, 2, 2, 0, False, True, None), grad, x)
    assert operations(found) == ["Pointwise"]


def test_pooling_with_symbolic_sizes() -> None:
    check(lambda x: aten.max_pool2d_with_indices(x, 3, 2, 1), X, dynamic=True)
    check(lambda x: aten.avg_pool2d(x, 3, 2, 1, True, False), X, dynamic=True)
    check(lambda x: aten._adaptive_avg_pool2d(x, (1, 1)), X, dynamic=True)
    left = lowered(lambda x: aten._adaptive_avg_pool2d(x, (4, 4)), X, dynamic=True)
    assert reasons(left) == ["the sizes of pooling windows are symbolic"]


LARGE = [(5, 2, 1, False), (6, 2, 1, True), (7, 3, 2, True), (8, 2, 1, False)]
"""Kernel size, stride, padding and count_include_pad of large windows that overlap."""


def pooled_in_volumes(kernel: int, stride: int, padding: int, counts_padding: bool) -> tuple[Any, ...]:
    """Pooling by large windows with its gradients, as functions with their arguments."""
    size, step, pad = [kernel] * 3, [stride] * 3, [padding] * 3
    x = torch.randn(1, 1, 8, 9, 8)
    mean = (size, step, pad, True, counts_padding, None)
    out, at = aten.max_pool3d_with_indices(x, size, step, pad, 1, True)
    grad = torch.randn_like(out)
    return (
        (lambda x: aten.avg_pool3d(x, *mean), x),
        (lambda g, x: aten.avg_pool3d_backward(g, x, *mean), grad, x),
        (lambda x: aten.max_pool3d_with_indices(x, size, step, pad, 1, True), x),
        (
            lambda g, x, i: aten.max_pool3d_with_indices_backward(g, x, size, step, pad, 1, True, i),
            grad,
            x,
            at,
        ),
    )


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("window", LARGE)
def test_large_windows_in_volumes(window: tuple[int, int, int, bool], dynamic: bool) -> None:
    for function, *arguments in pooled_in_volumes(*window):
        check(function, *arguments, dynamic=dynamic)
