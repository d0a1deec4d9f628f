"""Timed cases: small programs bound by memory, blocks of models, and whole models with random weights.

A case builds its function and arguments afresh, from a seed that the caller sets. Sizes are chosen so that
one call takes between a fraction of a millisecond and some tens of milliseconds on two cores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import models
import torch
import torch.nn.functional as F
from torch import Tensor

Program = tuple[Callable[..., Any], tuple[Any, ...]]
ROWS, COLUMNS = 2048, 1536
F32_BOUND, BF16_BOUND = 1e-4, 1e-2


@dataclass(frozen=True, slots=True)
class Case:
    """One program: its name, its topic and how it is built.

    `trains` says whether a backward pass makes sense, `bound` is the greatest relative error against eager
    that is allowed.
    """

    name: str
    topic: str
    build: Callable[[], Program]
    trains: bool
    bound: float


CASES: dict[str, Case] = {}


def case(
    topic: str, *, trains: bool = True, bound: float = F32_BOUND
) -> Callable[[Callable[[], Program]], Callable[[], Program]]:
    """Register the decorated builder under its own name."""

    def register(build: Callable[[], Program]) -> Callable[[], Program]:
        CASES[build.__name__] = Case(build.__name__, topic, build, trains, bound)
        return build

    return register


@case("pointwise")
def swiglu_gate() -> Program:
    """Half of the columns gate the other half."""

    def run(x: Tensor) -> Tensor:
        gate, value = x.chunk(2, dim=-1)
        return F.silu(gate) * value

    return run, (torch.randn(ROWS, 2 * COLUMNS),)


@case("pointwise")
def bias_gelu_residual() -> Program:
    """The end of a transformer's feed-forward block."""
    return lambda x, bias, residual: F.gelu(x + bias) + residual, (
        torch.randn(ROWS, COLUMNS),
        torch.randn(COLUMNS),
        torch.randn(ROWS, COLUMNS),
    )


@case("pointwise")
def soft_threshold() -> Program:
    """Selections by `where`."""
    return lambda x, limit: torch.where(x.abs() > limit, x - limit * x.sign(), torch.zeros_like(x)), (
        torch.randn(ROWS, COLUMNS),
        torch.rand(COLUMNS),
    )


@case("pointwise", bound=BF16_BOUND)
def bf16_mix() -> Program:
    """Low precision in memory, f32 in between."""
    return lambda x, y: (torch.sigmoid(x) * y + torch.tanh(y) * x).to(torch.bfloat16), (
        torch.randn(ROWS, COLUMNS, dtype=torch.bfloat16),
        torch.randn(ROWS, COLUMNS, dtype=torch.bfloat16),
    )


@case("pointwise")
def rotary() -> Program:
    """Rotary position embedding: two halves, negated and joined."""

    def run(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        low, high = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-high, low), dim=-1) * sin

    angles = torch.rand(1, 1, 512, 64)
    return run, (torch.randn(2, 16, 512, 64), angles.cos(), angles.sin())


@case("pointwise", trains=False)
def adamw_step() -> Program:
    """One optimiser step on one parameter, in place."""

    def run(weight: Tensor, grad: Tensor, mean: Tensor, square: Tensor) -> Tensor:
        mean.lerp_(grad, 0.1)
        square.mul_(0.999).addcmul_(grad, grad, value=0.001)
        return weight.mul(0.9999).addcdiv(mean, square.sqrt() + 1e-8, value=-1e-3)

    shape = (ROWS, COLUMNS)
    return run, (torch.randn(shape), torch.randn(shape), torch.zeros(shape), torch.rand(shape))


@case("reduction")
def masked_softmax() -> Program:
    """Attention's scores under a causal mask."""

    def run(scores: Tensor, mask: Tensor) -> Tensor:
        return torch.softmax((scores * 0.125).masked_fill(mask, -1e9), dim=-1)

    return run, (torch.randn(16, 384, 384), torch.ones(384, 384, dtype=torch.bool).triu(1))


@case("reduction")
def residual_layer_norm() -> Program:
    """Add, normalise, scale and shift."""
    return lambda x, y, scale, shift: F.layer_norm(x + y, (COLUMNS,), scale, shift), (
        torch.randn(ROWS, COLUMNS),
        torch.randn(ROWS, COLUMNS),
        torch.randn(COLUMNS),
        torch.randn(COLUMNS),
    )


@case("reduction", bound=BF16_BOUND)
def rms_norm_spelt_out() -> Program:
    """RMS norm as models write it, in f32 between casts from and to bf16."""

    def run(x: Tensor, scale: Tensor) -> Tensor:
        wide = x.float()
        return scale * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)

    return run, (torch.randn(ROWS, COLUMNS, dtype=torch.bfloat16), torch.randn(COLUMNS, dtype=torch.bfloat16))


@case("reduction")
def cross_entropy() -> Program:
    """Log-softmax over a vocabulary, and a gather."""
    return F.cross_entropy, (torch.randn(1024, 8192), torch.randint(0, 8192, (1024,)))


@case("reduction")
def column_statistics() -> Program:
    """Reductions over the slow axis."""
    return lambda x: (x.mean(0), x.var(0), x.amax(0)), (torch.randn(ROWS, COLUMNS),)


@case("reduction")
def group_norm_silu() -> Program:
    """Group norm and SiLU, as between the convolutions of a diffusion model."""
    return lambda x, scale, shift: F.silu(F.group_norm(x, 8, scale, shift)), (
        torch.randn(2, 64, 64, 64),
        torch.randn(64),
        torch.randn(64),
    )


@case("reduction", trains=False)
def top_of_each_row() -> Program:
    """The position and the value of the greatest element."""
    return lambda x: (x.argmax(-1), x.amax(-1)), (torch.randn(ROWS, COLUMNS),)


@case("index")
def transpose_add() -> Program:
    """Sum of a transposed and a contiguous matrix in one loop."""
    return lambda x, y: x.t() + y * 2.0, (torch.randn(COLUMNS, ROWS), torch.randn(ROWS, COLUMNS))


@case("index")
def pad_and_join() -> Program:
    """Pad, shift, concatenate."""
    return lambda x, y: torch.cat((F.pad(x, (3, 5)), y.roll(1, 0) * 0.5), dim=1), (
        torch.randn(ROWS, COLUMNS),
        torch.randn(ROWS, COLUMNS),
    )


@case("index")
def embed_and_scale() -> Program:
    """Token and position embeddings, summed."""

    def run(tokens: Tensor, words: Tensor, places: Tensor) -> Tensor:
        return F.embedding(tokens, words) * 22.6 + places[: tokens.shape[1]]

    return run, (torch.randint(0, 8000, (4, 512)), torch.randn(8000, 512), torch.randn(1024, 512))


@case("index")
def resize_and_normalise() -> Program:
    """Bilinear upsampling and normalisation of an image before a model."""

    def run(x: Tensor) -> Tensor:
        return (F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False) - 0.45) / 0.22

    return run, (torch.rand(4, 3, 224, 224),)


@case("block")
def mlp_block() -> Program:
    """Two matmuls with pointwise operations to fuse before and after each."""
    return models.FeedForward(512, 2048), (torch.randn(8, 128, 512),)


@case("block")
def attention_block() -> Program:
    """Norm, projections, attention, residual."""
    return models.SelfAttention(512, 8), (torch.randn(2, 256, 512),)


@case("model")
def convolutional() -> Program:
    """A small residual convolutional network."""
    return models.ConvNet().eval(), (torch.randn(4, 3, 96, 96),)


@case("model")
def gpt2() -> Program:
    """GPT-2 with four layers, from its configuration."""
    return models.gpt2(), (torch.randint(0, 8192, (1, 128)),)


@case("model")
def bert() -> Program:
    """BERT with four layers, from its configuration."""
    return models.bert(), (torch.randint(0, 30000, (1, 128)),)
