"""Language models by their model classes, generation, and the Trainer."""

from __future__ import annotations

import tempfile

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    WhisperConfig,
    WhisperForConditionalGeneration,
)

from ecosystem.programs import Backend, Step, inference, program, training


def _llama(**options: object) -> LlamaForCausalLM:
    sizes = {"vocab_size": 48, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
    return LlamaForCausalLM(
        LlamaConfig(**sizes, **heads, pad_token_id=0, eos_token_id=1, bos_token_id=2, **options)
    )


@program
def llama_training(backend: Backend) -> Step:
    model = _llama()
    call = backend.compile(model)
    tokens = [torch.randint(3, 48, (2, length)) for length in (9, 9, 13)]
    return training(lambda x: call(input_ids=x, labels=x).loss, model, [(x,) for x in tokens])


@program
def generate_with_dynamic_cache(backend: Backend) -> Step:
    model = _llama().eval()
    model.forward = backend.compile(model.forward)
    prompt = torch.randint(3, 48, (1, 5))
    return inference(lambda: model.generate(prompt, max_new_tokens=5, do_sample=False), [()])


@program
def generate_with_static_cache(backend: Backend) -> Step:
    model = _llama().eval()
    model.forward = backend.compile(model.forward)
    prompt = torch.randint(3, 48, (2, 5))
    options = {"cache_implementation": "static", "disable_compile": True}
    return inference(lambda: model.generate(prompt, max_new_tokens=5, do_sample=False, **options), [()])


@program
def mixture_of_experts_training(backend: Backend) -> Step:
    config = MixtralConfig(
        vocab_size=48,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=4,
        output_router_logits=True,
    )
    model = MixtralForCausalLM(config)
    call = backend.compile(model)
    return training(
        lambda x: call(input_ids=x, labels=x).loss, model, [(torch.randint(48, (2, 9)),) for _ in range(2)]
    )


@program
def classifier_with_padding(backend: Backend) -> Step:
    config = BertConfig(
        vocab_size=48, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48
    )
    model = BertForSequenceClassification(config)
    call = backend.compile(model)
    mask = (torch.arange(10)[None] < torch.tensor([[10], [6]])).long()
    batches = [(torch.randint(48, (2, 10)), torch.randint(2, (2,))) for _ in range(2)]
    return training(lambda x, y: call(input_ids=x, attention_mask=mask, labels=y).loss, model, batches)


@program
def encoder_and_decoder_training(backend: Backend) -> Step:
    config = T5Config(
        vocab_size=48, d_model=32, d_kv=8, d_ff=48, num_layers=1, num_heads=4, decoder_start_token_id=0
    )
    model = T5ForConditionalGeneration(config)
    call = backend.compile(model)
    batches = [(torch.randint(48, (2, 8)), torch.randint(48, (2, 6))) for _ in range(2)]
    return training(lambda x, y: call(input_ids=x, labels=y).loss, model, batches)


@program
def speech_inference(backend: Backend) -> Step:
    config = WhisperConfig(
        vocab_size=48,
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        num_mel_bins=16,
        max_source_positions=20,
        max_target_positions=20,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    call = backend.compile(WhisperForConditionalGeneration(config).eval())
    batches = [(torch.randn(1, 16, 40), torch.randint(48, (1, 5))) for _ in range(2)]
    return inference(
        lambda x, y: call(input_features=x, decoder_input_ids=y, use_cache=False).logits, batches
    )


class _Losses(TrainerCallback):
    def __init__(self) -> None:
        self.losses: list[float] = []

    def on_log(
        self, args: object, state: object, control: object, logs: dict[str, float], **rest: object
    ) -> None:
        if "loss" in logs:
            self.losses.append(logs["loss"])


@program(steps=1)
def trainer(backend: Backend) -> Step:
    config = GPT2Config(
        vocab_size=48, n_positions=16, n_embd=32, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=1
    )
    model = GPT2LMHeadModel(config)
    backend.compile_in_place(model)
    tokens = [torch.randint(48, (12,)) for _ in range(16)]
    data = [{"input_ids": x, "labels": x} for x in tokens]

    def step(number: int) -> dict[str, object]:
        losses = _Losses()
        with tempfile.TemporaryDirectory() as folder:
            arguments = TrainingArguments(
                output_dir=folder,
                max_steps=2,
                logging_steps=1,
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                use_cpu=True,
            )
            Trainer(model, arguments, train_dataset=data, callbacks=[losses]).train()
        parameters = {f"parameter {name}": value for name, value in model.named_parameters()}
        return {**parameters, "loss": torch.tensor(losses.losses, dtype=torch.get_default_dtype())}

    return step
