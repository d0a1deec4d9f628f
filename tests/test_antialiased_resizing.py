"""Antialiased resizing and its gradient against eager's, also where pixels are not finite."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import interpolate

pytestmark = pytest.mark.sampled  # it compiles whole programs

SIZES = {
    "smaller": ((13, 17), (5, 7)),
    "larger": ((5, 7), (13, 17)),
    "one dimension each": ((5, 17), (12, 4)),
    "to one pixel": ((6, 5), (1, 1)),
    "from one pixel": ((1, 1), (3, 4)),
    "of one size": ((6, 5), (6, 5)),
}


@pytest.mark.parametrize(("mode", "last"), [("bilinear", False), ("bicubic", True)])
def test_results_and_gradients_agree_with_eager(mode: str, last: bool) -> None:
    """Corners are aligned in every other size, the others in channels-last."""
    layout = torch.channels_last if last else torch.contiguous_format
    inputs = [
        torch.randn(2, 3, *size).to(memory_format=layout).requires_grad_() for size, _ in SIZES.values()
    ]

    def resize(inputs: list[Tensor]) -> list[Tensor]:
        return [
            interpolate(x, size=wanted, mode=mode, antialias=True, align_corners=k % 2 == int(last))
            for k, (x, (_, wanted)) in enumerate(zip(inputs, SIZES.values(), strict=True))
        ]

    torch._dynamo.reset()
    found, expected = torch.compile(resize, backend="litz")(inputs), resize(inputs)
    tangents = [torch.randn_like(each) for each in expected]
    torch.testing.assert_close(found, expected)
    own, eager = (torch.autograd.grad(each, inputs, tangents) for each in (found, expected))
    torch.testing.assert_close(own, eager, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("mode", "value"), [("bilinear", float("inf")), ("bicubic", float("nan"))])
def test_pixels_outside_a_window_are_not_read(mode: str, value: float) -> None:
    x, tangent = torch.randn(1, 2, 12, 14), torch.randn(1, 2, 5, 6)
    x[0, 0, 0, 0] = x[0, 0, 11, 13] = x[0, 1, 5, 6] = tangent[0, 0, 4, 5] = tangent[0, 1, 2, 3] = value
    x.requires_grad_()

    def resize(x: Tensor) -> Tensor:
        return interpolate(x, size=(5, 6), mode=mode, antialias=True)

    found, expected = torch.compile(resize, backend="litz")(x), resize(x)
    torch.testing.assert_close(found, expected, equal_nan=True)
    assert expected.isfinite().any() and not expected.isfinite().all()
    (own,), (eager,) = (torch.autograd.grad(each, x, tangent) for each in (found, expected))
    # An infinity times a weight that is zero but for rounding has any sign.
    torch.testing.assert_close(own.isfinite(), eager.isfinite())
    torch.testing.assert_close(
        own.where(own.isfinite(), 0), eager.where(eager.isfinite(), 0), rtol=1e-4, atol=1e-5
    )
