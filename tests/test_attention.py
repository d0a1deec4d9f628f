"""Attention written by hand: the patterns that run as the library's kernel, those that stay as written with the reason,
and values."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd.profiler import profile
from torch.nn import functional as F

import litz
from litz.explain.explanation import Explanation
from litz.explain.graphs import graph_report
from litz.loading import Compiled
from litz_scheduler.library import FuseAttention
from litz_scheduler.library.attention.generated_attention import GeneratedAttention

Program = Callable[..., Any]

KERNEL = "aten._scaled_dot_product_flash_attention_for_cpu.default"
INF = float("inf")
LOWEST = torch.finfo(torch.float32).min
B, H, S, D = 2, 4, 384, 16
"""A size at which the kernel pays."""


def numbers(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def heads(seed: int, count: int = H) -> torch.Tensor:
    """Return f32[B, count, S, D] whose heads are next to one another in memory, as in models."""
    return numbers(B, S, count, D, seed=seed).transpose(1, 2)


Q, K, V = heads(1), heads(2), heads(3)
Q3, K3, V3 = (x.reshape(B * H, S, D) for x in (Q, K, V))
ROWS, COLUMNS = torch.arange(S)[:, None], torch.arange(S)[None, :]
WINDOW = (COLUMNS <= ROWS) & (COLUMNS > ROWS - 100)
PADDING = (torch.arange(S) < torch.tensor([[S - 50], [S]]))[:, None, None, :]


@pytest.fixture(autouse=True)
def calls_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the kernel a call, so that its runs can be counted, and other attention matmuls."""
    monkeypatch.setattr(FuseAttention, "apply", lambda self, data, context: data)
    monkeypatch.setattr(GeneratedAttention, "candidate", lambda self, call, rewriting: None)


def compiled(function: Program, seen: list[Compiled], dynamic: bool | None = None) -> Program:
    """Compile ``function`` as one graph and append the result to ``seen``."""

    def backend(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        return litz.compile_fx(gm, inputs, observers=(seen.append,))

    torch._dynamo.reset()
    return torch.compile(function, backend=backend, fullgraph=True, dynamic=dynamic)


def explained(seen: list[Compiled]) -> Explanation:
    return Explanation(tuple(map(graph_report, seen)))


def kernels_run(function: Program, *args: Any) -> int:
    """Return the number of runs of the library's kernel in a call."""
    with profile(use_cpu=True) as seen:
        function(*args)
    return sum(
        event.name == KERNEL.replace("aten.", "aten::").removesuffix(".default")
        for event in seen.function_events
    )


def same(function: Program, *args: Any, runs: int) -> Explanation:
    """Assert equal values and strides in eager, and the number of runs of the kernel; return the explanation."""
    with torch.no_grad(), litz.config.patch(fallback="error", verify=True, cache=False):
        seen: list[Compiled] = []
        run = compiled(function, seen)
        got, want = run(*args), function(*args)
        torch.testing.assert_close(got, want, rtol=1e-5, atol=2e-6, equal_nan=True)
        for a, b in zip(*map(torch.utils._pytree.tree_leaves, (got, want)), strict=True):
            assert a.stride() == b.stride()
        assert kernels_run(run, *args) == runs
    return explained(seen)


# --- what is matched -------------------------------------------------------------------------------------


def softmax(scores: torch.Tensor) -> torch.Tensor:
    return torch.softmax(scores, -1)


def repeated(x: torch.Tensor, times: int) -> torch.Tensor:
    batch, count, length, depth = x.shape
    wide = x[:, :, None].expand(batch, count, times, length, depth)
    return wide.reshape(batch, count * times, length, depth)


def root(x: float) -> torch.Tensor:
    return torch.full([], x**0.5)


FORMS: dict[str, tuple[Program, tuple[torch.Tensor, ...]]] = {
    "scaled by division": (lambda q, k, v: softmax(q @ k.transpose(-2, -1) / math.sqrt(D)) @ v, (Q, K, V)),
    "scaled by a tensor": (lambda q, k, v: softmax(q @ k.mT / root(D)) @ v, (Q, K, V)),
    "not scaled": (lambda q, k, v: F.softmax(torch.matmul(q, k.mT), dim=3) @ v, (Q, K, V)),
    "queries scaled": (lambda q, k, v: softmax((q * 0.25) @ k.mT) @ v, (Q, K, V)),
    "both scaled": (lambda q, k, v: softmax((q * 0.5) @ (k / 2).mT) @ v, (Q, K, V)),
    "heads joined": (lambda q, k, v: (softmax(q @ k.mT * 0.25) @ v).transpose(1, 2).reshape(B, S, H * D), (Q, K, V)),
    "einsum": (
        lambda q, k, v: torch.einsum("bhij,bhjd->bhid", softmax(torch.einsum("bhid,bhjd->bhij", q, k) * 0.25), v),
        (Q, K, V),
    ),
    "einsum, heads inside": (
        lambda q, k, v: torch.einsum("bhij,bjhd->bihd", softmax(torch.einsum("bihd,bjhd->bhij", q, k) * 0.25), v),
        tuple(x.transpose(1, 2) for x in (Q, K, V)),
    ),
    "bmm": (lambda q, k, v: torch.bmm(softmax(torch.bmm(q, k.transpose(1, 2)) * 0.25), v), (Q3, K3, V3)),
    "baddbmm": (
        lambda q, k, v: torch.bmm(
            softmax(torch.baddbmm(torch.empty(B * H, S, S), q, k.mT, beta=0, alpha=0.25)), v
        ),
        (Q3, K3, V3),
    ),
    "baddbmm, added": (
        lambda q, k, v, bias: torch.bmm(softmax(torch.baddbmm(bias, q, k.mT, alpha=0.25)), v),
        (Q3, K3, V3, numbers(B * H, 1, S, seed=4)),
    ),
    "transposed keys": (lambda q, k, v: softmax(q @ k * 0.25) @ v, (Q, K.mT.contiguous(), V)),
    "heads share keys": (lambda q, k, v: softmax(q @ k.mT * 0.25) @ v, (Q, heads(5, 1), heads(6, 1))),
    "grouped queries": (
        lambda q, k, v: softmax(q @ repeated(k, 2).mT * 0.25) @ repeated(v, 2),
        (Q, heads(5, 2), heads(6, 2)),
    ),
    "grouped queries, interleaved": (
        lambda q, k, v: softmax(q @ k.repeat_interleave(2, 1).mT * 0.25) @ v.repeat_interleave(2, 1),
        (Q, heads(5, 2), heads(6, 2)),
    ),
    "dropout that is off": (
        lambda q, k, v: F.dropout(softmax(q @ k.mT * 0.25), 0.1, training=False) @ v,
        (Q, K, V),
    ),
    "other keys": (lambda q, k, v: softmax(q @ k.mT * 0.25) @ v, (Q, K[:, :, 1:], V[:, :, 1:])),
    "f64": (lambda q, k, v: softmax(q @ k.mT * 0.25) @ v, (Q.double(), K.double(), V.double())),
    "causal, triangle": (
        lambda q, k, v: softmax((q @ k.mT * 0.25).masked_fill(torch.ones(S, S, dtype=torch.bool).triu(1), -INF)) @ v,
        (Q, K, V),
    ),
    "causal, added": (
        lambda q, k, v: softmax(q @ k.mT * 0.25 + torch.full((S, S), -INF).triu(1)) @ v,
        (Q, K, V),
    ),
    "causal, ranges": (
        lambda q, k, v: softmax(
            torch.where(torch.arange(S)[None, :] <= torch.arange(S)[:, None], q @ k.mT * 0.25, LOWEST)
        ) @ v,
        (Q, K, V),
    ),
    "a mask that is added": (
        lambda q, k, v, m: softmax(q @ k.mT * 0.25 + m) @ v,
        (Q, K, V, numbers(B, 1, 1, S, seed=4)),
    ),
    "a bias per head": (lambda q, k, v, m: softmax(m + q @ k.mT) @ v, (Q, K, V, numbers(1, H, S, S, seed=4))),
    "two masks": (
        lambda q, k, v, m, n: softmax((q @ k.mT * 0.25).masked_fill(~m, LOWEST) + n) @ v,
        (Q, K, V, WINDOW, numbers(B, 1, 1, S, seed=4)),
    ),
    "infinities where a mask holds": (
        lambda q, k, v, m: softmax((q @ k.mT * 0.25).masked_fill(~m, -INF)) @ v,
        (Q, K, V, WINDOW),
    ),
    "the lowest number where a mask holds": (
        lambda q, k, v, m: softmax((q @ k.mT * 0.25).masked_fill(m == 0, LOWEST)) @ v,
        (Q, K, V, PADDING),
    ),
    "a low number where a mask holds": (
        lambda q, k, v, m: softmax(torch.where(m, q @ k.mT * 0.25, -1e4)) @ v,
        (Q, K, V, WINDOW & PADDING),
    ),
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.wide_vectors
@pytest.mark.parametrize("name", FORMS)
def test_a_form_whose_kernel_is_generated(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    function, args = FORMS[name]
    same(function, *args, runs=int(args[0].dtype == torch.float64))


@pytest.mark.sampled
@pytest.mark.parametrize("name", FORMS)
def test_a_form_that_runs_as_the_kernel(name: str) -> None:
    function, args = FORMS[name]
    report = same(function, *args, runs=1)
    assert KERNEL in [call.target for call in report.calls] and not report.near_misses


# --- what is left, and why -------------------------------------------------------------------------------


def also_scores(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
    scores = q @ k.mT * 0.25
    return softmax(scores) @ v, scores


def also_weights(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
    weights = softmax(q @ k.mT * 0.25)
    return weights @ v, weights


def narrow(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
    return softmax(q.bfloat16() @ k.bfloat16().mT) @ v.bfloat16()


def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
    return softmax(q @ k.mT * 0.25) @ v


REFUSED: dict[str, tuple[Program, tuple[Any, ...], str]] = {
    "scores are returned": (also_scores, (Q, K, V), "attention.read"),
    "weights are returned": (also_weights, (Q, K, V), "attention.read"),
    "narrow floats": (narrow, (Q, K, V), "attention.dtype"),
    "scores are capped": (
        lambda q, k, v: softmax(torch.tanh(q @ k.mT / 50) * 50) @ v, (Q, K, V), "attention.step"
    ),
    "weights are multiplied": (
        lambda q, k, v, m: (softmax(q @ k.mT) * m) @ v, (Q, K, V, numbers(S, seed=4)), "attention.step"
    ),
    "a softmax over queries": (
        lambda q, k, v: torch.softmax(q @ k.mT, -2) @ v, (Q, K, V), "attention.dimension"
    ),
    "values of another size": (plain, (Q, K, torch.cat((V, V), -1)), "attention.heads"),
    "a scale that is an input": (
        lambda q, k, v, s: softmax(q @ k.mT * s) @ v, (Q, K, V, torch.tensor(0.25)), "attention.scale"
    ),
    "a mask that is scaled": (
        lambda q, k, v, m: softmax((q @ k.mT + m) * 0.25) @ v, (Q, K, V, numbers(S, seed=4)), "attention.mask"
    ),
    "zeros where a mask holds": (
        lambda q, k, v, m: softmax((q @ k.mT).masked_fill(m, 0.0)) @ v, (Q, K, V, WINDOW), "attention.mask"
    ),
    "something unknown where a mask holds": (
        lambda q, k, v, m, x: softmax(torch.where(m, q @ k.mT, x)) @ v,
        (Q, K, V, WINDOW, torch.tensor(-1e9)),
        "attention.mask",
    ),
    "a mask that makes more scores": (
        lambda q, k, v, m: softmax(q @ k.mT + m) @ v, (Q[:1], K[:1], V, numbers(B, 1, S, S, seed=4)), "attention.mask"
    ),
    "few scores": (plain, (Q[:, :, :8], K[:, :, :8], V[:, :, :8]), "attention.small"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_form_that_stays_is_named(name: str) -> None:
    function, args, reason = REFUSED[name]
    seen: list[Compiled] = []
    with torch.no_grad(), litz.config.patch(fallback="error", cache=False):
        got, want = compiled(function, seen)(*args), function(*args)
    report = explained(seen)
    torch.testing.assert_close(got, want, rtol=1e-2 if function is narrow else 1e-5, atol=1e-5)
    assert KERNEL not in [call.target for call in report.calls]
    (missed,) = report.near_misses
    assert missed.reason.key == reason and "test_attention.py" in missed.note
    assert f"left as written: {missed.subject}: " in str(report)


def test_sizes_that_are_symbols_are_named() -> None:
    seen: list[Compiled] = []
    with torch.no_grad(), litz.config.patch(cache=False):
        got = compiled(plain, seen, dynamic=True)(Q, K, V)
    torch.testing.assert_close(got, plain(Q, K, V), rtol=1e-5, atol=2e-6)
    assert [missed.reason.key for missed in explained(seen).near_misses] == ["attention.symbols"]


def test_a_classifier_is_no_attention() -> None:
    report = litz.explain(
        lambda x, w: softmax(x @ w).sum(), numbers(2, 8, 8, seed=1), numbers(2, 8, 8, seed=2)
    )
    assert not report.near_misses


def test_it_can_be_turned_off() -> None:
    with torch.no_grad(), litz.config.patch(attention=False, cache=False):
        report = litz.explain(plain, Q, K, V)
    assert KERNEL not in [call.target for call in report.calls] and not report.near_misses


# --- values that a kernel may treat in its own way -----------------------------------------------------------


def changed(x: torch.Tensor, value: float) -> torch.Tensor:
    x = x.clone()
    x[0, 1, S - 3] = value
    return x


def causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
    return FORMS["causal, triangle"][0](q, k, v)


@pytest.mark.sampled
@pytest.mark.parametrize("function", [plain, causal])
@pytest.mark.parametrize(
    ("value", "position"), [(math.nan, 0), (1e25, 0), (INF, 1), (1e25, 1), (-INF, 2), (math.nan, 2)]
)
def test_numbers_that_are_not_finite_or_huge(function: Program, value: float, position: int) -> None:
    args = [Q, K, V]
    args[position] = changed(args[position], value)
    same(function, *args, runs=int(value == 1e25))


def added(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    return softmax(q @ k.mT * 0.25 + m) @ v


def lowered(m: torch.Tensor, value: float) -> torch.Tensor:
    return torch.zeros(m.shape).masked_fill(~m, value)


MASKS = {
    "a row without a score": (lowered(ROWS != 5, -INF), 0),
    "a row of the lowest numbers": (lowered(ROWS != 5, LOWEST), 1),
    "two lowest numbers": (lowered(ROWS != 5, LOWEST) + lowered(COLUMNS < 9, LOWEST), 1),
    "infinity": (lowered(ROWS != 5, INF), 0),
    "NaN": (lowered((ROWS != 5) | (COLUMNS != 7), math.nan), 0),
    "a block of keys without a score": (lowered(COLUMNS > 200, -INF), 1),
    "a huge bias": (torch.full((S, S), 1e32), 0),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks_that_are_added(name: str) -> None:
    mask, runs = MASKS[name]
    same(added, Q, K, V, mask, runs=runs)


@pytest.mark.parametrize(("value", "runs"), [(-INF, 0), (LOWEST, 1), (-1e20, 1), (-1e9, 0), (-1e4, 0)])
def test_rows_in_which_every_score_is_replaced(value: float, runs: int) -> None:
    same(
        lambda q, k, v, m: softmax((q @ k.mT * 0.25).masked_fill(m, value)) @ v, Q, K, V, ROWS == 5, runs=runs
    )


def test_scores_that_are_not_small_compared_with_the_mask_value() -> None:
    function = FORMS["a low number where a mask holds"][0]
    same(function, Q * 40, K * 40, V, WINDOW, runs=0)


def test_equal_layers_share_their_functions() -> None:
    def layers(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return plain(plain(plain(q, k, v), k, v), k, v)

    (graph,) = same(layers, Q, K, V, runs=3).graphs
    assert [call.target for call in graph.calls].count(KERNEL) == 1


def test_what_was_decided_is_kept_with_the_graph(tmp_path: Path) -> None:
    with torch.no_grad(), litz.config.patch(cache_dir=str(tmp_path / "cache")):
        first, second = (litz.explain(also_weights, Q, K, V) for _ in range(2))
    assert second.graphs[0].cached and first.near_misses == second.near_misses != ()


def test_the_option_is_part_of_the_key(tmp_path: Path) -> None:
    with torch.no_grad(), litz.config.patch(cache_dir=str(tmp_path / "cache")):
        litz.explain(plain, Q, K, V)
        with litz.config.patch(attention=False):
            report = litz.explain(plain, Q, K, V)
    assert not report.graphs[0].cached and KERNEL not in [call.target for call in report.calls]


# --- a model --------------------------------------------------------------------------------------------


class Block(nn.Module):
    """Attention as models write it: one matmul for queries, keys and values, a causal mask in a buffer, padding."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(H * D, 3 * H * D), nn.Linear(H * D, H * D)
        self.register_buffer("causal", torch.ones(S, S, dtype=torch.bool).tril())

    def forward(self, x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        q, k, v = self.inner(x).view(B, S, 3, H, D).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(D)
        scores = scores.masked_fill(~self.causal, LOWEST) + padding
        weights = F.dropout(F.softmax(scores, dim=-1), 0.1, self.training)
        result: torch.Tensor = self.outer((weights @ v).transpose(1, 2).reshape(B, S, H * D))
        return x + result


def test_a_model() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(Block() for _ in range(2))).eval()
    first, second = model

    def run(x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        return second(first(x, padding), padding)

    same(run, numbers(B, S, H * D, seed=7), lowered(PADDING, LOWEST), runs=2)
