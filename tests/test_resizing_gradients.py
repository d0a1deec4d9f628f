"""Gradients of nearest and linear resizing, which are generated, against eager's."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import interpolate

import litz

pytestmark = pytest.mark.sampled  # it compiles whole programs

SIZES = {
    "twice": ((5, 6), (10, 12)),
    "odd": ((7, 9), (16, 23)),
    "smaller": ((13, 17), (5, 7)),
    "each its own way": ((5, 17), (12, 4)),
    "from one pixel": ((1, 1), (3, 4)),
    "to one row": ((6, 5), (1, 5)),
    "of one size": ((6, 5), (6, 5)),
}
MODES = [("nearest", None), ("nearest-exact", None), ("bilinear", False), ("bilinear", True)]


def gradients(resize: Callable[[list[Tensor]], list[Tensor]], xs: list[Tensor]) -> tuple[Tensor, ...]:
    """Return the gradients of a sum of the results with weights that have the results' layouts."""
    results = resize(xs)
    torch.manual_seed(1)
    tangents = [torch.empty_like(each).copy_(torch.randn(each.shape)) for each in results]
    return torch.autograd.grad(results, xs, tangents)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_gradients_agree_with_eager(layout: torch.memory_format) -> None:
    def resize(xs: list[Tensor]) -> list[Tensor]:
        return [
            interpolate(x, size=wanted, mode=mode, align_corners=corners)
            for x, (_, wanted) in zip(xs, SIZES.values())
            for mode, corners in MODES
        ]

    torch._dynamo.reset()
    xs = [torch.randn(2, 3, *size).to(memory_format=layout).requires_grad_() for size, _ in SIZES.values()]
    found, expected = (
        gradients(torch.compile(resize, backend="litz", fullgraph=True), xs),
        gradients(resize, xs),
    )
    for name, ours, eager in zip(SIZES, found, expected):
        assert torch.allclose(ours, eager, rtol=1e-5, atol=1e-5), name
        assert ours.stride() == eager.stride() and ours.dtype == eager.dtype, name


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtypes_ranks_and_scales(dtype: torch.dtype) -> None:
    def resize(xs: list[Tensor]) -> list[Tensor]:
        line, image, volume = xs
        return [
            interpolate(line, scale_factor=1.7, mode="linear", recompute_scale_factor=False),
            interpolate(line, scale_factor=2.5, mode="nearest"),
            interpolate(image, scale_factor=(1.3, 0.6), mode="bilinear"),
            interpolate(volume, scale_factor=2, mode="trilinear", align_corners=True),
            interpolate(volume, size=(4, 5, 3), mode="nearest"),
        ]

    torch._dynamo.reset()
    xs = [torch.randn(2, 2, *shape).to(dtype).requires_grad_() for shape in ((9,), (6, 7), (3, 4, 2))]
    compiled = torch.compile(resize, backend="litz", fullgraph=True)
    found, expected = gradients(compiled, xs), gradients(resize, xs)
    tolerance = {torch.float64: 1e-12, torch.bfloat16: 3e-2, torch.float16: 4e-3}[dtype]
    for ours, eager in zip(found, expected):
        torch.testing.assert_close(ours, eager, rtol=tolerance, atol=tolerance)


def test_no_gradient_is_a_fallback() -> None:
    def loss(x: Tensor) -> Tensor:
        terms = [
            interpolate(x, scale_factor=2, mode=mode).square().mean() for mode in ("nearest", "bilinear")
        ]
        return torch.stack(terms).sum()

    torch._dynamo.reset()
    report = litz.explain(loss, torch.randn(1, 4, 8, 8, requires_grad=True), backward=True)
    assert len(report.graphs) == 2 and not list(
        itertools.chain(*(graph.fallbacks for graph in report.graphs))
    )
