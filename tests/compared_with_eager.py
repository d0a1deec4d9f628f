"""Programs whose compiled results are compared with eager's."""

from __future__ import annotations

from collections.abc import Callable

import torch

import litz

Program = Callable[..., object]


def values(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return random numbers around zero, the same for the same shape."""
    generator = torch.Generator().manual_seed(sum(shape))
    return (torch.randn(shape, generator=generator) * 4).to(dtype)


def agrees(program: Program, *arguments: torch.Tensor, dynamic: bool = False) -> None:
    """Compare values, dtypes and strides of a program's results, compiled without fallback, with eager's."""
    torch._dynamo.reset()
    with litz.config.patch(fallback="error"):
        found = torch.compile(program, backend="litz", fullgraph=True, dynamic=dynamic)(*arguments)
    torch.testing.assert_close(found, program(*arguments), check_stride=True)
