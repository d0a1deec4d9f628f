"""The modules that cases and demo share: small ones of our own, and two from transformers' configurations."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class FeedForward(nn.Module):
    """Norm, two linear layers around GELU, residual; f32[..., width] to the same shape."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return x + down(gelu(up(norm(x))))."""
        result: Tensor = x + self.down(F.gelu(self.up(self.norm(x))))
        return result


class SelfAttention(nn.Module):
    """Norm, causal self-attention, residual; f32[batch, tokens, width] to the same shape."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return x + out(attention(norm(x)))."""
        batch, tokens, width = x.shape
        split = self.qkv(self.norm(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        result: Tensor = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return result


class Residual(nn.Module):
    """Two convolutions with batch norm around a shortcut; halves height and width if `stride` is 2."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return relu(body(x) + shortcut(x))."""
        return F.relu(self.body(x) + self.shortcut(x))


class ConvNet(nn.Module):
    """A stem, three residual blocks and a classifier; f32[batch, 3, height, width] to f32[batch, 100]."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.Hardswish())
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.blocks = nn.Sequential(Residual(32, 64, 1), Residual(64, 128, 2), Residual(128, 256, 2))
        self.head = nn.Linear(256, 100)

    def forward(self, x: Tensor) -> Tensor:
        """Return the classes' scores."""
        result: Tensor = self.head(self.blocks(self.pool(self.stem(x))).mean((2, 3)))
        return result


class Logits(nn.Module):
    """A transformers model that returns its first output alone."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits: f32[batch, tokens, vocabulary]."""
        result: Tensor = self.model(tokens)[0]
        return result


def gpt2() -> nn.Module:
    """Return GPT-2 with four layers and random weights, in evaluation mode; i64[batch, tokens] to logits."""
    import transformers  # noqa: PLC0415  a heavy import that only two cases need

    config = transformers.GPT2Config(n_layer=4, n_embd=512, n_head=8, vocab_size=8192, use_cache=False)
    return Logits(transformers.GPT2LMHeadModel(config).eval())


def bert() -> nn.Module:
    """Return BERT with four layers and random weights, in evaluation mode; i64[batch, tokens] to logits."""
    import transformers  # noqa: PLC0415  a heavy import that only two cases need

    config = transformers.BertConfig(
        num_hidden_layers=4, hidden_size=512, intermediate_size=2048, num_attention_heads=8
    )
    return Logits(transformers.BertForMaskedLM(config).eval())


def tensors(value: object) -> list[Tensor]:
    """Return the tensors in a result, in order, through tuples, lists and dicts."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        return [found for item in value.values() for found in tensors(item)]
    if isinstance(value, list | tuple):
        return [found for item in value for found in tensors(item)]
    return []


def relative_error(got: list[Tensor], wanted: list[Tensor]) -> float:
    """Return the greatest norm of a difference over that of what was wanted, in f64; 0.0 for no tensors."""
    worst = 0.0
    for one, other in zip(got, wanted, strict=True):
        a, b = one.detach().to(torch.float64), other.detach().to(torch.float64)
        worst = max(worst, float((a - b).norm() / (b.norm() + 1e-12)))
    return worst
