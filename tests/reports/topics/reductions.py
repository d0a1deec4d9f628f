"""Sums, norms, scans and statistics."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from reports.table import Compile, attempt, counted, drawn, report


@report("pytorch#180221", "cumsum of a sum with a broadcast bias does not compile from 129 elements on")
def scan_of_a_broadcast_sum(compiled: Compile) -> object:
    def program(x: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x + b
        return (
            torch.cumsum(y, 1),
            torch.cumprod(y / 50, 1),
            torch.logcumsumexp(y, 1),
            torch.cummax(y, 1).values,
        )

    return compiled(program)(drawn(1, 129, 6), drawn(6, seed=1))


@report("pytorch#193265", "cumsum of a constant without dimensions does not compile")
def scan_of_a_scalar_constant(compiled: Compile) -> object:
    def program() -> tuple[torch.Tensor, ...]:
        return (
            torch.tensor(5.0).cumsum(0),
            torch.full((), True).cumsum(-1),
            torch.zeros(()).cumprod(0),
            torch.ones(0, 3).cumsum(0),
        )

    return compiled(program)()


@report("pytorch#181696", "batch norm in eval and group norm of constants are computed wrongly ahead of time")
def norms_of_constants(compiled: Compile) -> object:
    bn, gn = nn.BatchNorm1d(10).eval(), nn.GroupNorm(5, 10).eval()

    def program() -> torch.Tensor:
        return torch.log1p(gn(F.elu(bn(torch.ones(3, 10, 4)))).abs())

    return compiled(program)()


@report("pytorch#147287", "batch norm without running statistics in eval fails")
def batch_norm_without_statistics(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> torch.Tensor:
        return F.batch_norm(x, None, None, training=False)

    return attempt(compiled(program), drawn(4, 3)), attempt(
        compiled(lambda x: F.batch_norm(x, None, None, training=True)), drawn(4, 3)
    )


@report("pytorch#194504", "batch norm whose momentum is None keeps other statistics")
def cumulative_batch_norm(compiled: Compile) -> object:
    layer = nn.BatchNorm1d(3, momentum=None)
    call = compiled(layer)
    results = [call(drawn(4, 3, seed=k)).detach() for k in range(3)]
    return results, dict(layer.named_buffers())


@report("pytorch#186577", "layer norm fused with a reciprocal or a root after it")
def layer_norm_and_reciprocal(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = F.layer_norm(x, [16])
        return (
            torch.reciprocal(y.abs() + 0.5),
            torch.rsqrt(y * y + 0.25),
            1 / torch.sqrt(y.cummax(1).values + 9),
        )

    return compiled(program)(drawn(6, 16))


@report("pytorch#183601", "instance norm, pooling and normalize of what is constant but for rounding")
def normalize_of_a_mean(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = F.adaptive_avg_pool2d(x, 1)
        z = F.hardswish(F.normalize(y, dim=0) * x)
        return z, F.normalize(z, dim=0), F.instance_norm(x).mean((2, 3)).abs() < 1e-6

    return compiled(program)(drawn(4, 3, 5, 6))


@report("pytorch#173793", "layer norm of values near the largest float is NaN")
def layer_norm_of_large_values(compiled: Compile) -> object:
    return compiled(lambda x: F.layer_norm(x, [8]))(torch.full((2, 8), 8.5e15) * (1 + drawn(2, 8) * 1e-3))


@report("pytorch#190418", "log_softmax of a value without dimensions that is multiplied does not compile")
def log_softmax_of_a_scalar(compiled: Compile) -> object:
    def program() -> tuple[torch.Tensor, ...]:
        x = torch.zeros(1).argmax().float()
        return F.log_softmax(x * x, -1), F.softmax(x * 3, 0), (x * 2).logsumexp(0)

    return compiled(program)()


@report("pytorch#142839", "instance norm of an offset image loses its digits")
def norms_of_offset_values(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return F.instance_norm(x), x.var((2, 3)), torch.std(x, 3), torch.var_mean(x, (0, 2), correction=0)[0]

    return compiled(program)(drawn(2, 3, 16, 16).double() + 1e5)


@report("pytorch#117542", "layer norm of rows that are constant, or of one element")
def norms_of_constant_rows(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            F.layer_norm(x, [4]),
            F.layer_norm(x[:, :1], [1]),
            F.rms_norm(x * 0, [4]),
            F.group_norm(x, 2),
            x.std(1),
        )

    return compiled(program)(torch.full((3, 4), 7.0))


@report("", "variances of one element, and with a correction of the number of elements or more")
def variances_without_freedom(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x.var(0),
            x.var(1),
            x.std(0, correction=2),
            x.var(1, correction=5),
            x[:0].var(0),
            x.var(),
            torch.cov(x[:1]),
        )

    return compiled(program)(drawn(1, 5))


@report("", "reductions over no dimension, several dimensions, and dimensions of size one")
def reduced_dimensions(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x.sum(()), x.sum((0, -1)), x.mean((1,), keepdim=True), x.amax(()), x.norm(2, (0, 2)),
            x.norm(float("inf")), x.norm(0), x.prod(1), x.logsumexp((0, 1)), x.all(2),
            torch.linalg.vector_norm(x, 3, 1), x.any((0, 1)), x.sum(1, dtype=torch.double),
        )  # fmt: skip

    return compiled(program)(drawn(3, 1, 4))


@report("", "softmax of rows of -inf, of large values and of half precision")
def rows_of_minus_infinity(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x.softmax(-1), x.log_softmax(-1), x.logsumexp(-1), x.softmax(0), torch.logcumsumexp(x, 1),
            x.softmax(-1, dtype=torch.double), F.cross_entropy(x, torch.tensor([1, -100, 0])),
            F.cross_entropy(x, torch.tensor([-100] * 3)),
        )  # fmt: skip

    low = -float("inf")
    x = torch.tensor([[low, low, low], [1.0, low, 2.0], [1e4, 1e4, -1e4]])
    return [compiled(program)(x.to(t)) for t in (torch.float32, torch.bfloat16)]


@report("", "reductions with out=, and running extremes with ties")
def running_extremes(compiled: Compile) -> object:
    def program(x: torch.Tensor, out: torch.Tensor) -> tuple[object, ...]:
        torch.sum(x, 1, out=out)
        return (
            x.cummin(1),
            x.cummax(0),
            x.argmax(1),
            x.argmin(0, keepdim=True),
            x.max(1),
            x.min(0),
            x.diff(dim=1),
        )

    out = torch.empty(3)
    return compiled(program)(torch.tensor([[2, 2, 1, 1], [0, 5, 5, 0], [-1, -1, -1, -1]]).float(), out), out


@report("", "means and sums of half precision, of many elements and of large ones")
def sums_in_half_precision(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x.sum(),
            x.mean(),
            x.sum(0),
            (x * 0 + 1).sum(),
            (x.abs() + 60_000).mean(),
            x.prod(),
            x.cumsum(0)[-1],
        )

    return [compiled(program)((drawn(3000) / 4).to(t)) for t in (torch.float16, torch.bfloat16)]


@report("", "sums of counters that need 64 bits")
def sums_of_counters(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            (x * 1_000_003).sum(),
            (x.int() * 70_000).sum(),
            (x.to(torch.uint8) + 200).sum(),
            counted(5).long().prod() + x.sum(),
        )

    return compiled(program)(torch.arange(50_000))
