"""Models of diffusion pipelines, and a loop of a scheduler."""

from __future__ import annotations

import torch
from diffusers import AutoencoderKL, DDIMScheduler, FluxTransformer2DModel, UNet2DConditionModel, UNet2DModel

from ecosystem.programs import Backend, Step, inference, program, training


@program
def conditioned_unet(backend: Backend) -> Step:
    model = UNet2DConditionModel(
        sample_size=8,
        block_out_channels=(8, 16),
        layers_per_block=1,
        norm_num_groups=4,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=16,
        attention_head_dim=4,
    ).eval()
    call = backend.compile(model)
    context = torch.randn(1, 5, 16)
    batches = [(torch.randn(1, 4, 8, 8), torch.tensor(t)) for t in (900, 500, 100)]
    return inference(lambda x, t: call(x, t, encoder_hidden_states=context, return_dict=False), batches)


@program
def unet_training(backend: Backend) -> Step:
    model = UNet2DModel(
        sample_size=8,
        block_out_channels=(8, 16),
        layers_per_block=1,
        norm_num_groups=4,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=4,
    )
    call = backend.compile(model)
    scheduler = DDIMScheduler()

    def loss(x: torch.Tensor, noise: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.mse_loss(call(scheduler.add_noise(x, noise, t), t).sample, noise)

    batches = [(torch.randn(2, 3, 8, 8), torch.randn(2, 3, 8, 8), torch.tensor([10, 700])) for _ in range(2)]
    return training(loss, model, batches)


@program
def autoencoder_decoding(backend: Backend) -> Step:
    model = AutoencoderKL(
        block_out_channels=(8, 16),
        norm_num_groups=4,
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
    ).eval()
    decode = backend.compile(model.decode)
    return inference(lambda x: decode(x).sample, [(torch.randn(1, 4, 8, 8),) for _ in range(2)])


@program
def denoising_loop(backend: Backend) -> Step:
    model = FluxTransformer2DModel(
        in_channels=4,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=16,
        pooled_projection_dim=16,
        axes_dims_rope=(4, 4, 8),
    ).eval()
    call = backend.compile(model)
    text, pooled = torch.randn(1, 5, 16), torch.randn(1, 16)
    scheduler = DDIMScheduler(clip_sample=False)
    scheduler.set_timesteps(3)

    def denoise(x: torch.Tensor) -> torch.Tensor:
        for t in scheduler.timesteps:
            noise = call(
                hidden_states=x,
                timestep=(t / 1000).expand(1).to(x.dtype),
                encoder_hidden_states=text,
                pooled_projections=pooled,
                img_ids=torch.zeros(6, 3),
                txt_ids=torch.zeros(5, 3),
                return_dict=False,
            )[0]
            x = scheduler.step(noise, t, x).prev_sample
        return x

    return inference(denoise, [(torch.randn(1, 6, 4),)])
