"""Sizes and inputs of tiny transformers, as data: by names of fields and parameters, then for single families."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

BATCH, SEQUENCE, VOCABULARY, IMAGE, PATCH, WIDTH, HEADS = 2, 16, 128, 32, 8, 32, 4

FIELDS: Mapping[str, int] = MappingProxyType(
    {
        **dict.fromkeys(("vocab_size", "text_vocab_size", "codebook_size", "tgt_vocab_size"), VOCABULARY),
        **dict.fromkeys(("src_vocab_size", "vocab_size_per_layer_input", "entity_vocab_size"), VOCABULARY),
        **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "embed_dim", "projection_dim"), WIDTH),
        **dict.fromkeys(("embedding_size", "encoder_hidden_size", "decoder_hidden_size", "emb_dim"), WIDTH),
        **dict.fromkeys(
            ("hidden_dim", "out_hidden_size", "output_hidden_size", "word_embed_proj_dim"), WIDTH
        ),
        **dict.fromkeys(("encoder_hidden_dim", "projector_hidden_size", "qformer_hidden_size"), WIDTH),
        **dict.fromkeys(("lru_width", "linear_width", "block_out_dim", "entity_emb_size"), WIDTH),
        **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "n_inner", "ffn_hidden_size"), 2 * WIDTH),
        **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "dim_feedforward", "mlp_dim"), 2 * WIDTH),
        **dict.fromkeys(("decoder_intermediate_size", "feed_forward_size"), 2 * WIDTH),
        **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), WIDTH),
        **dict.fromkeys(("shared_intermediate_size", "moe_shared_expert_intermediate_size"), WIDTH),
        **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth"), 2),
        **dict.fromkeys(("encoder_layers", "decoder_layers", "num_decoder_layers", "vision_layers"), 2),
        **dict.fromkeys(("num_encoder_layers", "decoder_num_hidden_layers", "text_layers"), 2),
        **dict.fromkeys(("encoder_num_hidden_layers", "num_hidden_groups", "num_encoder_blocks_"), 2),
        **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), HEADS),
        **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), HEADS),
        **dict.fromkeys(("decoder_num_attention_heads", "linear_num_value_heads", "mamba_n_heads"), HEADS),
        **dict.fromkeys(("num_key_value_heads", "linear_num_key_heads", "num_kv_heads"), 2),
        **dict.fromkeys(("head_dim", "d_kv", "v_head_dim", "qk_nope_head_dim", "attention_head_dim"), 8),
        **dict.fromkeys(("qk_rope_head_dim", "linear_key_head_dim", "linear_value_head_dim"), 8),
        **dict.fromkeys(("global_head_dim", "index_head_dim", "kv_channels", "rotary_dim"), 8),
        **dict.fromkeys(("kv_lora_rank", "q_lora_rank", "mamba_d_state", "state_size"), 16),
        **dict.fromkeys(("mamba_chunk_size", "chunk_size", "time_step_rank"), 8),
        **dict.fromkeys(("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts"), 4),
        **dict.fromkeys(("num_experts_per_tok", "moe_topk", "moe_k", "n_group", "topk_group"), 2),
        **dict.fromkeys(("first_k_dense_replace", "n_shared_experts", "moe_layer_start_index"), 1),
        **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "max_source_positions"), 64),
        **dict.fromkeys(("max_target_positions", "context_length", "sliding_window"), 64),
        **dict.fromkeys(("image_size", "input_image_size"), IMAGE),
        "patch_size": PATCH,
        **dict.fromkeys(("num_mel_bins", "num_queries", "num_query_tokens", "num_latents"), 16),
        **dict.fromkeys(("index_n_heads", "index_topk"), 4),
        **dict.fromkeys(("num_conv_pos_embeddings", "conv_pos_kernel"), 16),
        **dict.fromkeys(("num_conv_pos_embedding_groups", "num_codebooks", "num_quantizers"), 2),
        "num_frames": 2,
    }
)
"""Largest value of an integer field, by its name."""

LISTS: Mapping[str, int] = MappingProxyType(
    {
        **dict.fromkeys(("depths", "num_blocks", "layers_per_stage"), 1),
        **dict.fromkeys(("hidden_sizes", "embed_dims", "conv_dim", "encoder_in_channels"), WIDTH),
        **dict.fromkeys(("tdnn_dim", "neck_hidden_sizes", "decoder_hidden_sizes"), WIDTH),
    }
)
"""Largest value of each integer in a list, by the field's name; lists that grow keep growing."""

SWITCHED_OFF = ("dropout", "drop_rate", "drop_path", "layerdrop", "_pdrop", "jitter")
"""Parts of the names of fields that are probabilities of what happens in training alone; they become 0."""

VALUES: Mapping[str, Any] = MappingProxyType(
    {
        "use_cache": False,
        "apply_spec_augment": False,
        "mask_time_prob": 0.0,
        "mask_feature_prob": 0.0,
        "use_pretrained_backbone": False,
        "use_timm_backbone": False,
        "num_denoising": 0,
        "use_kernels": False,
        "use_mamba_kernels": False,
    }
)
"""Fields that get one value wherever they stand."""

FAMILIES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "audio-spectrogram-transformer": {"max_length": 64},
        "bit": {"num_groups": 4, "hidden_sizes": (16, 32, 32, 32), "embedding_size": 16},
        "deepseek_v3": {"n_routed_experts": 8, "num_key_value_heads": 4},
        "efficientnet": {"width_coefficient": 0.5, "depth_coefficient": 0.5, "hidden_dim": 640},
        "esm": {"vocab_size": 128, "pad_token_id": 1, "mask_token_id": 4},
        "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
        "layoutlmv3": {
            "coordinate_size": 8,
            "shape_size": 0,
            "hidden_size": 32,
            "input_size": 32,
            "has_spatial_attention_bias": True,
        },
        "lilt": {"hidden_size": 48, "channel_shrink_ratio": 2},
        "mamba2": {"num_heads": 8, "head_dim": 8, "n_groups": 2},
        "mimi": {
            "upsample_groups": 32,
            "num_filters": 8,
            "codebook_dim": 16,
            "vector_quantization_hidden_dimension": 16,
        },
        "nemotron": {"num_key_value_heads": 2},
        "reformer": {
            "axial_pos_embds_dim": (8, 24),
            "axial_pos_shape": (4, 4),
            "local_attn_chunk_length": 4,
            "lsh_attn_chunk_length": 4,
            "attn_layers": ("local", "lsh"),
            "attention_head_size": 8,
            "num_buckets": 2,
            "hash_seed": 0,
        },
        "swin": {"patch_size": 4, "embed_dim": 12, "depths": (2, 2), "num_heads": (2, 4), "window_size": 4},
        "swinv2": {"patch_size": 4, "embed_dim": 12, "depths": (2, 2), "num_heads": (2, 4), "window_size": 4},
        "swin2sr": {"embed_dim": 12, "depths": (2, 2), "num_heads": (2, 2), "window_size": 4},
        "timesfm": {"patch_length": 8, "horizon_length": 8, "context_length": 32},
        "zamba2": {"layers_block_type": ["mamba", "hybrid"], "mamba_expand": 2, "n_mamba_heads": 4},
    }
)
"""Fields of single families, by the name in the mapping of configurations; nested configurations have nested
mappings."""

INPUTS: tuple[tuple[str, ...], ...] = (
    ("input_ids", "pixel_values", "decoder_input_ids"),
    ("input_ids", "pixel_values"),
    ("input_ids", "input_features"),
    ("input_ids", "input_values"),
    ("input_ids", "decoder_input_ids"),
    ("pixel_values", "decoder_input_ids"),
    ("input_features", "decoder_input_ids"),
    ("input_values", "decoder_input_ids"),
    ("input_ids",),
    ("pixel_values",),
    ("pixel_values_videos",),
    ("input_features",),
    ("input_values",),
    ("past_values", "past_time_features", "past_observed_mask", "future_values", "future_time_features"),
    ("past_values",),
    ("hidden_states",),
    ("inputs_embeds",),
    ("inputs",),
    (),
)
"""Sets of inputs to try, in this order, among those that a model takes; required inputs are always there."""
