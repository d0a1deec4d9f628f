"""Rewrites that a compiler makes of well-known forms, where they must not apply."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from reports.table import Compile, attempt, counted, drawn, report


@report("pytorch#189518", "a cumsum of ones becomes an arange of another dtype")
def positions_from_a_mask(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        mask = torch.ones(x.shape[:2], dtype=torch.bool)
        return (
            (~mask).cumsum(1, dtype=torch.bfloat16),
            mask.cumsum(0, dtype=x.dtype),
            torch.full_like(x[..., 0], 0.5).cumsum(1),
        )

    return compiled(program)(drawn(2, 3, 4))


@report("pytorch#172065", "a tensordot whose result is added to itself does not compile")
def tensordot_and_sum(compiled: Compile) -> object:
    def program(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.tensordot(a, b, dims=([1], [0]))
        return (
            y + y,
            torch.addmm(y, a, b, beta=0),
            torch.addmm(y * float("nan"), a, b, beta=0),
            torch.baddbmm(y[None], a[None], b[None], alpha=2),
        )

    return compiled(program)(drawn(6, 7), drawn(7, 8, seed=1))


@report("pytorch#141317", "a convolution and batch norm in training are joined as in eval")
def convolution_and_batch_norm(compiled: Compile) -> object:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = nn.Sequential(nn.Conv2d(2, 4, 3, padding=2, dilation=2), nn.BatchNorm2d(4), nn.ReLU())
    call = compiled(model)
    x = drawn(2, 2, 6, 6)
    results = [call(x).detach()]
    model.eval()
    with torch.no_grad():
        results.append(call(x))
        model[1].running_mean.add_(1)
        results.append(call(x))
    return results, dict(model.named_buffers())


@report("", "a weight that is written between calls is the one of the first call")
def weights_written_between_calls(compiled: Compile) -> object:
    layer = nn.Linear(8, 8)
    with torch.no_grad():
        layer.weight.copy_(drawn(8, 8))
        layer.bias.zero_()
        call = compiled(layer)
        x = drawn(16, 8, seed=1)
        results = [call(x)]
        layer.weight.mul_(2)
        results.append(call(x))
        layer.weight.data = layer.weight.data.t().contiguous()
        results.append(call(x))
        layer.load_state_dict({"weight": torch.eye(8), "bias": torch.ones(8)})
        return [*results, call(x)]


@report("", "x / 1, x + 0, x * 1 and casts to the same dtype give back x itself")
def operations_without_effect(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x + 0,
            x * 1,
            x / 1,
            x.to(x.dtype),
            x.reshape(x.shape),
            x[:],
            x.contiguous(),
            x.expand_as(x),
            x - 0,
            x.clone(),
            x**1,
        )

    x = counted(4)
    results = compiled(program)(x)
    results[0].add_(100)
    return x, results


@report("", "a chain of conversions that loses digits is replaced by one that does not")
def chains_of_conversions(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x.half().float(),
            x.int().float(),
            x.bfloat16().double(),
            x.double().float(),
            x.to(torch.uint8).to(torch.int8),
            x.bool().float(),
        )

    return compiled(program)(torch.tensor([0.1, 1.7, 3.99, 100.3, 1000.6]))


@report("", "mixed multiplications and sums are contracted where their intermediate is a result")
def contracted_operations(compiled: Compile) -> object:
    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        multiplied = x * y
        return (
            multiplied - x * y,
            multiplied + 1 - multiplied,
            torch.addcmul(x, x, y, value=0.1),
            torch.lerp(x, y, 0.3),
            x.addcdiv(x, y + 9),
        )

    return compiled(program)(drawn(37), drawn(37, seed=1))


@report(
    "",
    "where with a constant, a mask that is a comparison, and branches that divide by zero",
    differs="AOTAutograd gives unused results gradients of zero, and 0 * inf is NaN (under `aot_eager` too)",
)
def guarded_divisions(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        safe = torch.where(x == 0, 1.0, x)
        return (
            torch.where(x != 0, 1 / x, 0.0),
            torch.where(x > 0, x.log(), x),
            1 / safe,
            torch.where(x.isnan(), 0, x).sum(),
        )

    x = counted(5, start=-2).requires_grad_()
    results = compiled(program)(x)
    results[2].sum().backward()
    return [each.detach() for each in results], x.grad


@report("", "padding: negative, reflected, circular, of constants and of integers")
def paddings(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            F.pad(x, (1, -1)), F.pad(x, (-1, -2, 2, 0), value=5.0), F.pad(x, (2, 1), mode="reflect"),
            F.pad(x, (3, 2), mode="circular"), F.pad(x, (0, 4), mode="replicate"),
            F.pad(x.int(), (1, 1), value=7), F.pad(x > 3, (1, 0), value=True), F.pad(x[..., :0], (2, 0)),
        )  # fmt: skip

    return compiled(program)(counted(1, 2, 4))


@report("", "a matmul of a matrix with itself, transposed, sliced and expanded")
def matmuls_of_views(compiled: Compile) -> object:
    def program(x: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x @ x.t(),
            x.t() @ x[:, :2],
            x[::2] @ v,
            v @ v,
            x.expand(2, 4, 3) @ v[:, None],
            x[:, :1] @ x[:1, :],
            x[:0] @ x.t(),
            v.outer(v),
        )

    return compiled(program)(counted(4, 3), counted(3)), attempt(
        compiled(lambda a: a @ a), counted(4, 3).int()
    )
