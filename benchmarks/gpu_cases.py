"""Programs for a GPU: some access a quarter of a gigabyte or more, others are matmuls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Build = Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]
ROWS, COLUMNS = 16384, 4096


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Normal numbers on the GPU."""
    return torch.randn(shape, device="cuda", dtype=dtype)


def swiglu(x: Tensor) -> Tensor:
    """Half of the columns gate the other half."""
    gate, value = x.chunk(2, dim=-1)
    return F.silu(gate) * value


def rms_norm(x: Tensor, scale: Tensor) -> Tensor:
    """RMS norm as models write it, in f32 between casts from and to bf16."""
    wide = x.float()
    return scale * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def adam(weights: list[Tensor], gradients: list[Tensor], means: list[Tensor], squares: list[Tensor]) -> None:
    """One step of an optimiser over lists of parameters, in place."""
    torch._foreach_lerp_(means, gradients, 0.1)
    torch._foreach_mul_(squares, 0.99)
    torch._foreach_addcmul_(squares, gradients, gradients, 0.01)
    steps = torch._foreach_sqrt(squares)
    torch._foreach_add_(steps, 1e-8)
    torch._foreach_addcdiv_(weights, means, steps, -1e-3)


def dequantised(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    """A matmul with int8 weights, dequantised in the prologue."""
    return F.linear(x, weight.to(x.dtype) * scale)


def gated(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """The feed-forward block of a language model."""
    return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention written with two matmuls and a softmax, with capped scores."""
    scores = 30.0 * torch.tanh(q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 / 30.0))
    return torch.softmax(scores.float(), -1).to(q.dtype) @ v


def half(*shape: int, scale: float = 1.0) -> Tensor:
    """Normal numbers in bf16."""
    return normal(*shape, dtype=torch.bfloat16) * scale


def bytes_(*shape: int) -> Tensor:
    """Random int8 values on the GPU."""
    return torch.randint(-127, 128, shape, device="cuda", dtype=torch.int8)


MATMULS: dict[str, Build] = {
    "linear and GELU": lambda: (
        lambda x, w, b: F.gelu(F.linear(x, w, b)),
        (half(8192, 1024), half(4096, 1024, scale=0.03), half(4096)),
    ),
    "logits of an odd vocabulary": lambda: (
        lambda x, w: F.linear(x, w),
        (half(2048, 2048), half(50257, 2048, scale=0.03)),
    ),
    "int8 weights, 16 rows": lambda: (
        dequantised,
        (half(16, 4096), bytes_(4096, 4096), half(4096, 1, scale=1e-3)),
    ),
    "gated MLP, 16 rows": lambda: (
        gated,
        (
            half(16, 2048),
            half(5632, 2048, scale=0.03),
            half(5632, 2048, scale=0.03),
            half(2048, 5632, scale=0.03),
        ),
    ),
    "gated MLP, 4096 rows": lambda: (
        gated,
        (
            half(4096, 2048),
            half(5632, 2048, scale=0.03),
            half(5632, 2048, scale=0.03),
            half(2048, 5632, scale=0.03),
        ),
    ),
    "capped attention": lambda: (attention, tuple(half(8, 16, 512, 64) for _ in range(3))),
}
"""Matmuls in bf16 with a prologue and an epilogue, so large that the device takes longer than the host's launches."""

LARGE: dict[str, Build] = {
    "copy and scale": lambda: (lambda x: x * 2, (normal(ROWS, COLUMNS),)),
    "GELU chain": lambda: (
        lambda x, y: torch.tanh(F.gelu(x) * y) + torch.sigmoid(x).sqrt(),
        (normal(ROWS, COLUMNS), normal(ROWS, COLUMNS)),
    ),
    "bf16 SwiGLU": lambda: (swiglu, (normal(ROWS, 4 * COLUMNS, dtype=torch.bfloat16),)),
    "bf16 mix": lambda: (
        lambda x, y: torch.sigmoid(x) * y + torch.tanh(y) * x,
        (normal(ROWS, 2 * COLUMNS, dtype=torch.bfloat16), normal(ROWS, 2 * COLUMNS, dtype=torch.bfloat16)),
    ),
    "transpose and add": lambda: (lambda x, y: x.t() + y, (normal(8192, 8192), normal(8192, 8192))),
    "softmax": lambda: (lambda x: torch.softmax(x, -1), (normal(ROWS, COLUMNS),)),
    "softmax of long rows": lambda: (lambda x: torch.softmax(x, -1), (normal(1024, 65536),)),
    "softmax of short rows": lambda: (lambda x: torch.softmax(x, -1), (normal(ROWS * 32, 128),)),
    "layer norm with residual": lambda: (
        lambda x, y, scale, shift: F.layer_norm(x + y, (COLUMNS,), scale, shift),
        (normal(ROWS, COLUMNS), normal(ROWS, COLUMNS), normal(COLUMNS), normal(COLUMNS)),
    ),
    "bf16 RMS norm": lambda: (
        rms_norm,
        (normal(ROWS, 2 * COLUMNS, dtype=torch.bfloat16), normal(2 * COLUMNS, dtype=torch.bfloat16)),
    ),
    "sum over rows": lambda: (lambda x: x.sum(-1), (normal(ROWS, COLUMNS),)),
    "sum over columns": lambda: (lambda x: x.sum(0), (normal(ROWS, COLUMNS),)),
    "sum of all": lambda: (lambda x: (x * x).sum(), (normal(ROWS, COLUMNS),)),
    "argmax over columns": lambda: (lambda x: x.argmax(-1), (normal(ROWS, COLUMNS),)),
    "statistics of columns": lambda: (lambda x: (x.mean(0), x.var(0), x.amax(0)), (normal(ROWS, COLUMNS),)),
    "cross-entropy": lambda: (
        F.cross_entropy,
        (normal(8192, 32768), torch.randint(0, 32768, (8192,), device="cuda")),
    ),
    "batch norm and ReLU": lambda: (
        lambda x, mean, var, scale, shift: F.relu(F.batch_norm(x, mean, var, scale, shift)),
        (normal(64, 256, 64, 64), normal(256), normal(256).abs(), normal(256), normal(256)),
    ),
    "embedding": lambda: (
        lambda tokens, table: F.embedding(tokens, table) * 2,
        (torch.randint(0, 50000, (32768,), device="cuda"), normal(50000, 2048)),
    ),
    "cumulative sum": lambda: (lambda x: x.cumsum(-1), (normal(ROWS, COLUMNS),)),
    "Adam over lists": lambda: (adam, tuple([normal(1024, 1024).abs() for _ in range(24)] for _ in range(4))),
}
