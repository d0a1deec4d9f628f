"""Transformers with many options."""

from __future__ import annotations

import torch
from x_transformers import AutoregressiveWrapper, Decoder, Encoder, TransformerWrapper, ViTransformerWrapper

from ecosystem.programs import Backend, Step, inference, program, training


def _decoder() -> TransformerWrapper:
    layers = Decoder(
        dim=32,
        depth=2,
        heads=2,
        attn_dim_head=16,
        rotary_pos_emb=True,
        ff_glu=True,
        use_rmsnorm=True,
        attn_qk_norm=True,
    )
    return TransformerWrapper(num_tokens=40, max_seq_len=24, attn_layers=layers)


@program
def autoregressive_training(backend: Backend) -> Step:
    model = AutoregressiveWrapper(_decoder())
    call = backend.compile(model)
    return training(call, model, [(torch.randint(40, (2, 13)),), (torch.randint(40, (2, 13)),)])


@program
def generation(backend: Backend) -> Step:
    model = _decoder().eval()
    wrapper = AutoregressiveWrapper(model)
    wrapper.net = backend.compile(model)
    prompt = torch.randint(40, (1, 4))
    return inference(lambda: wrapper.generate(prompt, 5, temperature=0.0, cache_kv=False), [()])


@program
def encoder_with_alibi(backend: Backend) -> Step:
    layers = Encoder(dim=32, depth=2, heads=2, attn_dim_head=16, alibi_pos_bias=True, attn_flash=True)
    model = TransformerWrapper(num_tokens=40, max_seq_len=24, attn_layers=layers).eval()
    mask = torch.arange(12)[None] < torch.tensor([[12], [7]])
    call = backend.compile(model)
    return inference(lambda x: call(x, mask=mask), [(torch.randint(40, (2, 12)),) for _ in range(2)])


@program
def vision_training(backend: Backend) -> Step:
    model = ViTransformerWrapper(
        image_size=16,
        patch_size=8,
        num_classes=3,
        attn_layers=Encoder(dim=32, depth=1, heads=2, attn_dim_head=16),
    )
    call = backend.compile(model)
    return training(
        lambda x: call(x).square().mean(), model, [(torch.randn(2, 3, 16, 16),) for _ in range(2)]
    )
