"""Modelled peak memory of a plan against the peak that torch's allocator reports for its graph."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

import litz
import litz.pipeline
from litz.loading import Compiled
from litz_ir.plan import Plan

pytestmark = pytest.mark.sampled  # it compiles whole programs

TOLERANCE = 0.05

Program = Callable[..., Any]


class Block(nn.Module):
    """A small transformer block."""

    def __init__(self, width: int = 128, heads: int = 4, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.mixed(self.before(x)).unflatten(-1, (3, self.heads, -1))
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.after(x))))


class Images(nn.Module):
    """A model of convolutions with batch norms, a pool and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 64, 3, stride=2, padding=1)
        self.norm, self.other = nn.BatchNorm2d(32), nn.BatchNorm2d(64)
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.first(x))), 2)
        x = F.silu(self.other(self.second(x)))
        return self.head(x.mean((2, 3)))


class Words(nn.Module):
    """A model of an embedding, a layer and a cross-entropy."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.layer = nn.Embedding(500, 64), nn.Linear(64, 500)

    def forward(self, words: Tensor) -> Tensor:
        return F.cross_entropy(self.layer(torch.tanh(self.table(words))).flatten(0, 1), words.flatten())


def both_ways(x: Tensor) -> Tensor:
    for _ in range(5):
        x = torch.softmax(torch.softmax(x, 0) + x, 1)
    return x


def adam(weights: list[Tensor], gradients: list[Tensor], first: list[Tensor], second: list[Tensor]) -> None:
    torch._foreach_lerp_(first, gradients, 0.1)
    torch._foreach_mul_(second, 0.99)
    torch._foreach_addcmul_(second, gradients, gradients, 0.01)
    steps = torch._foreach_sqrt(second)
    torch._foreach_add_(steps, 1e-8)
    torch._foreach_addcdiv_(weights, first, steps, -1e-3)


def ordered(x: Tensor) -> tuple[Tensor, Tensor]:
    values, places = torch.sort(x * 2, dim=1)
    return values.cumsum(1).softmax(0), x.gather(1, places).exp()


def branches(x: Tensor) -> Tensor:
    def deep(y: Tensor) -> Tensor:
        return (y @ y).softmax(0).softmax(1)

    return torch.cond(x.sum() < torch.inf, deep, lambda y: y.sin(), (x + 1,)) * 2


def chain(x: Tensor, w: Tensor) -> Tensor:
    for _ in range(6):
        x = torch.tanh((x @ w).softmax(-1)) + x
    return x


def several(x: Tensor) -> tuple[Tensor, ...]:
    y = torch.tanh(x)
    return y, y.t(), y[:100] * 2, y.sum(0), x.expand(2, *x.shape).cumsum(0)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) * 0.125, -1) @ v


def r(*shape: int) -> Tensor:
    return torch.randn(*shape)


def lists(count: int) -> tuple[list[Tensor], ...]:
    return tuple([r(64, 100 + k).abs() for k in range(count)] for _ in range(4))


INFERENCE: dict[str, tuple[Callable[[], Program], Callable[[], tuple[Any, ...]]]] = {
    "softmax both ways": (lambda: both_ways, lambda: (r(300, 400),)),
    "block": (Block, lambda: (r(4, 64, 128),)),
    "causal block": (lambda: Block(causal=True), lambda: (r(2, 128, 128),)),
    "images": (lambda: Images().eval(), lambda: (r(2, 3, 64, 64),)),
    "foreach": (lambda: adam, lambda: lists(6)),
    "ordered": (lambda: ordered, lambda: (r(200, 300),)),
    "branches": (lambda: branches, lambda: (r(200, 200),)),
    "chained matmuls": (lambda: chain, lambda: (r(300, 256), r(256, 256) / 16)),
    "several results": (lambda: several, lambda: (r(200, 300),)),
    "attention by hand": (lambda: attention, lambda: tuple(r(8, 128, 64) for _ in range(3))),
    "bf16": (lambda: both_ways, lambda: (r(300, 400).bfloat16(),)),
}
TRAINING: dict[str, tuple[Callable[[], Program], Callable[[], tuple[Any, ...]]]] = {
    "softmax both ways": (lambda: both_ways, lambda: (r(300, 400).requires_grad_(),)),
    "block": (Block, lambda: (r(4, 64, 128),)),
    "images": (Images, lambda: (r(2, 3, 64, 64),)),
    "words": (Words, lambda: (torch.randint(500, (8, 64)),)),
    "chained matmuls": (lambda: chain, lambda: (r(300, 256), (r(256, 256) / 16).requires_grad_())),
    "attention by hand": (lambda: attention, lambda: tuple(r(8, 128, 64).requires_grad_() for _ in range(3))),
}


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[tuple[Plan, int]]]:
    """Plans of the graphs that run, each with the peak of the run's allocations in bytes."""
    found: list[tuple[Plan, int]] = []
    load = litz.pipeline.load_tuned

    def watched(*args: Any, **kwargs: Any) -> Compiled:
        made = load(*args, **kwargs)

        def call(given: list[Any]) -> Sequence[Any]:
            arguments = tuple(given)  # the caller's memory stays the caller's while the graph runs
            with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
                results = made.call(given)
            del arguments
            profiled.export_chrome_trace(str(tmp_path / "trace.json"))
            assert made.artifact is not None
            found.append((made.artifact.plan, peak_of(tmp_path / "trace.json")))
            return results

        return replace(made, call=call)

    monkeypatch.setattr(litz.pipeline, "load_tuned", watched)
    with litz.config.patch(cache=False, fallback="error"):
        yield found
    torch._dynamo.reset()


def peak_of(trace: Path) -> int:
    """Return the greatest running sum of the allocations and frees of a trace, in bytes."""
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    changes = [(e["ts"], e["args"]["Bytes"]) for e in events if e.get("name") == "[memory]"]
    live = peak = 0
    for _, change in sorted(changes, key=lambda each: each[0]):
        live += change
        peak = max(peak, live)
    return peak


def compare(graphs: list[tuple[Plan, int]]) -> None:
    assert graphs
    for plan, measured in graphs:
        assert isinstance(plan.peak, int)
        assert abs(plan.peak - measured) <= TOLERANCE * measured, f"{plan.name}: {plan.peak}, was {measured}"


@pytest.mark.parametrize("name", INFERENCE)
def test_the_peak_of_inference(name: str, graphs: list[tuple[Plan, int]]) -> None:
    torch.manual_seed(0)
    make, inputs = INFERENCE[name]
    compiled, given = torch.compile(make(), backend="litz"), inputs()
    with torch.no_grad():
        compiled(*given)
        graphs.clear()  # what is kept from call to call is there now
        compiled(*given)
    compare(graphs)


@pytest.mark.parametrize("name", TRAINING)
def test_the_peak_of_training(name: str, graphs: list[tuple[Plan, int]]) -> None:
    torch.manual_seed(0)
    make, inputs = TRAINING[name]
    compiled = torch.compile(make(), backend="litz")
    compiled(*inputs()).square().mean().backward()
    assert [plan.name.split("_")[0] for plan, _ in graphs] == ["forward", "backward"]
    compare(graphs)


@pytest.mark.parametrize("name", ["softmax both ways", "chained matmuls"])
def test_the_peak_of_dynamic_sizes(name: str, graphs: list[tuple[Plan, int]]) -> None:
    make, inputs = INFERENCE[name]
    torch.compile(make(), backend="litz", dynamic=True)(*inputs())
    compare(graphs)
