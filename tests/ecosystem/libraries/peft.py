"""Adapters of language models."""

from __future__ import annotations

import torch
from peft import IA3Config, LoraConfig, PeftConfig, PrefixTuningConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel

from ecosystem.programs import Backend, Step, program, settled, training


def _training(backend: Backend, adapter: PeftConfig) -> Step:
    config = GPT2Config(vocab_size=48, n_positions=32, n_embd=32, n_layer=2, n_head=2, use_cache=False)
    model = settled(get_peft_model(GPT2LMHeadModel(config), adapter)).eval()
    call = backend.compile(model)
    tokens = [(torch.randint(48, (2, 9)),) for _ in range(2)]
    trained = [(name, value) for name, value in model.named_parameters() if value.requires_grad]
    return training(lambda x: call(input_ids=x, labels=x).loss, trained, tokens)


@program
def lora(backend: Backend) -> Step:
    return _training(
        backend, LoraConfig(r=4, target_modules=["c_attn"], task_type="CAUSAL_LM", fan_in_fan_out=True)
    )


@program
def dora(backend: Backend) -> Step:
    adapter = LoraConfig(
        r=4, target_modules=["c_attn"], task_type="CAUSAL_LM", fan_in_fan_out=True, use_dora=True
    )
    return _training(backend, adapter)


@program
def ia3(backend: Backend) -> Step:
    adapter = IA3Config(
        target_modules=["c_attn", "c_fc"],
        feedforward_modules=["c_fc"],
        task_type="CAUSAL_LM",
        fan_in_fan_out=True,
    )
    return _training(backend, adapter)


@program
def prefix_tuning(backend: Backend) -> Step:
    return _training(backend, PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4))
