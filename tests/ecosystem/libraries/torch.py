"""Parts of torch itself: transformers, transforms of functions, mixtures of experts, optimizers."""

from __future__ import annotations

import torch
from torch import nn
from torch.func import functional_call, grad, jacrev, stack_module_state, vmap
from torch.nn import functional as F

from ecosystem.programs import Backend, Step, inference, program, training


@program
def transformer_encoder_inference(backend: Backend) -> Step:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    model = backend.compile(nn.TransformerEncoder(layer, 2).eval())
    return inference(model, [(torch.randn(2, 9, 32),), (torch.randn(2, 9, 32),)])


@program
def transformer_encoder_masked(backend: Backend) -> Step:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    model = backend.compile(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval())
    mask = torch.arange(9)[None] >= torch.tensor([[9], [5]])
    return inference(
        lambda x: model(x, src_key_padding_mask=mask), [(torch.randn(2, 9, 32),), (torch.randn(2, 9, 32),)]
    )


@program
def transformer_training(backend: Backend) -> Step:
    model = nn.Transformer(32, 4, 1, 1, 64, dropout=0.1, batch_first=True)
    call = backend.compile(model)
    batches = [(torch.randn(2, 7, 32), torch.randn(2, 5, 32)) for _ in range(2)]
    return training(lambda source, target: call(source, target).square().mean(), model, batches)


@program
def ensemble_by_vmap(backend: Backend) -> Step:
    models = [nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)) for _ in range(4)]
    parameters, buffers = stack_module_state(models)
    base = models[0]

    def one(
        parameters: dict[str, torch.Tensor], buffers: dict[str, torch.Tensor], x: torch.Tensor
    ) -> torch.Tensor:
        result: torch.Tensor = functional_call(base, (parameters, buffers), (x,))
        return result

    call = backend.compile(vmap(one, in_dims=(0, 0, None)))
    return inference(lambda x: call(parameters, buffers, x), [(torch.randn(5, 6),), (torch.randn(5, 6),)])


@program
def per_sample_gradients(backend: Backend) -> Step:
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))
    parameters = {name: value.detach() for name, value in model.named_parameters()}

    def loss(parameters: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(functional_call(model, parameters, (x[None],)), y[None])

    call = backend.compile(vmap(grad(loss), in_dims=(None, 0, 0)))
    return inference(
        lambda x, y: call(parameters, x, y),
        [(torch.randn(6, 1, 8, 8), torch.randint(3, (6,))) for _ in range(2)],
    )


@program
def jacobian(backend: Backend) -> Step:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    call = backend.compile(vmap(jacrev(model)))
    return inference(call, [(torch.randn(5, 4),), (torch.randn(5, 4),)])


class Experts(nn.Module):
    """Two of six experts for each token, chosen by `topk` and gathered by `index_add`."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(16, 6)
        self.experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.router(x).softmax(-1).topk(2, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        result = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            weight = (weights * (chosen == number)).sum(-1, keepdim=True)
            result = result + weight * expert(x)
        return result


@program
def mixture_of_experts(backend: Backend) -> Step:
    model = Experts()
    call = backend.compile(model)
    return training(
        lambda x: call(x).square().mean(), model, [(torch.randn(12, 16),), (torch.randn(12, 16),)]
    )


@program
def whole_step_with_optimizer(backend: Backend) -> Step:
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(1e-2))
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=5)
    loss = backend.compile(lambda x, y: F.cross_entropy(model(x), y))
    update = backend.compile(optimizer.step)
    batches = [(torch.randn(6, 8), torch.randint(2, (6,))) for _ in range(3)]

    def step(number: int) -> dict[str, torch.Tensor]:
        optimizer.zero_grad()
        value = loss(*batches[number % 3])
        value.backward()
        update()
        schedule.step()
        return {"loss": value, **{f"parameter {name}": value for name, value in model.named_parameters()}}

    return step


@program
def cycled_momentum(backend: Backend) -> Step:
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=64)
    update = backend.compile(optimizer.step)
    x = torch.randn(6, 8)

    def step(number: int) -> dict[str, torch.Tensor]:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        update()
        if schedule.last_epoch < 60:
            schedule.step()
        return {f"parameter {name}": value for name, value in model.named_parameters()}

    return step


@program
def in_place_sequential(backend: Backend) -> Step:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Upsample(scale_factor=2)
    )
    backend.compile_in_place(model)
    return training(lambda x: model(x).square().mean(), model, [(torch.randn(2, 3, 6, 6),)])


@program
def sizes_that_change(backend: Backend) -> Step:
    model = nn.LSTMCell(8, 16)
    head = nn.Linear(16, 4)

    def run(x: torch.Tensor) -> torch.Tensor:
        h = c = x.new_zeros(x.shape[0], 16)
        for number in range(4):
            h, c = model(x[:, number], (h, c))
        logits: torch.Tensor = head(h).log_softmax(-1)
        return logits

    call = backend.compile(run, dynamic=True)
    return training(
        lambda x: call(x)[:, 0].mean(),
        [*model.named_parameters(), *head.named_parameters("head")],
        [(torch.randn(n, 4, 8),) for n in (3, 7, 5)],
    )


@program
def mixed_precision(backend: Backend) -> Step:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.SiLU(), nn.Flatten(), nn.Linear(288, 10))
    call = backend.compile(model)

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return F.cross_entropy(call(x), y)

    return training(loss, model, [(torch.randn(4, 3, 8, 8), torch.randint(10, (4,))) for _ in range(2)])
