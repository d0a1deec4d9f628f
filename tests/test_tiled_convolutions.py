"""Convolutions that kernels compute in tiles, with what follows them: results and strides are eager's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

import litz
from litz_scheduler.library.convolution import prepacked_convolutions


@pytest.fixture(autouse=True)
def all_in_tiles() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    with litz.config.patch(force="tile_flops=1000000000000"):
        yield


def compiled(module: nn.Module, *args: torch.Tensor) -> Any:
    with torch.no_grad():
        return torch.compile(module, backend="litz")(*args)


def assert_like_eager(module: nn.Module, *args: torch.Tensor) -> None:
    with torch.no_grad():
        expected = module(*args)
    found = compiled(module, *args)
    assert_close(found, expected, rtol=1e-4, atol=1e-5, equal_nan=True)
    assert found.stride() == expected.stride()


def kernels(module: nn.Module, *args: torch.Tensor) -> list[tuple[str, ...]]:
    """Return the operations of the kernels of a graph without library calls, frozen regions left out."""
    with torch.no_grad():
        report = litz.explain(module, *args)
    assert [call.target for call in report.calls] == []
    frozen = (".scale", ".weight", ".bias")
    names = [tuple(each.operations) for each in report.kernels]
    return [each for each in names if each and not any(name.endswith(frozen) for name in each)]


WINDOWS: dict[str, tuple[tuple[int, int, Any], dict[str, Any], tuple[int, int, int]]] = {
    "1 x 1": ((40, 70, 1), {}, (2, 9, 11)),
    "1 x 1 of one pixel": ((40, 24, 1), {}, (3, 1, 1)),
    "1 x 1 with strides": ((33, 64, 1), {"stride": (2, 3)}, (2, 9, 11)),
    "1 x 1, half a panel": ((40, 16, 1), {}, (2, 9, 11)),
    "1 x 1, a panel and a half": ((17, 45, 1), {"bias": False}, (1, 20, 19)),
    "half a panel with padding": ((24, 9, 3), {"padding": 1, "stride": 2}, (2, 15, 17)),
    "long sums": ((1300, 33, 1), {}, (1, 3, 3)),
    "long sums of several taps": ((600, 33, 3), {"padding": 1}, (1, 4, 5)),
    "padded": ((20, 48, 3), {"padding": 1}, (2, 9, 11)),
    "more weights than pixels": ((24, 330, 3), {"padding": 1}, (1, 12, 12)),
    "more pixels than weights": ((16, 40, 3), {"padding": 1, "stride": (1, 2)}, (2, 30, 31)),
    "64 filter points in a row": ((16, 9, (1, 64)), {"padding": (0, 40)}, (1, 3, 70)),
    "65 filter points in a column": ((16, 9, (65, 1)), {"padding": (40, 0)}, (1, 70, 3)),
    "strided and dilated": ((20, 17, (3, 2)), {"padding": (2, 1), "stride": (2, 1), "dilation": (1, 2)}, (2, 9, 12)),
    "more padding than input": ((16, 8, 5), {"padding": 4}, (1, 2, 3)),
    "few channels": ((3, 40, 7), {"padding": 3, "stride": 2}, (2, 21, 30)),
    "few channels, no padding": ((3, 160, 4), {"stride": 4}, (2, 16, 16)),
    "one channel": ((1, 6, 3), {"padding": 1, "bias": False}, (1, 12, 9)),
    "few channels, dilated": ((4, 33, 3), {"padding": 2, "dilation": 2}, (2, 9, 31)),
    "few channels, uneven": ((2, 17, (1, 7)), {"padding": (0, 3), "stride": (1, 3)}, (1, 5, 40)),
    "few channels, padded by zeros alone": ((3, 20, 3), {"padding": 7, "stride": 2}, (1, 4, 3)),
    "few channels, steps that no strip has": ((5, 16, 2), {"stride": 3, "dilation": 2}, (2, 13, 17)),
    "few channels, a column": ((6, 40, (3, 1)), {"padding": (1, 2)}, (2, 7, 9)),
    "few channels, a filter too wide for a strip": ((3, 8, (2, 120)), {"stride": 40, "padding": 70}, (1, 4, 400)),
    "few channels, 4,096 summed elements": ((1, 9, 64), {}, (1, 66, 70)),
    "few channels, more than that": ((3, 9, 64), {}, (1, 66, 70)),
    "the whole input": ((18, 5, (6, 7)), {}, (2, 6, 7)),
    "depthwise": ((40, 40, 3), {"padding": 1, "groups": 40}, (2, 9, 11)),
    "depthwise of many channels": ((600, 600, 3), {"padding": 1, "groups": 600}, (1, 5, 19)),
    "depthwise with strides": ((24, 24, 5), {"padding": 2, "stride": 2, "groups": 24}, (2, 14, 13)),
    "depthwise, dilated": ((19, 19, 3), {"padding": 2, "dilation": 2, "groups": 19}, (2, 8, 8)),
    "depthwise, uneven": ((7, 7, (1, 7)), {"padding": (0, 3), "groups": 7, "bias": False}, (1, 3, 10)),
    "depthwise, padded along a filter of one": ((24, 24, (3, 1)), {"padding": (1, 2), "groups": 24}, (1, 6, 5)),
    "depthwise, padded across a filter of one": ((24, 24, (1, 3)), {"padding": (2, 1), "groups": 24}, (2, 6, 25)),
    "depthwise, rows of seven": ((32, 32, 7), {"padding": 3, "groups": 32}, (2, 9, 40)),
    "depthwise, rows of five": ((272, 272, (2, 5)), {"padding": (0, 2), "groups": 272}, (1, 4, 21)),
    "depthwise, rows of five of some channels": ((40, 40, 5), {"padding": 2, "groups": 40}, (1, 6, 33)),
    "depthwise, rows of seven with steps of two": (
        (16, 16, 7), {"padding": 6, "stride": 2, "dilation": 2, "groups": 16}, (1, 9, 45)
    ),
    "depthwise of one row": ((32, 32, (3, 1)), {"groups": 32}, (1, 3, 1)),
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("name", WINDOWS)
def test_every_kind_of_window(name: str) -> None:
    (inputs, outputs, size), options, (batch, *points) = WINDOWS[name]
    module = nn.Conv2d(inputs, outputs, size, **options).eval()
    images = torch.randn(batch, inputs, *points)
    if list(WINDOWS).index(name) % 2:
        images = images.to(memory_format=torch.channels_last)
    assert_like_eager(module, images)


def test_filters_longer_than_a_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepacked_convolutions, "MOST_FILTER_POINTS", 1 << 30)
    assert_like_eager(nn.Conv2d(16, 9, (65, 1), padding=(40, 0)).eval(), torch.randn(1, 16, 70, 3))


@pytest.mark.wide_vectors
def test_rows_of_residuals_and_results_are_prefetched() -> None:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution = nn.Conv2d(48, 48, 3, padding=1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.relu(self.convolution(x) + x)

    images = torch.randn(2, 48, 9, 10).to(memory_format=torch.channels_last)
    with torch.no_grad():
        report = litz.explain(Residual().eval(), images)
    lines = [line for unit in report.graphs[0].units for line in str(unit).splitlines()]
    (line,) = [line for line in lines if "pixel_rows" in line]
    assert line.count(" + 0, 48}") == 2, line


def test_sums_of_more_elements_than_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepacked_convolutions, "GATHERED_DEPTH", 1 << 30)
    assert_like_eager(nn.Conv2d(3, 7, 64).eval(), torch.randn(1, 3, 65, 66))


@settings(max_examples=12, deadline=None, derandomize=True)
@given(data=st.data())
def test_first_layers(data: st.DataObject) -> None:
    def draw(low: int, high: int) -> int:
        return data.draw(st.integers(low, high))

    filters, dilation = (draw(1, 7), draw(1, 7)), (draw(1, 3), draw(1, 3))
    options: dict[str, Any] = {
        "stride": (draw(1, 4), draw(1, 4)), "padding": (draw(0, 4), draw(0, 4)), "dilation": dilation,
    }  # fmt: skip
    module = nn.Conv2d(draw(1, 15), draw(1, 140), filters, **options).eval()
    points = [(size - 1) * step + draw(1, 40) for size, step in zip(filters, dilation)]
    images = torch.randn(draw(1, 3), module.in_channels, *points)
    images[0, 0, draw(0, points[0] - 1), draw(0, points[1] - 1)] = data.draw(
        st.sampled_from([1.0, torch.nan, torch.inf, -torch.inf])
    )
    if data.draw(st.booleans()):
        images = images.to(memory_format=torch.channels_last)
    torch._dynamo.reset()
    assert_like_eager(module, images)


def test_padding_is_not_multiplied() -> None:
    module = nn.Conv2d(16, 16, 3, padding=1, groups=16).eval()
    with torch.no_grad():
        module.weight[3, 0, 0, 0] = torch.inf
    assert_like_eager(module, torch.rand(1, 16, 5, 5) + 1)


class Block(nn.Module):
    """A convolution with a filter for each channel, and one of single pixels, each with its batch norm."""

    def __init__(self, activation: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.first = nn.Conv2d(24, 24, 3, padding=1, groups=24, bias=False)
        self.second = nn.Conv2d(24, 24, 1, bias=False)
        self.norm, self.last_norm = nn.BatchNorm2d(24), nn.BatchNorm2d(24)
        for norm in (self.norm, self.last_norm):
            nn.init.normal_(norm.weight)
            nn.init.normal_(norm.bias)
        self.activation = activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.activation(self.norm(self.first(x)))
        return self.activation(self.last_norm(self.second(y)) + x)


def clamped(x: torch.Tensor) -> torch.Tensor:
    return x.clamp(-0.25, 0.5)


ACTIVATIONS = [
    torch.relu, F.relu6, F.hardsigmoid, F.hardswish, F.silu, F.gelu, torch.sigmoid, torch.tanh, F.elu, clamped
]  # fmt: skip


@pytest.mark.wide_vectors
@pytest.mark.parametrize("activation", ACTIVATIONS, ids=lambda each: each.__name__)
def test_batch_norm_activation_and_residual_are_in_the_same_kernel(
    activation: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    module = Block(activation).eval()
    images = torch.randn(2, 24, 7, 10).to(memory_format=torch.channels_last)
    images[0, 0, 3, 3], images[1, 2, 5, 5], images[1, 3, 0, 0] = torch.nan, torch.inf, -torch.inf
    assert_like_eager(module, images)
    torch._dynamo.reset()
    found = kernels(module, images)
    assert len(found) == 2 and all("convolution" in each[0] for each in found), found


class SqueezeAndExcite(nn.Module):
    """A block whose channels are scaled by a function of their means."""

    def __init__(self) -> None:
        super().__init__()
        self.spread = nn.Conv2d(24, 24, 5, padding=2, groups=24)
        self.squeeze, self.excite = nn.Conv2d(24, 8, 1), nn.Conv2d(8, 24, 1)
        self.project = nn.Conv2d(24, 40, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.spread(x))
        scale = F.hardsigmoid(self.excite(F.relu(self.squeeze(F.adaptive_avg_pool2d(y, 1)))))
        result: torch.Tensor = self.project(y * scale)
        return result


@pytest.mark.parametrize("batch", [1, 3])
def test_squeeze_and_excite(batch: int) -> None:
    assert_like_eager(SqueezeAndExcite().eval(), torch.randn(batch, 24, 9, 9))


def test_a_result_in_eagers_layout_that_is_also_read() -> None:
    class Cut(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(20, 40, 3, padding=1), nn.Conv2d(40, 8, 1)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            y = self.first(x)
            return y, y.view(2, -1)[:, 5:9], torch.sort(y, 1)[0], self.second(F.relu(y))

    module, images = Cut().eval(), torch.randn(2, 20, 6, 7)
    with torch.no_grad():
        expected = module(images)
    for found, each in zip(compiled(module, images), expected, strict=True):
        assert_close(found, each, rtol=1e-4, atol=1e-5)
        assert found.stride() == each.stride()


def test_a_changed_weight_is_seen() -> None:
    module = Block(torch.relu).eval()
    images = torch.randn(2, 24, 7, 10)
    assert_like_eager(module, images)
    with torch.no_grad():
        module.first.weight.mul_(2.0)
        module.last_norm.weight.mul_(3.0)
    assert_like_eager(module, images)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_divide_tiles(threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        module = nn.Sequential(nn.Conv2d(48, 96, 3, padding=1), nn.Conv2d(96, 96, 3, groups=96)).eval()
        assert_like_eager(module, torch.randn(2, 48, 30, 30))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_sum_of_scaled_elements_is_no_convolution(dynamic: bool) -> None:
    def scaled(x: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
        total = row.sum()
        result: torch.Tensor = (x * total).sum(0) + total
        return result

    given = torch.randn(6, 3), torch.randn(3)
    found = torch.compile(scaled, backend="litz", dynamic=dynamic, options={"fallback": "error"})(*given)
    torch.testing.assert_close(found, scaled(*given))
