"""Compiled functions return what eager returns, also where torch's meta kernels are wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

pytestmark = pytest.mark.sampled  # it compiles whole programs


def channels_last(*shape: int) -> Tensor:
    return torch.rand(*shape).to(memory_format=torch.channels_last)


@pytest.mark.parametrize("dynamic", [False, True])
def test_unpooling_keeps_channels_last(dynamic: bool) -> None:
    def function(x: Tensor) -> Tensor:
        values, places = F.max_pool2d(x, 2, return_indices=True)
        return F.max_unpool2d(values, places, (2, 2), output_size=x.shape[2:]) * 2

    compiled = torch.compile(function, backend="litz", fullgraph=True, dynamic=dynamic)
    for size in (6, 8) if dynamic else (6,):
        x, y = (channels_last(2, 3, size, size).requires_grad_() for _ in range(2))
        y.data = x.data
        expected, found = function(x), compiled(y)
        assert found.stride() == expected.stride()
        assert torch.equal(found, expected)
        weights = torch.rand(expected.shape)
        expected.backward(weights)
        found.backward(weights)
        torch.testing.assert_close(y.grad, x.grad)


def test_unpooling_of_contiguous_tensors_stays_contiguous() -> None:
    values, places = F.max_pool2d(torch.rand(2, 3, 6, 6), 2, return_indices=True)
    found = torch.compile(lambda v, p: F.max_unpool2d(v, p, (2, 2)), backend="litz")(values, places)
    assert found.stride() == F.max_unpool2d(values, places, (2, 2)).stride()


@pytest.mark.parametrize("dims", [(-1,), (1,), (0, 3), ()])
@pytest.mark.parametrize("shift", [1, -2, 0])
def test_rolled_images_stay_in_channels_last(dims: tuple[int, ...], shift: int) -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        rolled = torch.roll(x, (shift,) * len(dims) or shift, dims)
        return rolled, rolled + 1

    for x in (channels_last(3, 4, 5, 6), torch.rand(3, 4, 5, 6), torch.rand(4, 3, 5, 6).transpose(0, 1)):
        torch._dynamo.reset()
        found = torch.compile(function, backend="litz", dynamic=False)(x)
        for mine, theirs in zip(found, function(x), strict=True):
            assert torch.equal(mine, theirs)
            assert mine.stride() == theirs.stride()


@pytest.mark.parametrize("unique", [torch.unique, torch.unique_consecutive])
@pytest.mark.parametrize(
    ("shape", "dimension"), [((7,), 0), ((7,), -1), ((3, 7, 2), -1), ((3, 7, 2), 1), ((3, 7), 0)]
)
def test_unique_slices(unique: Callable[..., Any], shape: tuple[int, ...], dimension: int) -> None:
    x = torch.randint(0, 2, shape).sort(dim=dimension).values

    def function(x: Tensor) -> tuple[Tensor, ...]:
        values, positions, counts = unique(x, return_inverse=True, return_counts=True, dim=dimension)
        return values, values + 1, positions, counts * 2

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        found = torch.compile(function, backend="litz", fullgraph=True)(x)
    for mine, theirs in zip(found, function(x), strict=True):
        assert torch.equal(mine, theirs)
        assert mine.stride() == theirs.stride()


def test_results_of_unknown_size_are_checked_against_the_meta_kernel() -> None:
    with torch.library._scoped_library("litz_metadata", "FRAGMENT") as library:
        library.define("chosen(Tensor x) -> Tensor")
        library.impl("chosen", lambda x: x[:, x[0] > 0].t().contiguous().t(), "CPU")

        def fake(x: Tensor) -> Tensor:
            return x.new_empty((x.shape[0], torch.library.get_ctx().new_dynamic_size()))

        torch.library.register_fake("litz_metadata::chosen", fake, lib=library)
        chosen = torch.ops.litz_metadata.chosen.default
        x = torch.linspace(-1, 1, 15).reshape(3, 5)
        x[0] = torch.tensor([1.0, -1, 1, 1, -1])
        found = torch.compile(lambda x: chosen(x) * 2, backend="litz", fullgraph=True)(x)
        assert torch.equal(found, chosen(x) * 2)


def test_results_that_nobody_reads_are_not_checked() -> None:
    x = torch.tensor([1.0, 1, 2, 2, 3])

    def function(x: Tensor) -> Tensor:
        values: Tensor = torch.unique_consecutive(x, dim=0)
        return values * 2

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        assert torch.equal(torch.compile(function, backend="litz", fullgraph=True)(x), function(x))


def test_an_operator_of_another_dtype_than_its_meta_kernel_says_is_refused() -> None:
    with torch.library._scoped_library("litz_metadata", "FRAGMENT") as library:
        library.define("halved(Tensor x) -> Tensor")
        library.impl("halved", lambda x: x.double() / 2, "CPU")
        torch.library.register_fake("litz_metadata::halved", torch.empty_like, lib=library)
        halved = torch.ops.litz_metadata.halved.default
        compiled = torch.compile(lambda x: halved(x) + 1, backend="litz", fullgraph=True)
        with pytest.raises(RuntimeError, match=r"float64 on cpu, its meta kernel said \(3,\), torch.float32"):
            compiled(torch.ones(3))


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_scatter_into_an_expanded_tensor_makes_a_tensor_of_its_own(
    dynamic: bool,
) -> None:  # 7313386 of the fuzz
    def function(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        written = x.expand(4, -1).diagonal_scatter(torch.full((4,), -2))
        return written.amax(0), written, written.t() + 1

    x = torch.arange(4, 10)
    expected, found = function(x), torch.compile(function, backend="litz", fullgraph=True, dynamic=dynamic)(x)
    for a, b in zip(expected, found, strict=True):
        assert a.stride() == b.stride()
        assert torch.equal(a, b)


@pytest.mark.parametrize("dynamic", [False, True])
def test_shuffled_channels_have_eagers_strides(dynamic: bool) -> None:
    def function(x: Tensor) -> list[Tensor]:
        shuffled = [torch.channel_shuffle(x, groups) for groups in (1, 3)]
        return [*shuffled, shuffled[1] + 1]

    for x in (channels_last(2, 6, 3, 4), torch.rand(2, 6, 3, 4).mT, torch.rand(2, 6, 5)):
        torch._dynamo.reset()
        compiled = torch.compile(function, backend="litz", fullgraph=True, dynamic=dynamic)
        torch.testing.assert_close(compiled(x), function(x), rtol=0, atol=0, check_stride=True)
        leaves = [x.clone().requires_grad_() for _ in range(2)]
        for leaf, run in zip(leaves, (compiled, function), strict=True):
            sum(k * y.square().sum() for k, y in enumerate(run(leaf))).backward()
        torch.testing.assert_close(leaves[0].grad, leaves[1].grad, check_stride=True)


@pytest.mark.parametrize("dynamic", [False, True])
def test_parts_of_complex_numbers_have_eagers_strides(dynamic: bool) -> None:
    def function(x: Tensor) -> list[Tensor]:
        return [x.abs(), x.angle(), x.angle() + 1, x.real.angle(), x.sgn(), x.isfinite()]

    for real in (torch.rand(3, 4).t(), channels_last(2, 3, 4, 5)):
        torch._dynamo.reset()
        compiled = torch.compile(function, backend="litz", fullgraph=True, dynamic=dynamic)
        x = torch.complex(real, -real)
        torch.testing.assert_close(compiled(x), function(x), check_stride=True)
