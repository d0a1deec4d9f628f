"""Resizing by a scale that leaves a side as it is, or that doubles it, moves the elements that eager moves."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn.functional import interpolate

import litz

pytestmark = pytest.mark.sampled  # it compiles whole programs


class Resize(NamedTuple):
    """A call of ``interpolate`` by scales, and its input."""

    mode: str
    shape: tuple[int, ...]
    scales: tuple[float, ...]
    last: bool = False
    antialias: bool = False
    dtype: torch.dtype = torch.float32

    def input(self) -> Tensor:
        """Return an input of small integers."""
        x = torch.arange(torch.Size(self.shape).numel()).reshape(self.shape).mul(37).remainder(101)
        formats = {4: torch.channels_last, 5: torch.channels_last_3d}
        layout = formats[x.dim()] if self.last else torch.contiguous_format
        return x.to(self.dtype).contiguous(memory_format=layout)

    def __call__(self, x: Tensor) -> Tensor:
        """Resize by the scales alone."""
        return interpolate(
            x,
            scale_factor=self.scales,
            mode=self.mode,
            antialias=self.antialias,
            recompute_scale_factor=False,
        )


SYMBOLIC = [
    *(Resize("nearest", (1, 5, 5, side), (1.1, 1.0)) for side in (1, 130)),
    Resize("linear", (2, 3, 5), (1.1,)),
    Resize("bilinear", (1, 2, 3, 4), (1.3, 1.5)),
]

RESIZES = [
    *SYMBOLIC,
    *(Resize("nearest", (1, channels, 5, 130), (1.1, 1.0), True) for channels in (2, 5)),
    Resize("nearest", (1, 2, 4, 120), (2.1, 1.0)),
    Resize("nearest", (1, 2, 2, 3, 5), (1.2, 2.1, 1.1), True),
    Resize("nearest", (2, 3, 5), (1.1,)),
    Resize("nearest", (1, 2, 3, 4), (1.3, 1.5), dtype=torch.bfloat16),
    Resize("nearest-exact", (1, 2, 3, 4), (1.3, 1.19)),
    Resize("bilinear", (1, 2, 5, 4), (1.1, 1.2), dtype=torch.uint8),
    Resize("trilinear", (1, 2, 2, 3, 5), (1.2, 2.1, 1.1)),
    Resize("bicubic", (1, 2, 5, 4), (1.1, 1.2), dtype=torch.uint8),
    *(Resize(mode, (1, 2, 3, 4), (1.3, 1.5), antialias=True) for mode in ("bilinear", "bicubic")),
]


@pytest.mark.parametrize("dynamic", [False, True])
def test_results_are_eagers(dynamic: bool) -> None:
    resizes = SYMBOLIC if dynamic else RESIZES
    inputs = [resize.input() for resize in resizes]

    def program(inputs: list[Tensor]) -> list[Tensor]:
        return [resize(x) for resize, x in zip(resizes, inputs, strict=True)]

    torch._dynamo.reset()
    with litz.config.patch(fallback="error"):
        results = torch.compile(program, backend="litz", fullgraph=True, dynamic=dynamic)(inputs)
    for resize, result, expected in zip(resizes, results, program(inputs), strict=True):
        tolerance = 1 if resize.dtype == torch.uint8 else 1e-4
        torch.testing.assert_close(
            result,
            expected,
            rtol=1e-5,
            atol=tolerance,
            check_stride=True,
            msg=lambda m, r=resize: f"{r}: {m}",
        )


def test_gradients_are_eagers() -> None:
    resizes = [*SYMBOLIC, *(r for r in RESIZES if r.antialias)]
    inputs = [resize.input().requires_grad_() for resize in resizes]

    def program(inputs: list[Tensor]) -> Tensor:
        return torch.stack(
            [resize(x).square().mean() for resize, x in zip(resizes, inputs, strict=True)]
        ).sum()

    torch._dynamo.reset()
    expected = torch.autograd.grad(program(inputs), inputs)
    found = torch.autograd.grad(torch.compile(program, backend="litz", fullgraph=True)(inputs), inputs)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_a_scale_given_with_a_size() -> None:
    x = torch.arange(24.0).reshape(1, 2, 3, 4)

    def program(x: Tensor) -> tuple[Tensor, ...]:
        aten = torch.ops.aten
        return (
            aten.upsample_nearest2d(x, [3, 8], scales_h=1.3, scales_w=2.1),
            aten.upsample_bilinear2d(x, [3, 6], False, 1.3, 1.5),
            aten.upsample_linear1d(x[0], [4], False, 1.2),
        )

    torch._dynamo.reset()
    found = torch.compile(program, backend="litz", fullgraph=True)(x)
    torch.testing.assert_close(found, program(x))
