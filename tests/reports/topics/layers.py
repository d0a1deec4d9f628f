"""Layers: pooling, convolutions, attention, recurrent ones, losses, optimizers."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from reports.table import Compile, attempt, counted, drawn, report


@report("pytorch#94775", "max_pool2d with ceil_mode has a window outside the image")
def max_pool_with_ceil_mode(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            *F.max_pool2d(x, 3, 2, 1, ceil_mode=True, return_indices=True),
            F.max_pool2d(x, 2, 3, ceil_mode=True), F.max_pool2d(x, 2, 1, 1, dilation=2),
            F.max_pool1d(x[0], 3, 2, 1, ceil_mode=True),
        )  # fmt: skip

    return compiled(program)(drawn(1, 2, 6, 7)), compiled(program)(-counted(1, 2, 5, 8))


@report("pytorch#100987", "avg_pool2d with ceil_mode divides border windows by the size of a whole one")
def average_pool_with_ceil_mode(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), F.avg_pool2d(x, 3, 2, 1, True, False),
            F.avg_pool2d(x, 2, 2, 0, True), F.avg_pool2d(x, 3, 2, 1, divisor_override=5),
            F.avg_pool1d(x[0], 4, 3, 2, True), F.lp_pool2d(x.abs(), 2, 2),
        )  # fmt: skip

    return compiled(program)(drawn(1, 2, 7, 6))


@report("", "adaptive pooling to sizes that do not divide, and unpooling of it")
def adaptive_pooling(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        top, where = F.adaptive_max_pool2d(x, (2, 3), return_indices=True)
        low, place = F.max_pool2d(x, 2, return_indices=True)
        return (
            F.adaptive_avg_pool2d(x, (3, 4)),
            top,
            where,
            F.max_unpool2d(low, place, 2),
            F.adaptive_avg_pool1d(x[0], 5),
        )

    return compiled(program)(drawn(1, 2, 4, 6))


@report("pytorch#188217", "fractional max pooling before other layers does not compile")
def fractional_pooling(compiled: Compile) -> object:
    samples = torch.tensor([[[0.3, 0.6], [0.1, 0.9], [0.5, 0.5]]], dtype=torch.double)

    def program(x: torch.Tensor) -> torch.Tensor:
        y = F.fractional_max_pool2d(x, 2, output_size=(3, 3), _random_samples=samples)
        return F.hardsigmoid(F.logsigmoid(F.local_response_norm(y, 2, alpha=0.03)))

    return compiled(program)(drawn(1, 3, 8, 8).double())


@report("pytorch#158930", "a grouped convolution of a transposed sequence fails")
def convolution_of_a_transposed_sequence(compiled: Compile) -> object:
    layer = nn.Conv1d(16, 16, 3, groups=16, padding=2)
    with torch.no_grad():
        return compiled(lambda x: layer(x.transpose(1, 2))[..., :1])(drawn(4, 1, 16))


@report("pytorch#184026", "a transposed convolution with output padding has other strides than it says")
def transposed_convolutions(compiled: Compile) -> object:
    def program(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1),
            F.conv_transpose2d(x, w[:, :1], groups=4),
            F.conv_transpose1d(x[..., 0], w[..., 0], dilation=2),
            F.conv_transpose2d(x, w, stride=(1, 3)) + 1,
        )  # fmt: skip

    x, w = drawn(2, 4, 5, 4), drawn(4, 2, 3, 3, seed=1)
    return compiled(program)(x, w), compiled(program)(x.contiguous(memory_format=torch.channels_last), w)


@report("pytorch#120873", "a convolution of one channel under dynamic sizes has channels-last strides")
def strides_of_a_convolution(compiled: Compile) -> object:
    layer = nn.Conv2d(1, 4, 3)
    call = compiled(layer, dynamic=True)
    with torch.no_grad():
        return [call(drawn(n, 1, 6, 7)) for n in (2, 3)]


@report("", "convolutions with even kernels and padding same, dilation, groups, one dimension and three")
def kinds_of_convolutions(compiled: Compile) -> object:
    def program(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            F.conv2d(x, w, padding="same"), F.conv2d(x, w[:, :2], groups=2, dilation=2, padding=2),
            F.conv1d(x[..., 0], w[..., 0]), F.conv2d(x[:0], w, padding=1),
            F.conv3d(x.unsqueeze(2), w.unsqueeze(2)), F.conv2d(x, w, stride=(2, 1)).relu(),
        )  # fmt: skip

    return compiled(program)(drawn(2, 4, 6, 5), drawn(6, 4, 2, 2, seed=1))


@report("pytorch#100318", "attention with a mask that hides everything is NaN where it should not be")
def attention_masks(compiled: Compile) -> object:
    def program(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        scores = q @ k.transpose(-1, -2) / 2
        hand = torch.softmax(scores.masked_fill(~m, -1e9), -1) @ v
        return (
            hand,
            F.scaled_dot_product_attention(q, k, v, m),
            F.scaled_dot_product_attention(q, k, v, is_causal=True),
        )

    mask = torch.ones(4, 4, dtype=torch.bool).tril()
    mask[2] = False
    with torch.no_grad():
        return compiled(program)(*(drawn(1, 2, 4, 8, seed=s) for s in range(3)), mask)


@report("pytorch#191203", "attention whose scale is a tensor does not compile")
def attention_with_a_tensor_scale(compiled: Compile) -> object:
    def program(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor, s: torch.Tensor
    ) -> torch.Tensor:
        return F.softmax(q @ k.transpose(-2, -1) / s + m, -1) @ v

    mask = torch.triu(torch.full((8, 8), -1e9), 1)
    return compiled(program)(*(drawn(1, 2, 8, 8, seed=s) for s in range(3)), mask, torch.tensor(0.5))


@report("pytorch#100315", "an integer position bias in attention raises")
def attention_with_an_integer_bias(compiled: Compile) -> object:
    def program(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.softmax(q @ k.transpose(-2, -1) / q.size(-1) ** 0.5 + bias, -1) @ v

    with torch.no_grad():
        return compiled(program)(
            *(drawn(2, 2, 6, 4, seed=s) for s in range(3)), torch.arange(6).view(1, 1, 6)
        )


@report("pytorch#148545", "attention of other sizes in a second call is NaN")
def attention_of_other_sizes(compiled: Compile) -> object:
    call = compiled(F.scaled_dot_product_attention)
    sizes = ((2, 9, 2, 8), (1, 15, 3, 16), (1, 1, 2, 8))
    return [call(*(drawn(*size, seed=s) for s in range(3))) for size in sizes]


@report("pytorch#158007", "recurrent layers cannot be compiled")
def recurrent_layers(compiled: Compile) -> object:
    layers = [nn.LSTM(3, 4, batch_first=True), nn.GRU(3, 4, bidirectional=True), nn.RNN(3, 4, 2)]
    with torch.random.fork_rng():
        torch.manual_seed(1)
        for layer in layers:
            for p in layer.parameters():
                nn.init.normal_(p)
    x: Any = drawn(2, 5, 3).requires_grad_()
    results = [compiled(lambda t, f=f: f(t)[0].tanh() * 2)(x) for f in layers]
    sum((each.sum() for each in results), torch.zeros(())).backward()
    return [each.detach() for each in results], x.grad


@report("pytorch#193988", "an embedding of scaled weights, and the mean of its rows")
def embedding_of_scaled_weights(compiled: Compile) -> object:
    def program(i: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        x = F.embedding(i, weight * scale).float()
        return x * x.mean(-1, keepdim=True)

    return compiled(program)(
        torch.tensor([0, 3, 0]), counted(4, 33, dtype=torch.bfloat16), drawn(4, 1, dtype=torch.bfloat16)
    )


@report("pytorch#55549", "bags of embeddings: empty ones, weights of samples, the last offset")
def bags_of_embeddings(compiled: Compile) -> object:
    def program(i: torch.Tensor, w: torch.Tensor, s: torch.Tensor) -> tuple[torch.Tensor, ...]:
        o = torch.tensor([0, 2, 2, 5])
        return (
            F.embedding_bag(i, w, o), F.embedding_bag(i, w, o, mode="sum", per_sample_weights=s),
            F.embedding_bag(i, w, o, mode="max"),
            F.embedding_bag(i, w, torch.tensor([0, 3, 6]), mode="sum", include_last_offset=True),
            F.embedding_bag(i.view(2, 3), w),
        )  # fmt: skip

    return compiled(program)(torch.tensor([1, 2, 4, 5, 4, 3]), counted(6, 3), drawn(6))


@report("", "losses: ctc, weighted and smoothed cross-entropy, huber, kl_div, poisson and triplet")
def losses(compiled: Compile) -> object:
    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        logs = x.log_softmax(-1)
        return (
            F.ctc_loss(logs.unsqueeze(1), torch.tensor([[1, 2]]), torch.tensor([5]), torch.tensor([2])),
            F.cross_entropy(x, y, label_smoothing=0.1, ignore_index=2),
            F.cross_entropy(x, y, weight=torch.arange(1.0, 5.0)),
            F.kl_div(logs, x.softmax(-1), reduction="batchmean"),
            F.poisson_nll_loss(x, x.abs(), full=True), F.huber_loss(x, x * 2, delta=0.5),
            F.smooth_l1_loss(x, x + 2, beta=0.0), F.multi_margin_loss(x, y),
            F.triplet_margin_loss(x, x + 1, x - 1), F.gaussian_nll_loss(x, x * 0, x.abs()),
            F.soft_margin_loss(x, x.sign()), F.cosine_embedding_loss(x, x * -1, torch.ones(5)),
        )  # fmt: skip

    return compiled(program)(drawn(5, 4), torch.tensor([0, 2, 1, 3, 2]))


@report(
    "pytorch#185894", "resized images differ by a rounding that a cast to bytes makes a difference of one"
)
def resized_images(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            F.interpolate(x, scale_factor=2, mode="bilinear"),
            F.interpolate(x, (3, 9), mode="bicubic", align_corners=True),
            F.interpolate(x, (5, 5), mode="nearest"), F.interpolate(x, (2, 3), mode="area"),
            F.interpolate(x, (7, 3), mode="nearest-exact"),
            F.grid_sample(x, torch.linspace(-1.2, 1.2, 24).view(1, 3, 4, 2), align_corners=False),
            F.pixel_unshuffle(x[..., :4], 2),
        )  # fmt: skip

    return compiled(program)(drawn(1, 2, 4, 6))


@report("pytorch#197094", "an optimizer with foreach does not run on complex parameters")
def optimizer_of_complex_parameters(compiled: Compile) -> object:
    p = nn.Parameter(torch.complex(drawn(3, 2), drawn(3, 2, seed=1)))
    optimizer = torch.optim.SGD([p], lr=0.1, momentum=0.9, foreach=True)
    step = compiled(optimizer.step)
    for _ in range(2):
        p.grad = torch.ones_like(p)
        step()
    return p.detach()


@report("pytorch#130467", "an optimizer whose learning rate a scheduler changes keeps the first rate")
def scheduled_optimizer(compiled: Compile) -> object:
    results = []
    for kind in (torch.optim.AdamW, torch.optim.RMSprop):
        p = nn.Parameter(counted(4))
        optimizer = kind([p], lr=torch.tensor(0.1))
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        step = compiled(optimizer.step)
        for k in range(3):
            p.grad = torch.full_like(p, k + 1.0)
            step()
            schedule.step()
        results.append(p.detach())
    return results


@report("", "fake quantisation, and rounding of quantised values that lie halfway")
def quantised_values(compiled: Compile) -> object:
    zero = torch.tensor([0, 2], dtype=torch.int32)

    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 255),
            (x / 0.5).round().clamp(-8, 7).to(torch.int8),
            torch.fake_quantize_per_channel_affine(x, torch.tensor([0.1, 0.25]), zero, 0, -128, 127),
            x.round(decimals=1),
        )  # fmt: skip

    return compiled(program)(torch.tensor([[0.25, 0.75, -1.25, 9.95], [100.0, -100.0, 0.05, 0.15]]))


@report("", "linear algebra of singular, empty and batched matrices")
def linear_algebra(compiled: Compile) -> object:
    def program(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            torch.linalg.solve(a, b), torch.linalg.det(a), torch.linalg.cholesky(a @ a.mT + torch.eye(3)),
            torch.linalg.inv(a), a @ b[..., :0], torch.linalg.matrix_norm(a),
            torch.linalg.lstsq(a, b).solution, torch.linalg.eigvalsh(a + a.mT),
            torch.einsum("bij,bjk->ik", a, b), torch.linalg.matrix_power(a, 3), torch.kron(a[0], b[0]),
            torch.linalg.vector_norm(a, dim=(1, 2)), torch.trace(a[0]), a.diagonal(0, 1, 2),
        )  # fmt: skip

    a = drawn(2, 3, 3) + 3 * torch.eye(3)
    return compiled(program)(a, drawn(2, 3, 2, seed=1)), attempt(
        compiled(torch.linalg.inv), torch.zeros(2, 2)
    )
