"""The ten models, with random weights, at batch sizes of real use or (`small`) at sizes that a CPU stands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from whole_models.dlrm import DLRM
from whole_models.unet import UNet

Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Sample:
    """A model, its arguments, and its training target."""

    model: nn.Module
    inputs: tuple[Tensor, ...]
    target: Tensor
    loss: Loss


class Logits(nn.Module):
    """A transformers model that takes its arguments by the names given, and returns its logits alone."""

    def __init__(self, model: nn.Module, names: tuple[str, ...] = ("input_ids",)) -> None:
        super().__init__()
        self.model = model
        self.names = names

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return the logits: f32[batch, tokens, vocabulary]."""
        result: Tensor = self.model(**dict(zip(self.names, inputs)), use_cache=False).logits
        return result


class MaskedLogits(Logits):
    """The same for a model that has no `use_cache`."""

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return the logits: f32[batch, tokens, vocabulary]."""
        result: Tensor = self.model(**dict(zip(self.names, inputs))).logits
        return result


def of_classes(output: Tensor, target: Tensor) -> Tensor:
    """Return the cross entropy over the second dimension of images or the last of tokens."""
    if output.dim() == 3:
        return F.cross_entropy(output.flatten(0, 1), target.flatten())
    return F.cross_entropy(output, target)


def tokens(vocabulary: int, *shape: int) -> Tensor:
    """Return random token numbers."""
    return torch.randint(0, vocabulary, shape)


def image_model(name: str, small: bool, batch: int, **options: Any) -> Sample:
    """Return a timm model; `small` is at 64 x 64 and ten classes."""
    import timm

    classes, side = (10, 64) if small else (1000, 224)
    if small:
        batch = 4
    model = timm.create_model(name, pretrained=False, num_classes=classes, **options)
    return Sample(model, (torch.randn(batch, 3, side, side),), tokens(classes, batch), of_classes)


def resnet50(small: bool) -> Sample:
    """Return ResNet-50, whose blocks all contribute; small: one block a stage."""
    shape: dict[str, Any] = {"layers": (1, 1, 1, 1)} if small else {}
    return image_model("resnet50", small, 64, zero_init_last=False, **shape)


def efficientnet(small: bool) -> Sample:
    """Return EfficientNet-B0."""
    return image_model("efficientnet_b0", small, 64)


def convnext(small: bool) -> Sample:
    """Return ConvNeXt-T, with layer scales of one so that each block contributes; small: one block a stage."""
    shape: dict[str, Any] = {"depths": (1, 1, 1, 1), "dims": (32, 64, 96, 128)} if small else {}
    return image_model("convnext_tiny", small, 48, ls_init_value=1.0, **shape)


def vit(small: bool) -> Sample:
    """Return ViT-B/16."""
    shape: dict[str, Any] = {"depth": 2, "embed_dim": 64, "num_heads": 4, "img_size": 64} if small else {}
    return image_model("vit_base_patch16_224", small, 48, **shape)


def unet(small: bool) -> Sample:
    """Return U-Net over images of 256 x 256."""
    width, batch, side = (8, 2, 32) if small else (64, 8, 256)
    model = UNet(width, 4)
    return Sample(model, (torch.randn(batch, 3, side, side),), tokens(4, batch, side, side), of_classes)


def bert(small: bool) -> Sample:
    """Return BERT-base over rows of tokens of which some are padded."""
    import transformers

    batch, length, vocabulary = (3, 24, 128) if small else (16, 512, 30522)
    options: dict[str, Any] = {"vocab_size": vocabulary, "attn_implementation": "sdpa"}
    options |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    if small:
        options |= {"hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 128}
        options |= {"num_attention_heads": 4}
    model = transformers.BertForMaskedLM(transformers.BertConfig(**options))
    mask = (torch.arange(length) < torch.linspace(length // 2, length, batch).long()[:, None]).long()
    inputs = tokens(vocabulary, batch, length), mask
    logits = MaskedLogits(model, ("input_ids", "attention_mask"))
    return Sample(logits, inputs, tokens(vocabulary, batch, length), of_classes)


def gpt2(small: bool) -> Sample:
    """Return GPT-2 small."""
    import transformers

    batch, length, vocabulary = (2, 24, 128) if small else (8, 1024, 50257)
    options: dict[str, Any] = {"vocab_size": vocabulary, "attn_implementation": "sdpa"}
    options |= {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    if small:
        options |= {"n_embd": 64, "n_layer": 2, "n_head": 4}
    model = Logits(transformers.GPT2LMHeadModel(transformers.GPT2Config(**options)))
    return Sample(model, (tokens(vocabulary, batch, length),), tokens(vocabulary, batch, length), of_classes)


def t5(small: bool) -> Sample:
    """Return T5-small, encoder and decoder."""
    import transformers

    batch, length, vocabulary = (2, 24, 128) if small else (8, 512, 32128)
    options: dict[str, Any] = {"vocab_size": vocabulary, "dropout_rate": 0.0, "decoder_start_token_id": 0}
    if small:
        options |= {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4}
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(**options))
    inputs = tokens(vocabulary, batch, length), tokens(vocabulary, batch, length)
    logits = Logits(model, ("input_ids", "decoder_input_ids"))
    return Sample(logits, inputs, tokens(vocabulary, batch, length), of_classes)


def llama(small: bool) -> Sample:
    """Return a Llama of eight layers, 2,048 wide, with grouped queries."""
    import transformers

    batch, length, vocabulary = (2, 24, 128) if small else (4, 1024, 32000)
    layers, width, inner, heads, groups = (2, 64, 128, 4, 2) if small else (8, 2048, 5632, 32, 4)
    options: dict[str, Any] = {"vocab_size": vocabulary, "attn_implementation": "sdpa"}
    options |= {"num_hidden_layers": layers, "hidden_size": width, "intermediate_size": inner}
    options |= {"num_attention_heads": heads, "num_key_value_heads": groups}
    model = Logits(transformers.LlamaForCausalLM(transformers.LlamaConfig(**options)))
    return Sample(model, (tokens(vocabulary, batch, length),), tokens(vocabulary, batch, length), of_classes)


def dlrm(small: bool) -> Sample:
    """Return DLRM with 26 tables of 100,000 rows, four of which make a bag."""
    tables, rows, width, hidden, batch = (5, 100, 16, 32, 32) if small else (26, 100_000, 64, 512, 4096)
    model = DLRM(tables, rows, width, hidden)
    inputs = torch.randn(batch, 13), tokens(rows, tables, batch, 4)
    return Sample(model, inputs, torch.rand(batch).round(), F.binary_cross_entropy_with_logits)


CASES: dict[str, Callable[[bool], Sample]] = {
    case.__name__: case for case in (efficientnet, t5, bert, resnet50, llama, convnext, gpt2, unet, vit, dlrm)
}
"""The models by name, those that take long to compile first."""


def stirred(model: nn.Module) -> None:
    """Move what starts at zero or one (norms' weights and statistics, biases) off it, so that no term drops out."""
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.data.add_(0.1 * torch.randn_like(parameter))
    for name, buffer in model.named_buffers():
        if name.endswith("running_mean"):
            buffer.add_(0.1 * torch.randn_like(buffer))
        elif name.endswith("running_var"):
            buffer.mul_(0.5 + torch.rand_like(buffer))


def sample_of(name: str, small: bool) -> Sample:
    """Return a case's model and inputs on the CPU: the same each time."""
    torch.manual_seed(0)
    sample = CASES[name](small)
    stirred(sample.model)
    for module in sample.model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return sample
