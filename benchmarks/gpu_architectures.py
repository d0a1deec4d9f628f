"""The whole models that `gpu_models.py` measures, with random weights, at batch sizes of real use.

The models are those of `torchvision` and `transformers` and two diffusion networks of our own. A builder returns the
module and its arguments, on the current default device; language models that train return their loss.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
import torchvision
import transformers
from torch import Tensor, nn

Built = tuple[nn.Module, tuple[Tensor, ...]]
Builder = Callable[[bool], Built]


class Named(nn.Module):
    """A transformers model that takes its arguments by name, and returns its loss where it has labels, else its first
    result."""

    def __init__(self, model: nn.Module, *names: str) -> None:
        super().__init__()
        self.model = model
        self.names = names

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return the loss, a scalar, or logits or states: [batch, tokens, width]."""
        result: Tensor = self.model(**dict(zip(self.names, inputs, strict=True)))[0]
        return result


def numbers(below: int, *shape: int) -> Tensor:
    """Return random token numbers."""
    return torch.randint(0, below, shape)


def language_model(kind: str, batch: int, length: int, vocabulary: int, **options: Any) -> Builder:
    """Make a builder of one of transformers' models with a head over its vocabulary; training takes labels."""

    def build(train: bool) -> Built:
        head = "ForMaskedLM" if kind in {"Bert", "DistilBert", "Roberta"} else "ForCausalLM"
        model, config = (
            ("GPT2LMHeadModel", "GPT2Config") if kind == "GPT2" else (kind + head, kind + "Config")
        )
        made = getattr(transformers, config)(
            vocab_size=vocabulary, **{"attn_implementation": "sdpa", **options}
        )
        made.use_cache = False
        ids = numbers(vocabulary, batch, length)
        if train:
            return Named(getattr(transformers, model)(made), "input_ids", "labels"), (ids, ids)
        return Named(getattr(transformers, model)(made), "input_ids"), (ids,)

    return build


def t5(train: bool) -> Built:
    """Return T5-small, encoder and decoder."""
    options: dict[str, Any] = {"use_cache": False, "decoder_start_token_id": 0}
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(**options))
    ids, targets = numbers(32128, 8, 512), numbers(32128, 8, 512)
    return Named(model, "input_ids", "labels" if train else "decoder_input_ids"), (ids, targets)


def whisper(train: bool) -> Built:
    """Return Whisper-base over spectrograms of 30 seconds."""
    options: dict[str, Any] = {"d_model": 512, "encoder_layers": 6, "decoder_layers": 6, "use_cache": False}
    options |= {"attn_implementation": "sdpa"}
    options |= {f"{each}_attention_heads": 8 for each in ("encoder", "decoder")}
    options |= {f"{each}_ffn_dim": 2048 for each in ("encoder", "decoder")}
    config = transformers.WhisperConfig(**options)
    model = transformers.WhisperForConditionalGeneration(config)
    tokens = numbers(51865, 8, 224)
    names = ("input_features", "labels" if train else "decoder_input_ids")
    return Named(model, *names), (torch.randn(8, 80, 3000), tokens)


def image_model(name: str, batch: int) -> Builder:
    """Make a builder of one of torchvision's models.

    A head of zeros, as ViT has, gets weights: all gradients before it would be zero.
    """

    def build(train: bool) -> Built:
        model = getattr(torchvision.models, name)()
        for module in model.modules():
            if isinstance(module, nn.Linear) and not module.weight.any():
                nn.init.normal_(module.weight, std=0.02)
        return model, (torch.randn(batch, 3, 224, 224),)

    return build


class Residual(nn.Module):
    """Two convolutions with group norms and SiLU, shifted by an embedding of the time step."""

    def __init__(self, inputs: int, outputs: int, embedded: int) -> None:
        super().__init__()
        self.first_norm, self.second_norm = nn.GroupNorm(32, inputs), nn.GroupNorm(32, outputs)
        self.first = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.shift = nn.Linear(embedded, outputs)
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """Return [batch, outputs, height, width]."""
        hidden = self.first(F.silu(self.first_norm(x))) + self.shift(F.silu(time))[:, :, None, None]
        result: Tensor = self.skip(x) + self.second(F.silu(self.second_norm(hidden)))
        return result


class Attention(nn.Module):
    """Self-attention over all positions of an image."""

    def __init__(self, width: int, heads: int = 8) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(32, width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return a tensor of the same shape."""
        height, columns = x.shape[2:]
        rows = self.norm(x).flatten(2).transpose(1, 2)
        query, key, value = (
            each.unflatten(2, (self.heads, -1)).transpose(1, 2) for each in self.qkv(rows).chunk(3, dim=2)
        )
        mixed = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        result: Tensor = x + self.out(mixed).transpose(1, 2).unflatten(2, (height, columns))
        return result


class DiffusionUNet(nn.Module):
    """A denoiser of latents of 4 x 64 x 64 with three resolutions, attention at the lower two."""

    def __init__(self, width: int = 192) -> None:
        super().__init__()
        widths = (width, 2 * width, 3 * width)
        self.time = nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, 4 * width))
        self.stem = nn.Conv2d(4, width, 3, padding=1)
        self.down = nn.ModuleList(
            Residual(a, b, 4 * width) for a, b in zip((width, *widths), widths, strict=False)
        )
        self.mixers = nn.ModuleList([nn.Identity(), Attention(widths[1]), Attention(widths[2])])
        self.shrink = nn.ModuleList(nn.Conv2d(each, each, 3, stride=2, padding=1) for each in widths[:2])
        self.middle = Residual(widths[2], widths[2], 4 * width)
        self.up = nn.ModuleList(
            Residual(below + skip, skip, 4 * width)
            for below, skip in ((widths[2], widths[2]), (widths[2], widths[1]), (widths[1], widths[0]))
        )
        self.norm, self.out = nn.GroupNorm(32, width), nn.Conv2d(width, 4, 3, padding=1)

    def forward(self, x: Tensor, embedded: Tensor) -> Tensor:
        """Return the noise of latents [batch, 4, height, width], given embedded time steps [batch, width]."""
        time = self.time(embedded)
        hidden, skips = self.stem(x), []
        for level, (block, mixer) in enumerate(zip(self.down, self.mixers, strict=True)):
            hidden = mixer(block(hidden, time))
            skips.append(hidden)
            if level < len(self.shrink):
                hidden = self.shrink[level](hidden)
        hidden = self.middle(hidden, time)
        for level, block in enumerate(self.up):
            if level:
                hidden = F.interpolate(hidden, scale_factor=2.0, mode="nearest")
            hidden = block(torch.cat([hidden, skips.pop()], 1), time)
        result: Tensor = self.out(F.silu(self.norm(hidden)))
        return result


class DiffusionBlock(nn.Module):
    """Attention and an MLP whose norms are scaled, shifted and gated by an embedding."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.modulate = nn.Linear(width, 6 * width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """Return a tensor of the shape of x: [batch, tokens, width]."""
        width = x.shape[2]
        shift, scale, gate, shift_mlp, scale_mlp, gate_mlp = self.modulate(F.silu(condition))[:, None].chunk(
            6, dim=2
        )
        rows = F.layer_norm(x, (width,), eps=1e-6) * (1 + scale) + shift
        query, key, value = (
            each.unflatten(2, (self.heads, -1)).transpose(1, 2) for each in self.qkv(rows).chunk(3, dim=2)
        )
        x = x + gate * self.out(F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2))
        result: Tensor = x + gate_mlp * self.mlp(
            F.layer_norm(x, (width,), eps=1e-6) * (1 + scale_mlp) + shift_mlp
        )
        return result


class DiffusionTransformer(nn.Module):
    """A diffusion transformer of 12 blocks over latents of 4 x 32 x 32 in patches of 2 x 2."""

    def __init__(self, width: int = 768, heads: int = 12, depth: int = 12) -> None:
        super().__init__()
        self.patches = nn.Conv2d(4, width, 2, stride=2)
        self.places = nn.Parameter(0.02 * torch.randn(1, 256, width))
        self.blocks = nn.ModuleList(DiffusionBlock(width, heads) for _ in range(depth))
        self.out = nn.Linear(width, 16)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """Return the noise of latents [batch, 4, 32, 32], given embedded conditions [batch, width]."""
        rows = self.patches(x).flatten(2).transpose(1, 2) + self.places
        for block in self.blocks:
            rows = block(rows, condition)
        pixels = self.out(F.layer_norm(rows, (rows.shape[2],)))
        return F.pixel_shuffle(pixels.transpose(1, 2).unflatten(2, (16, 16)), 2)


def diffusion_unet(train: bool) -> Built:
    """Return the U-Net over a batch of eight latents."""
    return DiffusionUNet(), (torch.randn(8, 4, 64, 64), torch.randn(8, 192))


def diffusion_transformer(train: bool) -> Built:
    """Return the transformer over a batch of 32 latents."""
    return DiffusionTransformer(), (torch.randn(32, 4, 32, 32), torch.randn(32, 768))


LLAMA = {
    "num_hidden_layers": 8,
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
}
QWEN = {
    "num_hidden_layers": 8,
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
}
GEMMA = {**QWEN, "head_dim": 64, "query_pre_attn_scalar": 64, "attn_implementation": "eager"}
MIXTURE = {**QWEN, "num_local_experts": 8, "num_experts_per_tok": 2, "num_hidden_layers": 4}

MODELS: dict[str, Builder] = {
    "t5-small": t5,
    "whisper-base": whisper,
    "bert-base": language_model("Bert", 16, 512, 30522),
    "densenet121": image_model("densenet121", 64),
    "efficientnet-b0": image_model("efficientnet_b0", 64),
    "gpt2": language_model("GPT2", 8, 512, 50257),
    "swin-t": image_model("swin_t", 64),
    "regnet-y-3.2gf": image_model("regnet_y_3_2gf", 64),
    "resnet50": image_model("resnet50", 64),
    "diffusion-unet": diffusion_unet,
    "mobilenetv3": image_model("mobilenet_v3_large", 128),
    "convnext-t": image_model("convnext_tiny", 64),
    "llama-like": language_model("Llama", 4, 1024, 32000, **LLAMA),
    "mixtral-like": language_model("Mixtral", 2, 512, 32000, **MIXTURE),
    "gemma2-like": language_model("Gemma2", 2, 1024, 64000, **GEMMA),
    "qwen2-like": language_model("Qwen2", 2, 1024, 151936, **QWEN),
    "distilbert": language_model("DistilBert", 32, 256, 30522),
    "vit-b": image_model("vit_b_16", 64),
    "diffusion-transformer": diffusion_transformer,
}
"""The models by name, those that take long to compile first."""
