"""Reductions, scans, softmax and norms against eager, forward and backward."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Any

import lowering_check
import pytest
import torch
import torch.nn.functional as F
from lowering_check import check, check_gradients
from torch._subclasses import FakeTensorMode
from torch.fx import Graph, GraphModule

from litz_lowering import lower


def values(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Numbers of both signs, all different among the floats."""
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) < 0.7
    if not dtype.is_floating_point:
        return torch.randint(-9, 10, shape, generator=generator).to(dtype)
    return (torch.randn(shape, generator=generator) * 2).to(dtype)


REDUCTIONS: dict[str, Any] = {
    "sum": lambda x: (x.sum(), x.sum(1), x.sum((0, 2), keepdim=True), x.sum(-1, dtype=torch.float64)),
    "mean": lambda x: (x.float().mean(), x.double().mean(1), x.float().mean((0, 2), keepdim=True)),
    "prod": lambda x: (x.prod(), x.prod(1), x.prod(0, keepdim=True)),
    "amax": lambda x: (x.amax(), x.amax(1), x.amax((0, 2), keepdim=True), x.max()),
    "amin": lambda x: (x.amin(), x.amin(-1), x.min()),
    "any": lambda x: (x.any(), x.any(1), (x > 5).any(0, keepdim=True), torch.any(x, dim=(0, 1))),
    "all": lambda x: (x.all(), x.all(1), (x > -5).all(-1)),
    "argmax": lambda x: (x.argmax(), x.argmax(1), x.argmax(-1, keepdim=True)),
    "argmin": lambda x: (x.argmin(), x.argmin(0), x.argmin(1, keepdim=True)),
    "max": lambda x: tuple(x.max(1)) + tuple(x.max(-1, keepdim=True)),
    "min": lambda x: tuple(x.min(0)) + tuple(x.min(2, keepdim=True)),
    "aminmax": lambda x: tuple(x.aminmax()) + tuple(x.aminmax(dim=1)),
    "count_nonzero": lambda x: (x.count_nonzero(), x.count_nonzero(1)),
    "trace": lambda x: (x[0].trace(), x[:, 0].t().trace()),
    "cumsum": lambda x: (x.cumsum(0), x.cumsum(-1), x.cumsum(1, dtype=torch.float64)),
    "cumprod": lambda x: (x.cumprod(1),),
}
STATISTICS: dict[str, Any] = {
    "var": lambda x: (x.var(), x.var(1), x.var((0, 2), keepdim=True), x.var(1, unbiased=False)),
    "var_correction": lambda x: (torch.var(x, 1, correction=2), torch.var(x, 0, correction=1.5)),
    "std": lambda x: (x.std(), x.std(1), x.std(-1, keepdim=True)),
    "var_mean": lambda x: torch.var_mean(x, 1) + torch.var_mean(x, (0, 2), keepdim=True),
    "std_mean": lambda x: torch.std_mean(x, 2),
    "logsumexp": lambda x: (x.logsumexp(1), x.logsumexp((0, 2), keepdim=True)),
    "norms": lambda x: tuple(torch.linalg.vector_norm(x, p, 1) for p in (0, 1, 2, 3, math.inf, -math.inf)),
    "norm": lambda x: (x.norm(), x.norm(dim=1), x.norm(p=1, dim=0, keepdim=True)),
    "nansum": lambda x: (x.log().nansum(1), x.log().nanmean(0)),
    "softmax": lambda x: (F.softmax(x, -1), F.softmax(x, 0), F.softmax(x, 1, dtype=torch.float64)),
    "log_softmax": lambda x: (F.log_softmax(x, -1), F.log_softmax(x, 1)),
    "layer_norm": lambda x: (F.layer_norm(x, (5,)), F.layer_norm(x, (4, 5), eps=1e-3)),
    "group_norm": lambda x: (F.group_norm(x, 2), F.group_norm(x, 4)),
    "instance_norm": lambda x: (F.instance_norm(x),),
    "batch_norm": lambda x: (F.batch_norm(x, None, None, training=True),),
    "rms_norm": lambda x: (F.rms_norm(x, (5,)), F.rms_norm(x, (4, 5), eps=1e-5)),
    "normalize": lambda x: (F.normalize(x, dim=-1),),
    "cosine": lambda x: (F.cosine_similarity(x, x + 1, dim=1),),
}


def all_of(functions: dict[str, Any], names: Iterable[str]) -> Any:
    """All the named functions of one set of arguments, as one trace."""
    return lambda *args: [functions[name](*args) for name in names]


NOT_OF_BOOLS = ("cumprod", "argmax", "argmin", "trace")
REDUCED = (torch.float32, torch.int64, torch.int32, torch.bool, torch.bfloat16)


@pytest.mark.parametrize("dtype", REDUCED, ids=str)
def test_reductions(dtype: torch.dtype) -> None:
    names = [name for name in REDUCTIONS if dtype != torch.bool or name not in NOT_OF_BOOLS]
    check(all_of(REDUCTIONS, names), values(3, 4, 5, dtype=dtype), rounding=0.02, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_statistics(dtype: torch.dtype) -> None:
    check(all_of(STATISTICS, STATISTICS), values(3, 4, 5, dtype=dtype), rounding=0.03, atol=1e-5)


@pytest.mark.parametrize("name", sorted(set(STATISTICS) - {"nansum", "norms", "group_norm", "instance_norm"}))
def test_gradients_of_statistics(name: str) -> None:
    check_gradients(STATISTICS[name], values(3, 4, 5), atol=2e-5)


@pytest.mark.parametrize("name", ["sum", "mean", "amax", "any", "all", "cumsum", "max", "argmax"])
def test_nan_and_infinity(name: str) -> None:
    x = values(3, 4, 5)
    x[0, 1, 2], x[1, 0, 0], x[2, 3, 4] = math.nan, math.inf, -math.inf
    check(REDUCTIONS[name], x)


def test_moments_of_rows_with_an_infinity() -> None:
    x = torch.randn(6, 5)
    x[0, 4], x[1, 4], x[2, 0], x[3, 1], x[4, 2], x[4, 4] = *(math.inf, -math.inf) * 2, math.inf, -math.inf
    check(lambda x: (torch.var(x, 1), torch.std(x, 1), torch.var_mean(x, 1)[0], torch.std(x.t(), 0)), x)
    # For other rows eager's mean is NaN, from infinity minus infinity.
    last = x[[0, 1, 4, 5]]
    check(lambda x: (torch.var_mean(x, 1), torch.std_mean(x.t(), 0), torch.var_mean(x[:1])), last)


def test_softmax_of_infinities() -> None:
    x = torch.tensor([[0.0, -math.inf, 2.0], [-math.inf, -math.inf, -math.inf]])
    check(lambda x: (F.softmax(x, -1), F.log_softmax(x, -1), x.logsumexp(-1)), x)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0,)])
def test_reductions_of_empty_tensors(shape: tuple[int, ...]) -> None:
    check(
        lambda x: (x.sum(), x.sum(0), x.mean(0), x.prod(-1), x.any(), x.all(-1), x.float().softmax(0)),
        values(*shape),
    )


def test_reductions_of_0d_tensors() -> None:
    x = values()
    check(
        lambda x: (x.sum(), x.mean(), x.sum(0), x.amax(), x.argmax(), *x.max(0), x.cumsum(0), x.softmax(0)), x
    )


NORMS: dict[str, Any] = {
    "layer_norm": lambda x, w, b: F.layer_norm(x, (6,), w, b),
    "rms_norm": lambda x, w, b: F.rms_norm(x, (6,), w),
}


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_affine_norms_and_their_gradients(name: str, dtype: torch.dtype) -> None:
    x, w, b = values(2, 5, 6, dtype=dtype), values(6, dtype=dtype, seed=1), values(6, dtype=dtype, seed=2)
    if name == "rms_norm":
        check_gradients(lambda x, w: NORMS[name](x, w, None), x, w, atol=2e-5, rounding=0.1)
    else:
        check_gradients(NORMS[name], x, w, b, atol=2e-5, rounding=0.1)


def test_the_sizes_of_the_fused_rms_norm_are_those_of_its_argument() -> None:
    graph = Graph()  # built by hand: torch passes symbolic sizes as their bits, which look like these numbers
    x = graph.placeholder("x")
    norm = graph.call_function(torch.ops.aten._fused_rms_norm.default, (x, [-(2**61), -(2**60)], None, 0.5))
    result = graph.call_function(operator.getitem, (norm, 0))
    graph.output((result,))
    with FakeTensorMode():
        x.meta["val"] = result.meta["val"] = torch.empty(2, 5, 6)
        norm.meta["val"] = (torch.empty(2, 5, 6), torch.empty(2, 1, 1))
    given = values(2, 5, 6)
    (found,) = lowering_check.run_graph(lower(GraphModule({}, graph)).graph, [given.numpy()])
    torch.testing.assert_close(torch.from_numpy(found), F.rms_norm(given, (5, 6), eps=0.5))


def test_group_norm_and_its_gradient() -> None:
    x, w, b = values(2, 6, 3, 4), values(6, seed=1), values(6, seed=2)
    check_gradients(lambda x, w, b: F.group_norm(x, 3, w, b), x, w, b, atol=2e-5)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape", [(4, 3, 2, 5), (6, 3)])
def test_batch_norm_and_its_gradient(training: bool, shape: tuple[int, ...]) -> None:
    x, w, b = values(*shape), values(3, seed=1), values(3, seed=2)
    mean, var = values(3, seed=3), values(3, seed=4).abs() + 0.5

    def moving(x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor) -> torch.Tensor:
        return F.batch_norm(x, mean, var, None, None, training, momentum=0.3)

    check(moving, x, mean.clone(), var.clone(), atol=1e-5)
    check(lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b, training), x, mean, var, w, b, atol=1e-5)
    if training:
        check_gradients(lambda x, w, b: F.batch_norm(x, None, None, w, b, True), x, w, b, atol=3e-5)
    else:
        check_gradients(
            lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b), x, w, b, mean, var, constants=2, atol=3e-5
        )


def test_bilinear() -> None:
    a, b, w, bias = torch.randn(4, 3), torch.randn(4, 5), torch.randn(2, 3, 5), torch.randn(2)
    check_gradients(F.bilinear, a, b, w, bias, atol=1e-5)


@pytest.mark.parametrize("p", [0, 1, 2, 3.5, float("inf")])
def test_distance_of_two_tensors(p: float) -> None:
    check(lambda x, y: torch.dist(x, y, p), torch.randn(4, 3), torch.randn(3))


def test_batch_norm_with_update() -> None:
    x, (w, b, mean) = torch.randn(4, 3, 5), torch.randn(3, 3)
    var = torch.rand(3) + 0.5

    def function(
        x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, mean: torch.Tensor, var: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        mean, var = mean.clone(), var.clone()
        out, *_ = torch.ops.aten._batch_norm_with_update(x, w, b, mean, var, 0.2, 1e-5)
        return out, mean, var

    check(function, x, w, b, mean, var, atol=1e-5)
    check_gradients(lambda *args: function(*args)[0], x, w, b, mean, var, constants=2, atol=3e-5)


def test_channels_last_batch_norm() -> None:
    x = values(2, 3, 4, 5).to(memory_format=torch.channels_last)
    check_gradients(lambda x: F.relu(F.batch_norm(x, None, None, training=True)), x, atol=3e-5)


LOSSES: dict[str, Any] = {
    "mse": lambda x, y: F.mse_loss(x, y),
    "l1": lambda x, y: F.l1_loss(x, y),
    "smooth_l1": lambda x, y: F.smooth_l1_loss(x, y),
    "huber": lambda x, y: F.huber_loss(x, y),
    "bce": lambda x, y: F.binary_cross_entropy(torch.sigmoid(x), torch.sigmoid(y)),
    "bce_logits": lambda x, y: F.binary_cross_entropy_with_logits(x, torch.sigmoid(y)),
    "kl": lambda x, y: F.kl_div(F.log_softmax(x, -1), F.softmax(y, -1), reduction="batchmean"),
    "soft_cross_entropy": lambda x, y: F.cross_entropy(x, F.softmax(y, -1)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name: str) -> None:
    check_gradients(LOSSES[name], values(6, 7), values(6, 7, seed=1))


def test_argmax_of_bools_raises() -> None:
    for function in (torch.argmax, torch.argmin):
        with pytest.raises(RuntimeError, match="bool"):
            check(function, values(3, 4, dtype=torch.bool), allowed=("aten.arg",))
